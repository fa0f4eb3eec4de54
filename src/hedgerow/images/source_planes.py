"""An image in a file as an array, which is read when it is indexed."""

from __future__ import annotations

from collections.abc import Callable
from types import EllipsisType
from typing import Any

import numpy as np

from hedgerow.images.regions import Region


class SourcePlanes:
    """An image (C,H,W) float32 that is indexed like an array, and read when it is indexed.

    Models use it in place of the image. A part of it may be in memory; indices are still those of the whole image.
    """

    ndim, dtype = 3, np.dtype(np.float32)

    def __init__(
        self,
        read: Callable[[Region], np.ndarray],
        shape: tuple[int, int, int],
        part: Region | None = None,
        source: object = None,
    ) -> None:
        """read: returns (C,h,w) float32 of a region; part: is read now; source: see the property"""
        self.shape, self._read, self.part, self._source = shape, read, part, source
        self.values = None if part is None else read(part)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def source(self) -> object:
        """The same object for all parts of an image."""
        return self if self._source is None else self._source

    def __getitem__(self, place: tuple[Any, ...]) -> np.ndarray:
        channels, rows, columns = place if len(place) == 3 else (..., *place)
        (top, bottom, down), (left, right, across) = rows.indices(self.shape[1]), columns.indices(self.shape[2])
        region = Region(top, bottom, left, right)
        if self.part is not None and self.values is not None and region.clipped(self.part) == region:
            values = region.within(self.part).of(self.values)
        else:
            values = self._read(region)
        values = values[..., ::down, ::across]
        return values if isinstance(channels, EllipsisType) else values[channels]
