"""Scores on held-out strokes, and warnings."""

import numpy as np

from hedgerow.paint import raster
from hedgerow.paint.code_cache import CodeCache, MemoryCache
from hedgerow.paint.paint_statistics import PaintStatistics, assign_folds, connected_strokes
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
    same = ((0, 40, 40), (1, 120, 60), (0, 200, 40), (1, 290, 70))  # all on the same grey
    paint(project, 0, same)
    codes = CodeCache(project, MemoryCache())
    statistics.hold_out(codes, [codes.painted_pixels(0, 0)], 0)
    assert statistics.held_out < 0.75
    assert any("is mistaken for" in item for item in statistics.warnings())
    other = PaintStatistics(project)
    project.labels[1].paint(raster.covered([[9, 9]], 1, (600, 560)), 2)
    assert any("only 5 painted pixels" in item for item in other.warnings())
