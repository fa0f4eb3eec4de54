"""Planes of a lattice, against looking up every pixel."""

import numpy as np
import pytest

from hedgerow.kernels.cpu.spread import spread


@pytest.mark.parametrize("step", [1, 2, 3, 7])
@pytest.mark.parametrize("size", [(1, 1), (1, 9), (8, 1), (13, 11)])
@pytest.mark.parametrize("corner", [(0, 0), (-40, 3), (5, -17), (2, 60)])
def test_a_plane_is_the_nearest_pixel_at_every_place(step, size, corner):
    rng = np.random.default_rng(0)
    plane = rng.standard_normal(size).astype(np.float32)
    shifts = np.array([[down, right] for down in range(step) for right in range(step)])
    out = np.full((len(shifts), 6, 10), np.nan, np.float32)
    spread(plane, shifts, *corner, step, out)
    for (down, right), found in zip(shifts, out, strict=True):
        rows = np.clip(corner[0] + down + step * np.arange(6), 0, size[0] - 1)
        columns = np.clip(corner[1] + right + step * np.arange(10), 0, size[1] - 1)
        np.testing.assert_array_equal(found, plane[rows][:, columns])
