"""The thread that does the work, without a screen and without Hedgerow."""

import queue
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from napari_hedgerow.worker import Report, Worker

WAIT = 30  # seconds, for waits that should be short


class Listener:
    """A worker, and what it reported."""

    def __init__(self) -> None:
        self.heard: queue.Queue[Any] = queue.Queue()
        self.worker = Worker(
            lambda result: self.heard.put(("done", result)),
            lambda problem: self.heard.put(("failed", str(problem))),
            lambda *progress: self.heard.put(("report", *progress)),
            lambda: self.heard.put(("idle",)),
        )

    def until_idle(self) -> list[Any]:
        messages = []
        while (heard := self.heard.get(timeout=WAIT)) != ("idle",):
            messages.append(heard)
        return messages


class Gate:
    """A job that signals its start, and reports progress when it may continue."""

    def __init__(self) -> None:
        self.begun, self.may_go = threading.Event(), threading.Event()

    def __call__(self, report: Report) -> str:
        self.begun.set()
        assert self.may_go.wait(WAIT)
        report("gate", 1, 1)
        return "gate"


@pytest.fixture
def listener() -> Iterator[Listener]:
    listener = Listener()
    yield listener
    listener.worker.close()
    assert listener.worker.join(WAIT)


def test_of_waiting_jobs_of_a_kind_the_newest_wins(listener: Listener) -> None:
    gate = Gate()
    listener.worker.submit("live", gate)
    assert gate.begun.wait(WAIT)
    for number in range(5):
        listener.worker.submit("live", lambda report, number=number: number)
    listener.worker.submit("save", lambda report: "saved")
    gate.may_go.set()
    # The running job finishes, so that a user who keeps painting sees a result; of the others, only the last is done.
    assert listener.until_idle() == [("report", "gate", 1, 1), ("done", "gate"), ("done", 4), ("done", "saved")]


def test_an_error_ends_its_job_only(listener: Listener) -> None:
    def bad(report: Report) -> None:
        raise ValueError("no")

    gate = Gate()
    listener.worker.submit("first", gate)
    assert gate.begun.wait(WAIT)
    listener.worker.submit("bad", bad)
    listener.worker.submit("good", lambda report: "good")
    gate.may_go.set()
    assert listener.until_idle()[2:] == [("failed", "no"), ("done", "good")]


def test_cancel_ends_the_running_job_and_forgets_the_waiting(listener: Listener) -> None:
    gate = Gate()
    listener.worker.submit("train", gate)
    listener.worker.submit("save", lambda report: "saved")
    assert gate.begun.wait(WAIT)
    listener.worker.cancel()
    gate.may_go.set()
    assert listener.until_idle() == []
    assert not listener.worker.is_busy
    listener.worker.submit("again", lambda report: report("step", 1, 1))
    assert listener.until_idle() == [("report", "step", 1, 1), ("done", None)]


def test_cancel_of_a_kind_leaves_the_others(listener: Listener) -> None:
    gate = Gate()
    listener.worker.submit("train", gate)
    assert gate.begun.wait(WAIT)
    listener.worker.submit("live", lambda report: "live")
    listener.worker.submit("save", lambda report: "saved")
    listener.worker.cancel("live")
    gate.may_go.set()
    assert listener.until_idle()[1:] == [("done", "gate"), ("done", "saved")]


def test_after_closing_nothing_is_reported_and_the_thread_ends() -> None:
    listener, gate = Listener(), Gate()
    listener.worker.submit("train", gate)
    assert gate.begun.wait(WAIT)
    listener.worker.close()
    gate.may_go.set()
    assert listener.worker.join(WAIT)
    assert listener.heard.empty()


def test_all_jobs_run_in_one_thread(listener: Listener) -> None:
    seen = []
    for kind in "abc":
        listener.worker.submit(kind, lambda report: seen.append(threading.current_thread()))
    while len(seen) < 3:
        listener.until_idle()
    assert len(set(seen)) == 1
    assert seen[0] is not threading.current_thread()
