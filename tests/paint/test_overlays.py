"""Tiles of a segmentation at any level."""

import numpy as np

from hedgerow.images.array_checks import UNLABELLED_INDEX
from hedgerow.images.regions import Region
from hedgerow.paint.overlays import Overlay, OverlayLayer, OverlayTile, tiles_of, uncertainty


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
