"""Decompresses no more than was declared, since a few bytes may expand to gigabytes."""

import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import Any

import imagecodecs
from numcodecs import blosc, lz4

from hedgerow.memory import megabytes

_LZMA_MEMORY = 2**28  # bytes; the dictionary of the largest preset, 9, needs 2**26


def decompressed(codec: str, data: bytes, most: int) -> bytes:
    """The data decompressed by a codec of BOUNDED; raises ValueError before it takes more than `most` bytes."""
    return BOUNDED[codec](data, most)


def _refuse_more(n_bytes: int, most: int) -> None:
    if n_bytes > most:
        raise ValueError(f"it decompresses to more than {megabytes(most)}, but less was declared")


def _blosc(data: bytes, most: int) -> bytes:
    _refuse_more(int.from_bytes(data[4:8], "little"), most)  # its header gives the size that will be allocated
    return bytes(blosc.decompress(data))


def _lz4(data: bytes, most: int) -> bytes:
    _refuse_more(int.from_bytes(data[:4], "little"), most)
    return bytes(lz4.decompress(data))


def _zstd(data: bytes, most: int) -> bytes:
    """Uses a buffer of limited size, since the header of a stream need not give the decompressed size."""
    try:
        return bytes(imagecodecs.zstd_decode(data, out=bytearray(most)))
    except imagecodecs.ZstdError as problem:
        if "too small" in str(problem):
            _refuse_more(most + 1, most)
        raise


def _piece_by_piece(make: Callable[[], Any], data: bytes, most: int) -> bytes:
    """Uses a decompressor of the standard library for each of the streams, which may follow one another."""
    content = b""
    while data:
        stream = make()
        content += stream.decompress(data, most + 1 - len(content))
        _refuse_more(len(content), most)
        if not stream.eof:
            raise ValueError("its compressed data are incomplete")
        data = stream.unused_data.lstrip(b"\0")
    return content


BOUNDED: dict[str, Callable[[bytes, int], bytes]] = {
    "blosc": _blosc,
    "bz2": lambda data, most: _piece_by_piece(bz2.BZ2Decompressor, data, most),
    "gzip": lambda data, most: _piece_by_piece(lambda: zlib.decompressobj(31), data, most),
    "lz4": _lz4,
    "lzma": lambda data, most: _piece_by_piece(lambda: lzma.LZMADecompressor(memlimit=_LZMA_MEMORY), data, most),
    "zlib": lambda data, most: _piece_by_piece(zlib.decompressobj, data, most),
    "zstd": _zstd,
}
