"""Planes of a lattice, against looking up every pixel."""

import numpy as np
import pytest

from hedgerow.kernels.cpu.plane_ops import spread


@pytest.mark.parametrize("step", [1, 2, 3, 7])
@pytest.mark.parametrize("size", [(1, 1, 1), (1, 1, 9), (1, 8, 1), (1, 13, 11), (4, 5, 6)])
@pytest.mark.parametrize("corner", [(0, 0, 0), (0, -40, 3), (-2, 5, -17), (1, 2, 60)])
def test_a_plane_is_the_nearest_pixel_at_every_place(step, size, corner):
    rng = np.random.default_rng(0)
    volume = rng.standard_normal(size).astype(np.float32)
    shifts = np.array([[down, right] for down in range(step) for right in range(step)])
    out = np.full((len(shifts), 3, 6, 10), np.nan, np.float32)
    spread(volume, shifts, *corner, step, out)
    slices = np.clip(corner[0] + np.arange(3), 0, size[0] - 1)
    for (down, right), planes in zip(shifts, out, strict=True):
        rows = np.clip(corner[1] + down + step * np.arange(6), 0, size[1] - 1)
        columns = np.clip(corner[2] + right + step * np.arange(10), 0, size[2] - 1)
        np.testing.assert_array_equal(planes, volume[slices][:, rows][:, :, columns])
