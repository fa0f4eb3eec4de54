"""Planes made twice as large, bilinearly, or half as large; every value depends on its neighbours alone."""

import numpy as np


def doubled(planes: np.ndarray) -> np.ndarray:
    """(C,2H,2W) of planes (C,H,W): values lie at the centres of pixels; beyond the edge is the nearest value."""
    for axis in (1, 2):
        planes = _doubled_along(planes, axis)
    return planes


def _doubled_along(planes: np.ndarray, axis: int) -> np.ndarray:
    shape = list(planes.shape)
    shape[axis] *= 2
    found = np.empty(shape, np.float32)
    before, after = (np.take(planes, _clipped(planes.shape[axis], by), axis=axis) for by in (-1, 1))
    most = planes * np.float32(0.75)
    even, odd = [slice(None)] * 3, [slice(None)] * 3
    even[axis], odd[axis] = slice(0, None, 2), slice(1, None, 2)
    found[tuple(even)] = most + before * np.float32(0.25)
    found[tuple(odd)] = most + after * np.float32(0.25)
    return found


def _clipped(n: int, by: int) -> np.ndarray:
    return np.clip(np.arange(n) + by, 0, n - 1)


def halved(planes: np.ndarray) -> np.ndarray:
    """(C,ceil(H/2),ceil(W/2)): means of two by two; an odd last row or column is taken twice."""
    planes = np.pad(planes, ((0, 0), (0, planes.shape[1] % 2), (0, planes.shape[2] % 2)), mode="edge")
    rows = planes[:, ::2] + planes[:, 1::2]
    return (rows[:, :, ::2] + rows[:, :, 1::2]) * np.float32(0.25)
