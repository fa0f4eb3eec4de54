"""What is kept of inner layers while models are measured: thinned maps of a few classes, of one image."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hedgerow.images.arrays import UNLABELLED_INDEX
from hedgerow.images.labelled import LabelledImage
from hedgerow.images.regions import Region
from hedgerow.report.rows import LevelMaps, most_frequent, thinning

if TYPE_CHECKING:
    from hedgerow.deep.parts import AnyModel

MOST_LAYERS = 768  # pixels of a side whose inner layers are drawn
MOST_DRAWN = 384  # of them that are kept: more than a panel of the page can show


@dataclass(frozen=True)
class Window:
    """The part of an image whose inner layers are drawn: every `step`-th row and column of a region, of some classes.

    image: its number; shown: class values
    """

    image: int
    region: Region
    step: int
    shown: tuple[int, ...]

    def thinned(self, values: np.ndarray) -> np.ndarray:
        """(...,h,w) of (...,H,W)"""
        return np.asarray(self.region.of(values))[..., :: self.step, :: self.step]


def choose_window(images: Iterable[LabelledImage], classes: Sequence[int]) -> Window:
    """The middle of the first image with the most classes in its labels, and its most frequent classes."""
    best: tuple[int, Window] | None = None
    for number, image in enumerate(images):
        counts = _counts(image.target, len(classes))
        n_known = int((counts > 0).sum())
        if best is None or n_known > best[0]:
            region = Region(*_middle(image.size[0]), *_middle(image.size[1]))
            shown = most_frequent(_counts(region.of(image.target), len(classes)), classes)
            step = thinning((region.height, region.width), MOST_DRAWN)
            best = n_known, Window(number, region, step, tuple(shown))
    assert best is not None
    return best[1]


def _counts(target: np.ndarray, n_classes: int) -> np.ndarray:
    return np.bincount(target[target != UNLABELLED_INDEX], minlength=n_classes)


def _middle(side: int) -> tuple[int, int]:
    start = max((side - MOST_LAYERS) // 2, 0)
    return start, min(start + MOST_LAYERS, side)


class KeptLayers:
    """The maps of a window, filled tile by tile."""

    def __init__(self, window: Window, model: AnyModel) -> None:
        self._window, self._classes = window, np.array(model.classes)
        self._chosen = [model.classes.index(value) for value in window.shown]
        height, width = (len(range(0, side, window.step)) for side in (window.region.height, window.region.width))
        self._maps = np.zeros((model.n_levels, len(window.shown), height, width), np.float32)
        self._labels = np.zeros((model.n_levels, height, width), np.int64)

    def add(self, outputs: Sequence[np.ndarray], tile: Region) -> None:
        """The levels' outputs (C,h,w) in a tile of the image."""
        whole, step = self._window.region, self._window.step
        rows, rows_of_tile = _overlap(whole.top, whole.bottom, tile.top, tile.bottom, step)
        columns, columns_of_tile = _overlap(whole.left, whole.right, tile.left, tile.right, step)
        for level, output in enumerate(outputs):
            part = output[:, rows_of_tile, columns_of_tile]
            if part.size:
                self._maps[level][:, rows, columns] = part[self._chosen]
                self._labels[level][rows, columns] = self._classes[part.argmax(axis=0)]

    def levels(self) -> tuple[LevelMaps, ...]:
        return tuple(LevelMaps(maps, labels) for maps, labels in zip(self._maps, self._labels, strict=True))


def _overlap(start: int, end: int, first: int, last: int, step: int) -> tuple[slice, slice]:
    """Of the pixels start, start + step, ... before `end`, those of a tile: their places, and where the tile has them.

    first, last: of the tile, its end excluded
    """
    low, high = -(-max(first - start, 0) // step), -(-max(min(last, end) - start, 0) // step)
    high = max(low, high)
    return slice(low, high), slice(start + low * step - first, max(start + (high - 1) * step - first + 1, 0), step)
