"""Means over boxes."""

import numpy as np

from hedgerow.kernels.cpu.filters import smooth
from hedgerow.kernels.definition.gaussian import box_weights


def box_averaged(plane: np.ndarray, radius: int, outside: float | None = None) -> np.ndarray:
    """(H,W) mean over the box of `radius` around each pixel; summed in a fixed order, so tiles agree exactly."""
    if radius == 0:
        return plane
    weights = box_weights(radius)
    pad = weights.shape[1] - 1
    edges = {"mode": "edge"} if outside is None else {"mode": "constant", "constant_values": outside}
    padded = np.pad(plane.astype(np.float32), pad, **edges)
    averaged = np.empty(plane.shape, np.float32)
    smooth(padded.ravel(), weights, averaged)
    return averaged
