"""Zarr and OME-Zarr, read chunk by chunk: any level of a pyramid, on this machine or another."""

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from hedgerow.errors import HedgerowError, InputError, masked
from hedgerow.files import fingerprint, one_line
from hedgerow.images.array_files import axis_letters
from hedgerow.images.pages import choose, words
from hedgerow.images.pixel_size import PixelSize, of_multiscale
from hedgerow.images.regions import Region
from hedgerow.images.stored import array_axes, stack_axes, stored_array
from hedgerow.scale.costs import refuse_large_blocks
from hedgerow.scale.lazy_image import LazyImage, Wanted, chosen_level, n_channels, part_of
from hedgerow.scale.markers import refuse_unfinished
from hedgerow.scale.remote import is_remote, patiently, store_of

MOST_AT_ONCE = 4096  # chunks: zarr takes some kB for each, however small it is


def open_zarr(wanted: Wanted) -> LazyImage:
    """A level of an OME-Zarr (0.4, 0.5), or a Zarr array (2, 3)."""
    from hedgerow.images.zarr_reading import guarded, open_guarded, open_local

    path = wanted.path
    refuse_unfinished(path)

    def opened() -> tuple[Any, str, list[PixelSize | None], int]:
        if not is_remote(path):
            return _array(open_local(Path(path)), wanted)
        return _array(open_guarded(store_of(path), by_range=path.startswith("s3://")), wanted)

    array, axes, levels, level = patiently(opened, f"cannot read {path}", is_asked=is_remote(path))
    if array.dtype.kind not in "buif":
        raise InputError(f"cannot read {path}: it holds values of type {array.dtype}, not numbers; convert it")
    array = guarded(array, path)
    shape = tuple(array.shape)
    letters = axes or array_axes(shape)
    stored = stored_array(Path(path), shape, array.dtype, letters, lambda: array, is_array=not axes)
    chosen = choose(Path(path), stored, wanted.pages, wanted.layout)
    page = stored.page(0)
    fill, block = array.fill_value, prod(array.chunks) * array.dtype.itemsize
    refuse_large_blocks(path, block, "chunks", "save it with smaller chunks")
    return LazyImage(
        name=masked(path),
        shape=(n_channels(letters, shape, chosen), page.height, page.width),
        dtype=array.dtype,
        read=_Reader(array, letters, tuple(chosen), path),
        chunk=(array.chunks[letters.index("Y")], array.chunks[letters.index("X")]),
        block=block,
        n_stacked=_n_stacked(array, letters, chosen),
        fill=None if fill is None or not np.isfinite(fill) else float(fill),
        level=level,
        n_levels=len(levels),
        pixel=levels[level],
        identity={
            "path": _place(path),
            "array": array.path,
            "metadata": _digest(array),
            "changed": _written(path, array),
            "pages": list(chosen),
        },
        words=words(stored, chosen),
    )


def _n_stacked(array: Any, axes: str, chosen: Sequence[int]) -> int:
    """How many chunks lie over each other at a pixel: those of all channels, and of the chosen pages."""
    stack = stack_axes(axes, array.shape)
    own = prod(
        -(-length // side)
        for i, (axis, length, side) in enumerate(zip(axes, array.shape, array.chunks, strict=True))
        if axis not in "YX" and i not in stack
    )
    return own * (len(chosen) if stack else 1)


class _Reader:
    """Reads regions of an array, MOST_AT_ONCE chunks at a time, and names the chunk that cannot be read."""

    def __init__(self, array: Any, axes: str, chosen: Sequence[int], path: str) -> None:
        self.array, self.axes, self.chosen, self.path = array, axes, chosen, path
        self.sides = [array.chunks[axes.index(axis)] for axis in "YX"]
        self.n_stacked = _n_stacked(array, axes, chosen)

    def __call__(self, region: Region) -> np.ndarray:
        high, wide = self.sides
        n_chunks = (region.height // high + 2) * (region.width // wide + 2) * self.n_stacked
        if n_chunks <= MOST_AT_ONCE or max(region.height // high, region.width // wide) < 2:
            return self._part(region)
        halves, axis = region.halves()
        return np.concatenate([self(half) for half in halves], axis=axis)  # (C,h,w): channels stand where slices would

    def _part(self, region: Region) -> np.ndarray:
        try:
            return patiently(lambda: self._read(region), f"cannot read {self.path}", is_asked=is_remote(self.path))
        except MemoryError:
            raise
        except HedgerowError as problem:
            raise InputError(f"in chunk {self._first_bad(region)}: {problem}") from problem
        except Exception as problem:
            raise InputError(
                f"cannot read {self.path}: its chunk {self._first_bad(region)} is damaged ({one_line(problem)}); copy "
                "or save the image again"
            ) from problem

    def _read(self, region: Region) -> np.ndarray:
        return part_of(self.array, self.axes, self.chosen, region)

    def _first_bad(self, region: Region) -> str:
        """The chunk, or shard, of a region that cannot be read."""
        array = self.array
        block = getattr(array, "shards", None) or array.chunks
        limits = {"Y": (region.top, region.bottom), "X": (region.left, region.right)}
        ranges = [
            range(first // side, -(-last // side))
            for axis, side, length in zip(self.axes, block, array.shape, strict=True)
            for first, last in [limits.get(axis, (0, length))]
        ]
        key = ""
        for at in product(*ranges):
            key = "/".join(part for part in (array.path, array.metadata.encode_chunk_key(at)) if part)
            try:
                array[tuple(slice(i * side, (i + 1) * side) for i, side in zip(at, block, strict=True))]
            except Exception:
                return key
        return key


def _array(node: Any, wanted: Wanted) -> tuple[Any, str, list[PixelSize | None], int]:
    """The array to read, letters for its axes ("" without names), each level's size of a pixel, and which level."""
    path = wanted.path
    if hasattr(node, "shape"):
        level = chosen_level(path, wanted, [None])
        return node, axis_letters(getattr(node.metadata, "dimension_names", None) or ()), [None], level
    multiscale = _multiscale(node)
    if multiscale is None:
        if "0" in node:  # converters often put the image one folder down
            return _array(node["0"], wanted)
        raise InputError(
            f"cannot read {path}: found a Zarr group without an OME multiscales entry, expected a Zarr array or"
            " OME-Zarr; give the path of the array inside it"
        )
    names = [axis["name"] if isinstance(axis, dict) else axis for axis in multiscale.get("axes", ())]
    datasets = multiscale["datasets"]
    levels = [of_multiscale(multiscale, i) for i in range(len(datasets))]
    level = chosen_level(path, wanted, levels)
    return node[datasets[level]["path"]], axis_letters(names), levels, level


def _multiscale(node: Any) -> Mapping[str, Any] | None:
    attributes = dict(node.attrs)
    found = attributes.get("ome", attributes).get("multiscales")
    return found[0] if found else None


def _digest(array: Any) -> str:
    """Of all that describes an array."""
    return fingerprint(
        [list(array.shape), str(array.dtype), list(array.chunks), prod(array.shape), str(array.fill_value)]
    )


def _written(path: str, array: Any) -> int:
    """When the description of an array was written: an image that is saved anew is another one; 0: elsewhere."""
    if is_remote(path):
        return 0
    found = (Path(path, array.path, name) for name in ("zarr.json", ".zarray"))
    return next((one.stat().st_mtime_ns for one in found if one.exists()), 0)


def _place(path: str) -> str:
    """The same for every way of writing the name of a folder."""
    return masked(path) if is_remote(path) else str(Path(path).resolve())
