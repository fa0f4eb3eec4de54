"""Progress reports: the bar on a terminal or in a notebook, callers' own reports, and interrupts."""

import io
import signal
import subprocess
import sys
import types
from contextlib import suppress

import pytest

from hedgerow import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_there_is_no_bar_where_there_is_no_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress.progress_bar() as report:
        report("work", 1, 2)
    assert sys.stderr.getvalue() == ""


def test_there_is_no_bar_where_there_is_no_error_stream(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)  # as in a program without a console
    with progress.progress_bar() as report:
        report("work", 1, 2)


def test_an_interrupt_that_was_dropped_stops_the_work_at_the_next_report(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress.heeding_interrupts(), progress.progress_bar() as report:
        report("work", 1, 3)
        with suppress(KeyboardInterrupt):  # as a compiler's callback does
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            report("work", 2, 3)
    with progress.progress_bar() as report:
        report("work", 3, 3)  # it is over with the block


def test_the_bar_shows_the_present_work_also_when_it_returns(monkeypatch):
    from rich.progress import Progress

    bars = []
    start = Progress.start
    monkeypatch.setattr(Progress, "start", lambda self: (bars.append(self), start(self))[1])
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress.progress_bar() as report:
        for what, done in (("trees", 1), ("predictions", 2), ("trees", 3), ("predictions", 4)):
            report(what, done, 9)
            shown = [(task.description, task.completed) for task in bars[0].tasks if task.visible]
            assert shown == [(what, done)]
    assert "predictions" in sys.stderr.getvalue()


def test_a_callers_report_is_used_in_place_of_the_bar(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    seen = []
    with progress.reporting(lambda *now: seen.append(now)) as report:
        report("work", 1, 2)
    assert seen == [("work", 1, 2)]
    assert sys.stderr.getvalue() == ""


class ZMQInteractiveShell:
    """Called as the shell of a Jupyter kernel is, by which it is known."""


class OfAnotherHouse(ZMQInteractiveShell):
    """Hosted notebooks derive their own."""


class TerminalInteractiveShell:
    """IPython on a terminal."""


class Display:
    """Stands in for a notebook's display: notes what is shown under its handle."""

    def __init__(self):
        self.shown = []

    def display(self, bundle, raw, display_id):
        assert raw
        assert display_id is True
        self.shown.append(bundle)
        return self

    def update(self, bundle, raw):
        assert raw
        self.shown.append(bundle)


@pytest.fixture
def kernel(monkeypatch):
    """Pretends that a shell of some kind runs us: kernel(shell) -> Display."""

    def start(shell):
        display = Display()
        ipython, module = types.ModuleType("IPython"), types.ModuleType("IPython.display")
        ipython.get_ipython, module.display = lambda: shell, display.display
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        monkeypatch.setitem(sys.modules, "IPython.display", module)
        monkeypatch.setattr(sys, "stderr", io.StringIO())
        return display

    return start


@pytest.mark.parametrize("shell", [ZMQInteractiveShell(), OfAnotherHouse()])
def test_a_notebook_has_a_bar_of_its_own_that_goes_when_the_work_is_done(kernel, monkeypatch, shell):
    monkeypatch.setattr(progress.NotebookBar, "DELAY", 0)
    monkeypatch.setattr(progress.NotebookBar, "PAUSE", 0)
    display = kernel(shell)
    with progress.progress_bar() as report:
        report("trees: <i>", 1, 4)
        report("trees", 3, 4)
    first, second, last = display.shown
    assert "width:25%" in first["text/html"]
    assert "trees: &lt;i&gt;" in first["text/html"]
    assert "width:75%" in second["text/html"]
    assert second["text/plain"] == "trees: 3 of 4"
    assert last == {"text/html": "", "text/plain": ""}
    assert sys.stderr.getvalue() == ""


def test_short_work_leaves_no_trace_in_a_notebook_and_updates_are_not_too_many(kernel):
    display, now = kernel(ZMQInteractiveShell()), 0.0
    bar = progress.NotebookBar(lambda: now)
    bar.report("work", 1, 9)
    bar.clear()
    assert not display.shown
    for tenths in range(40):
        now = tenths / 20
        bar.report("work", tenths, 40)
    assert 10 < len(display.shown) <= 16


def test_the_bar_of_a_notebook_goes_also_when_the_work_fails(kernel, monkeypatch):
    monkeypatch.setattr(progress.NotebookBar, "DELAY", 0)
    display = kernel(ZMQInteractiveShell())
    with suppress(InterruptedError), progress.progress_bar() as report:
        report("work", 1, 2)
        raise InterruptedError
    assert len(display.shown) == 2
    assert display.shown[-1]["text/html"] == ""


def test_ipython_on_a_terminal_is_no_notebook(kernel):
    display = kernel(TerminalInteractiveShell())
    assert not progress.in_notebook()
    with progress.progress_bar() as report:
        report("work", 1, 2)
    assert not display.shown


def test_ipython_is_not_loaded_to_find_out():
    code = (
        "import sys; from hedgerow import progress\nassert not progress.in_notebook() and 'IPython' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize("total", [0, 3])
def test_a_bar_without_an_end_or_beyond_it_is_drawn(total):
    assert f"width:{100 if total else 0}%" in progress.bar_html("work", 5, total)
