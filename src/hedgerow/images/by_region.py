"""Regions of an image file, read when asked for: of files whose form allows it, for images too large to hold."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hedgerow.files import PathLike
from hedgerow.images.reading import opened
from hedgerow.images.regions import Region
from hedgerow.images.stored import Stored, channels_first

MOST_AT_ONCE = 2**25  # bytes that a reader decodes for a single pixel; with more, the whole file is read instead


class ByRegion:
    """An image (C,H,W) in a file, in native byte order."""

    def __init__(self, array: Any, axes: str) -> None:
        """array: is indexed like the array of the file, and reads only what is indexed; axes: its letters"""
        self._array, self._axes, self._lock = array, axes, threading.Lock()
        lengths = dict(zip(axes, array.shape, strict=True))
        n_channels = int(np.prod([length for axis, length in lengths.items() if axis not in "YX"], dtype=np.int64))
        self.shape = n_channels, lengths["Y"], lengths["X"]
        self.dtype = np.dtype(array.dtype).newbyteorder("=")

    def read(self, region: Region) -> np.ndarray:
        """(C,h,w)"""
        spans = {"Y": slice(region.top, region.bottom), "X": slice(region.left, region.right)}
        with self._lock:  # not every reader can be used by several threads at once
            part = np.asarray(self._array[tuple(spans.get(axis, slice(None)) for axis in self._axes)])
        return channels_first(part, self._axes).astype(self.dtype, copy=False)


def open_by_region(path: PathLike) -> ByRegion | None:
    """An image file that can be read by regions; None: of this kind of file all must be read."""
    path = Path(path)
    with opened(path, "picture") as stored:
        if stored.lazy is None or stored.block > MOST_AT_ONCE or not _is_one(stored):
            return None
        return ByRegion(stored.lazy(), stored.axes)


def _is_one(stored: Stored) -> bool:
    """Whether all of the file is one image."""
    return len(stored.pages) == 1 and (stored.n_pages == 1 or stored.is_array) and _letters_differ(stored.axes)


def _letters_differ(axes: Sequence[str]) -> bool:
    return len(set(axes)) == len(axes)
