"""Means over boxes."""

from __future__ import annotations

import numpy as np


def box_averaged(plane: np.ndarray, radius: int, outside: float | None = None) -> np.ndarray:
    """(H,W) mean over the box of `radius` around each pixel; summed in a fixed order, so tiles agree exactly."""
    from hedgerow.kernels.cpu import filters as filter_kernels

    if radius == 0:
        return plane
    weights = np.zeros((3, 1 + radius + -radius % 4), np.float32)
    weights[0, : radius + 1] = 1 / (2 * radius + 1)
    pad = weights.shape[1] - 1
    edges = {"mode": "edge"} if outside is None else {"mode": "constant", "constant_values": outside}
    padded = np.pad(plane.astype(np.float32), pad, **edges)
    averaged = np.empty(plane.shape, np.float32)
    filter_kernels.smooth(padded.ravel(), weights, averaged)
    return averaged
