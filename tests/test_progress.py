"""Progress reports: the bar on a terminal or in a notebook, callers' own reports, and interrupts."""

import io
import itertools
import logging
import signal
import subprocess
import sys
import threading
import types
from contextlib import suppress
from functools import partial

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


def test_an_interrupt_while_an_object_is_freed_prints_no_traceback(monkeypatch):
    dropped = []
    monkeypatch.setattr(sys, "unraisablehook", dropped.append)

    class Freed:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    class Broken:
        def __del__(self):
            raise ValueError

    with progress.heeding_interrupts(), progress.progress_bar() as report:
        report("work", 1, 3)
        Freed()
        with pytest.raises(KeyboardInterrupt):
            report("work", 2, 3)
        assert dropped == []
        Broken()  # any other problem is shown as ever
    assert [problem.exc_type for problem in dropped] == [ValueError]


def test_the_bar_shows_the_present_work_also_when_it_returns(monkeypatch):
    from rich.progress import Progress

    bars = []
    start = Progress.start
    monkeypatch.setattr(Progress, "start", lambda self: (bars.append(self), start(self))[1])
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress.progress_bar() as report:
        for text, done in (("trees", 1), ("predictions", 2), ("trees", 3), ("predictions", 4)):
            report(text, done, 9)
            shown = [(task.description, task.completed) for task in bars[0].tasks if task.visible]
            assert shown == [(text, done)]
    assert "predictions" in sys.stderr.getvalue()


def test_a_callers_report_is_used_in_place_of_the_bar(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    seen = []
    with progress.reporting(lambda *now: seen.append(now)) as report:
        report("work", 1, 2)
    assert seen == [("work", 1, 2)]
    assert sys.stderr.getvalue() == ""


# Lines, where there is no terminal


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (8.4, "8 s"), (59.6, "1 min 0 s"), (133, "2 min 13 s"), (3599.7, "1 h 0 min"), (7500, "2 h 5 min")],
)
def test_durations_as_people_say_them(seconds, text):
    assert progress.duration(seconds) == text


def test_lines_tell_the_work_how_far_it_is_and_the_time_left():
    clock = Clock()
    now = progress.Progress(clock)
    assert now.text() == ""
    now.report("level 1 of 3: trees", 0, 20)
    clock.now = 30
    assert now.text() == "level 1 of 3: trees, 0 %, 30 s so far"
    now.report("level 1 of 3: trees", 5, 20)
    assert now.text() == "level 1 of 3: trees, 25 %, about 1 min 30 s left"
    clock.now = 34  # nothing was done since; a unit takes 6 s
    assert now.text() == "level 1 of 3: trees, 25 %, about 1 min 26 s left"
    clock.now = 400  # the sixth unit should have been done long ago, and the others are still to come
    assert now.text() == "level 1 of 3: trees, 25 %, about 1 min 24 s left"


def test_the_time_left_does_not_rise_while_the_last_unit_takes_long():
    clock, times = Clock(), []
    now = progress.Progress(clock)
    now.report("images", 0, 20)
    for done in range(1, 20):
        clock.now = done
        now.report("images", done, 20)
    for clock.now in (19, 19.6, 30, 3600):
        now.report("images", 19, 20)
        times.append(now.text())
    assert times[:2] == ["images, 95 %, about 1 s left", "images, 95 %, 20 s so far"]
    assert times[2:] == ["images, 95 %, 30 s so far", "images, 95 %, 1 h 0 min so far"]


def test_the_bar_shows_the_time_left_by_the_same_estimate(monkeypatch):
    clock, terminal = Clock(), Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress.progress_bar(clock) as report:
        report("trees", 0, 20)
        clock.now = 30.0
        report("trees", 5, 20)
    assert "about 1 min 30 s left" in terminal.getvalue()


def test_the_time_left_counts_from_where_the_work_began():
    clock = Clock()
    now = progress.Progress(clock)
    now.report("refining", 900, 1000)  # resumed
    clock.now = 10
    now.report("refining: loss 0.5", 950, 1000)
    assert now.text() == "refining: loss 0.5, 95 %, about 10 s left"
    now.report("refining", 0, 1000)  # another one
    clock.now = 20
    now.report("refining: loss 0.7", 100, 1000)
    assert now.text() == "refining: loss 0.7, 10 %, about 1 min 30 s left"


def test_work_within_work_does_not_disturb_the_time_left():
    clock = Clock()
    now = progress.Progress(clock)
    for image in range(3):
        now.report("images", image, 6)
        for tile in range(1, 5):
            clock.now += 5
            now.report("tiles of this image", tile, 8)
    assert now.text() == "tiles of this image, 50 %, about 20 s left"
    now.report("images", 3, 6)
    assert now.text() == "images, 50 %, about 1 min 0 s left"


def test_a_line_comes_after_every_wait_until_the_work_is_over(capsys):
    clock = Clock()
    now, waits = progress.Progress(clock), []

    def wait(seconds):
        waits.append(seconds)
        clock.now += seconds
        if len(waits) == 2:
            now.report("trees", 0, 4)
        if len(waits) == 3:
            now.report("trees", 3, 4)
        return len(waits) == 4

    progress.print_lines(now, wait)
    assert waits == [30] * 4
    assert capsys.readouterr().err.splitlines() == ["trees, 0 %, 0 s so far", "trees, 75 %, about 10 s left"]


def test_lines_are_told_by_a_thread_that_ends_with_the_work(monkeypatch, capsys):
    is_told = threading.Event()

    def print_lines(now, wait):
        now.report("work", 1, 2)
        is_told.set()
        wait(None)  # until the work is over
        print(now.text(), file=sys.stderr)

    monkeypatch.setattr(progress, "print_lines", print_lines)
    before = set(threading.enumerate())
    with progress.shown_as("bar or lines"), progress.progress_bar() as report:
        assert is_told.wait(60)
        report("other work", 1, 4)
    assert set(threading.enumerate()) <= before
    assert capsys.readouterr().err.startswith("other work, 25 %, ")


def test_nothing_is_shown_where_nothing_is_asked_for(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress.shown_as("nothing"), progress.progress_bar() as report:
        report("work", 1, 2)
    assert sys.stderr.getvalue() == ""


def test_what_is_printed_into_a_file_arrives_there_past_the_bar(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    with progress.progress_bar() as report:
        report("work", 1, 2)
        print("a result")
    assert sys.stdout.getvalue() == "a result\n"
    assert "a result" not in sys.stderr.getvalue()


def test_messages_are_printed_where_a_bar_would_be_and_logged_elsewhere(monkeypatch, capsys, caplog):
    caplog.set_level("INFO", "hedgerow")
    progress.announce("said to nobody")
    assert (capsys.readouterr().out, caplog.messages) == ("", ["said to nobody"])
    monkeypatch.setattr(sys, "stderr", Terminal())
    progress.announce("said")
    with progress.shown_as("nothing"):
        progress.announce("quiet was asked for")
    assert (capsys.readouterr().out, caplog.messages[1:]) == ("said\n", ["quiet was asked for"])


def test_each_work_is_logged_once(caplog):
    caplog.set_level(logging.INFO, "hedgerow")
    with progress.progress_bar() as report:
        for what, done in (("refining", 0), ("refining: loss 1", 1), ("drawing", 0), ("refining: loss 2", 2)):
            report(what, done, 2)
    assert [record.message for record in caplog.records] == ["refining", "drawing"]


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
def test_a_notebook_has_a_bar_of_its_own_that_goes_when_the_work_is_done(kernel, shell):
    display = kernel(shell)
    with progress.progress_bar(partial(next, itertools.count())) as report:
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


def test_the_bar_of_a_notebook_goes_also_when_the_work_fails(kernel):
    display = kernel(ZMQInteractiveShell())
    with suppress(InterruptedError), progress.progress_bar(partial(next, itertools.count())) as report:
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
