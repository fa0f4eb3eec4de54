"""The forest's operations as the paper defines them, in plain NumPy: slow, short, the definition.

The kernels beside this module must agree with it exactly; nothing but tests and readers uses it.
"""

from typing import Any

import numpy as np

from hedgerow.kernels.constants import LEAF
from hedgerow.kernels.definition.outputs import normalise

Trees = Any
"""The arrays of a forest, as `forest.arrays.Forest` has them; this room cannot import that one."""


def read(plane: np.ndarray, row: int, column: int, outside: float | None) -> np.float32:
    """One pixel of (H,W); beyond the border the nearest edge pixel, or the constant `outside`."""
    height, width = plane.shape
    if outside is not None and not (0 <= row < height and 0 <= column < width):
        return np.float32(outside)
    return plane[min(max(row, 0), height - 1), min(max(column, 0), width - 1)]


def box_mean(plane: np.ndarray, row: int, column: int, radius: int, outside: float | None) -> float:
    """The average of the (2r+1)^2 pixels around a probe's place; the place itself is brought into the image first."""
    height, width = plane.shape
    if outside is not None and not (0 <= row < height and 0 <= column < width):
        return outside
    row, column = min(max(row, 0), height - 1), min(max(column, 0), width - 1)
    span = range(-radius, radius + 1)
    return float(np.mean([[read(plane, row + i, column + j, outside) for j in span] for i in span], dtype=np.float64))


def split_value(
    forest: Trees,
    node: int,
    channels: np.ndarray,
    row: int,
    column: int,
    stretch: np.ndarray | None = None,
    outside: np.ndarray | None = None,
) -> np.float32:
    """What a node compares with its threshold at one pixel: the weighted sum of its probes into channels (M,H,W).

    stretch: (H,W) factor for the offsets at each pixel, or None; outside: (M,) constants beyond the border, or None
    """
    factor = np.float32(1) if stretch is None else stretch[row, column]
    total = np.float32(0)
    for j in range(forest.channel.shape[1]):
        weight = forest.weight[node, j]
        if weight == 0:
            continue
        down, right = (int(np.floor(o * factor + np.float32(0.5))) for o in forest.offset[node, j])
        c = forest.channel[node, j]
        constant = None if outside is None else float(outside[c])
        value = box_mean(channels[c], row + down, column + right, int(forest.radius[node, j]), constant)
        total = total + weight * np.float32(value)
    return total


def leaf_of(forest: Trees, tree: int, channels: np.ndarray, row: int, column: int, **context: np.ndarray | None) -> int:
    """leaf(x): the row of `votes` that a pixel reaches in one tree."""
    node = int(forest.root[tree])
    while forest.left_child[node] != LEAF:
        value = split_value(forest, node, channels, row, column, **context)
        node = int(forest.left_child[node]) + int(value >= forest.threshold[node])
    return int(forest.leaf_index[node])


def forest_proba(forest: Trees, channels: np.ndarray, **context: np.ndarray | None) -> np.ndarray:
    """p(c|x) of every pixel, (C,H,W): the normalised sum over trees of the votes of the leaf that is reached."""
    height, width = channels.shape[1:]
    scores = np.zeros((forest.votes.shape[1], height, width), np.float32)
    for row in range(height):
        for column in range(width):
            for tree in range(len(forest.root)):
                scores[:, row, column] += forest.votes[leaf_of(forest, tree, channels, row, column, **context)]
    return normalise(scores)
