"""Pictures for a pretrained network, with three channels from 0 to 255, from the channels of an image.

A single channel is repeated three times; three channels are red, green and blue. If there are more, every three
channels make one picture; two remaining channels are joined by their mean, and one is shown as grey. On request, each
channel is a grey picture of its own. Pictures and layers can be enlarged to twice the size, bilinearly, or halved.
"""

from collections.abc import Sequence

import numpy as np

DARKEST, BRIGHTEST = 0.001, 0.999  # quantiles of the training pixels that become black and white
MAX_QUANTILE_PIXELS = 2**18  # of all training images together


def groups_of(n_inputs: int, channels: str) -> list[list[int]]:
    """The channels that make each picture.

    channels: "auto", or "each" for a picture per channel
    """
    if channels == "each":
        return [[c] for c in range(n_inputs)]
    return [list(range(first, min(first + 3, n_inputs))) for first in range(0, n_inputs, 3)]


def shades(images: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(C,) float32 twice: the values of each channel of images (C,H,W) that are shown as black and as white.

    Values from 0 to 255 or from 0 to 1 are shown unchanged; others, e.g. of 16 bits, between their extreme quantiles.
    The channels of a colour image share theirs, so that grey stays grey.
    """
    n_inputs = len(images[0])
    lowest, highest = min(image.min() for image in images), max(image.max() for image in images)
    if lowest >= 0 and highest <= 255:
        white = 1 if highest <= 1 else 255
        return np.zeros(n_inputs, np.float32), np.full(n_inputs, white, np.float32)
    step = int(np.ceil(np.sqrt(sum(image[0].size for image in images) / MAX_QUANTILE_PIXELS)))
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


def doubled(planes: np.ndarray) -> np.ndarray:
    """(C,2H,2W) of planes (C,H,W): values lie at the centres of pixels, and continue beyond the edge."""
    for axis in (1, 2):
        shape = list(planes.shape)
        shape[axis] *= 2
        enlarged = np.empty(shape, np.float32)
        lines = np.moveaxis(enlarged, axis, 0)
        most, least = (np.moveaxis(planes * np.float32(share), axis, 0) for share in (0.75, 0.25))
        np.add(most[1:], least[:-1], out=lines[2::2])
        np.add(most[:-1], least[1:], out=lines[1:-1:2])
        for edge in (0, -1):
            np.add(most[edge], least[edge], out=lines[edge])
        planes = enlarged
    return planes


def halved(planes: np.ndarray) -> np.ndarray:
    """(C,ceil(H/2),ceil(W/2)): means of two by two values; an odd last row or column counts twice."""
    planes = np.pad(planes, ((0, 0), (0, planes.shape[1] % 2), (0, planes.shape[2] % 2)), mode="edge")
    rows = planes[:, ::2] + planes[:, 1::2]
    return (rows[:, :, ::2] + rows[:, :, 1::2]) * np.float32(0.25)
