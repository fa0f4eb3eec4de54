"""Principal components: the few directions in which the layers of a pretrained network vary most."""

import numpy as np

FRACTION_BITS = 12  # of the directions: less than a ten-thousandth, and no trace of the order of sums


def principal_components(rows: np.ndarray, n_components: int) -> np.ndarray:
    """(F,C) float32 directions in which rows (n,C) vary most, each channel first divided by its deviation.

    There are n_components of them, or fewer if there are fewer rows or channels. Applied to a row as it is (not
    centred), they give its components but for a constant.
    """
    wide = rows.astype(np.float64)
    wide -= wide.mean(axis=0)
    deviation = np.sqrt((wide**2).mean(axis=0))
    scale = np.where(deviation > 1e-6, 1 / np.maximum(deviation, 1e-6), 0.0)
    wide *= scale
    covariance = wide.T @ wide / len(wide)
    values, vectors = np.linalg.eigh(covariance)
    n_components = min(n_components, len(wide), int((values > 1e-9 * values[-1]).sum()) or 1)
    directions = vectors[:, ::-1][:, :n_components].T
    largest = np.take_along_axis(directions, np.abs(directions).argmax(axis=1)[:, None], axis=1)
    directions = directions * np.where(largest < 0, -1.0, 1.0)  # a direction and its opposite are the same: choose one
    return _rounded(directions * scale).astype(np.float32)


def _rounded(values: np.ndarray) -> np.ndarray:
    """Values with FRACTION_BITS bits: a library that sums in another order gives the same ones."""
    fraction, exponent = np.frexp(values)
    return np.ldexp(np.round(fraction * 2**FRACTION_BITS) / 2**FRACTION_BITS, exponent)
