"""Strokes, as someone would paint them on an image, from its full labels."""

import numpy as np
from scipy import ndimage

from hedgerow.errors import ConfigError

WIDTH = 3  # pixels
LENGTHS = (15, 40)  # pixels
MOST = 10_000  # strokes


def paint(labels: np.ndarray, part: float = 0.01, seed: int = 0, unpainted: int = 255) -> np.ndarray:
    """(H,W) uint8: strokes inside the classes of labels (H,W), class after class, until this part of the pixels is
    painted; all else is `unpainted`."""
    if not 0 < part <= 1:
        raise ConfigError(f"part is {part!r}; give a number above 0 and at most 1.")
    rng = np.random.default_rng((seed, 10))
    painted = np.full(labels.shape, unpainted, np.uint8)
    # Nobody paints the very edge of an object, unless it is all edge.
    inner = {int(value): ndimage.binary_erosion(labels == value, iterations=2) for value in np.unique(labels)}
    places = {value: np.argwhere(inside if inside.any() else labels == value) for value, inside in inner.items()}
    for k in range(MOST):
        if np.count_nonzero(painted != unpainted) >= part * labels.size:
            break
        value = list(places)[k % len(places)]
        _stroke(painted, labels, value, places[value][rng.integers(len(places[value]))], rng)
    return painted


def _stroke(painted: np.ndarray, labels: np.ndarray, value: int, start: np.ndarray, rng: np.random.Generator) -> None:
    """A slightly bent stroke from a pixel on, which ends where the class ends."""
    place, angle = start.astype(float), rng.uniform(0, 2 * np.pi)
    for _ in range(rng.integers(*LENGTHS)):
        row, column = (round(x) for x in place.tolist())
        if not (0 <= row < labels.shape[0] and 0 <= column < labels.shape[1]) or labels[row, column] != value:
            return
        box = tuple(slice(max(x - WIDTH // 2, 0), x + WIDTH // 2 + 1) for x in (row, column))
        painted[box][labels[box] == value] = value
        angle += rng.normal(0, 0.15)
        place += (np.sin(angle), np.cos(angle))
