"""The segmentation of an image as the page requests it: tiles of classes, probabilities or uncertainty at any level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from hedgerow.images.array_checks import UNLABELLED_INDEX as NO_CLASS
from hedgerow.images.regions import Region
from hedgerow.paint.labels import TILE
from hedgerow.paint.pyramid import level_size

TilePlace = tuple[int, int]
"""Row and column of a tile in the grid of tiles of a level."""


@dataclass(frozen=True)
class OverlayTile:
    """classes: (h,w) uint8 indices; proba: (C,h,w) uint8, where 255 means certain"""

    classes: np.ndarray
    proba: np.ndarray

    @property
    def nbytes(self) -> int:
        return int(self.classes.nbytes + self.proba.nbytes)


@dataclass
class OverlayLayer:
    """The tiles computed at one level of the pyramid."""

    level: int
    tiles: dict[TilePlace, OverlayTile] = field(default_factory=dict)


@dataclass
class Overlay:
    """The segmentation of an image.

    classes: the class values that the indices of the tiles stand for
    layers:  the finest first; where a layer has no tile, the next one is shown
    scope:   "visible", "whole" or "full", see `Segmenter`
    model:   a description of the model, for the page
    stamp:   the state of the paint (`Project.stamp`) that the model was trained on; None for the quick forest, which is
             trained again for every view
    is_of_file: whether the model is in the project's list, and not one that follows the paint
    """

    id: int
    image: int
    size: tuple[int, int]
    classes: tuple[int, ...]
    layers: list[OverlayLayer]
    scope: str
    model: str
    stamp: tuple[int, ...] | None = None
    is_of_file: bool = False

    @property
    def nbytes(self) -> int:
        return sum(tile.nbytes for layer in self.layers for tile in layer.tiles.values())

    def covers(self, level: int, region: Region) -> bool:
        """Whether a region of the full image is known at this level or a finer one."""
        finest = self.layers[0]
        at_level = region_at(region, finest.level, self.size)
        places = tiles_of(at_level, level_size(self.size, finest.level))
        return finest.level <= level and all(place in finest.tiles for place in places)

    def tile(self, level: int, row: int, column: int, kind: str, value: int = 0) -> np.ndarray | None:
        """(h,w) uint8: classes, uncertainty, or the probability of a class in a tile; None: nothing is known there."""
        height, width = level_size(self.size, level)
        rows = np.arange(row * TILE, min((row + 1) * TILE, height))
        columns = np.arange(column * TILE, min((column + 1) * TILE, width))
        if not (len(rows) and len(columns)):
            return None
        finest = self.layers[0]
        if finest.level == level and (row, column) in finest.tiles:
            return self._pixels(finest.tiles[row, column], (slice(None), slice(None)), kind, value)
        pixels = np.full((len(rows), len(columns)), NO_CLASS if kind == "classes" else 0, np.uint8)
        known = np.zeros(pixels.shape, bool)
        for layer in self.layers:
            if not known.all():
                self._fill(layer, level, rows, columns, kind, value, pixels, known)
        return pixels if known.any() else None

    def _fill(
        self, layer: OverlayLayer, level: int, rows: np.ndarray, columns: np.ndarray, kind: str, value: int,
        pixels: np.ndarray, known: np.ndarray,
    ) -> None:  # fmt: skip
        """Fill the pixels that are not known yet from a layer, and mark them as known."""
        size = level_size(self.size, layer.level)
        layer_rows = np.minimum(_nearest_at_level(rows, level, layer.level), size[0] - 1)
        layer_columns = np.minimum(_nearest_at_level(columns, level, layer.level), size[1] - 1)
        for tile_row in np.unique(layer_rows // TILE).tolist():
            for tile_column in np.unique(layer_columns // TILE).tolist():
                tile = layer.tiles.get((tile_row, tile_column))
                if tile is None:
                    continue
                down = np.flatnonzero(layer_rows // TILE == tile_row)
                across = np.flatnonzero(layer_columns // TILE == tile_column)
                target = slice(down[0], down[-1] + 1), slice(across[0], across[-1] + 1)
                source = np.ix_(layer_rows[down] - tile_row * TILE, layer_columns[across] - tile_column * TILE)
                new = ~known[target]
                pixels[target][new] = self._pixels(tile, source, kind, value)[new]
                known[target] = True

    def _pixels(self, tile: OverlayTile, index: tuple[Any, ...], kind: str, value: int) -> np.ndarray:
        if kind == "classes":
            return np.take(np.array(self.classes, np.uint8), tile.classes[index])
        if kind == "uncertainty":
            return uncertainty(tile.proba[:, index[0], index[1]])
        if value not in self.classes:
            return np.zeros_like(tile.classes[index])
        return tile.proba[self.classes.index(value)][index]


@dataclass(frozen=True)
class View:
    """The part of an image on a screen: a region, in pixels of the full image, shown at a level."""

    image: int
    level: int
    region: Region


def _nearest_at_level(places: np.ndarray, level: int, of: int) -> np.ndarray:
    """The nearest rows or columns of another level."""
    if of >= level:
        return places >> (of - level)
    step = 1 << (level - of)
    return places * step + step // 2


def region_at(region: Region, level: int, size: tuple[int, int]) -> Region:
    """A region of the full image in pixels of a level, clipped to the image and never empty."""
    height, width = level_size(size, level)
    top, left = (min(max(start, 0) >> level, end - 1) for start, end in ((region.top, height), (region.left, width)))
    bottom = min(max(-(-region.bottom >> level), top + 1), height)
    right = min(max(-(-region.right >> level), left + 1), width)
    return Region(top, bottom, left, right)


def uncertainty(proba: np.ndarray) -> np.ndarray:
    """(h,w) uint8 from probabilities (C,h,w) uint8: 0 where one class is certain, 255 where the two most
    probable classes are equally probable."""
    if len(proba) < 2:
        return np.zeros(proba.shape[1:], np.uint8)
    two = np.partition(proba, len(proba) - 2, axis=0)[-2:]
    return 255 - (two[1] - two[0])


def hull_of_tiles(places: Sequence[TilePlace], size: tuple[int, int], level: int = 0) -> Region:
    """The smallest region that contains these tiles of a level, in pixels of the full image of this size."""
    tiles = [Region.tile_at(place, TILE << level) for place in places]
    return tiles[0].hull(*tiles).clipped(Region.whole(size))


def tiles_of(region: Region, size: tuple[int, int]) -> list[TilePlace]:
    """The tiles of a level of this size that a region touches, nearest to its centre first."""
    centre = (region.top + region.bottom) / 2 / TILE - 0.5, (region.left + region.right) / 2 / TILE - 0.5
    return sorted(
        product(*region.clipped(Region.whole(size)).tile_places(TILE)),
        key=lambda place: ((place[0] - centre[0]) ** 2 + (place[1] - centre[1]) ** 2, place),
    )
