"""Rectangles of an image."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np


@dataclass(frozen=True)
class Region:
    """Rows top..bottom and columns left..right of an image, ends excluded."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def height(self) -> int:
        return self.bottom - self.top

    @property
    def width(self) -> int:
        return self.right - self.left

    def grown(self, margin: int, height: int, width: int) -> Region:
        """The region grown by `margin` on each side, clipped to an image of this size."""
        return Region(
            max(self.top - margin, 0),
            min(self.bottom + margin, height),
            max(self.left - margin, 0),
            min(self.right + margin, width),
        )

    def aligned(self, cell: int, height: int, width: int) -> Region:
        """All cells of a grid from the image's corner that the region touches, clipped to an image of this size."""
        return Region(
            self.top // cell * cell,
            min(-(-self.bottom // cell) * cell, height),
            self.left // cell * cell,
            min(-(-self.right // cell) * cell, width),
        )

    def cells(self, cell: int) -> Cells:
        """The region cut into squares of this side, row after row; those at its end may be smaller."""
        return Cells(self, cell)

    def within(self, outer: Region) -> Region:
        """The same pixels, counted from the outer region's corner."""
        return Region(self.top - outer.top, self.bottom - outer.top, self.left - outer.left, self.right - outer.left)

    def halves(self) -> tuple[tuple[Region, Region], int]:
        """The region cut in half across its longer side, and the axis along which the halves lie."""
        if self.height >= self.width:
            middle = (self.top + self.bottom) // 2
            return (replace(self, bottom=middle), replace(self, top=middle)), 0
        middle = (self.left + self.right) // 2
        return (replace(self, right=middle), replace(self, left=middle)), 1

    def of(self, array: np.ndarray) -> np.ndarray:
        """A view of this region in the last two axes of an array."""
        return array[..., self.top : self.bottom, self.left : self.right]


@dataclass(frozen=True)
class Cells(Sequence[Region]):
    """A region cut into squares of this side, each computed on request: a large image has more than memory holds."""

    whole: Region
    side: int

    @property
    def n_across(self) -> int:
        return -(-self.whole.width // self.side)

    def __len__(self) -> int:
        return -(-self.whole.height // self.side) * self.n_across

    def __iter__(self) -> Iterator[Region]:
        return (self[i] for i in range(len(self)))

    @overload
    def __getitem__(self, i: int) -> Region: ...
    @overload
    def __getitem__(self, i: slice) -> list[Region]: ...
    def __getitem__(self, i: int | slice) -> Region | list[Region]:
        if isinstance(i, slice):
            return [self[k] for k in range(len(self))[i]]
        row, column = divmod(range(len(self))[i], self.n_across)
        top, left = self.whole.top + row * self.side, self.whole.left + column * self.side
        bottom, right = min(top + self.side, self.whole.bottom), min(left + self.side, self.whole.right)
        return Region(top, bottom, left, right)
