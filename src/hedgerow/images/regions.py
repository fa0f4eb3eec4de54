"""Boxes of an image or a volume."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np

Steps = int | tuple[int, int, int]
"""A number of pixels along each axis (z, y, x), or one number for all three."""


@dataclass(frozen=True)
class Region:
    """Rows top..bottom and columns left..right of the slices front..back, ends excluded; an image is one slice.

    A region is any box. A tile is a region that is computed at once, and a shard is one that is written at once.
    """

    top: int
    bottom: int
    left: int
    right: int
    front: int = 0
    back: int = 1

    @classmethod
    def whole(cls, size: Iterable[int]) -> Region:
        """All of an image (H,W) or a volume (Z,H,W) of this size."""
        *depth, height, width = size
        return cls(0, height, 0, width, 0, *depth)

    @classmethod
    def around(cls, mask: np.ndarray) -> Region:
        """The smallest region around all true values in a mask (H,W) or (Z,H,W); empty if there are none."""
        ends = []
        for axis in range(-3 if mask.ndim == 3 else -2, 0):
            others = tuple(other for other in range(-mask.ndim, 0) if other != axis)
            places = np.flatnonzero(mask.any(axis=others))
            ends.append((int(places[0]), int(places[-1]) + 1) if len(places) else (0, 0))
        return cls(*ends[-2], *ends[-1], *(ends[0] if mask.ndim == 3 else (0, 1)))

    @classmethod
    def of_pixels(cls, rows: np.ndarray, columns: np.ndarray) -> Region:
        """The smallest region of an image that contains these pixels, (n,) each; n > 0."""
        return cls(int(rows.min()), int(rows.max()) + 1, int(columns.min()), int(columns.max()) + 1)

    @classmethod
    def tile_at(cls, place: tuple[int, int], side: int) -> Region:
        """The tile in this row and column of a grid of square tiles that starts at the image's corner."""
        row, column = place
        return cls(row * side, (row + 1) * side, column * side, (column + 1) * side)

    @property
    def depth(self) -> int:
        return self.back - self.front

    @property
    def height(self) -> int:
        return self.bottom - self.top

    @property
    def width(self) -> int:
        return self.right - self.left

    @property
    def shape(self) -> tuple[int, int, int]:
        """(Z,H,W)"""
        return self.depth, self.height, self.width

    @property
    def is_empty(self) -> bool:
        return min(self.shape) <= 0

    @property
    def _ends(self) -> tuple[tuple[int, int], ...]:
        """Start and end along each axis (z, y, x)."""
        return (self.front, self.back), (self.top, self.bottom), (self.left, self.right)

    def clipped(self, to: Region) -> Region:
        """The part of this region inside another one; an empty region if they do not overlap."""
        ends = [(max(a, c), max(min(b, d), a, c)) for (a, b), (c, d) in zip(self._ends, to._ends, strict=True)]
        return _from_ends(ends)

    def intersection(self, other: Region) -> Region | None:
        """The overlap of two regions; None if they share no pixel."""
        shared = self.clipped(other)
        return None if shared.is_empty else shared

    def hull(self, *others: Region) -> Region:
        """The smallest region that contains this one and the others; empty regions do not count."""
        regions = [region for region in (self, *others) if not region.is_empty] or [self]
        ends = zip(*(region._ends for region in regions), strict=True)
        return _from_ends([(min(first for first, _ in axis), max(end for _, end in axis)) for axis in ends])

    def grown(self, margin: Steps, within: Region) -> Region:
        """The region grown by a margin on each side, clipped to another region."""
        ends = [(a - m, b + m) for (a, b), m in zip(self._ends, _each(margin), strict=True)]
        return _from_ends(ends).clipped(within)

    def aligned(self, tile: Steps, within: Region) -> Region:
        """All tiles of the grid from the image's corner that this region touches, clipped to another region."""
        ends = [(a // n * n, -(-b // n) * n) for (a, b), n in zip(self._ends, _each(tile), strict=True)]
        return _from_ends(ends).clipped(within)

    def tiles(self, tile: Steps) -> Tiles:
        """The region cut into tiles of this size, slice by slice and row by row; tiles at its end may be smaller."""
        return Tiles(self, _each(tile))

    def tile_places(self, side: int) -> tuple[range, range]:
        """The rows and the columns of the tiles that the region touches, in the grid of `tile_at`."""
        return range(self.top // side, -(-self.bottom // side)), range(self.left // side, -(-self.right // side))

    def halves(self) -> tuple[tuple[Region, Region], int]:
        """The region cut in half across its longest side, and the axis (0 to 2) of this side."""
        axis = int(np.argmax(self.shape))
        first, end = ("front", "back") if axis == 0 else ("top", "bottom") if axis == 1 else ("left", "right")
        middle = (getattr(self, first) + getattr(self, end)) // 2
        return (replace(self, **{end: middle}), replace(self, **{first: middle})), axis

    def within(self, outer: Region) -> Region:
        """The same pixels, with positions relative to the corner of the outer region."""
        starts = (outer.front, outer.top, outer.left)
        return _from_ends([(a - start, b - start) for (a, b), start in zip(self._ends, starts, strict=True)])

    def placed_in(self, outer: Region) -> Region:
        """The same pixels, if positions were relative to the corner of the outer region; the inverse of `within`."""
        starts = (outer.front, outer.top, outer.left)
        return _from_ends([(a + start, b + start) for (a, b), start in zip(self._ends, starts, strict=True)])

    def of(self, array: np.ndarray) -> np.ndarray:
        """A view of the region's rows and columns in the last two axes of an array (...,H,W)."""
        return array[..., self.top : self.bottom, self.left : self.right]

    def of_volume(self, array: np.ndarray) -> np.ndarray:
        """A view of the region in the last three axes of an array (...,Z,H,W)."""
        return array[..., self.front : self.back, self.top : self.bottom, self.left : self.right]


@dataclass(frozen=True)
class Tiles(Sequence[Region]):
    """A region cut into tiles, which are made on request: a large image may have more of them than fit in memory.

    sides: size (z, y, x) of a tile
    """

    whole: Region
    sides: tuple[int, int, int]

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of tiles along each axis (z, y, x)."""
        return tuple(max(-(-length // side), 0) for length, side in zip(self.whole.shape, self.sides, strict=True))

    def __len__(self) -> int:
        planes, rows, columns = self.counts
        return planes * rows * columns

    def __iter__(self) -> Iterator[Region]:
        return (self[i] for i in range(len(self)))

    @overload
    def __getitem__(self, i: int) -> Region: ...
    @overload
    def __getitem__(self, i: slice) -> list[Region]: ...
    def __getitem__(self, i: int | slice) -> Region | list[Region]:
        if isinstance(i, slice):
            return [self[k] for k in range(len(self))[i]]
        _, rows, columns = self.counts
        rest, column = divmod(range(len(self))[i], columns)
        plane, row = divmod(rest, rows)
        numbers = zip((plane, row, column), self.sides, self.whole._ends, strict=True)
        return _from_ends([(first + k * side, min(first + (k + 1) * side, end)) for k, side, (first, end) in numbers])


def _from_ends(ends: Iterable[tuple[int, int]]) -> Region:
    """The region with these ends along (z, y, x)."""
    z, y, x = ends
    return Region(*y, *x, *z)


def _each(steps: Steps) -> tuple[int, int, int]:
    return (steps, steps, steps) if isinstance(steps, int) else steps
