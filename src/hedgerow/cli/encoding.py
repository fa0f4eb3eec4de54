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
        Literal["add"] | None, typer.Argument(metavar="[add", help="add: keep the weights in a file for later.")
    ] = None,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="add: which encoder, mobilesam or NAME.onnx.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE]", readable=False, help="add: its published file of weights, or the ONNX file."),
    ] = None,
) -> Result:
    """List the pretrained networks that --features encoder:NAME can read, or add the weights of one.

    Example: hedgerow encoders add mobilesam mobile_sam.pt
    """
    if action is None:
        found = jobs.encoders()
        for one in found:
            print(f"{one.name}: {one.title}; {megabytes(one.n_bytes)}, {one.licence}, sha256 {one.sha256}")
            print(f"  {'here: ' + str(one.place) if one.place is not None else 'not here: ' + one.source}")
            print(f"  layers: {', '.join(one.layers)}")
        print("timm:NAME: the networks of timm, where it is installed and their weights are on this machine")
        print("PATH.onnx: anyone's network, with --layers NAME,NAME")
        return {"encoders": [one.described() for one in found]}
    if name is None or file is None:
        raise ConfigError("give a name and a file: hedgerow encoders add mobilesam mobile_sam.pt")
    place = jobs.add_encoder(name, file)
    print(f"{name} is kept in {place}; use it with --features encoder:{name}")
    return {"name": name, "file": str(place)}
