"""Reads Zarr and OME-Zarr chunk by chunk: any level of a pyramid, on this machine or another."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from hedgerow.errors import HedgerowError, InputError, one_line
from hedgerow.files import fingerprint
from hedgerow.images.remote import is_remote, is_there, store_of, with_retries
from hedgerow.images.stored import ImageSpec, Stored, array_axes, array_in_file
from hedgerow.images.voxel_size import VoxelSize, of_multiscale

MAX_CHUNKS_AT_ONCE = 4096  # zarr needs a few kB for each, however small it is
UNFINISHED = ".hedgerow-unfinished"  # a folder in a result that is still being computed
RECORD = "run.json"  # in that folder, from the start of the run to its end


def open_zarr(spec: ImageSpec, files: ExitStack) -> Stored:
    """A Zarr array (version 2 or 3), or a level of an OME-Zarr (0.4 or 0.5)."""
    from hedgerow.images.zarr_reading import guarded, open_guarded, open_local

    path = spec.path
    refuse_unfinished(path)

    def chosen_array() -> tuple[Any, str, list[VoxelSize | None], int]:
        if not is_remote(path):
            return _chosen_array(open_local(Path(path)), spec)
        return _chosen_array(open_guarded(store_of(path), by_range=path.startswith("s3://")), spec)

    array, axes, sizes, level = with_retries(chosen_array, f"cannot read {path}", retry=is_remote(path))
    if array.dtype.kind not in "buif":
        raise InputError(f"cannot read {path}: it holds values of type {array.dtype}, not numbers; convert it.")
    array = guarded(array, path)
    fill = array.fill_value
    described = [list(array.shape), str(array.dtype), list(array.chunks), prod(array.shape), str(fill)]
    letters = spec.axes_for(array.shape, axes or array_axes(array.shape))
    return array_in_file(
        path,
        _Chunked(array, path),
        letters,
        is_array=not (axes or spec.axes or letters == spec.assumed),
        chunks=tuple(array.chunks),
        block=prod(getattr(array, "shards", None) or array.chunks) * array.dtype.itemsize,
        fill=None if fill is None or not np.isfinite(fill) else float(fill),
        level=level,
        n_levels=len(sizes),
        voxel=lambda: sizes[level],
        identity={"array": array.path, "metadata": fingerprint(described), "changed": _changed(path, array)},
    )


def _chosen_array(node: Any, spec: ImageSpec) -> tuple[Any, str, list[VoxelSize | None], int]:
    """The array to read, letters for its axes ("" without names), the voxel size of each level, and the level."""
    if hasattr(node, "shape"):
        return node, axis_letters(getattr(node.metadata, "dimension_names", None) or ()), [None], 0
    multiscale = _multiscale(node)
    if multiscale is None:
        if "0" in node:  # converters often put the image one folder further down
            return _chosen_array(node["0"], spec)
        raise InputError(
            f"cannot read {spec.path}: found a Zarr group without an OME multiscales entry, expected a Zarr array or"
            " OME-Zarr; give the path of the array inside it."
        )
    names = [axis["name"] if isinstance(axis, dict) else axis for axis in multiscale.get("axes", ())]
    datasets = multiscale["datasets"]
    sizes = [of_multiscale(multiscale, i) for i in range(len(datasets))]
    level = spec.level_of(sizes)
    return node[datasets[level]["path"]], axis_letters(names), sizes, level


def _multiscale(node: Any) -> Mapping[str, Any] | None:
    attributes = dict(node.attrs)
    multiscales = attributes.get("ome", attributes).get("multiscales")
    return multiscales[0] if multiscales else None


def axis_letters(names: Sequence[str | None]) -> str:
    """Axis names as letters; "" if they do not show which axes are rows and columns."""
    letters = "".join((name or "?")[0].upper() for name in names)
    return letters if letters.count("Y") == letters.count("X") == 1 else ""


def refuse_unfinished(path: str) -> None:
    """Raise InputError for a result of ours that is incomplete: its arrays exist, but not all of their pixels."""
    if path.startswith(("http://", "https://")):  # servers that cannot list folders
        return
    folder = f"{path.rstrip('/')}/{UNFINISHED}"
    if is_there(f"{folder}/{RECORD}" if is_remote(path) else folder):
        raise InputError(
            f"{path} is not finished: a prediction was interrupted, and the rest of its pixels are missing; rerun the "
            "same command to complete it."
        )


def _changed(path: str, array: Any) -> int:
    """When the description of an array was written, which shows that an image was saved again; 0 for an address."""
    if is_remote(path):
        return 0
    files = (Path(path, array.path, name) for name in ("zarr.json", ".zarray"))
    return next((file.stat().st_mtime_ns for file in files if file.exists()), 0)


class _Chunked:
    """A Zarr array, read at most MAX_CHUNKS_AT_ONCE chunks at a time; errors name the chunk."""

    def __init__(self, array: Any, path: str) -> None:
        self.array, self.path, self.shape, self.dtype = array, path, tuple(array.shape), array.dtype

    def __getitem__(self, place: tuple[int | slice, ...]) -> np.ndarray:
        spans = [
            range(length)[part] if isinstance(part, slice) else range(part, part + 1)
            for part, length in zip(place, self.shape, strict=True)
        ]
        values = self._read(spans)
        return values[tuple(slice(None) if isinstance(part, slice) else 0 for part in place)]

    def _read(self, spans: Sequence[range]) -> np.ndarray:
        chunks = _blocks(spans, self.array.chunks)
        counts = [len(numbers) for numbers in chunks]
        if prod(counts) <= MAX_CHUNKS_AT_ONCE:
            return self._read_at_once(spans)
        axis = int(np.argmax(counts))
        n_first = (chunks[axis].start + counts[axis] // 2) * self.array.chunks[axis] - spans[axis].start
        values = np.empty([len(span) for span in spans], self.dtype)
        for half in (slice(0, n_first), slice(n_first, None)):
            part = [span[half] if i == axis else span for i, span in enumerate(spans)]
            values[tuple(half if i == axis else slice(None) for i in range(len(spans)))] = self._read(part)
        return values

    def _read_at_once(self, spans: Sequence[range]) -> np.ndarray:
        place = tuple(slice(span.start, span.stop) for span in spans)
        try:
            return with_retries(
                lambda: np.asarray(self.array[place]), f"cannot read {self.path}", retry=is_remote(self.path)
            )
        except MemoryError:
            raise
        except HedgerowError as problem:
            raise InputError(f"in chunk {self._first_bad(spans)}: {problem}") from problem
        except Exception as problem:
            raise InputError(
                f"cannot read {self.path}: its chunk {self._first_bad(spans)} is damaged ({one_line(problem)}); copy "
                "or save the image again."
            ) from problem

    def _first_bad(self, spans: Sequence[range]) -> str:
        """The first chunk or shard that cannot be read."""
        array, key = self.array, ""
        sides = getattr(array, "shards", None) or array.chunks
        for at in product(*_blocks(spans, sides)):
            key = "/".join(part for part in (array.path, array.metadata.encode_chunk_key(at)) if part)
            try:
                array[tuple(slice(i * side, (i + 1) * side) for i, side in zip(at, sides, strict=True))]
            except Exception:
                return key
        return key


def _blocks(spans: Sequence[range], sides: Sequence[int]) -> list[range]:
    """The numbers of the chunks that spans of an array touch, along each axis."""
    return [range(span.start // side, -(-span.stop // side)) for span, side in zip(spans, sides, strict=True)]
