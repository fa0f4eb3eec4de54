"""The command that takes a model elsewhere: export."""

from __future__ import annotations

import shlex
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hedgerow.cli.parts import Model, check_writable, megabytes
from hedgerow.errors import ConfigError


class Target(StrEnum):
    c = "c"
    onnx = "onnx"


def export(
    model: Model,
    to: Annotated[Target, typer.Option(help="What to write: C99 source for forests, or ONNX.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write, e.g. model.c; beside the model unless told.")
    ] = None,
    no_filters: Annotated[
        bool, typer.Option("--no-filters", help="Leave the filter bank out; the caller gives the features.")
    ] = False,
    name: Annotated[str | None, typer.Option(help="C: what names begin with; hedgerow_model unless told.")] = None,
) -> None:
    """Write a model as plain C for small devices, or as ONNX; see docs/export.md.

    Example: hedgerow export model.hedge -o model.c --to c
    """
    from hedgerow.io import model_file

    if to is not Target.c and name is not None:
        raise ConfigError(f"--name is for names in C, and --to is {to.value}; leave it out.")
    target = model.with_suffix(f".{to.value}") if output is None else output
    loaded = model_file.load(model)
    check_writable(target, [], model)
    if to is Target.onnx:
        from hedgerow.export.onnx_model import export_onnx

        export_onnx(loaded, target, filters=not no_filters)
        print(f"{target}: {megabytes(target.stat().st_size)}")
        return
    from hedgerow.export.c import COMPILE, export_c

    names = {} if name is None else {"name": name}
    for written in export_c(loaded, target, **names, filters=not no_filters):
        print(f"{written}: {megabytes(written.stat().st_size)}")
    print(f"compile with: {COMPILE} -c {shlex.quote(str(target))}")
