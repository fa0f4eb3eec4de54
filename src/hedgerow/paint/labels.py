"""The labels of one image, stored as tiles of 256 x 256 pixels where there is paint: memory grows with the paint, not
with the image."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy import ndimage

from hedgerow.images.array_checks import UNLABELLED_INDEX as UNPAINTED
from hedgerow.images.regions import Region

TILE = 256
FILL_REACH = 2048  # pixels along rows and columns from the filled point
Masks = Iterable[tuple[Region, np.ndarray]]
_EMPTY = np.full((TILE, TILE), UNPAINTED, np.uint8)
_EMPTY.flags.writeable = False


@dataclass(frozen=True)
class ChangedPart:
    """A part of a tile that a stroke changed, to undo and redo it.

    difference: (h,w) uint8, exclusive or of the values before and after, compressed
    """

    region: Region
    difference: bytes


class Labels:
    """Class values (H,W) of an image, UNPAINTED where there is no paint."""

    def __init__(self, size: tuple[int, int]) -> None:
        self.size = size
        self.n_changes = 0
        self._tiles: dict[tuple[int, int], np.ndarray] = {}
        self._counts = np.zeros(256, np.int64)

    @property
    def pixels(self) -> dict[int, int]:
        """Class value -> number of painted pixels, without classes that have none."""
        return {int(value): int(self._counts[value]) for value in np.flatnonzero(self._counts[:UNPAINTED])}

    @property
    def n_painted(self) -> int:
        return int(self._counts[:UNPAINTED].sum())

    def paint(self, masks: Masks, value: int, locked: Iterable[int] = ()) -> list[ChangedPart]:
        """Set the pixels of masks (h,w) in their regions to a value, UNPAINTED to erase; locked classes stay."""
        unchanged = np.zeros(256, bool)
        unchanged[[*locked, value]] = True
        changed = []
        for region, mask in masks:
            for place in product(*region.tile_places(TILE)):
                tile_region = Region.tile_at(place, TILE)
                here = region.clipped(tile_region)
                part = here.within(region).of(mask)
                if not part.any():
                    continue
                before = here.within(tile_region).of(self._tiles.get(place, _EMPTY))
                where = part & ~unchanged[before]
                if where.any():
                    box = Region.around(where)
                    difference = box.of(np.where(where, before ^ np.uint8(value), np.uint8(0)))
                    changed.append(ChangedPart(box.placed_in(here), zlib.compress(difference.tobytes(), 1)))
                    self._toggle(changed[-1].region, difference)
        self.n_changes += 1
        return changed

    def toggle(self, changed: Iterable[ChangedPart]) -> None:
        """Undo the latest stroke that has not been undone, or redo the one that was undone last."""
        for part in changed:
            difference = np.frombuffer(zlib.decompress(part.difference), np.uint8)
            self._toggle(part.region, difference.reshape(part.region.height, part.region.width))
        self.n_changes += 1

    def region(self, region: Region) -> np.ndarray:
        """(h,w) uint8: the values of a region."""
        values = np.full((region.height, region.width), UNPAINTED, np.uint8)
        for place, tile in self._tiles_in(region):
            tile_region = Region.tile_at(place, TILE)
            here = region.clipped(tile_region)
            here.within(region).of(values)[...] = here.within(tile_region).of(tile)
        return values

    def whole(self) -> np.ndarray:
        """(H,W) uint8"""
        return self.region(Region.whole(self.size))

    def shrunk(self, level: int, row: int, column: int) -> np.ndarray | None:
        """(h,w) uint8: a tile of a level, each pixel the smallest value that it covers. None: no paint."""
        region = Region.tile_at((row, column), TILE << level).clipped(Region.whole(self.size))
        if region.is_empty or not any(True for _ in self._tiles_in(region)):
            return None
        shape = (region.height + (1 << level) - 1) >> level, (region.width + (1 << level) - 1) >> level
        smallest = np.full(shape, UNPAINTED, np.uint8)
        for (tile_row, tile_column), tile in self._tiles_in(region):
            rows, columns, values = shrunk_places(tile, level)
            rows += (tile_row * TILE - region.top) >> level
            columns += (tile_column * TILE - region.left) >> level
            np.minimum.at(smallest, (rows, columns), values)
        return smallest if (smallest != UNPAINTED).any() else None

    def painted(self, level: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows, columns (int64) and values (uint8) of all painted pixels at a level of the pyramid, tile by tile."""
        parts = []
        for (row, column), tile in sorted(self._tiles.items()):
            rows, columns, values = shrunk_places(tile, level)
            parts.append((rows + (row * TILE >> level), columns + (column * TILE >> level), values))
        if not parts:
            none = np.zeros(0, np.int64)
            return none, none, np.zeros(0, np.uint8)
        rows, columns, values = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        if TILE >> level < 1:  # several tiles share a pixel
            return _smallest(rows, columns, values)
        return rows, columns, values

    def same_area(self, row: int, column: int, within: Region, max_pixels: int) -> tuple[Region, np.ndarray] | None:
        """The connected area (4 neighbours) of one value around a pixel, as a region and its mask; None: more than
        `max_pixels`."""
        near = Region(row, row + 1, column, column + 1).grown(FILL_REACH, Region.whole(self.size))
        window = within.clipped(near)
        if not (window.top <= row < window.bottom and window.left <= column < window.right):
            return window, np.zeros((window.height, window.width), bool)
        values = self.region(window)
        at = row - window.top, column - window.left
        areas, _ = ndimage.label(values == values[at])
        mask = areas == areas[at]
        return None if np.count_nonzero(mask) > max_pixels else (window, mask)

    def _tiles_in(self, region: Region) -> Iterator[tuple[tuple[int, int], np.ndarray]]:
        rows, columns = region.tile_places(TILE)
        if len(rows) * len(columns) > len(self._tiles):
            yield from ((at, tile) for at, tile in self._tiles.items() if at[0] in rows and at[1] in columns)
            return
        for at in product(rows, columns):
            if at in self._tiles:
                yield at, self._tiles[at]

    def _toggle(self, region: Region, difference: np.ndarray) -> None:
        """Change a region of one tile from its values before a stroke to those after it, or back."""
        place = region.top // TILE, region.left // TILE
        if place not in self._tiles:
            self._tiles[place] = _EMPTY.copy()
        tile = self._tiles[place]
        values = region.within(Region.tile_at(place, TILE)).of(tile)
        self._counts -= np.bincount(values.ravel(), minlength=256)
        values ^= difference
        self._counts += np.bincount(values.ravel(), minlength=256)
        if (tile == UNPAINTED).all():
            del self._tiles[place]


def shrunk_places(tile: np.ndarray, level: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, columns and values of the painted pixels of a tile at a level, each the smallest value that it covers."""
    if level:
        step = min(1 << level, TILE)
        tile = tile.reshape(TILE // step, step, TILE // step, step).min(axis=(1, 3))
    rows, columns = np.nonzero(tile != UNPAINTED)
    return rows, columns, tile[rows, columns]


def _smallest(rows: np.ndarray, columns: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    order = np.lexsort((values, columns, rows))
    rows, columns, values = rows[order], columns[order], values[order]
    first = np.ones(len(rows), bool)
    first[1:] = (rows[1:] != rows[:-1]) | (columns[1:] != columns[:-1])
    return rows[first], columns[first], values[first]
