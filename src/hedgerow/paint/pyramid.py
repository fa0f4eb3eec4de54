"""An image at ever coarser levels, each half of the one before, and its tiles as the page shows them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hedgerow.errors import InputError
from hedgerow.images.arrays import MAX_VALUE
from hedgerow.images.by_region import ByRegion, open_by_region
from hedgerow.images.reading import read_image
from hedgerow.images.regions import Region
from hedgerow.paint.image_files import ImageFile
from hedgerow.paint.labels import TILE

IN_MEMORY = 128 * 2**20  # bytes; a larger level lies in a file that goes with the pyramid
BAND = 512  # rows that are halved at once
SHOWN = (0.5, 99.5)  # percentiles that show as black and white at first
LOOKED_AT = 2**20  # pixels that these are taken from, about
THUMBNAIL = 160


def n_levels(size: tuple[int, int]) -> int:
    """How many levels there are until one tile holds the image."""
    return 1 + max((max(size) - 1) // TILE, 0).bit_length()


def level_size(size: tuple[int, int], level: int) -> tuple[int, int]:
    """(H,W) of a level: halves are rounded up."""
    return -(-size[0] >> level), -(-size[1] >> level)


class Pyramid:
    """The levels of an image as planes (C,H,W), in the number type of its file."""

    def __init__(self, image: ImageFile, report: Callable[[int, int], None] = lambda done, total: None) -> None:
        """report: is told how many of how many bands of rows are done"""
        self.image = image
        self.n_levels = n_levels(image.size)
        bands = [len(_bands(level_size(image.size, level))) for level in range(self.n_levels)]
        total = bands[0] + sum(bands[:-1])  # to open the image may take as long as to halve it
        report(0, total)
        self._levels: list[np.ndarray | ByRegion] = [_planes_of(image)]
        done = bands[0]
        for level in range(1, self.n_levels):
            self._levels.append(_halved(self._levels[-1], lambda k, done=done: report(done + k, total)))  # type: ignore[misc]
            done += bands[level - 1]
        self.low, self.high = self._range()
        self.contrast = self._contrast()

    @property
    def nbytes(self) -> int:
        """Bytes in memory; files do not count."""
        return sum(level.nbytes for level in self._levels if not isinstance(level, np.memmap | ByRegion))

    @property
    def type(self) -> str:
        """How tiles are sent: u1, or u2."""
        return "u1" if self.image.dtype in (np.uint8, np.bool_) else "u2"

    def size(self, level: int) -> tuple[int, int]:
        height, width = self._levels[level].shape[1:]
        return height, width

    def planes(self, level: int, region: Region) -> np.ndarray:
        """(C,h,w) float32 of a region of a level, in it, to compute with."""
        return np.ascontiguousarray(_part(self._levels[level], region), np.float32)

    def tile(self, level: int, row: int, column: int, channels: Sequence[int]) -> np.ndarray | None:
        """(n,h,w) of some channels of a tile, as it is sent; None: there is no such tile."""
        height, width = self.size(level)
        region = Region(row * TILE, min((row + 1) * TILE, height), column * TILE, min((column + 1) * TILE, width))
        if region.height < 1 or region.width < 1:
            return None
        return self._shown(_part(self._levels[level], region)[list(channels)])

    def thumbnail(self) -> np.ndarray:
        """(h,w) or (h,w,3) uint8, at most 160 x 160."""
        last = _whole(self._levels[-1])
        if max(last.shape[1:]) > THUMBNAIL:
            last = _halved(last)
        planes = self._shown(last[:3] if len(last) >= 3 else last[:1]).astype(np.float32)
        low, high = (np.array(ends[: len(planes)])[:, None, None] for ends in self.contrast)
        scaled = (np.clip((planes - low) / np.maximum(high - low, 1), 0, 1) * 255).astype(np.uint8)
        return scaled[0] if len(scaled) == 1 else np.moveaxis(scaled, 0, 2)

    def _shown(self, planes: np.ndarray) -> np.ndarray:
        if self.image.dtype in (np.uint8, np.uint16):
            return np.ascontiguousarray(planes)
        if self.image.dtype == np.bool_:
            return planes.astype(np.uint8)
        scale = 65535 / max(self.high - self.low, 1e-30)
        return np.clip((planes.astype(np.float64) - self.low) * scale, 0, 65535).astype("<u2")

    def _range(self) -> tuple[float, float]:
        """The smallest and the largest value."""
        if self.image.dtype.kind in "bu":
            return 0.0, float(1 if self.image.dtype == np.bool_ else np.iinfo(self.image.dtype).max)
        bands = (_part(self._levels[0], region) for region in _bands(self.image.size))
        parts = [(band.min(), band.max()) for band in bands]
        low, high = float(min(one for one, _ in parts)), float(max(one for _, one in parts))
        if not (low >= -MAX_VALUE and high <= MAX_VALUE):  # also true of NaN
            raise InputError(f"{self.image.path} has values that are not finite or too large; replace them.")
        return low, high

    def _contrast(self) -> tuple[list[float], list[float]]:
        """For each channel the values, as sent, that show as black and white at first."""
        if self.image.dtype == np.bool_:
            return [0.0] * self.image.n_channels, [1.0] * self.image.n_channels
        level = next((k for k in range(self.n_levels) if np.prod(self.size(k)) <= LOOKED_AT), -1)
        ends = np.percentile(self._shown(_whole(self._levels[level])), SHOWN, axis=(1, 2))
        return ends[0].tolist(), np.maximum(ends[1], ends[0] + 1).tolist()


def _planes_of(image: ImageFile) -> np.ndarray | ByRegion:
    """The full image: in memory, or if it is large read by regions, or from a file of its own."""
    if image.n_bytes > IN_MEMORY:
        by_region = open_by_region(image.path)
        if by_region is not None and by_region.shape == (image.n_channels, *image.size):
            return by_region
    array = read_image(image.path)
    planes = array[None] if array.ndim == 2 else np.moveaxis(array, 2, 0)
    if planes.shape != (image.n_channels, *image.size):
        raise InputError(f"{image.path} has changed since the program was started; start it again.")
    if planes.nbytes <= IN_MEMORY:
        return np.ascontiguousarray(planes)
    kept = _room(planes.shape, planes.dtype)
    kept[...] = planes
    return kept


def _part(level: np.ndarray | ByRegion, region: Region) -> np.ndarray:
    return level.read(region) if isinstance(level, ByRegion) else region.of(level)


def _whole(level: np.ndarray | ByRegion) -> np.ndarray:
    return _part(level, Region(0, level.shape[1], 0, level.shape[2]))


def _halved(level: np.ndarray | ByRegion, report: Callable[[int], None] = lambda done: None) -> np.ndarray:
    """The next level: the mean of each block of 2 x 2, rounded; an odd edge is repeated."""
    n, height, width = level.shape
    found = _room((n, -(-height // 2), -(-width // 2)), level.dtype)
    for number, region in enumerate(_bands((height, width))):
        report(number)
        band = _part(level, region)
        band = np.pad(band, ((0, 0), (0, band.shape[1] % 2), (0, band.shape[2] % 2)), mode="edge")
        kind = np.float64 if band.dtype.kind == "f" else np.int64 if band.dtype.itemsize > 2 else np.int32
        total: Any = sum(band[:, i::2, j::2].astype(kind) for i in (0, 1) for j in (0, 1))
        mean = total / 4 if band.dtype.kind == "f" else (total + 2) >> 2
        found[:, region.top // 2 : region.top // 2 + mean.shape[1]] = mean
    return found


def _room(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    n_bytes = int(np.prod(shape)) * dtype.itemsize
    if n_bytes <= IN_MEMORY:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile() as file:  # its name is gone at once, its room with the last view of it
        file.truncate(n_bytes)
        return np.memmap(file, dtype, "r+", shape=shape)


def _bands(size: tuple[int, int]) -> list[Region]:
    return [Region(top, min(top + BAND, size[0]), 0, size[1]) for top in range(0, size[0], BAND)]
