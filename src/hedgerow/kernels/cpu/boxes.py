"""Means over boxes."""

import numpy as np

from hedgerow.kernels.cpu.filters import smooth
from hedgerow.kernels.definition.gaussian import box_weights


def box_averaged(volume: np.ndarray, radius: int, outside: float | None = None) -> np.ndarray:
    """(Z,H,W) mean over the box of `radius` around each pixel in its slice; summed in a fixed order, so tiles agree
    exactly."""
    if radius == 0:
        return volume
    weights = box_weights(radius)
    pad = weights.shape[1] - 1
    edges = {"mode": "edge"} if outside is None else {"mode": "constant", "constant_values": outside}
    averaged = np.empty(volume.shape, np.float32)
    for plane, out in zip(volume, averaged, strict=True):
        smooth(np.pad(plane.astype(np.float32), pad, **edges).ravel(), weights, out)
    return averaged
