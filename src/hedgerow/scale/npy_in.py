"""NPY, by memory map; on another machine, row by row."""

from pathlib import Path
from typing import Any

import numpy as np

from hedgerow.errors import InputError, masked
from hedgerow.images.array_files import opened_npy, refuse_false_header
from hedgerow.images.pages import choose, words
from hedgerow.images.stored import array_axes, stored_array
from hedgerow.scale.lazy_image import LazyImage, Wanted, chosen_level, n_channels, part_of
from hedgerow.scale.remote import file_system, identity_of_file, is_remote, patiently

_ROWS = 256


def open_npy(wanted: Wanted) -> LazyImage:
    """An array in a file; a user's own channels are taken as they are stored, (F,H,W)."""
    path = wanted.path
    chosen_level(path, wanted, [None])
    if is_remote(path):
        array: Any = _RemoteArray(path)
    else:
        with opened_npy(Path(path), wanted.layout):  # refuses what is no array, or cut short
            pass
        array = np.load(path, mmap_mode="r")
    axes = "QYX" if wanted.layout == "planes" and len(array.shape) == 3 else array_axes(array.shape)
    stored = stored_array(Path(path), array.shape, array.dtype, axes, lambda: array, is_array=True)
    chosen = choose(Path(path), stored, wanted.pages, wanted.layout)
    page = stored.page(0)
    return LazyImage(
        name=masked(path),
        shape=(n_channels(axes, array.shape, chosen), page.height, page.width),
        dtype=np.dtype(array.dtype.newbyteorder("=")),
        read=lambda region: part_of(array, axes, chosen, region),
        chunk=(_ROWS, page.width if is_remote(path) else _ROWS),
        identity={"path": masked(path), "pages": list(chosen), **identity_of_file(path)},
        words=words(stored, chosen),
    )


class _RemoteArray:
    """An array of which whole rows of the first axis are fetched."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.system, self.inside = file_system(path)

        def header() -> tuple[tuple[int, ...], bool, np.dtype, int]:
            with self.system.open(self.inside, "rb") as file:
                if np.lib.format.read_magic(file) != (1, 0):
                    raise InputError(
                        f"cannot read {path}: this version of NPY can only be read from a local disk; download it first"
                    )
                shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(file)
                refuse_false_header(path, shape, dtype, file.size - file.tell())
                return shape, is_fortran, dtype, file.tell()

        self.shape, is_fortran, self.dtype, self.start = patiently(header, f"cannot read {path}")
        if is_fortran or self.dtype.hasobject:
            raise InputError(f"cannot read {path}: its values do not lie row after row; copy it, or save it again")

    def __getitem__(self, place: tuple[int | slice, ...]) -> np.ndarray:
        first, *others = place
        rows = range(self.shape[0])[first] if isinstance(first, slice) else range(first, first + 1)
        each = int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.itemsize
        begin = self.start + rows.start * each
        n_bytes = len(rows) * each
        data = patiently(
            lambda: self.system.cat_file(self.inside, start=begin, end=begin + n_bytes), f"cannot read {self.path}"
        )
        if len(data) < n_bytes:
            raise InputError(f"cannot read {self.path}: it ends before row {rows.stop}; copy or save it again")
        found = np.frombuffer(data, self.dtype).reshape(len(rows), *self.shape[1:])
        return found[(slice(None) if isinstance(first, slice) else 0, *others)]
