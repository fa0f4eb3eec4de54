"""The operations of a forest as the paper defines them, in plain NumPy: short and slow.

The kernels must agree with it exactly; only tests use it.
"""

from typing import Any

import numpy as np

from hedgerow.kernels.constants import LEAF
from hedgerow.kernels.definition.outputs import normalise

Trees = Any
"""The arrays of a forest, as in `forest.arrays.Forest`, which this package may not import."""

Place = tuple[int, int, int]
"""Slice, row and column of a pixel."""


def is_inside(volume: np.ndarray, place: Place) -> bool:
    return all(0 <= at < side for at, side in zip(place, volume.shape, strict=True))


def clipped(volume: np.ndarray, place: Place) -> Place:
    """The nearest place inside a volume."""
    z, row, column = (min(max(at, 0), side - 1) for at, side in zip(place, volume.shape, strict=True))
    return z, row, column


def read(volume: np.ndarray, place: Place, outside: float | None) -> np.float32:
    """One pixel of (Z,H,W); beyond the border the nearest edge pixel, or the constant `outside`."""
    if outside is not None and not is_inside(volume, place):
        return np.float32(outside)
    return volume[clipped(volume, place)]


def box_mean(volume: np.ndarray, place: Place, radius: int, outside: float | None) -> float:
    """The mean of the (2r+1)^2 pixels around a probe's place, in its slice; the place is first clipped to the image."""
    if outside is not None and not is_inside(volume, place):
        return outside
    z, row, column = clipped(volume, place)
    span = range(-radius, radius + 1)
    box = [[read(volume, (z, row + i, column + j), outside) for j in span] for i in span]
    return float(np.mean(box, dtype=np.float64))


def split_value(
    forest: Trees,
    node: int,
    channels: np.ndarray,
    place: Place,
    stretch: np.ndarray | None = None,
    outside: np.ndarray | None = None,
) -> np.float32:
    """The value that a node compares with its threshold at one pixel: the weighted sum of its probes.

    channels: (M,Z,H,W)
    stretch: (H,W) factor for the offsets at each pixel of an image, or None
    outside: (M,) constants beyond the border, or None
    """
    factor = np.float32(1) if stretch is None else stretch[place[1:]]
    total = np.float32(0)
    for j in range(forest.channel.shape[1]):
        weight = forest.weight[node, j]
        if weight == 0:
            continue
        offset = forest.offset[node, j] * np.array([1, factor, factor], np.float32)
        z, row, column = (at + int(np.floor(o + np.float32(0.5))) for at, o in zip(place, offset, strict=True))
        c = forest.channel[node, j]
        constant = None if outside is None else float(outside[c])
        value = box_mean(channels[c], (z, row, column), int(forest.radius[node, j]), constant)
        total = total + weight * np.float32(value)
    return total


def leaf_of(forest: Trees, tree: int, channels: np.ndarray, place: Place, **context: np.ndarray | None) -> int:
    """leaf(x): the row of `votes` that a pixel reaches in one tree."""
    node = int(forest.root[tree])
    while forest.left_child[node] != LEAF:
        value = split_value(forest, node, channels, place, **context)
        node = int(forest.left_child[node]) + int(value >= forest.threshold[node])
    return int(forest.leaf_index[node])


def forest_proba(forest: Trees, channels: np.ndarray, **context: np.ndarray | None) -> np.ndarray:
    """p(c|x) of each pixel, (C,Z,H,W): the normalised sum over the trees of the votes of the leaf that is reached."""
    size = channels.shape[1:]
    scores = np.zeros((forest.votes.shape[1], *size), np.float32)
    for place in np.ndindex(*size):
        for tree in range(len(forest.root)):
            scores[:, *place] += forest.votes[leaf_of(forest, tree, channels, place, **context)]
    return normalise(scores)
