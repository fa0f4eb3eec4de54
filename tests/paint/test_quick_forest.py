"""The model behind the hand: codes, quick forests, results, numbers, memory."""

import numpy as np
import pytest

from hedgerow.images.array_checks import UNLABELLED_INDEX
from hedgerow.images.regions import Region
from hedgerow.paint import raster
from hedgerow.paint.code_cache import CODE_TILE, CodeCache, EncodedRegion, MemoryCache, live_config, n_codes
from hedgerow.paint.engine import Engine, QueuedJob
from hedgerow.paint.model_predictions import MAX_WHOLE_PIXELS
from hedgerow.paint.overlays import Overlay, OverlayLayer, OverlayTile, View, tiles_of, uncertainty
from hedgerow.paint.paint_statistics import PaintStatistics, assign_folds, connected_strokes
from hedgerow.paint.pyramid import Pyramid, finest_level, level_size, n_levels
from hedgerow.paint.quick_forest import balanced_sample
from hedgerow.paint.segmenter import Segmenter
from helpers.paint import Listener, drawn, open_project
from helpers.paint import paint_strokes as paint


@pytest.fixture
def project(tmp_path):
    opened = open_project(tmp_path, 2, (600, 560))
    yield opened
    opened.close()


def test_blocks_are_parts_of_one_whole(project):
    codes = CodeCache(project, MemoryCache())
    features, edges = codes.bank_and_edges(0)
    height, width = project.images[0].size
    whole = features.compute(codes.pyramid(0).planes(0, Region(0, height, 0, width)))
    expected = EncodedRegion.of(np.ascontiguousarray(whole), edges).image()
    for place in ((0, 0), (1, 1)):
        top, left = place[0] * CODE_TILE, place[1] * CODE_TILE
        assert np.array_equal(codes.tile(0, 0, place).image(), expected[top : top + CODE_TILE, left : left + CODE_TILE])


@pytest.mark.parametrize("n_channels", [1, 2, 3, 5, 8, 20])
def test_the_bytes_of_a_pixel_are_known_in_advance(n_channels):
    config = live_config(n_channels)
    from hedgerow.features.bank import Bank

    assert Bank.begin([np.zeros((n_channels, 9, 9), np.float32)], config).n_features == n_codes(n_channels)


def test_a_rare_class_keeps_its_paint():
    value = np.repeat([0, 1, 2], [50_000, 10, 3000]).astype(np.uint8)
    chosen = balanced_sample(value, 4000)
    assert np.bincount(value[chosen]).tolist() == [1995, 10, 1995]
    assert np.array_equal(balanced_sample(value[:100], 4000), np.arange(100))


def test_the_screen_first_then_the_whole_then_all_trees(project):
    paint(project)
    segmenter, listener = Segmenter(project, CodeCache(project, MemoryCache())), Listener()
    segmenter.visible(listener, View(0, 0, Region(0, 200, 300, 500)))
    visible = listener.shown[-1]
    assert set(visible.layers[0].tiles) == {(0, 1)}
    segmenter.whole(listener, 0)
    assert len(listener.shown[-1].layers[0].tiles) == 9
    assert listener.shown[-1].layers[0].tiles[0, 1] is visible.layers[0].tiles[0, 1]  # not computed again
    assert segmenter.full(listener, 0)
    assert [one.scope for one in listener.shown] == ["visible", "whole", "full"]
    seconds = [one["seconds"] for one in listener.messages if one["say"] == "numbers"]
    assert len(set(seconds)) == 1  # those from the stroke to the screen
    assert "64 trees" in listener.shown[-1].model
    assert segmenter.statistics.held_out > 0.8
    truth = np.minimum(drawn(0, (600, 560))[1], 1)
    found = listener.shown[-1].tile(0, 0, 0, "classes")
    assert np.mean(found == truth[:256, :256]) > 0.95


def test_a_pan_keeps_what_was_there(project):
    paint(project)
    segmenter, listener = Segmenter(project, CodeCache(project, MemoryCache())), Listener()
    segmenter.visible(listener, View(0, 0, Region(0, 100, 0, 100)))
    segmenter.visible(listener, View(0, 0, Region(300, 400, 300, 400)))
    assert set(listener.shown[-1].layers[0].tiles) == {(0, 0), (1, 1)}


def test_what_the_screen_shows_of_the_whole_is_not_sent_again(project):
    paint(project)
    segmenter, listener = Segmenter(project, CodeCache(project, MemoryCache())), Listener()
    segmenter.visible(listener, View(0, 0, Region(0, 600, 0, 560)))
    segmenter.whole(listener, 0)
    assert [one.scope for one in listener.shown] == ["visible", "whole"]
    assert listener.shown[0].id == listener.shown[1].id


def test_a_better_model_stays_until_there_is_new_paint(project):
    paint(project)
    segmenter, listener = Segmenter(project, CodeCache(project, MemoryCache())), Listener()
    view = View(0, 0, Region(100, 200, 100, 200))
    assert segmenter.full(listener, 0)
    segmenter.visible(listener, view)
    segmenter.whole(listener, 0)
    assert segmenter.full(listener, 0)
    assert [one.scope for one in listener.shown] == ["full"]
    project.labels[0].paint([(Region(5, 8, 5, 8), np.ones((3, 3), bool))], 0)
    segmenter.visible(listener, view)
    assert [one.scope for one in listener.shown] == ["full", "visible"]


def test_work_on_the_whole_gives_way_to_news(project):
    paint(project)
    segmenter, listener = Segmenter(project, CodeCache(project, MemoryCache())), Listener()
    listener.is_urgent = True
    segmenter.whole(listener, 0)
    assert not listener.shown
    assert segmenter.full(listener, 0) is False


def test_where_much_is_painted_the_full_stack_is_grown(tmp_path):
    project = open_project(tmp_path, 1, (64, 80))
    _, truth = drawn(0, (64, 80))
    project.labels[0].paint([(Region(0, 64, 0, 80), truth == 0)], 0)
    project.labels[0].paint([(Region(0, 64, 0, 80), truth == 1)], 1)
    segmenter, listener = Segmenter(project, CodeCache(project, MemoryCache())), Listener()
    listener.is_urgent = True
    assert segmenter.full(listener, 0) is False
    listener.is_urgent = False
    assert segmenter.full(listener, 0)
    assert listener.shown[-1].model.endswith((" levels of 16 trees", "one level of 16 trees"))
    project.close()


def test_large_images_are_segmented_at_a_coarser_level(project):
    segmenter = Segmenter(project, CodeCache(project, MemoryCache()))
    assert finest_level((1024, 1024), segmenter.max_pixels(MAX_WHOLE_PIXELS)) == 0
    assert finest_level((4096, 4096), segmenter.max_pixels(MAX_WHOLE_PIXELS)) == 1
    assert finest_level((20_000, 20_000), segmenter.max_pixels(MAX_WHOLE_PIXELS)) == 4
    few = Segmenter(project, CodeCache(project, MemoryCache(10 * 2**20)))
    assert few.max_pixels(MAX_WHOLE_PIXELS) < 200_000


def test_levels_until_one_tile_holds_the_image():
    assert [n_levels((side, 9)) for side in (1, 256, 257, 512, 1024, 20_000)] == [1, 1, 2, 2, 3, 8]
    assert level_size((1025, 7), 2) == (257, 2)


def test_a_large_image_lies_in_a_file(project, monkeypatch):
    from hedgerow.paint import pyramid

    usual = Pyramid(project.images[0])
    monkeypatch.setattr(pyramid, "MAX_MEMORY_BYTES", 1000)
    large = Pyramid(project.images[0])
    assert large.nbytes == 0
    for level in range(large.n_levels):
        region = Region(0, *large.size(level)[:1], 0, large.size(level)[1])
        assert np.array_equal(large.planes(level, region), usual.planes(level, region))


def test_tiles_of_other_levels_and_of_what_is_not_known():
    classes = np.arange(256 * 256, dtype=np.uint8).reshape(256, 256) % 2
    proba = np.stack([255 * (1 - classes), 255 * classes]).astype(np.uint8)
    result = Overlay(1, 0, (600, 512), (3, 7), [OverlayLayer(0, {(0, 0): OverlayTile(classes, proba)})], "visible", "")
    same = result.tile(0, 0, 0, "classes")
    assert np.array_equal(same, np.where(classes == 0, 3, 7))
    half = result.tile(1, 0, 0, "classes")
    assert np.array_equal(half[:128, :128], same[1::2, 1::2])
    assert (half[128:] == UNLABELLED_INDEX).all()
    assert result.tile(0, 1, 1, "classes") is None
    assert result.tile(0, 9, 9, "classes") is None
    assert np.array_equal(result.tile(0, 0, 0, "proba", 7), proba[1])
    coarse = Overlay(1, 0, (600, 512), (3, 7), [OverlayLayer(1, {(0, 0): OverlayTile(classes, proba)})], "whole", "")
    assert np.array_equal(coarse.tile(0, 1, 0, "classes")[::2, ::2], np.where(classes == 0, 3, 7)[128:, :128])
    both = Overlay(
        1,
        0,
        (600, 512),
        (3, 7),
        [OverlayLayer(0, {(0, 0): OverlayTile(1 - classes, proba)}), *coarse.layers],
        "whole",
        "",
    )
    assert np.array_equal(both.tile(0, 0, 0, "classes"), np.where(classes == 0, 7, 3))  # the finer one is shown
    assert np.array_equal(both.tile(0, 1, 0, "classes"), coarse.tile(0, 1, 0, "classes"))


def test_uncertainty_is_what_the_first_two_differ_by():
    proba = np.array([[[255, 128, 85, 200]], [[0, 127, 85, 55]], [[0, 0, 85, 0]]], np.uint8)
    assert uncertainty(proba).tolist() == [[0, 254, 255, 110]]


def test_tiles_nearest_to_the_middle_come_first():
    assert tiles_of(Region(0, 768, 0, 768), (700, 700))[0] == (1, 1)
    assert sorted(tiles_of(Region(-5, 300, 250, 999), (290, 600))) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]


def test_the_least_recently_used_goes_first():
    store, computed = MemoryCache(100), []

    def get(key, n_bytes=40):
        return store.get(key, lambda: (computed.append(key), np.zeros(n_bytes, np.uint8))[1])

    for key in ("a", "b", "a", "c", "a", "b"):
        get(key)
    assert computed == ["a", "b", "c", "b"]
    assert store.nbytes <= 100
    get("large", 500)  # what was asked for is there, whatever its size
    assert "large" in store
    assert store.nbytes == 500
    with pytest.raises(ZeroDivisionError):
        store.get("bad", lambda: 1 // 0)
    assert store.get("bad", lambda: np.zeros(1)).nbytes == 8


def test_codes_of_many_images_stay_within_the_memory(tmp_path):
    project = open_project(tmp_path, 6, (200, 220))
    store = MemoryCache(6 * 2**20)
    segmenter, listener = Segmenter(project, CodeCache(project, store)), Listener()
    paint(project, 0, ((0, 40, 30), (1, 60, 120)))
    for image in range(6):
        segmenter.whole(listener, image)
        assert store.nbytes <= store.max_bytes
    assert {one.image for one in listener.shown} == set(range(6))
    project.close()


def test_pieces_are_strokes():
    row = np.array([0, 1, 2, 9, 9, 10, 0, 1])
    column = np.array([0, 1, 2, 9, 10, 11, 5, 5])
    value = np.array([1, 1, 1, 1, 1, 1, 1, 2], np.uint8)
    found = connected_strokes(row, column, value)
    assert [np.flatnonzero(found == one).tolist() for one in range(found.max() + 1)] == [[0, 1, 2], [3, 4, 5], [6], [7]]
    assert len(connected_strokes(row[:0], column[:0], value[:0])) == 0


def test_strokes_are_dealt_out_and_a_class_of_one_is_not_scored(project):
    paint(project, 0, ((0, 40, 40), (0, 300, 60), (1, 60, 300)))
    codes = CodeCache(project, MemoryCache())
    tables = [codes.painted_pixels(0, 0)]
    fold, scored = assign_folds(tables, tables[0].value)
    assert scored.tolist() == [0]
    assert set(fold[tables[0].value == 0].tolist()) == {0, 1}
    statistics = PaintStatistics(project)
    statistics.hold_out(codes, tables, 0)
    assert statistics.held_out is None


def test_warnings_about_little_paint_and_classes_that_look_alike(project):
    statistics = PaintStatistics(project)
    assert "two classes" in statistics.warnings()[0]
    project.labels[0].paint(raster.covered([[9, 9]], 1, (600, 560)), 1)
    same = ((0, 40, 40), (1, 120, 60), (0, 200, 40), (1, 290, 70))  # all of them on the same grey
    paint(project, 0, same)
    codes = CodeCache(project, MemoryCache())
    statistics.hold_out(codes, [codes.painted_pixels(0, 0)], 0)
    assert statistics.held_out < 0.75
    assert any("is mistaken for" in one for one in statistics.warnings())
    other = PaintStatistics(project)
    project.labels[1].paint(raster.covered([[9, 9]], 1, (600, 560)), 2)
    assert any("only 5 painted pixels" in one for one in other.warnings())


class FakeSegmenter:
    """Notes what it is asked to do."""

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
        return True


def worker(project, **options):
    messages = []
    engine = Engine(project, FakeSegmenter(), messages.append, **options)
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
    assert engine.messages[-1] == {"say": "failed", "job": "improve", "why": "it was cancelled."}


def test_what_goes_wrong_is_told_and_the_worker_goes_on(project):
    engine = worker(project)
    engine.submit(QueuedJob("train", lambda report: 1 / 0))
    engine._do_next()
    assert engine.messages[-1]["why"].startswith("unexpected ZeroDivisionError")
    engine.painted(0)
    engine._do_next()
    assert engine.segmenter.done == [("whole", 0)]


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
