"""The levels of an image, each half the size of the one before, and its tiles as they are sent to the page."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hedgerow.errors import InputError, one_line
from hedgerow.images.array_checks import MAX_VALUE
from hedgerow.images.reading import ImageSource, open_image
from hedgerow.images.regions import Region
from hedgerow.images.stored import as_picture
from hedgerow.memory import megabytes
from hedgerow.paint.labels import TILE
from hedgerow.paint.project_file import ImageFile
from hedgerow.temporary import reserve

MAX_MEMORY_BYTES = 128 * 2**20  # a larger level is kept in a temporary file
MAX_CHUNK_BYTES = 2**25  # decoded to read a single pixel; an image in larger chunks is read as a whole
ROWS_AT_ONCE = 512  # rows that are read and halved at once
CONTRAST_PERCENTILES = (0.5, 99.5)  # of the values that are initially shown as black and white
MAX_CONTRAST_PIXELS = 2**20  # from which the percentiles are estimated
THUMBNAIL_SIDE = 160


def n_levels(size: tuple[int, int]) -> int:
    """The number of levels; the coarsest fits in one tile."""
    return 1 + max((max(size) - 1) // TILE, 0).bit_length()


def level_size(size: tuple[int, int], level: int) -> tuple[int, int]:
    """(H,W) of a level, rounded up."""
    return -(-size[0] >> level), -(-size[1] >> level)


def finest_level(size: tuple[int, int], max_pixels: int) -> int:
    """The finest level at which an image of this size has at most `max_pixels` pixels, else the coarsest."""
    last = n_levels(size) - 1
    return next((level for level in range(last) if math.prod(level_size(size, level)) <= max_pixels), last)


class Pyramid:
    """The levels of an image as planes (C,H,W), in the number type of its file."""

    def __init__(self, image: ImageFile, report: Callable[[int, int], None] = lambda done, total: None) -> None:
        """report: called with the number of regions that are done, and the number of all"""
        self.image = image
        self.n_levels = n_levels(image.size)
        n_regions = [len(_row_regions(level_size(image.size, level))) for level in range(self.n_levels)]
        total = n_regions[0] + sum(n_regions[:-1])  # opening the image may take as long as halving it
        report(0, total)
        self._levels: list[np.ndarray | ImageSource] = [_open_planes(image)]
        done = n_regions[0]
        for level in range(1, self.n_levels):
            self._levels.append(_halve(self._levels[-1], lambda k, done=done: report(done + k, total)))  # type: ignore[misc]
            done += n_regions[level - 1]
        self.low, self.high = self._range()
        self.contrast = self._contrast()

    @property
    def nbytes(self) -> int:
        """Bytes in memory, without files."""
        return sum(level.nbytes for level in self._levels if not isinstance(level, np.memmap | ImageSource))

    @property
    def type(self) -> str:
        """The number type in which tiles are sent: u1 or u2."""
        return "u1" if self.image.dtype in (np.uint8, np.bool_) else "u2"

    def size(self, level: int) -> tuple[int, int]:
        height, width = self._levels[level].shape[1:]
        return height, width

    def planes(self, level: int, region: Region) -> np.ndarray:
        """(C,h,w) float32: the values of a region of a level, for computing."""
        return np.ascontiguousarray(_read(self._levels[level], region), np.float32)

    def tile(self, level: int, row: int, column: int, channels: Sequence[int]) -> np.ndarray | None:
        """(n,h,w): some channels of a tile as they are sent; None: there is no such tile."""
        region = Region.tile_at((row, column), TILE).clipped(Region.whole(self.size(level)))
        if region.is_empty:
            return None
        return self._as_sent(_read(self._levels[level], region)[list(channels)])

    def thumbnail(self) -> np.ndarray:
        """(h,w) or (h,w,3) uint8, at most 160 x 160."""
        last = _read_all(self._levels[-1])
        if max(last.shape[1:]) > THUMBNAIL_SIDE:
            last = _halve(last)
        planes = self._as_sent(last[:3] if len(last) >= 3 else last[:1]).astype(np.float32)
        low, high = (np.array(ends[: len(planes)])[:, None, None] for ends in self.contrast)
        scaled = (np.clip((planes - low) / np.maximum(high - low, 1), 0, 1) * 255).astype(np.uint8)
        return as_picture(scaled)

    def _as_sent(self, planes: np.ndarray) -> np.ndarray:
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
        parts = (_read(self._levels[0], region) for region in _row_regions(self.image.size))
        lows, highs = zip(*((part.min(), part.max()) for part in parts), strict=True)
        low, high = float(min(lows)), float(max(highs))
        if not (low >= -MAX_VALUE and high <= MAX_VALUE):  # also true of NaN
            raise InputError(f"{self.image.path} has values that are not finite or too large; replace them.")
        return low, high

    def _contrast(self) -> tuple[list[float], list[float]]:
        """For each channel, the values (as sent) that are initially shown as black and white."""
        if self.image.dtype == np.bool_:
            return [0.0] * self.image.n_channels, [1.0] * self.image.n_channels
        level = finest_level(self.image.size, MAX_CONTRAST_PIXELS)
        ends = np.percentile(self._as_sent(_read_all(self._levels[level])), CONTRAST_PERCENTILES, axis=(1, 2))
        return ends[0].tolist(), np.maximum(ends[1], ends[0] + 1).tolist()


def _open_planes(image: ImageFile) -> np.ndarray | ImageSource:
    """The full image: in memory, or if it is large, read by regions or copied to a temporary file."""
    source = open_image(image.path)
    if source.shape != (image.n_channels, *image.size):
        raise InputError(f"{image.path} has changed since the program was started; restart the program.")
    if image.n_bytes > MAX_MEMORY_BYTES and source.by_region and source.chunk_bytes <= MAX_CHUNK_BYTES:
        return source
    with source:
        planes = source.read()
    if planes.nbytes <= MAX_MEMORY_BYTES:
        return np.ascontiguousarray(planes)
    copy = _new_array(planes.shape, planes.dtype)
    copy[...] = planes
    return copy


def _read(level: np.ndarray | ImageSource, region: Region) -> np.ndarray:
    return level.read(region) if isinstance(level, ImageSource) else region.of(level)


def _read_all(level: np.ndarray | ImageSource) -> np.ndarray:
    return _read(level, Region.whole(level.shape[1:]))


def _halve(level: np.ndarray | ImageSource, report: Callable[[int], None] = lambda done: None) -> np.ndarray:
    """The next level: the mean of each 2 x 2 pixels, rounded; at odd sizes the last row and column are repeated."""
    n, height, width = level.shape
    half = _new_array((n, -(-height // 2), -(-width // 2)), level.dtype)
    for number, region in enumerate(_row_regions((height, width))):
        report(number)
        part = _read(level, region)
        part = np.pad(part, ((0, 0), (0, part.shape[1] % 2), (0, part.shape[2] % 2)), mode="edge")
        sum_type = np.float64 if part.dtype.kind == "f" else np.int64 if part.dtype.itemsize > 2 else np.int32
        total: Any = sum(part[:, i::2, j::2].astype(sum_type) for i in (0, 1) for j in (0, 1))
        mean = total / 4 if part.dtype.kind == "f" else (total + 2) >> 2
        half[:, region.top // 2 : region.top // 2 + mean.shape[1]] = mean
    return half


def _new_array(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    n_bytes = int(np.prod(shape)) * dtype.itemsize
    if n_bytes <= MAX_MEMORY_BYTES:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile() as file:  # it has no name, and its space is freed with the last view of it
        try:
            reserve(file.fileno(), n_bytes)
        except OSError as problem:
            raise InputError(
                f"the tiles of a large image need {megabytes(n_bytes)} in {tempfile.gettempdir()}: {one_line(problem)};"
                " make room there, or set TMPDIR to another folder."
            ) from problem
        return np.memmap(file, dtype, "r+", shape=shape)


def _row_regions(size: tuple[int, int]) -> Sequence[Region]:
    return Region.whole(size).tiles((1, ROWS_AT_ONCE, size[1]))
