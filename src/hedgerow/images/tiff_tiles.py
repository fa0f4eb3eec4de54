"""Reads the tiles and strips of a TIFF that a region needs, and refuses those that cannot be as they are declared.

Some tiles are pictures themselves, and their headers may declare more pixels than the TIFF does.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from hedgerow.errors import InputError, one_line
from hedgerow.images.remote import is_remote, with_retries
from hedgerow.memory import megabytes

HEADER_BYTES = 8  # of a TIFF
SLACK = 2**16  # bytes or pixels; tiles that are pictures are cut to size, and may have headers
_NO_LENGTH = {0x01, *range(0xD0, 0xDA)}  # markers of JPEG without a segment
_SIZES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}  # markers of JPEG that give the size of the picture


class TiffArray:
    """The array in pages of one kind; indexing it decodes only the tiles or strips that are needed.

    chunks: shape of the part of the array that is decoded at once; (): pixels are stored as they are in memory
    """

    def __init__(self, path: str, pages: Sequence[Any], axes: str, shape: Sequence[int]) -> None:
        self.path, self.pages, self.axes, self.shape = path, pages, axes, tuple(shape)
        self.key = pages[0].keyframe
        self.dtype = np.dtype(self.key.dtype)
        refuse_false_places(pages)
        bound_decoding(self.key)
        self.n_leading = len(self.shape) - len(self.key.shape)
        self.numbers = np.arange(len(pages)).reshape(self.shape[: self.n_leading])
        self.lock = threading.Lock()
        self.size: tuple[int, int] = (self.key.shaped[2], self.key.shaped[3])
        self.side = _sides(self.key)
        self.is_mapped = bool(self.key.is_contiguous) and not is_remote(path)
        inner = dict(zip("YXS", (*self.side, self.key.shaped[4]), strict=True))
        self.chunks = () if self.is_mapped else (1,) * self.n_leading + tuple(inner[axis] for axis in self.key.axes)

    @staticmethod
    def fits(pages: Sequence[Any], shape: Sequence[int]) -> bool:
        """Whether no page is missing, and each holds the last axes of the array."""
        if any(page is None for page in pages):
            return False
        key = pages[0].keyframe
        n_leading = len(shape) - len(key.shape)
        plain = key.dtype is not None and key.shaped[1] == 1 and key.axes in ("YX", "YXS", "SYX")
        whole = tuple(shape[n_leading:]) == tuple(key.shape) and prod(shape[:n_leading]) == len(pages)
        return plain and whole and min(_sides(key)) > 0

    def __getitem__(self, place: tuple[int | slice, ...]) -> np.ndarray:
        numbers = self.numbers[place[: self.n_leading]]
        inner = dict(zip(self.key.axes, place[self.n_leading :], strict=True))
        rows, columns = (range(*inner[axis].indices(n)) for axis, n in zip("YX", self.size, strict=True))
        parts = [self._part(self.pages[int(i)], rows, columns) for i in np.ravel(numbers)]
        values = np.stack(parts).reshape(*np.shape(numbers), *parts[0].shape)
        return values[(..., *(inner[axis] if axis == "S" else slice(None) for axis in self.key.axes))]

    def _part(self, page: Any, rows: range, columns: range) -> np.ndarray:
        """Rows and columns of a page, with the axes of the page."""
        key, (n_planes, _, _, _, n_samples) = self.key, self.key.shaped
        if self.is_mapped:
            self._refuse_cut(page)
            flat = page.parent.filehandle.memmap_array(
                page.parent.byteorder + key.dtype.char, (n_planes, *self.size, n_samples), page.dataoffsets[0]
            )
            mapped = np.array(flat[:, rows.start : rows.stop, columns.start : columns.stop])
            return self._shaped(mapped.astype(self.dtype, copy=False))
        values = np.full((n_planes, len(rows), len(columns), n_samples), key.nodata, self.dtype)
        high, wide = self.side
        n_down, n_across = -(-self.size[0] // high), -(-self.size[1] // wide)
        for plane in range(n_planes):
            for r in range(rows.start // high, -(-rows.stop // high)):
                for c in range(columns.start // wide, -(-columns.stop // wide)):
                    block = self._block(page, (plane * n_down + r) * n_across + c)
                    if block is None:
                        continue  # not stored
                    top, left = r * high, c * wide
                    t, b = max(rows.start, top), min(rows.stop, top + block.shape[0])
                    w, e = max(columns.start, left), min(columns.stop, left + block.shape[1])
                    into = values[plane, t - rows.start : b - rows.start, w - columns.start : e - columns.start]
                    into[...] = block[t - top : b - top, w - left : e - left]
        return self._shaped(values)

    def _refuse_cut(self, page: Any) -> None:
        try:
            refuse_cut(page.parent, page.dataoffsets[0], self.key.nbytes)
        except ValueError as problem:
            raise InputError(f"cannot read {self.path}: {problem}; copy or save the image again.") from problem

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        """Values (planes,h,w,samples) with the axes of a page."""
        if self.key.axes == "YX":
            return values[0, ..., 0]
        return values[0] if self.key.axes == "YXS" else values[..., 0]

    def _block(self, page: Any, index: int) -> np.ndarray | None:
        """(h,w,samples) of a tile or strip; None if it is not stored."""
        offset, n_bytes = page.dataoffsets[index], page.databytecounts[index]
        if n_bytes == 0:
            return None
        file = page.parent.filehandle

        def read() -> bytes:
            with self.lock:
                file.seek(offset)
                return bytes(file.read(n_bytes))

        try:
            refuse_long_block(n_bytes, prod(self.chunks) * self.dtype.itemsize)
            data = with_retries(read, f"cannot read {self.path}", retry=is_remote(self.path))
            if len(data) < n_bytes:
                raise ValueError("the file ends before it")
            decoded, _, _ = self.key.decode(data, index, jpegtables=page.jpegtables)
        except (InputError, MemoryError):
            raise
        except Exception as problem:
            kind = "tile" if self.key.is_tiled else "strip"
            raise InputError(
                f"cannot read {self.path}: its {kind} {index}, counted from 0, is damaged ({one_line(problem)}); copy"
                " or save the image again."
            ) from problem
        return np.asarray(decoded[0])


class MappedArray:
    """The array in a series of pages whose pixels are stored one after another, as they are in memory.

    Unlike `TiffArray`, it needs no list of the pages, of which there may be many thousands.
    """

    chunks = ()

    def __init__(self, tiff: Any, series: Any) -> None:
        self.tiff, self.series, self.shape = tiff, series, tuple(series.shape)
        self.dtype = np.dtype(series.dtype)
        self.size: tuple[int, int] = (series.keyframe.shaped[2], series.keyframe.shaped[3])

    def __getitem__(self, place: tuple[int | slice, ...]) -> np.ndarray:
        refuse_cut(self.tiff, self.series.dataoffset, self.series.nbytes)
        dtype = self.tiff.byteorder + self.dtype.char
        return np.array(self.tiff.filehandle.memmap_array(dtype, self.shape, self.series.dataoffset)[place])


def _sides(key: Any) -> tuple[int, int]:
    """(h,w) of a tile or strip."""
    if key.is_tiled:
        return key.tilelength, key.tilewidth
    return min(key.rowsperstrip, key.shaped[2]), key.shaped[3]


def refuse_cut(tiff: Any, offset: int, n_bytes: int) -> None:
    """Refuse pixels beyond the end of the file, before memory is allocated for them."""
    if offset + n_bytes > tiff.filehandle.size:
        raise ValueError(f"it should hold {n_bytes:,} bytes of pixels, but ends before")


def bound_decoding(page: Any) -> None:
    """Make a page refuse tiles and strips that have more bytes, or declare more pixels, than they can have."""
    key = page.keyframe
    if 0 in key.chunks:
        raise ValueError("its tiles or strips have no pixels")
    decode = key.decode
    if not hasattr(decode, "most"):
        key.decode = _Bounded(decode, prod(key.chunks[:2]), prod(key.chunks) * np.dtype(key.dtype or "u1").itemsize)


def refuse_false_places(pages: Iterable[Any]) -> None:
    """Raise ValueError unless pages give the position and length of each of their tiles or strips as numbers."""
    for page in pages:
        key, offsets, counts = page.keyframe, page.dataoffsets, page.databytecounts
        n_blocks = 1 if key.is_contiguous else _n_blocks(key)
        n_placed = min(len(offsets), len(counts))
        if n_placed < n_blocks:
            raise ValueError(f"it gives the positions of only {n_placed:,} of its {n_blocks:,} tiles or strips")
        for values in (offsets, counts):
            if not all(issubclass(kind, int | np.integer) for kind in set(map(type, values))) or min(values) < 0:
                raise ValueError("the positions or lengths of its tiles or strips are not numbers of bytes")
        if any(offset < HEADER_BYTES and count for offset, count in zip(offsets, counts, strict=False)):
            raise ValueError("one of its tiles or strips begins in the header of the file")
        if max(counts) > page.parent.filehandle.size:
            raise ValueError("one of its tiles or strips has more bytes than the file")


def _n_blocks(key: Any) -> int:
    """The number of tiles or strips that a page should have."""
    n_planes, _, height, width, _ = key.shaped
    sides = (key.tilelength, key.tilewidth) if key.is_tiled else (key.rowsperstrip, width)
    return n_planes * prod(-(-length // max(side, 1)) for length, side in zip((height, width), sides, strict=True))


def refuse_long_block(n_bytes: int, block: int) -> None:
    """Raise ValueError for a tile or strip with more bytes than it can have; block: its size when decoded."""
    if n_bytes > 2 * block + SLACK:
        raise ValueError(f"it has {megabytes(n_bytes)}, but should have at most {megabytes(2 * block + SLACK)}")


class _Bounded:
    """tifffile's function that decodes a tile or strip, with a check of the sizes before it."""

    def __init__(self, decode: Callable[..., Any], n_pixels: int, n_bytes: int) -> None:
        self.decode, self.most, self.block = decode, 4 * n_pixels + SLACK, n_bytes

    def __call__(self, data: bytes | None, *arguments: Any, **options: Any) -> Any:
        if data is not None:
            refuse_long_block(len(data), self.block)
            for height, width in _sizes(bytes(data)):
                if height * width > self.most:
                    raise ValueError(
                        f"one of its tiles or strips is too large: a picture of {height:,} x {width:,} pixels"
                    )
        return self.decode(data, *arguments, **options)


def _sizes(data: bytes) -> Iterator[tuple[int, int]]:
    """The heights and widths that a JPEG, JPEG 2000, PNG or WebP declares; empty for other data."""
    if data[:2] == b"\xff\xd8":
        yield from _of_jpeg(data)
    elif data[:4] == b"\xff\x4f\xff\x51" or data[4:8] == b"jP  ":
        at = data.find(b"\xff\x4f\xff\x51")
        while at >= 0:
            width, height = (int.from_bytes(data[at + i : at + i + 4], "big") for i in (8, 12))
            yield height, width
            at = data.find(b"\xff\x4f\xff\x51", at + 1)
    elif data[:8] == b"\x89PNG\r\n\x1a\n":
        yield int.from_bytes(data[20:24], "big"), int.from_bytes(data[16:20], "big")
    elif data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        yield _of_webp(data)


def _of_jpeg(data: bytes) -> Iterator[tuple[int, int]]:
    at = 2
    while at + 9 <= len(data):
        marker = data[at + 1]
        if data[at] != 0xFF or marker == 0xFF:
            at += 1
        elif marker in _NO_LENGTH:
            at += 2
        else:
            if marker in _SIZES:
                yield int.from_bytes(data[at + 5 : at + 7], "big"), int.from_bytes(data[at + 7 : at + 9], "big")
            if marker == 0xDA:  # the pixels begin
                return
            at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")


def _of_webp(data: bytes) -> tuple[int, int]:
    kind = data[12:16]
    if kind == b"VP8X":
        width, height = (int.from_bytes(data[i : i + 3], "little") + 1 for i in (24, 27))
    elif kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    else:
        width, height = (int.from_bytes(data[i : i + 2], "little") & 0x3FFF for i in (26, 28))
    return height, width
