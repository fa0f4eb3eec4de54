"""`python -m experiments`: the paper's experiments, from the command line."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from experiments.protocols import PAPER
from hedgerow import extras
from hedgerow.cli.app import run_program
from hedgerow.cli.common import Result, common
from hedgerow.cli.options import Overwrite, output_option
from hedgerow.cli.usage import Command
from hedgerow.config import RefineConfig
from hedgerow.errors import InputError
from hedgerow.memory import megabytes


def experiment(
    name: Annotated[
        Literal[
            "zebrafish",
            "siblings",
            "kinect",
            "vnc",
            "table1",
            "figure7",
            "figure8",
            "figure9",
            "random-starts",
            "fcn",
            "alternating",
            "mappings",
            "penalties",
            "readings",
            "cost",
        ],
        typer.Argument(
            metavar="NAME",
            help="A protocol: zebrafish, siblings, kinect or vnc. Or what the paper shows (table1, figure7, figure8, "
            "figure9) or says (random-starts, fcn, alternating, mappings, penalties, cost, readings with --develop), "
            "whose protocols get a folder each.",
        ),
    ],
    output: Annotated[Path, output_option("Folder for the results; finished parts are skipped.")],
    data: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="somites, bodies, or a folder with images/, labels/, train.txt and test.txt."
        ),
    ] = None,
    scale: Annotated[
        Literal["small", "medium", "full"],
        typer.Option(
            help="small: minutes per part; medium: the default settings; full: the paper's size, which takes hours."
        ),
    ] = "small",
    seed: Annotated[
        list[int] | None, typer.Option("--seed", metavar="N", help="Random seed, repeatable; by default 0.")
    ] = None,
    part: Annotated[
        list[str] | None, typer.Option("--part", metavar="PART", help="Run only this part; repeatable.")
    ] = None,
    device: Annotated[str, typer.Option(metavar="cpu|cuda", help="Device to train networks on.")] = "cpu",
    develop: Annotated[
        bool, typer.Option("--develop", help="Score on the last quarter of the training images, to choose settings.")
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(readable=False, help="Settings of Hedgerow's own refinements; see hedgerow settings refine."),
    ] = None,
    overwrite: Overwrite = False,
) -> Result:
    """Run an experiment of the paper, and write its tables, figures, results.json and report.html into a folder.

    Rerun the same command to resume an interrupted experiment.

    Example: python -m experiments zebrafish -o zebrafish/
    """
    for package in ("torch", "jinja2", "matplotlib"):
        extras.require(package, "an experiment")
    from experiments.runner import run_experiment  # loads PyTorch

    def run(protocol: str, folder: Path, parts: Sequence[str]) -> dict[str, Any]:
        results = run_experiment(
            protocol,
            folder,
            data=data,
            scale=scale,
            seeds=tuple(dict.fromkeys(seed or (0,))),
            parts=parts or None,
            device=device,
            develop=develop,
            refine=None if config is None else RefineConfig.read(config),
            overwrite=overwrite,
        )
        print((folder / "tables.md").read_text(encoding="utf-8"))
        for path in (folder / "results.json", folder / "report.html"):
            if path.exists():
                print(f"{path}: {megabytes(path.stat().st_size)}")
        return results

    if name not in PAPER:
        return run(name, output, part or ())
    if data is not None or part:
        raise InputError(f"{name} has its own images and parts; leave out --data and --part, or name a protocol.")
    return {protocol: run(protocol, output / protocol, PAPER[name].parts) for protocol in PAPER[name].protocols}


app = typer.Typer(
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command(cls=Command)(common(experiment))

if __name__ == "__main__":
    run_program(app, "python -m experiments")
