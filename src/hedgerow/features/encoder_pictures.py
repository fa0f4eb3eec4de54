"""From the channels of an image to what a pretrained network takes: pictures of three channels from 0 to 255.

One channel is shown three times, three are taken for red, green and blue. Of any other number, each three in turn make
a picture of their own; the last ones, if they are fewer, are shown with their mean (two), or as grey (one). On request,
each channel is a grey picture of its own.
"""

from collections.abc import Sequence

import numpy as np

DARKEST, BRIGHTEST = 0.001, 0.999  # quantiles of training pixels that become black and white
MOST_PIXELS = 2**18  # of all training images together, for the quantiles


def groups_of(n_inputs: int, channels: str) -> list[list[int]]:
    """The channels that make each picture.

    channels: "auto", or "each" for a picture per channel
    """
    if channels == "each":
        return [[c] for c in range(n_inputs)]
    return [list(range(first, min(first + 3, n_inputs))) for first in range(0, n_inputs, 3)]


def shades(images: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The values of each channel of images (C,H,W) that are shown black and white, (C,) float32 each.

    Values of 8 bits and fractions are shown as they are; others, e.g. of 16 bits, between their extreme quantiles. The
    channels of a colour image share theirs, so that grey stays grey.
    """
    n_inputs = len(images[0])
    lowest, highest = min(image.min() for image in images), max(image.max() for image in images)
    if lowest >= 0 and highest <= 255:
        white = 1 if highest <= 1 else 255
        return np.zeros(n_inputs, np.float32), np.full(n_inputs, white, np.float32)
    step = int(np.ceil(np.sqrt(sum(image[0].size for image in images) / MOST_PIXELS)))
    parts = [image[:, ::step, ::step].reshape(n_inputs, -1) for image in images]
    values = np.concatenate(parts, axis=1)
    if n_inputs == 3:
        values = np.repeat(values.reshape(1, -1), 3, axis=0)
    low, high = np.quantile(values, (DARKEST, BRIGHTEST), axis=1).astype(np.float32)
    return low, np.where(high > low, high, low + 1).astype(np.float32)


def to_pictures(planes: np.ndarray, low: np.ndarray, high: np.ndarray, channels: str) -> list[np.ndarray]:
    """Pictures (3,H,W) float32, from 0 to 255, of an image (C,H,W)."""
    factor = np.float32(255) / (high - low)
    shown = np.clip((planes - low[:, None, None]) * factor[:, None, None], 0, 255).astype(np.float32)
    return [_three(shown[group]) for group in groups_of(len(planes), channels)]


def _three(shown: np.ndarray) -> np.ndarray:
    if len(shown) == 2:
        shown = np.stack([*shown, (shown[0] + shown[1]) / np.float32(2)])
    return np.ascontiguousarray(np.broadcast_to(shown, (3, *shown.shape[1:])))
