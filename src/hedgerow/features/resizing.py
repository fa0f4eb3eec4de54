"""Planes made twice as large, bilinearly, or half as large; every value depends on its neighbours alone."""

import numpy as np


def doubled(planes: np.ndarray) -> np.ndarray:
    """(C,2H,2W) of planes (C,H,W): values lie at the centres of pixels; beyond the edge is the nearest value."""
    for axis in (1, 2):
        planes = _doubled_along(planes, axis)
    return planes


def _doubled_along(planes: np.ndarray, axis: int) -> np.ndarray:
    def at(first: int | None, end: int | None, step: int | None = None) -> tuple[slice, ...]:
        return (*[slice(None)] * axis, slice(first, end, step))

    shape = list(planes.shape)
    shape[axis] *= 2
    enlarged = np.empty(shape, np.float32)
    most, least = planes * np.float32(0.75), planes * np.float32(0.25)
    np.add(most[at(1, None)], least[at(None, -1)], out=enlarged[at(2, None, 2)])
    np.add(most[at(None, -1)], least[at(1, None)], out=enlarged[at(1, -1, 2)])
    for edge in (at(None, 1), at(-1, None)):
        np.add(most[edge], least[edge], out=enlarged[edge])
    return enlarged


def halved(planes: np.ndarray) -> np.ndarray:
    """(C,ceil(H/2),ceil(W/2)): means of two by two; an odd last row or column is taken twice."""
    planes = np.pad(planes, ((0, 0), (0, planes.shape[1] % 2), (0, planes.shape[2] % 2)), mode="edge")
    rows = planes[:, ::2] + planes[:, 1::2]
    return (rows[:, :, ::2] + rows[:, :, 1::2]) * np.float32(0.25)
