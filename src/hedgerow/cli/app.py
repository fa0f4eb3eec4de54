"""The command line: each command parses its arguments, calls one job, and prints the result."""

import io
import logging
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

import hedgerow as hr
from hedgerow import jobs, memory
from hedgerow import paint as page
from hedgerow.cli import (
    encoder_command,
    measure_command,
    model_commands,
    paint_command,
    report_commands,
    train_commands,
)
from hedgerow.cli.common import LOG_LINES, AsJson, CommonOptions, Debug, Quiet, Result, Threads, Verbose, common
from hedgerow.cli.options import Overwrite, output_option
from hedgerow.cli.usage import Command, Program, in_short
from hedgerow.config import RefineConfig, StackConfig
from hedgerow.errors import HedgerowError, QuestionError, one_line, printable
from hedgerow.progress import heeding_interrupts
from hedgerow.settings import documented_toml

app = typer.Typer(
    cls=Program,
    help="Segment images pixel by pixel from a handful of labelled examples.",
    epilog="Run hedgerow COMMAND --help for the options of a command and an example.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

INTERRUPTED = 130  # exit code of an interrupted command, set by Typer
Demo = Literal["somites", "bodies"]
Sample = Literal["somites", "bodies", "facades", "embryo"]


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"hedgerow {hr.__version__}")
        raise typer.Exit


@app.callback()
def _common(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    threads: Threads = None,
    debug: Debug = False,
) -> None:
    ctx.ensure_object(CommonOptions).add(as_json, quiet, verbose, threads)


def settings(
    command: Annotated[
        Literal["train", "refine"],
        typer.Argument(metavar="COMMAND", help="The command to print settings for: train or refine."),
    ] = "train",
) -> str:
    """Print all settings of train or refine with their defaults; edit them in a file and give it with --config.

    Example: hedgerow settings > settings.toml
    """
    return documented_toml(StackConfig() if command == "train" else RefineConfig())


def sample(
    kind: Annotated[Sample, typer.Argument(metavar="KIND", help="Kind of images: facades, somites, bodies or embryo.")],
    output: Annotated[Path, output_option("Folder to create images/ and labels/ in.")],
    n_images: Annotated[int, typer.Option(help="Number of images.")] = 16,
    seed: Annotated[int, typer.Option(help="The same seed gives the same images.")] = 0,
    strokes: Annotated[
        bool, typer.Option("--strokes", help="Write labels as a few painted strokes; the full labels go to truth/.")
    ] = False,
    overwrite: Overwrite = False,
) -> Result:
    """Write labelled sample images, drawn by a built-in generator.

    Example: hedgerow sample facades -o example/ --strokes
    """
    hr.synthetic.write_sample(kind, output, n_images, seed, strokes=strokes, overwrite=overwrite)
    print(f"{n_images} image(s) in {output / 'images'}, their labels in {output / 'labels'}")
    depth = " --features depth" if kind == "bodies" else ""
    print(f"next: hedgerow train {output / 'images'} {output / 'labels'} -o model.hedge{depth}")
    return {"images": str(output / "images"), "labels": str(output / "labels"), "n_images": n_images}


def demo(
    output: Annotated[Path, output_option("Folder for the models, pictures and report.")] = Path("demo-output"),
    kind: Annotated[Demo, typer.Option("--data", help="Kind of images.")] = "somites",
    overwrite: Overwrite = False,
) -> None:
    """Run the whole method on built-in images: grow a stack, map it to a network, refine it, and map it back.

    Example: hedgerow demo
    """
    jobs.run_demo(jobs.DemoRequest(output, kind, overwrite), say=print)


def warm_up() -> Result:
    """Compile what is otherwise compiled at the first use, and keep it for later runs.

    Example: hedgerow warm-up
    """
    return {"compiled": jobs.warm_up(page.warm_up, say=print)}


for command in (
    paint_command.paint,
    *(train_commands.train, train_commands.refine, train_commands.back),
    *(
        model_commands.predict,
        measure_command.measure,
        measure_command.objects,
        model_commands.evaluate,
        model_commands.export,
    ),
    *(report_commands.report, report_commands.look, report_commands.info),
    *(encoder_command.encoders, settings, sample, demo, warm_up),
):
    app.command(cls=Command, short_help=in_short(command))(common(command))


def main() -> None:
    """The program `hedgerow`."""
    run_program(app, "hedgerow")


def run_program(
    program: typer.Typer,
    name: str,
    arguments: Sequence[str] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Run a command.

    Bad input exits with 2 and one sentence; a bug exits with 1 and shows its traceback only with --debug.
    arguments: None: those of this process, in which Typer expands patterns on Windows
    clock:     returns the time in seconds
    """
    given = sys.argv[1:] if arguments is None else arguments
    if isinstance(sys.stdout, io.TextIOWrapper):  # file names may contain characters that the terminal cannot show
        sys.stdout.reconfigure(errors="backslashreplace")
    logging.basicConfig(handlers=[LOG_LINES], format="%(message)s", level=logging.WARNING)
    common_options = CommonOptions(clock=clock)
    try:
        with heeding_interrupts():
            program(arguments, obj=common_options, prog_name=name)
    except SystemExit as leaving:
        if leaving.code == INTERRUPTED:
            print(f"hedgerow: {common_options.interrupt_message}", file=sys.stderr)
        raise
    except Exception as error:
        if "--debug" in given:
            raise
        message, code = _explained(error, f"{name} {shlex.join(given)}")
        print(f"hedgerow: {message}", file=sys.stderr)
        sys.exit(code)


def _explained(error: Exception, command: str) -> tuple[str, int]:
    """An error in words, and the exit code."""
    if isinstance(error, QuestionError):
        return printable(error.asked(command)), 2
    if isinstance(error, HedgerowError):
        return str(error), 2
    if memory.ran_out(error):
        return "not enough memory; use smaller images or close other programs.", 2
    if isinstance(error, OSError):
        return f"{one_line(error)}; check permissions and free space.", 2
    return f"unexpected {type(error).__name__}: {error} (add --debug for the details)", 1
