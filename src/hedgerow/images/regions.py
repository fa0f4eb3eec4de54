"""Rectangles of an image."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
        """Larger by `margin` on each side, within an image of this size."""
        return Region(
            max(self.top - margin, 0),
            min(self.bottom + margin, height),
            max(self.left - margin, 0),
            min(self.right + margin, width),
        )

    def within(self, outer: Region) -> Region:
        """The same pixels, counted from the outer region's corner."""
        return Region(self.top - outer.top, self.bottom - outer.top, self.left - outer.left, self.right - outer.left)

    def halves(self) -> tuple[tuple[Region, Region], int]:
        """The two halves of the longer side, and the axis they follow each other along."""
        if self.height >= self.width:
            middle = (self.top + self.bottom) // 2
            return (replace(self, bottom=middle), replace(self, top=middle)), 0
        middle = (self.left + self.right) // 2
        return (replace(self, right=middle), replace(self, left=middle)), 1

    def of(self, array: np.ndarray) -> np.ndarray:
        """The view of the last two axes."""
        return array[..., self.top : self.bottom, self.left : self.right]
