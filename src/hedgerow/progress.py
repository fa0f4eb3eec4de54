"""Shows the progress of long work, which calls `report(text, done, total)`; an exception raised there stops it."""

import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

Report = Callable[[str, int, int], None]
Say = Callable[[str], None]
"""Prints a sentence that the user should see at once."""
Manner = Literal["bar", "bar or lines", "nothing"]
SECONDS_BETWEEN_LINES = 30

log = logging.getLogger("hedgerow")
_interrupted = threading.Event()
_manner: Manner = "bar"


def quiet(text: str) -> None:
    """Print nothing."""


def silent(text: str, done: int, total: int) -> None:
    """Report nothing."""


def duration(seconds: float) -> str:
    """A duration for display: "8 s", "2 min 13 s", "1 h 5 min"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


@contextmanager
def shown_as(manner: Manner) -> Iterator[None]:
    """Within the block, show progress in this manner where callers pass no report function of their own.

    "bar":          a bar on a terminal, and nothing elsewhere; the default
    "bar or lines": a bar on a terminal, and a line every half minute elsewhere, for instance in the log of a cluster
    "nothing":      nothing anywhere
    """
    global _manner
    before, _manner = _manner, manner
    try:
        yield
    finally:
        _manner = before


@contextmanager
def heeding_interrupts() -> Iterator[None]:
    """While the block runs, an interrupt stops the work at the next report at the latest.

    Python drops exceptions that are raised in callbacks of a compiler or of the system, or while an object is freed, so
    that an interrupt there would otherwise be lost. It prints a traceback of what it drops, but not of an interrupt,
    which is heeded.
    """

    def interrupt(number: int, frame: object) -> None:
        _interrupted.set()
        raise KeyboardInterrupt

    def dropped(problem: "sys.UnraisableHookArgs") -> None:
        if not (_interrupted.is_set() and issubclass(problem.exc_type, KeyboardInterrupt)):
            hook_before(problem)

    before, hook_before = signal.signal(signal.SIGINT, interrupt), sys.unraisablehook
    sys.unraisablehook = dropped
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        sys.unraisablehook = hook_before
        _interrupted.clear()


def _heeding(report: Report) -> Report:
    """The report function, which interrupts can stop, and which logs the first report of each task."""
    seen: set[str] = set()

    def heeding(text: str, done: int, total: int) -> None:
        if _interrupted.is_set():
            raise KeyboardInterrupt
        if _work(text) not in seen and not isinstance(text, Timed):  # a plan logs its own tasks
            seen.add(_work(text))
            log.info("%s", text)
        report(text, done, total)

    return heeding


def _work(text: str) -> str:
    """The part of a report's text that names the task; the rest may change, such as a loss or score."""
    return text.partition(":")[0]


def announce(message: str) -> None:
    """Print a message where a bar would be shown, as commands do; elsewhere log it."""
    if _manner != "nothing" and (in_notebook() or _on_terminal()):
        print(message)
    else:
        log.info("%s", message)


def _on_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()  # None: a program without a console


@contextmanager
def progress_bar(clock: Callable[[], float] = time.monotonic) -> Iterator[Report]:
    """A bar on the terminal or in the notebook while the block runs; elsewhere lines or nothing, see `shown_as`."""
    if in_notebook():
        shown = NotebookBar(clock)
        try:
            yield _heeding(shown.report)
        finally:
            shown.clear()
        return
    is_terminal = _on_terminal()
    if _manner == "nothing" or sys.stderr is None or (_manner == "bar" and not is_terminal):
        yield _heeding(silent)
        return
    with _bar(clock) if is_terminal else _lines() as report:
        yield _heeding(report)


@contextmanager
def _bar(clock: Callable[[], float]) -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, ProgressColumn, Task, TaskID, TaskProgressColumn, TextColumn
    from rich.progress import Progress as RichProgress
    from rich.text import Text

    now = Progress(clock)

    class TimeLeft(ProgressColumn):
        """Shows the same estimate as lines do; the estimate of rich does not suit a plan that changes."""

        def render(self, task: Task) -> Text:
            return Text(now.time(), style="progress.remaining")

    columns = TextColumn("[progress.description]{task.description}"), BarColumn(), TaskProgressColumn(), TimeLeft()
    # Print other output above the bar, unless it goes to a file.
    is_seen = sys.stdout is not None and sys.stdout.isatty()
    with RichProgress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=is_seen) as bar:
        tasks: dict[str, TaskID] = {}

        def report(text: str, done: int, total: int) -> None:
            now.report(text, done, total)
            work = _work(text)
            if work not in tasks:
                tasks[work] = bar.add_task(text, total=total)
            for name, task in tasks.items():
                bar.update(task, visible=name == work)
            bar.update(tasks[work], description=text, completed=done, total=total)

        yield report


@dataclass
class Pace:
    """The pace of a task: when it began, how much was done then, when it last advanced, and how much is done now."""

    begun: float
    before: int
    advanced: float
    done: int
    total: int

    def advance(self, now: float, done: int, total: int) -> None:
        if done != self.done:
            self.advanced = now
        self.done, self.total = done, total

    def left(self, now: float) -> float | None:
        """Seconds left at the pace so far; None before any progress.

        Between reports, the time falls by at most the time that the current unit should take: a time that rises while
        the percentage stays the same would be useless.
        """
        gained, rest = self.done - self.before, self.total - self.done
        if gained <= 0:
            return None
        unit = (self.advanced - self.begun) / gained
        return unit * (rest - 1) + max(unit - (now - self.advanced), 0.0) if rest > 0 else 0.0


class Timed(str):
    """The text of a report from a plan that estimates the time left better than the pace does.

    left: seconds; None: there is no estimate
    """

    left: float | None

    def __new__(cls, text: str, left: float | None) -> "Timed":
        timed = super().__new__(cls, text)
        timed.left = left
        return timed


class Progress:
    """Describes the progress of work in words."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._works: dict[str, Pace] = {}
        self._last: tuple[str, int, int] | None = None
        self._last_at = 0.0
        self._lock = threading.Lock()

    def report(self, text: str, done: int, total: int) -> None:
        """Record what is done now; less than at the last report means that the task started over."""
        with self._lock:
            work, now = self._works.get(_work(text)), self.clock()
            if work is None or done < work.done:
                work = self._works[_work(text)] = Pace(now, done, now, done, total)
            work.advance(now, done, total)
            self._last, self._last_at = (text, done, total), now

    def text(self) -> str:
        """Text such as "refining: loss 0.2, 40 %, about 2 min 5 s left"; empty before the first report."""
        if self._last is None:
            return ""
        text, done, total = self._last
        return f"{text}, {100 * done // total if total else 100} %, {self.time()}"

    def time(self) -> str:
        """Text such as "about 2 min 5 s left", or "40 s so far" if there is no estimate or it has passed."""
        with self._lock:
            if self._last is None:
                return ""
            text, now = self._last[0], self.clock()
            work = self._works[_work(text)]
        left = work.left(now)
        if isinstance(text, Timed):
            left = None if text.left is None else max(text.left - (now - self._last_at), 0.0)
        if left is None or round(left) == 0:
            return f"{duration(now - work.begun)} so far"
        return f"about {duration(left)} left"


@contextmanager
def _lines() -> Iterator[Report]:
    """Print a line to the error stream every half minute, even if nothing was reported in between."""
    now, is_over = Progress(), threading.Event()
    printer = threading.Thread(target=print_lines, args=(now, is_over.wait), daemon=True)
    printer.start()
    try:
        yield now.report
    finally:
        is_over.set()
        printer.join()


def print_lines(now: Progress, wait: Callable[[float], bool]) -> None:
    """Print the progress whenever `wait(seconds)` returns False, until it returns True."""
    while not wait(SECONDS_BETWEEN_LINES):
        text = now.text()
        if text:
            print(text, file=sys.stderr, flush=True)


def in_notebook() -> bool:
    """Whether this runs in a Jupyter kernel; does not import IPython."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return any(kind.__name__ == "ZMQInteractiveShell" for kind in type(shell).__mro__)


class NotebookBar:
    """A bar in the output of a notebook's cell, which is updated during the work and removed after it."""

    DELAY_SECONDS = 0.5  # until it appears, so that short work leaves no trace
    PAUSE_SECONDS = 0.1  # between two updates

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._next = clock, clock() + self.DELAY_SECONDS
        self._handle: Any = None

    def report(self, text: str, done: int, total: int) -> None:
        now = self._clock()
        if now < self._next:
            return
        self._next = now + self.PAUSE_SECONDS
        self._put({"text/html": bar_html(text, done, total), "text/plain": f"{text}: {done:,} of {total:,}"})

    def clear(self) -> None:
        if self._handle is not None:
            self._put({"text/html": "", "text/plain": ""})

    def _put(self, bundle: dict[str, str]) -> None:
        from IPython.display import display

        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(bundle, raw=True)


def bar_html(text: str, done: int, total: int) -> str:
    """A bar with its text and numbers, which suits light and dark themes."""
    part = min(max(done / total, 0.0), 1.0) if total else 0.0
    fill = f"display:block;width:{100 * part:.0f}%;height:8px;background:#46a06b;border-radius:4px"
    track = (
        "display:inline-block;width:220px;height:8px;margin:0 10px 0 0;background:rgba(128,128,128,.22);"
        "border-radius:4px;vertical-align:middle"
    )
    return (
        f"<div style=\"font:13px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;"
        f'font-variant-numeric:tabular-nums"><span style="{track}"><span style="{fill}"></span></span>{escape(text)}'
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
