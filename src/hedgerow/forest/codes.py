"""One byte per pixel: each channel is quantised once, at up to 255 edges taken from its quantiles.

A pixel's code is the number of edges at or below its value. So `code >= k` means the same as `value >= edges[k-1]`:
a tree grown on codes sends every pixel the same way as the finished tree, which has edges as thresholds.
"""

import numpy as np

from hedgerow.kernels.cpu import plane_ops

N_EDGES = 255
PROBA_EDGES = ((np.arange(1, N_EDGES + 1) / (N_EDGES + 1)) ** 2).astype(np.float32)
"""Edges for class probabilities: known in advance, and finest near 0, where rare classes are told apart."""


def fit_edges(values: np.ndarray) -> np.ndarray:
    """(255,) float32 ascending edges for a channel with sampled values (S,); edges not needed are +inf.

    With at most 256 different values there is an edge between any two neighbours, so nothing is lost.
    """
    distinct = np.unique(values)
    if len(distinct) > N_EDGES + 1:
        ranks = np.linspace(0, len(values) - 1, N_EDGES + 2)[1:-1].round().astype(np.int64)
        upper = np.unique(np.sort(values)[ranks])
        upper = upper[upper > distinct[0]]
        lower = distinct[np.searchsorted(distinct, upper) - 1]
    else:
        lower, upper = distinct[:-1], distinct[1:]
    middle = (lower + (upper - lower) * np.float32(0.5)).astype(np.float32)
    edges = np.full(N_EDGES, np.inf, np.float32)
    # Neighbouring floats have no middle: then the upper one separates them.
    edges[: len(middle)] = np.where(middle > lower, middle, upper)
    return edges


def encode(plane: np.ndarray, edges: np.ndarray, out: np.ndarray) -> None:
    """Write the codes of plane (H,W) or (S,) into out (same size) uint8."""
    plane_ops.encode(np.ascontiguousarray(plane).reshape(-1), edges, out.reshape(-1))
