"""Finds the connected parts of a label map for all classes at once, by runs of equal values along the rows."""

from itertools import product
from typing import Literal

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

Connectivity = Literal[4, 8]
"""Whether pixels that share only a corner are connected (8), or must share an edge (4)."""


def components(labels: np.ndarray, connectivity: Connectivity = 8) -> tuple[np.ndarray, np.ndarray]:
    """Numbers (H,W) int32 of the connected parts of equal value, and the value (N,) of each part.

    Parts are numbered from 0 in the order of their first pixels, row by row.
    """
    begins = np.ones(labels.shape, bool)  # where a run of equal values begins
    begins[:, 1:] = labels[:, 1:] != labels[:, :-1]
    runs = np.cumsum(begins, dtype=np.int32).reshape(labels.shape) - 1
    links = _links(labels, runs, begins, connectivity)
    n_runs = int(runs[-1, -1]) + 1
    graph = coo_array((np.ones(links.shape[1], bool), (links[0], links[1])), shape=(n_runs, n_runs))
    _, part = connected_components(graph, directed=False)
    _, first = np.unique(part, return_index=True)
    rank = np.empty(len(first), np.int32)
    order = np.argsort(first)
    rank[order] = np.arange(len(first), dtype=np.int32)
    return rank[part][runs], labels[begins][first[order]]


def _links(labels: np.ndarray, runs: np.ndarray, begins: np.ndarray, connectivity: Connectivity) -> np.ndarray:
    """(2,K) pairs of connected runs in neighbouring rows, each pair once or a few times."""
    same = labels[1:] == labels[:-1]
    same &= begins[1:] | begins[:-1]  # the pixels before give all other links
    links = [(runs[:-1][same], runs[1:][same])]
    if connectivity == 8:
        # Only where the two runs meet at a corner: otherwise they share an edge, or their values differ.
        corner = begins[1:, 1:] & begins[:-1, 1:]
        falling = corner & (labels[:-1, :-1] == labels[1:, 1:])
        rising = corner & (labels[:-1, 1:] == labels[1:, :-1])
        links.append((runs[:-1, :-1][falling], runs[1:, 1:][falling]))
        links.append((runs[:-1, 1:][rising], runs[1:, :-1][rising]))
    return np.concatenate([np.stack(pair) for pair in links], axis=1)


def neighbours(connectivity: Connectivity, n_axes: int = 2) -> tuple[tuple[int, ...], ...]:
    """Half of the steps to a neighbour, along each axis; the other half lead back. In volumes, 4 stands for the 6
    neighbours that share a face, and 8 for all 26."""
    steps = (step for step in product((-1, 0, 1), repeat=n_axes) if step > (0,) * n_axes)
    return tuple(step for step in steps if connectivity == 8 or np.count_nonzero(step) == 1)


def pairs(array: np.ndarray, step: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Two views of an array: all pixels that have a neighbour at this step, and those neighbours."""
    sizes = list(zip(array.shape, step, strict=True))
    here = tuple(slice(max(-far, 0), size - max(far, 0)) for size, far in sizes)
    there = tuple(slice(max(far, 0), size - max(-far, 0)) for size, far in sizes)
    return array[here], array[there]


def counted(keys: np.ndarray, weights: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The different keys (K,), and the number of times each occurs, or the sum of its weights."""
    different, where = np.unique(keys, return_inverse=True)
    return different, np.bincount(where.ravel(), weights, minlength=len(different)).astype(np.int64)
