"""Progress of long work, through a function `report(what, done, total)`; an exception raised in it stops the work."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Report = Callable[[str, int, int], None]
_interrupted = threading.Event()


def silent(what: str, done: int, total: int) -> None:
    """Report to nobody."""


@contextmanager
def heeding_interrupts() -> Iterator[None]:
    """While the block runs, an interrupt stops the work at the next report at the latest.

    Python drops an exception that is raised in a callback of a compiler or of the system: without this, an interrupt
    during compilation would be lost.
    """

    def interrupt(number: int, frame: object) -> None:
        _interrupted.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        _interrupted.clear()


def _heeding(report: Report) -> Report:
    def heeding(what: str, done: int, total: int) -> None:
        if _interrupted.is_set():
            raise KeyboardInterrupt
        report(what, done, total)

    return heeding


@contextmanager
def progress_bar() -> Iterator[Report]:
    """A bar on the terminal while the block runs; nothing if the output is not a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():  # None: a program without a console
        yield _heeding(silent)
        return
    from rich.console import Console
    from rich.progress import Progress, TaskID

    with Progress(console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def report(what: str, done: int, total: int) -> None:
            work = what.partition(":")[0]  # what follows may change as the work goes on: a loss, a score
            if work not in tasks:
                tasks[work] = bar.add_task(what, total=total)
            for name, task in tasks.items():
                bar.update(task, visible=name == work)
            bar.update(tasks[work], description=what, completed=done, total=total)

        yield _heeding(report)


@contextmanager
def reporting(progress: Report | None) -> Iterator[Report]:
    """The caller's own report function, or a bar."""
    if progress is not None:
        yield progress
    else:
        with progress_bar() as report:
            yield report
