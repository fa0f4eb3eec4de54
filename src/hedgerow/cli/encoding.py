"""The command about pretrained networks: encoders."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from hedgerow import jobs
from hedgerow.cli.common import Result
from hedgerow.errors import ConfigError
from hedgerow.files import megabytes


def encoders(
    action: Annotated[
        Literal["add"] | None, typer.Argument(metavar="add", help="Store the weights of an encoder on this machine.")
    ] = None,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of the encoder: mobilesam or NAME.onnx.")
    ] = None,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", readable=False, help="The weights as published, or the ONNX file.")
    ] = None,
) -> Result:
    """List the pretrained networks for --features encoder:NAME, or add the weights of one.

    Example: hedgerow encoders add mobilesam mobile_sam.pt
    """
    if action is None:
        found = jobs.encoders()
        for one in found:
            print(f"{one.name}: {one.title}; {megabytes(one.n_bytes)}, {one.licence}, sha256 {one.sha256}")
            print(f"  {'here: ' + str(one.place) if one.place is not None else 'not here: ' + one.source}")
            print(f"  layers: {', '.join(one.layers)}")
        print("timm:NAME: a network of timm, if timm is installed and the weights are on this machine")
        print("PATH.onnx: your own network, with --layers NAME,NAME")
        return {"encoders": [one.described() for one in found]}
    if name is None or file is None:
        raise ConfigError("give a name and a file: hedgerow encoders add mobilesam mobile_sam.pt")
    place = jobs.add_encoder(name, file)
    print(f"{name} is stored in {place}; use it with --features encoder:{name}")
    return {"name": name, "file": str(place)}
