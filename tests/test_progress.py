"""Progress reports: the bar on a terminal, callers' own reports, and interrupts."""

import io
import signal
import sys
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
