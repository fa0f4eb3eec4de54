"""The pixels that a stroke paints: the fast form against the definition, at unusual positions."""

import numpy as np
import pytest

from hedgerow.kernels.definition import strokes
from hedgerow.paint import raster


def fast(points, radius, size, is_polygon=False):
    painted = np.zeros(size, bool)
    for region, mask in raster.covered(points, radius, size, is_polygon=is_polygon):
        region.of(painted)[...] |= mask
    return painted


def plain(points, radius, size, is_polygon=False):
    mask = np.zeros(size, bool)
    outline = [*points, points[0]] if is_polygon else points
    for row, column in np.ndindex(*size):
        mask[row, column] = strokes.is_near(row, column, outline, raster.OUTLINE_RADIUS if is_polygon else radius)
        if is_polygon:
            mask[row, column] |= strokes.is_inside(row, column, points)
    return mask


def drawn_points(rng, size, n):
    """Multiples of 1/8; some are outside the image, some are equal."""
    points = (rng.integers(-40, 8 * max(size) + 40, (n, 2)) / 8).tolist()
    return points + points[: n // 3]


@pytest.mark.parametrize("seed", range(30))
def test_a_stroke_paints_what_the_definition_says(seed):
    rng = np.random.default_rng(seed)
    size = tuple(rng.integers(1, 36, 2).tolist())
    points, radius = drawn_points(rng, size, int(rng.integers(1, 7))), int(rng.integers(0, 90)) / 8
    assert np.array_equal(fast(points, radius, size), plain(points, radius, size))


@pytest.mark.parametrize("seed", range(30))
def test_a_polygon_paints_what_the_definition_says(seed):
    rng = np.random.default_rng(1000 + seed)
    size = tuple(rng.integers(1, 36, 2).tolist())
    points = drawn_points(rng, size, int(rng.integers(1, 8)))
    if seed % 2:
        points = np.round(points).tolist()  # edges that pass exactly through pixels
    assert np.array_equal(fast(points, 0, size, True), plain(points, 0, size, True))


def test_touching_exactly_counts():
    # 3-4-5: the pixel (3, 4) lies at exactly 5 from the point.
    assert fast([[0, 0]], 5, (6, 6))[3, 4]
    assert not fast([[0, 0]], 4.875, (6, 6))[3, 4]


def test_a_point_paints_its_pixel_however_small_the_radius():
    assert fast([[2.5, 1.375]], 0, (5, 5)).nonzero() == (np.array([3]), np.array([1]))


def test_the_parts_of_a_mask_fit_together():
    size = (3 * raster.ROWS_AT_ONCE + 7, 40)
    points = [[-3.5, 2], [size[0] + 4, 33.125]]
    covered = fast(points, 2.25, size)
    n = raster.ROWS_AT_ONCE
    rows = [0, n - 1, n, n + 1, 2 * n, size[0] - 1]
    for row in rows:
        expected = [strokes.is_near(row, column, points, 2.25) for column in range(size[1])]
        assert covered[row].tolist() == expected


def test_long_segments_are_rounded_as_in_any_language():
    # Products beyond 2^53 are rounded, once each: the same comparison with Python's floats.
    points, radius = [[0.125, 0.5], [19999.875, 19998.25]], 3.375
    for region, mask in raster.covered(points, radius, (20000, 20000)):
        for row in (20, 9999, 15001):
            if region.top <= row < region.bottom:
                some = range(row - 8, row + 8)
                expected = [strokes.is_near(row, column, points, radius) for column in some]
                assert mask[row - region.top, row - 8 - region.left : row + 8 - region.left].tolist() == expected


def test_a_stroke_outside_paints_nothing():
    assert list(raster.covered([[-50, -50]], 3, (20, 20))) == []
