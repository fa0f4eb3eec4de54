"""Reads Zarr safely: only regular files, metadata of limited size, and chunks no larger than declared.

Imports zarr, so this module is itself imported only when a Zarr is read.
"""

import asyncio
import bz2
import lzma
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import zarr
from numcodecs import blosc, lz4
from zarr.abc.codec import BytesBytesCodec
from zarr.abc.store import ByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.codecs import ShardingCodec
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import LocalStore, WrapperStore

from hedgerow.errors import InputError, shown
from hedgerow.images.file_checks import METADATA_BYTES, MOST_BYTES_READ, ZARR_METADATA, refuse_longer, refuse_special
from hedgerow.memory import megabytes

# Codecs whose output is as large as their input, or differs by the ratio of two number types.
OF_EQUAL_SIZE = {
    *("bytes", "transpose", "shuffle", "delta", "astype", "bitround", "fixedscaleoffset", "quantize", "packbits"),
    *("crc32", "crc32c", "adler32", "fletcher32", "jenkins_lookup3"),
}
MOST_VALUES = 5_000_000  # in a file of metadata: of each, JSON makes an object of up to 75 bytes
MOST_IN_A_CHUNK = 2**63 - 1  # values; Python and NumPy can count no more
MOST_IN_A_SHARD = 2**22  # chunks; the table of a shard has 16 bytes for each


def open_local(path: Path) -> Any:
    """The group or array in a folder."""
    return open_guarded(LocalStore(path, read_only=True), path)


def open_guarded(store: Store, folder: Path | None = None, *, by_range: bool = False) -> Any:
    """The group or array in a store.

    folder:   the folder of the store, if it is on this machine
    by_range: request no more bytes than a file can have, which not every web server supports
    """
    return zarr.open(_Guarded(store, folder, by_range), mode="r", use_consolidated=False)


class _Guarded(WrapperStore[Store]):
    """Reads another store; refuses pipes, devices, and files that are larger than they can be.

    by_range:    see `open_guarded`
    chunk_bytes: the most bytes of a file of chunks, and of a part of such a file
    """

    def __init__(
        self, store: Store, folder: Path | None, by_range: bool, chunk_bytes: tuple[int, int] = (0, 0)
    ) -> None:
        super().__init__(store)
        self.folder, self.by_range, self.chunk_bytes = folder, by_range, chunk_bytes

    def _with_store(self, store: Store) -> "_Guarded":
        return _Guarded(store, self.folder, self.by_range, self.chunk_bytes)

    def for_chunks(self, chunk_bytes: tuple[int, int]) -> "_Guarded":
        """The same store, with this limit on the size of chunks."""
        return _Guarded(self._store, self.folder, self.by_range, chunk_bytes)

    def most_bytes(self, key: str, asked: ByteRequest | None) -> int:
        """The most bytes that are read at once from a file of the store."""
        if key.rpartition("/")[2] in ZARR_METADATA:
            return METADATA_BYTES
        return self.chunk_bytes[0 if asked is None else 1]

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        asyncio.get_running_loop().set_exception_handler(_forget_abandoned)
        most = self.most_bytes(key, byte_range)
        if self.folder is not None:
            refuse_special(self.folder / key, most if byte_range is None else None)
        if isinstance(byte_range, RangeByteRequest):
            refuse_longer(key, byte_range.end - byte_range.start, most)
        if isinstance(byte_range, SuffixByteRequest):
            refuse_longer(key, byte_range.suffix, most)
        if byte_range is None and self.by_range:
            byte_range = RangeByteRequest(0, most + 1)
        MOST_BYTES_READ.set(most)
        content = await self._store.get(key, prototype, byte_range)
        if content is not None:
            refuse_longer(key, len(content), most)
            if key.rpartition("/")[2] in ZARR_METADATA:
                _refuse_many_values(key, content.to_bytes())
        return content

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        return list(await asyncio.gather(*(self.get(key, prototype, asked) for key, asked in key_ranges)))


def _refuse_many_values(key: str, content: bytes) -> None:
    n_values = sum(map(content.count, (b",", b"[", b"{")))
    if n_values > MOST_VALUES:
        raise InputError(
            f"cannot read {key}: it holds {n_values:,} values, expected at most {MOST_VALUES:,}; save the image again."
        )


def _forget_abandoned(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """When one request fails, zarr abandons the others of the same read, and asyncio would report each of them."""
    if "task" not in context and "future" not in context:
        loop.default_exception_handler(context)


def guarded(array: Any, path: str) -> Any:
    """The same array, which refuses chunks that are larger than it declares. Raises InputError for an array that cannot
    be read."""
    _refuse_impossible(array, path)
    most = _most(array.chunks, array.dtype)
    change = _bounded_v2 if array.metadata.zarr_format == 2 else _bounded_v3
    table = 2**6 * _n_in_a_shard(array)
    limits = (_most(getattr(array, "shards", None) or array.chunks, array.dtype) + table, most + table)
    place = zarr.storage.StorePath(array.store_path.store.for_chunks(limits), array.store_path.path)
    return zarr.Array(zarr.AsyncArray(change(array.metadata, most, path), place))


def _most(shape: Sequence[int], dtype: np.dtype) -> int:
    """The most bytes of a chunk at any stage: compression may make it a little larger."""
    return 2 * prod(shape) * dtype.itemsize + 2**16


def _n_in_a_shard(array: Any) -> int:
    shards = getattr(array, "shards", None)
    return prod(shards) // prod(array.chunks) if shards else 1


def _refuse_impossible(array: Any, path: str) -> None:
    if min(array.shape, default=1) < 1:
        return  # refused later, like other images without pixels
    for chunk in (array.chunks, getattr(array, "shards", None) or ()):
        if min(chunk, default=1) < 1 or prod(chunk) > MOST_IN_A_CHUNK:
            fault = "which hold no pixels" if min(chunk) < 1 else "which no file can hold"
            lengths = shown(tuple(chunk), 200)  # a false length may have thousands of digits
            raise InputError(f"cannot read {path}: it declares chunks of shape {lengths}, {fault}; save it again.")
    if _n_in_a_shard(array) > MOST_IN_A_SHARD:
        raise InputError(
            f"cannot read {path}: it declares {_n_in_a_shard(array):,} chunks in each file, expected at most"
            f" {MOST_IN_A_SHARD:,}; save it with larger chunks."
        )


def _refuse_codecs(names: list[str], path: str) -> None:
    unknown = next((name for name in names if name not in BOUNDED and name not in OF_EQUAL_SIZE), None)
    if unknown is not None:
        raise InputError(
            f"cannot read {path}: it is compressed with {unknown!r}, expected {', '.join(sorted(BOUNDED))} or nothing;"
            " convert it."
        )


def _bounded_v2(metadata: Any, most: int, path: str) -> Any:
    """The metadata of an array of version 2, with codecs that decompress at most this many bytes."""

    def bounded(codec: Any) -> Any:
        _refuse_codecs([codec.codec_id], path)
        return _Filter(codec, most) if codec.codec_id in BOUNDED else codec

    filters = tuple(map(bounded, metadata.filters or ()))
    return replace(metadata, filters=filters, compressor=metadata.compressor and bounded(metadata.compressor))


def _bounded_v3(metadata: Any, most: int, path: str) -> Any:
    """The metadata of an array of version 3, with limited codecs; zarr gives each codec the size of its output."""

    def bounded(codec: Any) -> Any:
        if isinstance(codec, ShardingCodec):
            _refuse_codecs([_name(codec) for codec in codec.index_codecs], path)
            return replace(codec, codecs=tuple(map(bounded, codec.codecs)))
        _refuse_codecs([_name(codec)], path)
        return _Bounded(codec) if _name(codec) in BOUNDED else codec

    return replace(metadata, codecs=tuple(map(bounded, metadata.codecs)))


def _name(codec: Any) -> str:
    name = codec.to_dict()["name"]
    return str(name).removeprefix("numcodecs.")


@dataclass(frozen=True)
class _Bounded(BytesBytesCodec):
    """A codec of version 3 that decompresses no more than the chunk declares."""

    inner: Any

    is_fixed_size = False

    def compute_encoded_size(self, _input_byte_length: int, _chunk_spec: ArraySpec) -> int:
        raise NotImplementedError  # a codec that compresses does not know it

    def to_dict(self) -> dict[str, Any]:
        return dict(self.inner.to_dict())

    def evolve_from_array_spec(self, array_spec: ArraySpec) -> "_Bounded":
        return _Bounded(self.inner.evolve_from_array_spec(array_spec))

    async def _decode_single(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> Buffer:
        most = _most(chunk_spec.shape, chunk_spec.dtype.to_native_dtype())
        content = await asyncio.to_thread(decompressed, _name(self.inner), chunk_bytes.to_bytes(), most)
        return chunk_spec.prototype.buffer.from_bytes(content)


@dataclass(frozen=True)
class _Filter:
    """A codec of version 2 that decompresses at most this many bytes."""

    inner: Any
    most: int
    codec_id: str = "hedgerow-bounded"

    def decode(self, buf: Any, out: Any = None) -> Any:
        return decompressed(self.inner.codec_id, bytes(buf), self.most)

    def encode(self, buf: Any) -> Any:
        return self.inner.encode(buf)

    def get_config(self) -> Any:
        return self.inner.get_config()

    @classmethod
    def from_config(cls, config: Any) -> "_Filter":
        raise NotImplementedError("made of another codec")


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
