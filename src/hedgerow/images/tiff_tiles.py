"""Tiles and strips of a TIFF that are pictures themselves, whose headers may declare more pixels than the TIFF does."""

from collections.abc import Callable, Iterable, Iterator
from math import prod
from typing import Any

import numpy as np

from hedgerow.files import megabytes

HEADER_BYTES = 8  # of a TIFF
SLACK = 2**16  # bytes or pixels: pictures are cut to the tile, and may have headers of their own
_NO_LENGTH = {0x01, *range(0xD0, 0xDA)}  # markers of JPEG without a segment
_SIZES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}  # markers of JPEG with the size of the picture


def bound_decoding(page: Any) -> None:
    """Have a page refuse tiles and strips that have more bytes, or declare more pixels, than its own can have."""
    key = page.keyframe
    decode = key.decode
    if not hasattr(decode, "most"):
        key.decode = _Bounded(decode, prod(key.chunks[:2]), prod(key.chunks) * np.dtype(key.dtype or "u1").itemsize)


def refuse_false_places(pages: Iterable[Any]) -> None:
    """Raise ValueError unless pages say, by numbers, where each of their tiles or strips is and how long it is."""
    for page in pages:
        key, offsets, counts = page.keyframe, page.dataoffsets, page.databytecounts
        n_blocks = 1 if key.is_contiguous else _n_blocks(key)
        n_placed = min(len(offsets), len(counts))
        if n_placed < n_blocks:
            raise ValueError(f"it says where {n_placed:,} of its {n_blocks:,} tiles or strips are")
        for values in (offsets, counts):
            if not all(issubclass(kind, int | np.integer) for kind in set(map(type, values))) or min(values) < 0:
                raise ValueError("it does not say where its tiles or strips are by numbers of bytes")
        if any(offset < HEADER_BYTES and count for offset, count in zip(offsets, counts, strict=False)):
            raise ValueError("one of its tiles or strips should begin in the header of the file")
        if max(counts) > page.parent.filehandle.size:
            raise ValueError("one of its tiles or strips should have more bytes than the file")


def _n_blocks(key: Any) -> int:
    """How many tiles or strips a page should have."""
    n_planes, _, height, width, _ = key.shaped
    sides = (key.tilelength, key.tilewidth) if key.is_tiled else (key.rowsperstrip, width)
    return n_planes * prod(-(-length // max(side, 1)) for length, side in zip((height, width), sides, strict=True))


def refuse_long_block(n_bytes: int, block: int) -> None:
    """Raise ValueError for a tile or strip of more bytes than it can have, if `block` is what it has decoded."""
    if n_bytes > 2 * block + SLACK:
        raise ValueError(f"it has {megabytes(n_bytes)} and should have at most {megabytes(2 * block + SLACK)}")


class _Bounded:
    """tifffile's function that decodes a tile or strip, which looks at the sizes first."""

    def __init__(self, decode: Callable[..., Any], n_pixels: int, n_bytes: int) -> None:
        self.decode, self.most, self.block = decode, 4 * n_pixels + SLACK, n_bytes

    def __call__(self, data: bytes | None, *given: Any, **options: Any) -> Any:
        if data is not None:
            refuse_long_block(len(data), self.block)
            for height, width in _sizes(bytes(data)):
                if height * width > self.most:
                    raise ValueError(f"a tile or strip is a picture of {height:,} x {width:,} pixels, too large for it")
        return self.decode(data, *given, **options)


def _sizes(data: bytes) -> Iterator[tuple[int, int]]:
    """Heights and widths that a JPEG, JPEG 2000, PNG or WebP declares; nothing for other data."""
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
