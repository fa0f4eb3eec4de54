"""`hedgerow experiment`: the paper's experiments, from the command line."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hedgerow import extras
from hedgerow.cli.parts import megabytes


class Experiment(StrEnum):
    zebrafish = "zebrafish"
    kinect = "kinect"
    vnc = "vnc"


class Size(StrEnum):
    small = "small"
    full = "full"


def experiment(
    name: Annotated[Experiment, typer.Argument(help="Which of the paper's protocols.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the results; taken up if it is there.")],
    data: Annotated[
        str | None,
        typer.Option(help="somites, bodies, or a folder with images/, labels/, train.txt and test.txt."),
    ] = None,
    scale: Annotated[
        Size,
        typer.Option(help="small: minutes a part; full: the paper's size (vnc: half resolution), hours."),
    ] = Size.small,
    seed: Annotated[list[int] | None, typer.Option("--seed", help="May be repeated; 0 unless told.")] = None,
    part: Annotated[list[str] | None, typer.Option("--part", help="Only this part; may be repeated.")] = None,
    device: Annotated[str, typer.Option(help="Where networks are trained: cpu or cuda.")] = "cpu",
) -> None:
    """Run an experiment of the paper: tables, figures, results.json and report.html in one folder.

    Stopped before its end, it goes on where it was when the same command is given again.

    Example: hedgerow experiment zebrafish -o zebrafish/
    """
    for package in ("torch", "jinja2", "matplotlib"):
        extras.require(package, "an experiment")
    from hedgerow.experiments.runner import run_experiment

    run_experiment(
        name.value,
        output,
        data=data,
        scale=scale.value,
        seeds=tuple(dict.fromkeys(seed or (0,))),
        parts=part or None,
        device=device,
    )
    print((output / "tables.md").read_text(encoding="utf-8"))
    for path in (output / "results.json", output / "report.html"):
        if path.exists():
            print(f"{path}: {megabytes(path.stat().st_size)}")
