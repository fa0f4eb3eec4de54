"""Progress of long work: a function `report(what, done, total)`; raise in it to stop the work."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Report = Callable[[str, int, int], None]


def silent(what: str, done: int, total: int) -> None:
    """Reports to nobody."""


@contextmanager
def progress_bar() -> Iterator[Report]:
    """A bar on the terminal while the block runs; nothing where the output is not a terminal."""
    if not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import Progress, TaskID

    with Progress(console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            for name, task in tasks.items():
                bar.update(task, visible=name == what)
            bar.update(tasks[what], completed=done, total=total)

        yield report


@contextmanager
def reporting(progress: Report | None) -> Iterator[Report]:
    """The caller's own report function, or a bar."""
    if progress is not None:
        yield progress
    else:
        with progress_bar() as report:
            yield report
