"""The part on the screen, the whole image, and the full model."""

from dataclasses import replace

import numpy as np
import pytest

from hedgerow.config import StackConfig
from hedgerow.images.reading import read_image
from hedgerow.images.regions import Region
from hedgerow.paint import model_at_rest
from hedgerow.paint.code_cache import CodeCache, MemoryCache
from hedgerow.paint.engine import Interrupted
from hedgerow.paint.held_out_strokes import HeldOutScore, HeldOutStrokes
from hedgerow.paint.long_jobs import LongJobs
from hedgerow.paint.model_predictions import MAX_WHOLE_PIXELS
from hedgerow.paint.overlays import View
from hedgerow.paint.pyramid import finest_level
from hedgerow.paint.segmenter import Segmenter
from hedgerow.progress import silent
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
    assert segmenter.statistics.score.dice > 0.8
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


@pytest.mark.parametrize(("stack_score", "levels"), [(0.9, "levels"), (0.5, "1 level,")])
def test_the_better_of_forest_and_stack_is_shown_and_exported(tmp_path, monkeypatch, stack_score, levels):
    project = open_project(tmp_path, 1, (64, 80))
    paint(project, 0, ((0, 5, 5), (1, 10, 60), (0, 30, 5), (1, 30, 55)))
    segmenter, listener = Segmenter(project, CodeCache(project, MemoryCache())), Listener()
    listener.is_urgent = True
    with pytest.raises(Interrupted):
        segmenter.full(listener, 0)
    listener.is_urgent = False
    scores = iter((0.6, stack_score))
    monkeypatch.setattr(HeldOutStrokes, "score", lambda *_: HeldOutScore(next(scores), 0.1))
    levels_kept = replace(StackConfig(), n_trees=4, drop_levels=False)
    monkeypatch.setattr(model_at_rest, "StackConfig", lambda: levels_kept)
    segmenter.full(listener, 0)
    shown = listener.shown[-1]
    assert levels in shown.model
    assert listener.messages[-1]["held_out"] == max(0.6, stack_score)
    exported = segmenter.at_rest.model(lambda *_: None)
    image = read_image(project.images[0].path)
    np.testing.assert_array_equal(exported.predict(image), shown.tile(0, 0, 0, "classes"))
    n_shown = len(listener.shown)
    segmenter.full(listener, 0)
    assert len(listener.shown) == n_shown  # nothing is computed twice
    project.close()


def test_training_that_is_worse_than_what_is_shown_is_warned_about(tmp_path, monkeypatch):
    project = open_project(tmp_path, 1, (64, 80))
    at_rest = Segmenter(project, CodeCache(project, MemoryCache())).at_rest
    shown = model_at_rest.SuitableModel((), False, HeldOutScore(0.63, 0.05))
    monkeypatch.setattr(at_rest, "choose", lambda wait: shown)
    jobs = LongJobs(project, at_rest, None, dict)
    for dice, warns in ((0.58, True), (0.7, False)):
        monkeypatch.setattr(at_rest, "score_of_training", lambda wait, dice=dice: HeldOutScore(dice, 0.05))
        text, warning = jobs._scored("train", silent)
        assert text.startswith(f"{dice:.2f}")
        assert ("worse" in warning) == warns
    project.close()


def test_large_images_are_segmented_at_a_coarser_level(project):
    segmenter = Segmenter(project, CodeCache(project, MemoryCache()))
    assert finest_level((1024, 1024), segmenter.max_pixels(MAX_WHOLE_PIXELS)) == 0
    assert finest_level((4096, 4096), segmenter.max_pixels(MAX_WHOLE_PIXELS)) == 1
    assert finest_level((20_000, 20_000), segmenter.max_pixels(MAX_WHOLE_PIXELS)) == 4
    few = Segmenter(project, CodeCache(project, MemoryCache(10 * 2**20)))
    assert few.max_pixels(MAX_WHOLE_PIXELS) < 200_000
