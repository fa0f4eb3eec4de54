"""Progress of long work, through a function `report(what, done, total)`; an exception raised in it stops the work."""

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

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
    """A bar on the terminal or in the notebook while the block runs; nothing if there is neither."""
    if in_notebook():
        shown = NotebookBar()
        try:
            yield _heeding(shown.report)
        finally:
            shown.clear()
        return
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


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this; IPython is not loaded to find out."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return any(kind.__name__ == "ZMQInteractiveShell" for kind in type(shell).__mro__)


class NotebookBar:
    """A bar in the output of a notebook's cell, replaced as the work goes on and gone when it ends."""

    DELAY, PAUSE = 0.5, 0.1  # seconds until it appears, so that short work leaves no trace; between two updates

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._next = clock, clock() + self.DELAY
        self._handle: Any = None

    def report(self, what: str, done: int, total: int) -> None:
        now = self._clock()
        if now < self._next:
            return
        self._next = now + self.PAUSE
        self._put({"text/html": bar_html(what, done, total), "text/plain": f"{what}: {done:,} of {total:,}"})

    def clear(self) -> None:
        if self._handle is not None:
            self._put({"text/html": "", "text/plain": ""})

    def _put(self, bundle: dict[str, str]) -> None:
        from IPython.display import display

        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(bundle, raw=True)


def bar_html(what: str, done: int, total: int) -> str:
    """A bar that suits light and dark themes, with its words and numbers."""
    part = min(max(done / total, 0.0), 1.0) if total else 0.0
    fill = f"display:block;width:{100 * part:.0f}%;height:8px;background:#46a06b;border-radius:4px"
    track = (
        "display:inline-block;width:220px;height:8px;margin:0 10px 0 0;background:rgba(128,128,128,.22);"
        "border-radius:4px;vertical-align:middle"
    )
    return (
        f"<div style=\"font:13px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;"
        f'font-variant-numeric:tabular-nums"><span style="{track}"><span style="{fill}"></span></span>{escape(what)}'
        f' <span style="opacity:.68">{done:,} of {total:,}</span></div>'
    )


@contextmanager
def reporting(progress: Report | None) -> Iterator[Report]:
    """The caller's own report function, or a bar."""
    if progress is not None:
        yield progress
    else:
        with progress_bar() as report:
            yield report
