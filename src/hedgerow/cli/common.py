"""Options and behaviour shared by all commands: --json, --quiet, --verbose, --threads, --debug, and the run time.

A command prints for people and returns the values that --json prints. A text that it returns is always printed.
"""

import functools
import inspect
import json
import logging
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

import hedgerow as hr
from hedgerow.cli.usage import Misuse, common_option
from hedgerow.errors import InputError
from hedgerow.progress import duration, shown_as
from hedgerow.scale.result_names import is_large_result

LONG_SECONDS = 10  # a command that takes longer prints its run time
RESUMABLE = ("refine", "experiment")  # commands that resume after an interruption
RESUMED_EFFORTS = ("good", "best")
Result = dict[str, Any]
log = logging.getLogger("hedgerow")

AsJson = Annotated[bool, common_option("--json", help="Print only the result, as JSON.")]
Quiet = Annotated[bool, common_option("--quiet", "-q", help="Print errors only.")]
Verbose = Annotated[bool, common_option("--verbose", "-v", help="Log each step with its start time.")]
Threads = Annotated[
    int | None, common_option("--threads", metavar="N", help="Number of threads; all cores by default.")
]
Debug = Annotated[bool, common_option("--debug", help="Show the traceback of an error.")]
OPTIONS = {"as_json": AsJson, "quiet": Quiet, "verbose": Verbose, "threads": Threads, "debug": Debug}


class Unfinished(InputError):
    """A command completed only a part of its work, `result`."""

    def __init__(self, message: str, result: Result) -> None:
        super().__init__(message)
        self.result = result


class LogLines(logging.Handler):
    """Writes to the current error stream, which a progress bar may have replaced."""

    elapsed: Callable[[], float] | None = None  # seconds since the command began; None: lines carry no time

    def emit(self, record: logging.LogRecord) -> None:
        if sys.stderr is None:
            return
        start = "" if self.elapsed is None else f"{self.elapsed():7.1f} s  "
        print(start + self.format(record), file=sys.stderr)


LOG_LINES = LogLines()


@dataclass
class CommonOptions:
    """The options shared by all commands, given before or after the command's name.

    clock: returns the time in seconds
    """

    as_json: bool = False
    quiet: bool = False
    verbose: bool = False
    threads: int | None = None
    is_resumable: bool = False  # rerunning the command resumes an interrupted run
    work_folder: str = ""  # where an interrupted effort keeps what is finished
    clock: Callable[[], float] = time.monotonic

    def add(
        self, as_json: bool = False, quiet: bool = False, verbose: bool = False, threads: int | None = None
    ) -> None:
        self.as_json |= as_json
        self.quiet |= quiet
        self.verbose |= verbose
        self.threads = self.threads if threads is None else threads

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Apply the options within the block."""
        if self.quiet and self.verbose:
            raise Misuse("--quiet and --verbose were both given; give one of them.")
        if "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("RANK", "0") != "0":
            self.quiet, self.verbose = True, False  # of several processes that refine together, only the first prints
        if self.threads is not None:
            hr.set_threads(self.threads)
        with ExitStack() as stack:
            stack.enter_context(shown_as("nothing" if self.quiet else "bar or lines"))
            if self.quiet or self.as_json:
                nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8", errors="replace"))
                stack.enter_context(redirect_stdout(nowhere))
            if self.verbose:
                begun = self.clock()
                stack.callback(setattr, LOG_LINES, "elapsed", LOG_LINES.elapsed)
                LOG_LINES.elapsed = lambda: self.clock() - begun
                stack.callback(log.setLevel, log.level)
                log.setLevel(logging.INFO)
            elif self.quiet:
                stack.callback(LOG_LINES.setLevel, LOG_LINES.level)
                LOG_LINES.setLevel(logging.ERROR)
            yield

    @property
    def interrupt_message(self) -> str:
        """The message after an interrupt."""
        if self.work_folder and Path(self.work_folder).exists():
            return f"interrupted; finished work is kept in {self.work_folder}: rerun the same command to resume."
        if self.is_resumable:
            return "interrupted; rerun the same command to resume."
        return "interrupted; nothing was left half-written."


def common(command: Callable[..., Result | str | None]) -> Callable[..., None]:
    """The command with the shared options; it has --json only if it returns a result."""
    own = inspect.signature(command, eval_str=True)
    has_json = own.return_annotation is not None and own.return_annotation is not str
    named = [name for name in OPTIONS if name != "as_json" or (has_json and "json_file" not in own.parameters)]

    @functools.wraps(command)
    def run(ctx: typer.Context, **options: Any) -> None:
        common_options = ctx.ensure_object(CommonOptions)
        common_options.is_resumable = command.__name__ in RESUMABLE or is_large_result(options.get("output") or "")
        if options.get("effort") in RESUMED_EFFORTS:
            common_options.work_folder = f"{options['output']}.work"
        options.pop("debug")  # handled by `main`
        common_options.add(**{name: options.pop(name) for name in named if name != "debug"})
        if options.get("json_file") == "-":
            common_options.as_json, options["json_file"] = True, None
        if common_options.as_json and not has_json:
            raise Misuse(f"hedgerow {command.__name__} has no result to print as JSON; leave out --json.")
        begun, problem = common_options.clock(), None
        with common_options.applied():
            try:
                result = command(**options)
            except Unfinished as unfinished:
                result, problem = unfinished.result, unfinished
            seconds = common_options.clock() - begun
            if seconds >= LONG_SECONDS:
                print(f"done in {duration(seconds)}")
        if isinstance(result, str):
            print(result, end="")
        elif common_options.as_json:
            print(json.dumps(_finite(result)))
        if problem is not None:
            raise problem

    keyword = inspect.Parameter.KEYWORD_ONLY
    added = [
        inspect.Parameter(name, keyword, annotation=OPTIONS[name], default=None if name == "threads" else False)
        for name in named
    ]
    mine = [parameter.replace(kind=keyword) for parameter in own.parameters.values()]
    context = inspect.Parameter("ctx", keyword, annotation=typer.Context)
    signature = own.replace(parameters=[context, *mine, *added], return_annotation=None)
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in signature.parameters.values()}
    return run


def _finite(value: Any) -> Any:
    """The value with None in place of NaN and infinity, which JSON cannot represent."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
