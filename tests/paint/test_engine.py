"""The worker: the order of its work, replaced work, and work after an error."""

import numpy as np
import pytest

from hedgerow.images.regions import Region
from hedgerow.paint.engine import Engine, EstimatedEnd, Interrupted, QueuedJob
from hedgerow.paint.overlays import Overlay, OverlayLayer, OverlayTile, View


class FakeSegmenter:
    """Records the requested work."""

    def __init__(self):
        self.done = []

    def compile(self, link):
        self.done.append("compile")

    def visible(self, link, view):
        self.done.append(("visible", view.image))

    def whole(self, link, image):
        self.done.append(("whole", image))

    def full(self, link, image):
        self.done.append(("full", image))


def worker(project, **options):
    messages = []
    engine = Engine(FakeSegmenter(), messages.append, **options)
    engine.messages = messages
    return engine


def drain(engine):
    while engine._has_work():
        engine._do_next()


def test_a_newer_stroke_replaces_work_that_has_not_begun(project):
    engine = worker(project, pause_seconds=0.0)
    engine.look(View(0, 0, Region(0, 9, 0, 9)))
    for _ in range(5):
        engine.painted(0)
    engine.look(View(1, 0, Region(0, 9, 0, 9)))
    drain(engine)
    assert engine.segmenter.done == [("visible", 1), ("whole", 1), ("full", 1)]


def test_strokes_are_served_while_longer_work_goes_on(project):
    engine = worker(project)
    engine.look(View(0, 0, Region(0, 9, 0, 9)))
    drain(engine)
    engine.segmenter.done.clear()

    def long(report):
        report("training", 1, 3)
        engine.painted(0)
        report("training", 2, 3)
        engine.segmenter.done.append("trained")
        return {"say": "done", "job": "train"}

    assert engine.submit(QueuedJob("train", long))
    assert not engine.submit(QueuedJob("train", long))  # one at a time
    engine._do_next()
    assert engine.segmenter.done == [("visible", 0), ("whole", 0), "trained"]
    assert engine.messages[-1] == {"say": "done", "job": "train"}
    assert "progress train" not in engine.latest


def test_longer_work_can_be_called_off(project):
    engine = worker(project)

    def long(report):
        engine.cancel("improve")
        report("refining", 1, 3)
        raise AssertionError("it went on")

    engine.submit(QueuedJob("improve", long))
    engine._do_next()
    assert engine.messages[-1] == {"say": "failed", "job": "improve", "why": "the job was cancelled."}


def test_what_goes_wrong_is_told_and_the_worker_goes_on(project):
    engine = worker(project)
    engine.submit(QueuedJob("train", lambda report: 1 / 0))
    engine._do_next()
    assert engine.messages[-1]["why"].startswith("unexpected ZeroDivisionError")
    engine.painted(0)
    engine._do_next()
    assert engine.segmenter.done == [("whole", 0)]


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_want_of_memory_is_told_as_such(project, caplog, error):
    def work(report):
        raise error

    engine = worker(project)
    engine.submit(QueuedJob("train", work))
    engine._do_next()
    assert engine.messages[-1]["why"] == "there is not enough memory for this."
    assert not caplog.records, "no traceback"


def test_overlays_of_images_left_long_ago_are_dropped(project):
    tile = OverlayTile(np.zeros((256, 256), np.uint8), np.zeros((2, 256, 256), np.uint8))
    limit = 5 * tile.nbytes
    engine = worker(project, max_overlay_bytes=limit)
    for n in range(12):
        engine.show(Overlay(n, n // 3, (256, 256), (0, 1), [OverlayLayer(0, {(0, 0): tile})], "whole", ""), None, 0.0)
    assert engine.overlay(3, 11) is not None
    assert engine.overlay(3, 10) is not None
    assert engine.overlay(3, 9) is None
    assert engine.newest(0) is None
    assert "overlay 0" not in engine.latest
    assert sum(one.nbytes for kept in engine._overlays.values() for one in kept) <= limit


def test_interrupted_work_is_no_error_and_the_full_model_is_tried_again(project):
    engine = worker(project, pause_seconds=0.0)
    attempts = []

    def interrupted_once(link, *place):
        attempts.append(place)
        if len(attempts) in (1, 2):
            raise Interrupted

    engine.segmenter.visible = engine.segmenter.full = interrupted_once
    engine.look(View(0, 0, Region(0, 9, 0, 9)))
    drain(engine)
    assert attempts == [(View(0, 0, Region(0, 9, 0, 9)),), (0,), (0,)]
    assert not engine.messages


def test_the_full_model_gives_way_to_jobs(project):
    engine = worker(project, pause_seconds=0.0)
    order = []

    def full(link, image):
        order.append("full")
        engine._jobs.append(QueuedJob("next", lambda report: order.append("next")))
        if len(order) == 1:
            link.raise_if_interrupted()
        engine._jobs.clear()

    engine.segmenter.full = full
    engine.painted(0)
    drain(engine)
    assert order == ["full", "next", "full"]


def test_the_time_left_does_not_jump():
    end = EstimatedEnd(0.0)
    assert end.seconds_left(0.5, 1.0) is None  # too early to say
    assert end.seconds_left(0.05, 5.0) is None  # it has started over
    end = EstimatedEnd(0.0)
    slow = [end.seconds_left(now / 130, now) for now in np.arange(4.0, 30.0, 1.0)]
    assert all(abs(left - (130 - now)) < 1 for left, now in zip(slow, np.arange(4.0, 30.0, 1.0), strict=True))
    jump = [end.seconds_left(0.6 + 0.001 * (now - 30), now) for now in np.arange(30.0, 36.0, 1.0)]
    assert all(abs(jump[i + 1] - jump[i]) < 12 for i in range(5))
    assert abs(jump[0] - slow[-1]) < 12
