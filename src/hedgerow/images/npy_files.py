"""Reads NPY files by memory map, and those on other machines row by row."""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from hedgerow.errors import InputError, shown
from hedgerow.images.remote import file_system, is_remote, open_file, with_retries
from hedgerow.images.stored import ImageSpec, Stored, array_axes, array_in_file, pages_of, refuse_shape

# The third version of the format differs only for arrays of records.
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def open_npy(spec: ImageSpec, files: ExitStack) -> Stored:
    """An array in a file; a user's own channels are read as they are stored, (F,H,W)."""
    path = spec.path
    if is_remote(path):
        remote = _RemoteArray(path)
        axes = _axes(spec, remote.shape)
        return array_in_file(path, remote, axes, is_array=not (spec.axes or axes == spec.assumed))
    file = files.enter_context(open_file(path))
    shape, _, dtype = _read_header(path, file, os.path.getsize(path))
    axes = _axes(spec, shape)
    refuse_shape(path, shape, axes)

    def load(chosen: Sequence[int]) -> np.ndarray:
        file.seek(0)
        return pages_of(np.lib.format.read_array(file, allow_pickle=False), axes, chosen)

    is_array = not (spec.axes or axes == spec.assumed)
    return array_in_file(path, _Mapped(path, shape, dtype), axes, load, is_array=is_array)


def _axes(spec: ImageSpec, shape: Sequence[int]) -> str:
    return spec.axes_for(shape, "QYX" if spec.layout == "planes" and len(shape) == 3 else array_axes(shape))


def _read_header(path: str, file: Any, size: int) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, whether columns are stored one after another, and dtype; refuses a header that cannot be true."""
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise InputError(
            f"cannot read {path}: version {version[0]}.{version[1]} of the NPY format is not supported; save it again."
        )
    shape, is_fortran, dtype = _HEADERS[version](file)
    if dtype.hasobject:
        raise InputError(f"cannot read {path}: it holds Python objects, not numbers; save it again.")
    n_bytes = size - file.tell()
    if min(shape, default=0) < 0 or prod(shape) * dtype.itemsize > n_bytes:
        raise InputError(
            f"cannot read {path}: its header declares {dtype} values of shape {shown(shape, 200)}, but the file"
            f" holds {n_bytes:,} bytes; copy or save it again."
        )
    return shape, is_fortran, dtype


class _Mapped:
    """An array that is mapped into memory when it is first indexed."""

    def __init__(self, path: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.path, self.shape, self.dtype = path, shape, dtype

    @cached_property
    def values(self) -> np.ndarray:
        return np.asarray(np.load(self.path, mmap_mode="r", allow_pickle=False))

    def __getitem__(self, place: tuple[int | slice, ...]) -> np.ndarray:
        return self.values[place]


class _RemoteArray:
    """An array on another machine, of which whole rows of the first axis are fetched."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.system, self.inside = file_system(path)
        self.shape, is_fortran, self.dtype, self.start = with_retries(self._header, f"cannot read {path}")
        if is_fortran:
            raise InputError(f"cannot read {path}: its values are not stored row by row; copy it, or save it again.")

    def _header(self) -> tuple[tuple[int, ...], bool, np.dtype, int]:
        with self.system.open(self.inside, "rb") as file:
            return *_read_header(self.path, file, file.size), file.tell()

    def __getitem__(self, place: tuple[int | slice, ...]) -> np.ndarray:
        first, *others = place
        rows = range(self.shape[0])[first] if isinstance(first, slice) else range(first, first + 1)
        row_bytes = prod(self.shape[1:]) * self.dtype.itemsize
        begin, n_bytes = self.start + rows.start * row_bytes, len(rows) * row_bytes
        data: Any = with_retries(
            lambda: self.system.cat_file(self.inside, start=begin, end=begin + n_bytes), f"cannot read {self.path}"
        )
        if len(data) < n_bytes:
            raise InputError(f"cannot read {self.path}: it ends before row {rows.stop}; copy or save it again.")
        values = np.frombuffer(data, self.dtype).reshape(len(rows), *self.shape[1:])
        return values[(slice(None) if isinstance(first, slice) else 0, *others)]
