"""Zarr, read with care: only regular files, metadata of limited size, chunks that hold what was declared.

Imports zarr, so it is itself imported where a Zarr is read.
"""

import asyncio
import os
import stat
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.abc.codec import BytesBytesCodec
from zarr.abc.store import ByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.codecs import ShardingCodec
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import LocalStore, WrapperStore

from hedgerow.errors import InputError
from hedgerow.files import megabytes
from hedgerow.images.decompressing import BOUNDED, decompressed
from hedgerow.images.places import ZARR_METADATA, refuse_unreadable

METADATA_BYTES = 2**26
# Codecs whose output is as large as their input, or larger by the ratio of two number types.
OF_EQUAL_SIZE = {
    *("bytes", "transpose", "shuffle", "delta", "astype", "bitround", "fixedscaleoffset", "quantize", "packbits"),
    *("crc32", "crc32c", "adler32", "fletcher32", "jenkins_lookup3"),
}
MOST_IN_A_SHARD = 2**22  # chunks: the table of a shard has 16 bytes for each
MOST_BYTES: ContextVar[int] = ContextVar("MOST_BYTES", default=METADATA_BYTES)
"""How many bytes the answer to the request that is being made may have, for those who ask other machines."""


def open_local(path: Path) -> Any:
    """The group or array in a folder."""
    return open_guarded(LocalStore(path, read_only=True), path)


def open_guarded(store: Store, folder: Path | None = None) -> Any:
    """The group or array in a store; folder: where it is, if it is on this machine."""
    return zarr.open(_Guarded(store, folder), mode="r", use_consolidated=False)


class _Guarded(WrapperStore[Store]):
    """Reads another store; refuses pipes and devices, and what is larger than it can be.

    chunk_bytes: the most bytes that a file may have, and what is asked for inside one
    """

    def __init__(self, store: Store, folder: Path | None = None, chunk_bytes: tuple[int, int] = (0, 0)) -> None:
        super().__init__(store)
        self.folder, self.chunk_bytes = folder, chunk_bytes

    def _with_store(self, store: Store) -> "_Guarded":
        return _Guarded(store, self.folder, self.chunk_bytes)

    def most_bytes(self, key: str, asked: ByteRequest | None) -> int:
        """The most bytes that are read at once."""
        if key.rpartition("/")[2] in ZARR_METADATA:
            return METADATA_BYTES
        return self.chunk_bytes[0 if asked is None else 1]

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        most = self.most_bytes(key, byte_range)
        if self.folder is not None:
            _refuse_special(self.folder / key, most if byte_range is None else None)
        if isinstance(byte_range, RangeByteRequest):
            _refuse_longer(key, byte_range.end - byte_range.start, most)
        if isinstance(byte_range, SuffixByteRequest):
            _refuse_longer(key, byte_range.suffix, most)
        MOST_BYTES.set(most)
        found = await self._store.get(key, prototype, byte_range)
        if found is not None:
            _refuse_longer(key, len(found), most)
        return found


def _refuse_special(path: Path, most: int | None) -> None:
    """Refuse a pipe or a device, which would be read for ever, a link that leads nowhere, and a file too long."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        if os.path.islink(path):
            refuse_unreadable(path)
        return  # a chunk that is not there has the fill value
    if stat.S_ISDIR(status.st_mode):
        return
    if not stat.S_ISREG(status.st_mode):
        refuse_unreadable(path)
    if most is not None:
        _refuse_longer(str(path), status.st_size, most)


def _refuse_longer(name: str, n_bytes: int, most: int) -> None:
    if n_bytes > most:
        raise InputError(
            f"cannot read {name}: it has {megabytes(n_bytes)} and should have at most {megabytes(most)}, so it is"
            " damaged; copy or save the image again"
        )


def guarded(array: Any, path: str) -> Any:
    """The same array, which refuses chunks that are larger than it declares; raises InputError for an array that cannot
    be read."""
    _refuse_impossible(array, path)
    most = _most(array.chunks, array.dtype)
    change = _bounded_v2 if array.metadata.zarr_format == 2 else _bounded_v3
    table = 2**6 * _n_in_a_shard(array)
    limits = (_most(getattr(array, "shards", None) or array.chunks, array.dtype) + table, most + table)
    store = array.store_path.store
    place = zarr.storage.StorePath(_Guarded(store._store, store.folder, limits), array.store_path.path)
    return zarr.Array(zarr.AsyncArray(change(array.metadata, most, path), place))


def _most(shape: Sequence[int], dtype: np.dtype) -> int:
    """Bytes of a chunk at any stage: compressed once or twice, it may be a little larger."""
    return 2 * prod(shape) * dtype.itemsize + 2**16


def _n_in_a_shard(array: Any) -> int:
    shards = getattr(array, "shards", None)
    return prod(shards) // prod(array.chunks) if shards else 1


def _refuse_impossible(array: Any, path: str) -> None:
    if min(array.shape, default=1) < 1:
        return  # refused with other images without pixels
    if min((*array.chunks, *(getattr(array, "shards", None) or ())), default=1) < 1:
        raise InputError(
            f"cannot read {path}: it declares chunks of shape {array.chunks}, which hold nothing; save it again"
        )
    if _n_in_a_shard(array) > MOST_IN_A_SHARD:
        raise InputError(
            f"cannot read {path}: it declares {_n_in_a_shard(array):,} chunks in each file, expected at most"
            f" {MOST_IN_A_SHARD:,}; save it with larger chunks"
        )


def _refuse_codecs(names: list[str], path: str) -> None:
    unknown = next((name for name in names if name not in BOUNDED and name not in OF_EQUAL_SIZE), None)
    if unknown is not None:
        raise InputError(
            f"cannot read {path}: it is compressed with {unknown!r}, expected {', '.join(sorted(BOUNDED))} or nothing;"
            " convert it"
        )


def _bounded_v2(metadata: Any, most: int, path: str) -> Any:
    """The description of an array of version 2, with codecs that decompress no more than this."""

    def bounded(codec: Any) -> Any:
        _refuse_codecs([codec.codec_id], path)
        return _Filter(codec, most) if codec.codec_id in BOUNDED else codec

    filters = tuple(map(bounded, metadata.filters or ()))
    return replace(metadata, filters=filters, compressor=metadata.compressor and bounded(metadata.compressor))


def _bounded_v3(metadata: Any, most: int, path: str) -> Any:
    """The same of version 3, where each codec is told what it makes."""

    def bounded(codec: Any) -> Any:
        if isinstance(codec, ShardingCodec):
            _refuse_codecs([_name(one) for one in codec.index_codecs], path)
            return replace(codec, codecs=tuple(map(bounded, codec.codecs)))
        _refuse_codecs([_name(codec)], path)
        return _Bounded(codec) if _name(codec) in BOUNDED else codec

    return replace(metadata, codecs=tuple(map(bounded, metadata.codecs)))


def _name(codec: Any) -> str:
    name = codec.to_dict()["name"]
    return str(name).removeprefix("numcodecs.")


@dataclass(frozen=True)
class _Bounded(BytesBytesCodec):
    """A codec of version 3, which decompresses no more than the chunk declares."""

    inner: Any

    is_fixed_size = False

    def compute_encoded_size(self, _input_byte_length: int, _chunk_spec: ArraySpec) -> int:
        raise NotImplementedError  # not known of a codec that compresses

    def to_dict(self) -> dict[str, Any]:
        return dict(self.inner.to_dict())

    def evolve_from_array_spec(self, array_spec: ArraySpec) -> "_Bounded":
        return _Bounded(self.inner.evolve_from_array_spec(array_spec))

    async def _decode_single(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> Buffer:
        most = _most(chunk_spec.shape, chunk_spec.dtype.to_native_dtype())
        found = await asyncio.to_thread(decompressed, _name(self.inner), chunk_bytes.to_bytes(), most)
        return chunk_spec.prototype.buffer.from_bytes(found)


@dataclass(frozen=True)
class _Filter:
    """A codec of version 2, which decompresses no more than this many bytes."""

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
