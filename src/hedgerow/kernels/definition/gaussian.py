"""Weights of separable filters, at distances 0..R from the pixel, in plain NumPy.

R is a multiple of 4, as the kernels require; weights beyond the filter's own radius are zero.
"""

import numpy as np


def gaussian_weights(sigma: float, truncate: float) -> np.ndarray:
    """(3, 1+R) float32: the sampled Gaussian and its two derivatives.

    The Gaussian ends at `truncate` sigmas and sums to one, as in scipy.ndimage.
    """
    radius = int(truncate * sigma + 0.5)
    distance = np.arange(radius + 1.0)
    bell = np.exp(-0.5 * (distance / sigma) ** 2)
    bell /= bell[0] + 2 * bell[1:].sum()
    weights = np.stack([bell, distance / sigma**2 * bell, (distance**2 / sigma**4 - 1 / sigma**2) * bell])
    return _padded(weights).astype(np.float32)


MIN_SIGMA_Z = 0.5
"""In slices: a narrower Gaussian would hardly look into other slices, and its samples would hardly resemble it."""


def is_flat(sigma: float, anisotropy: float) -> bool:
    """Whether a scale, in pixels, is filtered slice by slice, where slices are `anisotropy` pixels apart."""
    return sigma / anisotropy < MIN_SIGMA_Z


def volume_weights(sigma: float, step: float, truncate: float) -> np.ndarray:
    """(3, 1+R) float32: `gaussian_weights` along an axis of a volume on which neighbours are `step` pixels apart.

    All are in pixels, sigma and the derivatives too, so that a sphere is one in all directions. The second derivative
    of a constant is 0; with samples of a Gaussian that is narrower than a voxel, it would be far from 0.
    """
    weights = gaussian_weights(sigma / step, truncate).astype(np.float64)
    weights[2, 0] = -2 * weights[2, 1:].sum()
    return (weights / np.array([1, step, step**2])[:, None]).astype(np.float32)


def box_weights(radius: int) -> np.ndarray:
    """(1, 1+R) float32: the mean over a box."""
    return _padded(np.full((1, radius + 1), 1 / (2 * radius + 1))).astype(np.float32)


def _padded(weights: np.ndarray) -> np.ndarray:
    return np.pad(weights, ((0, 0), (0, -(weights.shape[1] - 1) % 4)))
