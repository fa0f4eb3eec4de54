"""The command line: each command parses, calls the library once, and prints a short table."""

import io
import logging
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

import hedgerow as hr
from hedgerow import experiments, memory
from hedgerow.cli import experiment, measuring, showing, training, using
from hedgerow.cli.parts import Overwrite, output_option
from hedgerow.config import RefineConfig, StackConfig, documented_toml
from hedgerow.errors import HedgerowError
from hedgerow.progress import heeding_interrupts

app = typer.Typer(
    help="Segment images, pixel by pixel, from a handful of labelled examples.",
    epilog="Add --debug to any command to see where an error comes from.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

INTERRUPTED = 130  # the exit code that typer gives to an interrupted command
Sample = Literal["somites", "bodies"]


@app.callback()
def _common(
    threads: Annotated[int | None, typer.Option(help="Number of threads; all cores by default.")] = None,
) -> None:
    if threads is not None:
        hr.set_threads(threads)


def settings(
    command: Annotated[Literal["train", "refine"], typer.Argument(help="The command the settings are for.")] = "train",
) -> None:
    """Print the settings of `train` or `refine` with their defaults, as a file for --config.

    Example: hedgerow settings > settings.toml
    """
    print(documented_toml(StackConfig() if command == "train" else RefineConfig()), end="")


def sample(
    kind: Annotated[Sample, typer.Argument(help="Which built-in generator.")],
    output: Annotated[Path, output_option("Folder in which images/ and labels/ are made.")],
    n_images: Annotated[int, typer.Option(help="How many images.")] = 16,
    seed: Annotated[int, typer.Option(help="The same seed gives the same images.")] = 0,
    overwrite: Overwrite = False,
) -> None:
    """Write labelled images made by the built-in generators, to try things on.

    Example: hedgerow sample somites -o example/
    """
    hr.synthetic.write_sample(kind, output, n_images, seed, overwrite=overwrite)
    print(f"{n_images} image(s) in {output / 'images'}, their labels in {output / 'labels'}")
    depth = " --features depth" if kind == "bodies" else ""
    print(f"next: hedgerow train {output / 'images'} {output / 'labels'} -o model.hedge{depth}")


def demo(
    output: Annotated[Path, output_option("Folder for the models and pictures.")] = Path("demo-output"),
    kind: Annotated[Sample, typer.Option("--data", help="Which built-in images.")] = "somites",
    overwrite: Overwrite = False,
) -> None:
    """Grow a stack on built-in images, map it to a network, refine that and map it back; show what each step gains.

    Example: hedgerow demo
    """
    experiments.run_demo(kind, output, say=print, overwrite=overwrite)


for command in (
    *(training.train, training.refine, training.back),
    *(using.predict, measuring.measure, using.evaluate, using.export),
    *(showing.report, showing.look, showing.info),
    *(settings, sample, demo, experiment.experiment),
):
    app.command()(command)


def main() -> None:
    """Run a command; bad input exits with 2 and one sentence, and a bug shows its traceback only with --debug."""
    debug = "--debug" in sys.argv
    sys.argv = [argument for argument in sys.argv if argument != "--debug"]
    if "--threads" in sys.argv[2:]:  # common to all commands, so it may also follow the command's name
        at = sys.argv.index("--threads")
        sys.argv[1:] = [*sys.argv[at : at + 2], *sys.argv[1:at], *sys.argv[at + 2 :]]
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name need not be text that the terminal has letters for
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    try:
        with heeding_interrupts():
            app()
    except HedgerowError as error:
        if debug:
            raise
        print(f"hedgerow: {error}", file=sys.stderr)
        sys.exit(2)
    except SystemExit as leaving:
        if leaving.code == INTERRUPTED:
            print("hedgerow: interrupted; nothing was left half-written.", file=sys.stderr)
        raise
    except Exception as error:
        if debug:
            raise
        if memory.ran_out(error):
            print(
                "hedgerow: there is not enough memory for this; use smaller images, or end other programs.",
                file=sys.stderr,
            )
            sys.exit(2)
        print(
            f"hedgerow: unexpected {type(error).__name__}: {error} (add --debug for the details)",
            file=sys.stderr,
        )
        sys.exit(1)
