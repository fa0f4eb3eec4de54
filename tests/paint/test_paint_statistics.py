"""Scores on held-out strokes, and warnings."""

import numpy as np

from hedgerow.paint import raster
from hedgerow.paint.code_cache import CodeCache, MemoryCache
from hedgerow.paint.held_out_strokes import GAP_PIXELS, HeldOutStrokes, assign_folds, connected_strokes
from hedgerow.paint.model_at_rest import ModelAtRest
from hedgerow.paint.paint_statistics import PaintStatistics
from helpers.paint import paint_strokes as paint


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
    fold, _, scored = assign_folds(tables, tables[0].value)
    assert scored.tolist() == [0]
    assert set(fold[tables[0].value == 0].tolist()) == {0, 1}
    assert ModelAtRest(project, codes).score_at(0, lambda: None).dice is None


def test_warnings_about_little_paint_and_classes_that_look_alike(project):
    statistics = PaintStatistics(project)
    assert "two classes" in statistics.warnings()[0]
    project.labels[0].paint(raster.covered([[9, 9]], 1, (600, 560)), 1)
    same = ((0, 40, 40), (1, 120, 60), (0, 200, 40), (1, 290, 70))  # all on the same grey
    paint(project, 0, same)
    codes = CodeCache(project, MemoryCache())
    score = ModelAtRest(project, codes).score_at(0, lambda: None)
    statistics.take(score, project.stamp)
    assert score.dice < 0.75
    assert any("is mistaken for" in item for item in statistics.warnings())
    other = PaintStatistics(project)
    project.labels[1].paint(raster.covered([[9, 9]], 1, (600, 560)), 2)
    assert any("only 5 painted pixels" in item for item in other.warnings())


def test_strokes_that_score_lie_apart_from_those_that_train_and_the_score_has_a_margin(project):
    paint(project)
    paint(project, 0, ((1, 44, 60), (0, 70, 330)))  # beside strokes of the other class
    pixels = CodeCache(project, MemoryCache()).painted_pixels(0, 0)
    strokes = HeldOutStrokes([pixels], 0)
    place = np.stack([pixels.row, pixels.column], axis=1)
    apart = []

    def predict(training, others):
        between = place[training, None] - place[None, others]
        apart.append(np.sqrt((between**2).sum(axis=2)).min())
        wrong = np.arange(len(others)) % 5 == 0
        return np.where(wrong, 1 - strokes.target[others], strokes.target[others])

    score = strokes.score(predict)
    assert len(apart) == 2
    assert min(apart) > GAP_PIXELS
    assert 0.7 < score.dice < 0.9
    assert score.margin >= 0
    assert score.table.sum() <= len(strokes.value)
