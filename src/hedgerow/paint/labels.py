"""The labels of one image: tiles of 256 x 256 where there is paint, and nothing elsewhere, so that any size will do."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from hedgerow.images.arrays import UNLABELLED_INDEX as UNPAINTED
from hedgerow.images.regions import Region

TILE = 256
FILL_REACH = 2048  # pixels along rows and columns from the point that is filled
Masks = Iterable[tuple[Region, np.ndarray]]
_EMPTY = np.full((TILE, TILE), UNPAINTED, np.uint8)
_EMPTY.flags.writeable = False


@dataclass(frozen=True)
class _ChangedTile:
    """Which pixels of a tile were changed, and what they were before, compressed: mostly some dozen bytes."""

    place: tuple[int, int]
    where: bytes
    before: bytes


@dataclass(frozen=True)
class Change:
    """What one stroke changed: enough to take it back and to do it again. region: around it; None: nothing"""

    value: int
    tiles: tuple[_ChangedTile, ...]
    region: Region | None


class Labels:
    """Class values (H,W) of an image, UNPAINTED where there is no paint."""

    def __init__(self, size: tuple[int, int]) -> None:
        self.size = size
        self.n_changes = 0
        self._tiles: dict[tuple[int, int], np.ndarray] = {}
        self._counts = np.zeros(256, np.int64)

    @property
    def pixels(self) -> dict[int, int]:
        """Class value -> painted pixels, of those that have any."""
        return {int(value): int(self._counts[value]) for value in np.flatnonzero(self._counts[:UNPAINTED])}

    @property
    def n_painted(self) -> int:
        return int(self._counts[:UNPAINTED].sum())

    def paint(self, masks: Masks, value: int, locked: Iterable[int] = ()) -> Change:
        """Give the pixels of masks (h,w) in their regions a value, UNPAINTED to erase; not those of locked classes."""
        kept = np.zeros(256, bool)
        kept[[*locked, value]] = True
        changed, around = [], []
        for region, mask in masks:
            for place, tile, inside, part in self._cut(region, mask):
                before = inside.of(tile)
                where = part & ~kept[before]
                if not where.any():
                    continue
                whole = np.zeros((TILE, TILE), bool)
                inside.of(whole)[...] = where
                packed = np.packbits(whole).tobytes(), before[where].tobytes()
                changed.append(_ChangedTile(place, *(zlib.compress(one, 1) for one in packed)))
                self._set(place, whole, value)
                around.append(_around(place, whole))
        self.n_changes += 1
        return Change(value, tuple(changed), _hull(around))

    def revert(self, change: Change) -> None:
        """Take back the latest change that has not been taken back."""
        for tile in reversed(change.tiles):
            before = np.frombuffer(zlib.decompress(tile.before), np.uint8)
            self._set(tile.place, _mask(tile), before)
        self.n_changes += 1

    def repeat(self, change: Change) -> None:
        """Do again the change that was taken back last."""
        for tile in change.tiles:
            self._set(tile.place, _mask(tile), change.value)
        self.n_changes += 1

    def region(self, region: Region) -> np.ndarray:
        """(h,w) uint8 of a region."""
        found = np.full((region.height, region.width), UNPAINTED, np.uint8)
        for (row, column), tile in self._near(region):
            top, left = row * TILE, column * TILE
            here = Region(
                max(region.top, top),
                min(region.bottom, top + TILE),
                max(region.left, left),
                min(region.right, left + TILE),
            )
            here.within(region).of(found)[...] = here.within(Region(top, 0, left, 0)).of(tile)
        return found

    def whole(self) -> np.ndarray:
        """(H,W) uint8"""
        return self.region(Region(0, self.size[0], 0, self.size[1]))

    def shrunk(self, level: int, row: int, column: int) -> np.ndarray | None:
        """(h,w) uint8: one tile of a level of the pyramid, the smallest value of each block; None: no paint in it."""
        side = TILE << level
        region = Region(row * side, (row + 1) * side, column * side, (column + 1) * side)
        region = Region(region.top, min(region.bottom, self.size[0]), region.left, min(region.right, self.size[1]))
        if region.height < 1 or region.width < 1 or not any(True for _ in self._near(region)):
            return None
        shape = (region.height + (1 << level) - 1) >> level, (region.width + (1 << level) - 1) >> level
        found = np.full(shape, UNPAINTED, np.uint8)
        for (tile_row, tile_column), tile in self._near(region):
            rows, columns, values = shrunk_places(tile, level)
            rows += (tile_row * TILE - region.top) >> level
            columns += (tile_column * TILE - region.left) >> level
            np.minimum.at(found, (rows, columns), values)
        return found if (found != UNPAINTED).any() else None

    def painted(self, level: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows, columns (int64) and values (uint8) of all painted pixels at a level of the pyramid, tile by tile."""
        parts = []
        for (row, column), tile in sorted(self._tiles.items()):
            rows, columns, values = shrunk_places(tile, level)
            parts.append((rows + (row * TILE >> level), columns + (column * TILE >> level), values))
        if not parts:
            none = np.zeros(0, np.int64)
            return none, none, np.zeros(0, np.uint8)
        rows, columns, values = (np.concatenate(one) for one in zip(*parts, strict=True))
        if TILE >> level < 1:  # several tiles share a pixel
            return _smallest(rows, columns, values)
        return rows, columns, values

    def same_area(self, row: int, column: int, within: Region, most: int) -> tuple[Region, np.ndarray] | None:
        """The connected pixels (4 neighbours) with the value of one, as a region and a mask; None: more than `most`."""
        near = Region(row, row + 1, column, column + 1).grown(FILL_REACH, Region.whole(self.size))
        window = Region(
            max(within.top, near.top),
            min(within.bottom, near.bottom),
            max(within.left, near.left),
            min(within.right, near.right),
        )
        if not (window.top <= row < window.bottom and window.left <= column < window.right):
            return window, np.zeros((max(window.height, 0), max(window.width, 0)), bool)
        values = self.region(window)
        at = row - window.top, column - window.left
        areas, _ = ndimage.label(values == values[at])
        mask = areas == areas[at]
        return None if np.count_nonzero(mask) > most else (window, mask)

    def _near(self, region: Region) -> Iterator[tuple[tuple[int, int], np.ndarray]]:
        rows = range(region.top // TILE, -(-region.bottom // TILE))
        columns = range(region.left // TILE, -(-region.right // TILE))
        if len(rows) * len(columns) > len(self._tiles):
            yield from ((at, tile) for at, tile in self._tiles.items() if at[0] in rows and at[1] in columns)
            return
        for at in ((row, column) for row in rows for column in columns):
            if at in self._tiles:
                yield at, self._tiles[at]

    def _cut(
        self, region: Region, mask: np.ndarray
    ) -> Iterator[tuple[tuple[int, int], np.ndarray, Region, np.ndarray]]:
        """Tile by tile that a mask touches: its place, its values, the region inside it, and the mask there."""
        for row in range(region.top // TILE, -(-region.bottom // TILE)):
            for column in range(region.left // TILE, -(-region.right // TILE)):
                here = Region(
                    max(region.top, row * TILE),
                    min(region.bottom, (row + 1) * TILE),
                    max(region.left, column * TILE),
                    min(region.right, (column + 1) * TILE),
                )
                part = here.within(region).of(mask)
                if part.any():
                    corner = Region(row * TILE, 0, column * TILE, 0)
                    yield (row, column), self._tiles.get((row, column), _EMPTY), here.within(corner), part

    def _set(self, place: tuple[int, int], where: np.ndarray, values: np.ndarray | int) -> None:
        tile = self._tiles.get(place)
        if tile is None:
            tile = self._tiles[place] = _EMPTY.copy()
        self._counts -= np.bincount(tile[where], minlength=256)
        tile[where] = values
        self._counts += np.bincount(tile[where], minlength=256)
        if (tile == UNPAINTED).all():
            del self._tiles[place]


def _mask(tile: _ChangedTile) -> np.ndarray:
    packed = np.frombuffer(zlib.decompress(tile.where), np.uint8)
    return np.unpackbits(packed).reshape(TILE, TILE).view(bool)


def shrunk_places(tile: np.ndarray, level: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, columns and values of the painted pixels of a tile at a level; of each block the smallest value."""
    if level:
        block = min(1 << level, TILE)
        tile = tile.reshape(TILE // block, block, TILE // block, block).min(axis=(1, 3))
    rows, columns = np.nonzero(tile != UNPAINTED)
    return rows, columns, tile[rows, columns]


def _smallest(rows: np.ndarray, columns: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    order = np.lexsort((values, columns, rows))
    rows, columns, values = rows[order], columns[order], values[order]
    first = np.ones(len(rows), bool)
    first[1:] = (rows[1:] != rows[:-1]) | (columns[1:] != columns[:-1])
    return rows[first], columns[first], values[first]


def _around(place: tuple[int, int], where: np.ndarray) -> Region:
    rows, columns = np.flatnonzero(where.any(axis=1)), np.flatnonzero(where.any(axis=0))
    top, left = place[0] * TILE, place[1] * TILE
    return Region(top + int(rows[0]), top + int(rows[-1]) + 1, left + int(columns[0]), left + int(columns[-1]) + 1)


def _hull(regions: list[Region]) -> Region | None:
    if not regions:
        return None
    return Region(
        min(one.top for one in regions),
        max(one.bottom for one in regions),
        min(one.left for one in regions),
        max(one.right for one in regions),
    )
