"""Whether labels number objects instead of naming classes."""

from collections.abc import Sequence

import numpy as np

from hedgerow.images.classes import count_values
from hedgerow.images.components import components, pairs

MIN_NUMBERS = 8  # fewer values may well be classes
MAX_TORN = 0.1  # fraction of surplus pieces: an object is in several pieces if another one cuts it
MIN_ALIKE = 0.8  # fewest numbers in an image, as a fraction of the most: some parts of an animal may lie outside
MAX_TOUCHING = 0.5  # of the outlines in a single map: numbered parts of a whole touch one another, objects rarely do


def look_numbered(maps: Sequence[np.ndarray], unlabelled: int) -> bool:
    """Whether label maps (H,W) seem to hold numbers of objects: 1, 2, 3, ..., each in one connected piece, and not
    about the same numbers in all images."""
    numbers = [sorted(count_values(labels).keys() - {0, unlabelled}) for labels in maps]
    if max(map(len, numbers)) < MIN_NUMBERS or any(n and n[0] < 1 for n in numbers):
        return False
    if any(n[-1] > 2 * len(n) for n in numbers if n):  # some may have been removed, but most numbers are there
        return False
    if len(maps) > 1 and min(map(len, numbers)) >= MIN_ALIKE * max(map(len, numbers)):  # parts of an animal
        return False
    if len(maps) == 1 and _touching(maps[0]) > MAX_TOUCHING:
        return False
    n_numbers = n_pieces = 0
    for labels, of_map in zip(maps, numbers, strict=True):
        _, values = components(labels)
        n_numbers += len(of_map)
        n_pieces += int(np.isin(values, of_map).sum())
    return n_pieces <= (1 + MAX_TORN) * n_numbers


def _touching(labels: np.ndarray) -> float:
    """The fraction of the outlines between different values that is between two values other than 0."""
    between = outlines = 0
    for step in ((0, 1), (1, 0)):
        here, there = pairs(labels, step)
        differ = here != there
        outlines += int(differ.sum())
        between += int((differ & (here != 0) & (there != 0)).sum())
    return between / max(outlines, 1)
