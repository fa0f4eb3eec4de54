"""A segmentation as the page asks for it: tiles of classes, probabilities and uncertainty at any level."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hedgerow.images.arrays import UNLABELLED_INDEX as NOTHING
from hedgerow.images.regions import Region
from hedgerow.paint.labels import TILE
from hedgerow.paint.pyramid import level_size


@dataclass(frozen=True)
class Block:
    """classes: (h,w) uint8 indices; proba: (C,h,w) uint8, 255 is sure"""

    classes: np.ndarray
    proba: np.ndarray

    @property
    def nbytes(self) -> int:
        return int(self.classes.nbytes + self.proba.nbytes)


@dataclass
class Layer:
    """What was computed at one level: a block for each tile, by its row and column."""

    level: int
    blocks: dict[tuple[int, int], Block] = field(default_factory=dict)


@dataclass
class Result:
    """A segmentation of an image.

    classes: the class values that the indices of blocks stand for
    layers:  the finest first; where one has nothing, the next one is shown
    paint:   of a model that is not grown anew for every view, the stamp of the paint that it knows
    """

    id: int
    image: int
    size: tuple[int, int]
    classes: tuple[int, ...]
    layers: list[Layer]
    scope: str
    model: str
    paint: tuple[int, ...] | None = None

    @property
    def nbytes(self) -> int:
        return sum(block.nbytes for layer in self.layers for block in layer.blocks.values())

    def covers(self, level: int, region: Region) -> bool:
        """Whether a region of the full image is known at this level or a finer one."""
        finest = self.layers[0]
        there = region_at(region, finest.level, self.size)
        around = there.top, there.bottom, there.left, there.right
        tiles = tiles_of(around, level_size(self.size, finest.level))
        return finest.level <= level and all(tile in finest.blocks for tile in tiles)

    def tile(self, level: int, row: int, column: int, what: str, value: int = 0) -> np.ndarray | None:
        """(h,w) uint8 of a tile: classes, uncertainty, or the probability of a class; None: nothing is known there."""
        height, width = level_size(self.size, level)
        rows = np.arange(row * TILE, min((row + 1) * TILE, height))
        columns = np.arange(column * TILE, min((column + 1) * TILE, width))
        if not (len(rows) and len(columns)):
            return None
        finest = self.layers[0]
        if finest.level == level and (row, column) in finest.blocks:
            return self._part(finest.blocks[row, column], (slice(None), slice(None)), what, value)
        found = np.full((len(rows), len(columns)), NOTHING if what == "classes" else 0, np.uint8)
        known = np.zeros(found.shape, bool)
        for layer in self.layers:
            if not known.all():
                self._add(layer, level, rows, columns, what, value, found, known)
        return found if known.any() else None

    def _add(
        self, layer: Layer, level: int, rows: np.ndarray, columns: np.ndarray, what: str, value: int,
        found: np.ndarray, known: np.ndarray,
    ) -> None:  # fmt: skip
        size = level_size(self.size, layer.level)
        at_rows = np.minimum(_at(rows, level, layer.level), size[0] - 1)
        at_columns = np.minimum(_at(columns, level, layer.level), size[1] - 1)
        for block_row in np.unique(at_rows // TILE).tolist():
            for block_column in np.unique(at_columns // TILE).tolist():
                block = layer.blocks.get((block_row, block_column))
                if block is None:
                    continue
                down = np.flatnonzero(at_rows // TILE == block_row)
                across = np.flatnonzero(at_columns // TILE == block_column)
                place = slice(down[0], down[-1] + 1), slice(across[0], across[-1] + 1)
                inside = np.ix_(at_rows[down] - block_row * TILE, at_columns[across] - block_column * TILE)
                part = self._part(block, inside, what, value)
                new = ~known[place]
                found[place][new] = part[new]
                known[place] = True

    def _part(self, block: Block, inside: tuple[Any, ...], what: str, value: int) -> np.ndarray:
        if what == "classes":
            return np.take(np.array(self.classes, np.uint8), block.classes[inside])
        if what == "uncertainty":
            return uncertainty(block.proba[:, inside[0], inside[1]])
        if value not in self.classes:
            return np.zeros_like(block.classes[inside])
        return block.proba[self.classes.index(value)][inside]


def _at(places: np.ndarray, level: int, of: int) -> np.ndarray:
    """The nearest rows or columns of another level."""
    if of >= level:
        return places >> (of - level)
    step = 1 << (level - of)
    return places * step + step // 2


def region_at(region: Region, level: int, size: tuple[int, int]) -> Region:
    """A region of the full image as one of a level, not beyond its edges."""
    height, width = level_size(size, level)
    top, left = (min(max(one, 0) >> level, end - 1) for one, end in ((region.top, height), (region.left, width)))
    bottom = min(max(-(-region.bottom >> level), top + 1), height)
    right = min(max(-(-region.right >> level), left + 1), width)
    return Region(top, bottom, left, right)


def uncertainty(proba: np.ndarray) -> np.ndarray:
    """(h,w) uint8 of probabilities (C,h,w) uint8: 0 where one class has all, 255 where the first two have the same."""
    if len(proba) < 2:
        return np.zeros(proba.shape[1:], np.uint8)
    two = np.partition(proba, len(proba) - 2, axis=0)[-2:]
    return 255 - (two[1] - two[0])


def tiles_of(region: Iterable[int], size: tuple[int, int]) -> list[tuple[int, int]]:
    """The tiles of a level of this size that a region (top, bottom, left, right) of it touches, nearest to its middle
    first."""
    top, bottom, left, right = region
    rows = range(max(top, 0) // TILE, -(-min(bottom, size[0]) // TILE))
    columns = range(max(left, 0) // TILE, -(-min(right, size[1]) // TILE))
    middle = (top + bottom) / 2 / TILE - 0.5, (left + right) / 2 / TILE - 0.5
    return sorted(
        ((row, column) for row in rows for column in columns),
        key=lambda at: ((at[0] - middle[0]) ** 2 + (at[1] - middle[1]) ** 2, at),
    )
