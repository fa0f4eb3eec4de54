"""NPY and Zarr: arrays, the latter often with names for their axes."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from hedgerow.errors import InputError
from hedgerow.images.pixel_size import PixelSize, of_multiscale
from hedgerow.images.stored import Role, Stored, array_axes, shape_text, stored_array

UNFINISHED = ".hedgerow-unfinished"  # a folder in a result that is still being computed
# The third version of the format differs only for arrays of records.
_NPY_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


@contextmanager
def opened_npy(path: Path, role: Role) -> Iterator[Stored]:
    """An NPY file; a user's own channels are taken as they are stored, (F,H,W)."""
    with open(path, "rb") as file:
        version = np.lib.format.read_magic(file)
        if version not in _NPY_HEADERS:
            raise ValueError(f"version {version[0]}.{version[1]} of the format holds no images")
        shape, _, dtype = _NPY_HEADERS[version](file)
        if dtype.hasobject:
            raise ValueError("it holds Python objects")
        refuse_false_header(str(path), shape, dtype, os.path.getsize(path) - file.tell())

        def read() -> np.ndarray:
            file.seek(0)
            return np.lib.format.read_array(file, allow_pickle=False)

        axes = "QYX" if role == "planes" and len(shape) == 3 else array_axes(shape)

        def lazy() -> np.ndarray:
            return np.load(path, mmap_mode="r", allow_pickle=False)

        yield stored_array(path, shape, dtype, axes, read, is_array=True, lazy=lazy)


def refuse_false_header(path: str, shape: tuple[int, ...], dtype: np.dtype, held: int) -> None:
    """Raise InputError if the header of an NPY file declares more bytes than follow it."""
    declared = prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or declared > held:
        raise InputError(
            f"cannot read {path}: its header declares {dtype} values of shape {shape_text(shape)}, but the file"
            f" holds {held:,} bytes; copy or save it again"
        )


@contextmanager
def opened_zarr(path: Path, role: Role) -> Iterator[Stored]:
    """A Zarr array, or the full-size array of an OME-Zarr (0.4, 0.5) group."""
    from hedgerow.images.zarr_reading import guarded, open_local

    refuse_unfinished(path)
    opened = open_local(path)
    array, axes = _full_size(opened, path)
    if array.dtype.kind not in "buif":
        raise ValueError(f"it holds values of type {array.dtype}, not numbers")
    array = guarded(array, str(path))
    block = prod(getattr(array, "shards", None) or array.chunks) * array.dtype.itemsize
    shape = tuple(array.shape)
    stored = stored_array(
        path,
        shape,
        array.dtype,
        axes or array_axes(shape),
        lambda: array,
        is_array=not axes,
        block=block,
        lazy=lambda: array,
    )
    yield replace(stored, pixel=lambda: _zarr_pixel_size(opened))


def refuse_unfinished(path: Path) -> None:
    """Raise InputError if a result of ours is not complete: its arrays are there, but not all of their pixels."""
    if (path / UNFINISHED).exists():
        raise InputError(unfinished(str(path)))


def unfinished(path: str) -> str:
    """What to say of a result that is not complete."""
    return (
        f"{path} is not finished: a prediction was interrupted, and the rest of its pixels are missing; give the same "
        "command again to complete it."
    )


def _zarr_pixel_size(node: Any) -> PixelSize | None:
    attributes = dict(node.attrs)
    multiscales = attributes.get("ome", attributes).get("multiscales")
    return of_multiscale(multiscales[0]) if multiscales else None


def _full_size(node: Any, path: Path) -> tuple[Any, str]:
    """The array to read, and letters for its axes, "" where they have no names."""
    if hasattr(node, "shape"):
        return node, axis_letters(getattr(node.metadata, "dimension_names", None) or ())
    attributes = dict(node.attrs)
    multiscales = attributes.get("ome", attributes).get("multiscales")
    if multiscales:
        names = [axis["name"] if isinstance(axis, dict) else axis for axis in multiscales[0].get("axes", ())]
        return node[multiscales[0]["datasets"][0]["path"]], axis_letters(names)
    if "0" in node:  # converters often put the image one folder down
        return _full_size(node["0"], path)
    raise InputError(
        f"cannot read {path}: found a Zarr group without an OME multiscales entry, expected a Zarr array or"
        " OME-Zarr; give the path of the array inside it"
    )


def axis_letters(names: Sequence[str | None]) -> str:
    """Axis names as letters, or "" if they do not say which axes are rows and columns."""
    letters = "".join((name or "?")[0].upper() for name in names)
    return letters if letters.count("Y") == letters.count("X") == 1 else ""
