"""The part on the screen, the whole image, and the full model."""

import numpy as np
import pytest

from hedgerow.images.regions import Region
from hedgerow.paint.code_cache import CodeCache, MemoryCache
from hedgerow.paint.engine import Interrupted
from hedgerow.paint.model_predictions import MAX_WHOLE_PIXELS
from hedgerow.paint.overlays import View
from hedgerow.paint.pyramid import finest_level
from hedgerow.paint.segmenter import Segmenter
from helpers.paint import Listener, drawn, open_project
from helpers.paint import paint_strokes as paint


def test_the_screen_first_then_the_whole_then_all_trees(project):
    paint(project)
    segmenter, listener = Segmenter(project, CodeCache(project, MemoryCache())), Listener()
    segmenter.visible(listener, View(0, 0, Region(0, 200, 300, 500)))
    visible = listener.shown[-1]
    assert set(visible.layers[0].tiles) == {(0, 1)}
    segmenter.whole(listener, 0)
    assert len(listener.shown[-1].layers[0].tiles) == 9
    assert listener.shown[-1].layers[0].tiles[0, 1] is visible.layers[0].tiles[0, 1]  # not computed again
    segmenter.full(listener, 0)
    assert [one.scope for one in listener.shown] == ["visible", "whole", "full"]
    seconds = [one["seconds"] for one in listener.messages if one["say"] == "numbers"]
    assert len(set(seconds)) == 1  # the time from the stroke to the screen
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
    segmenter.full(listener, 0)
    segmenter.visible(listener, view)
    segmenter.whole(listener, 0)
    segmenter.full(listener, 0)
    assert [item.scope for item in listener.shown] == ["full"]
    project.labels[0].paint([(Region(5, 8, 5, 8), np.ones((3, 3), bool))], 0)
    segmenter.visible(listener, view)
    assert [item.scope for item in listener.shown] == ["full", "visible"]


def test_work_on_the_whole_gives_way_to_news(project):
    paint(project)
    segmenter, listener = Segmenter(project, CodeCache(project, MemoryCache())), Listener()
    listener.is_urgent = True
    with pytest.raises(Interrupted):
        segmenter.whole(listener, 0)
    assert not listener.shown
    with pytest.raises(Interrupted):
        segmenter.full(listener, 0)


def test_where_much_is_painted_the_full_stack_is_grown(tmp_path):
    project = open_project(tmp_path, 1, (64, 80))
    _, truth = drawn(0, (64, 80))
    project.labels[0].paint([(Region(0, 64, 0, 80), truth == 0)], 0)
    project.labels[0].paint([(Region(0, 64, 0, 80), truth == 1)], 1)
    segmenter, listener = Segmenter(project, CodeCache(project, MemoryCache())), Listener()
    listener.is_urgent = True
    with pytest.raises(Interrupted):
        segmenter.full(listener, 0)
    listener.is_urgent = False
    segmenter.full(listener, 0)
    assert listener.shown[-1].model.endswith(", 16 trees")
    project.close()


def test_large_images_are_segmented_at_a_coarser_level(project):
    segmenter = Segmenter(project, CodeCache(project, MemoryCache()))
    assert finest_level((1024, 1024), segmenter.max_pixels(MAX_WHOLE_PIXELS)) == 0
    assert finest_level((4096, 4096), segmenter.max_pixels(MAX_WHOLE_PIXELS)) == 1
    assert finest_level((20_000, 20_000), segmenter.max_pixels(MAX_WHOLE_PIXELS)) == 4
    few = Segmenter(project, CodeCache(project, MemoryCache(10 * 2**20)))
    assert few.max_pixels(MAX_WHOLE_PIXELS) < 200_000
