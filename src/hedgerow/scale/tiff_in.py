"""TIFF and OME-TIFF, read tile by tile or strip by strip: any level of a pyramid."""

import threading
import weakref
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from hedgerow.errors import InputError, masked
from hedgerow.files import one_line
from hedgerow.images.pages import choose, words
from hedgerow.images.pixel_size import PixelSize, of_tiff
from hedgerow.images.stored import array_axes, stored_array
from hedgerow.images.tiff import (
    PALETTE,
    joined_pages,
    plain_pages,
    refuse_circles,
    refuse_cut,
    refuse_special_parts,
    tifffile_errors,
)
from hedgerow.images.tiff_metadata import refuse_false_metadata
from hedgerow.images.tiff_tiles import bound_decoding, refuse_false_places, refuse_long_block
from hedgerow.scale.costs import refuse_large_blocks
from hedgerow.scale.lazy_image import LazyImage, Wanted, chosen_level, n_channels, part_of
from hedgerow.scale.remote import file_system, identity_of_file, is_remote, patiently

_REDUCED = 1  # in NewSubfileType: a smaller version of another page


def open_tiff(wanted: Wanted) -> LazyImage | None:
    """A level of a TIFF; None if it is of a kind that can only be read whole."""
    import tifffile

    path = wanted.path
    with tifffile_errors(tifffile.logger()) as errors:
        tiff = tifffile.TiffFile(_file(path) if is_remote(path) else path)
        file = _Open(tiff)
        refuse_circles(tiff, Path(path))
        refuse_false_metadata(tiff, path)
        if not is_remote(path):
            refuse_special_parts(tiff, Path(path))
        levels = _levels(tiff, path)
        if errors:
            raise InputError(f"cannot read {path}: {errors[0]}; save it again")
    if not levels or levels[0].key.photometric == PALETTE:
        return None
    full = of_tiff(tiff)
    pixels = [full and PixelSize(full.height * h, full.width * w) for h, w in _shrinkage(levels)]
    level = chosen_level(path, wanted, pixels)
    array = levels[level]
    is_array = array.is_unnamed
    axes = array_axes(array.shape) if is_array else array.axes
    stored = stored_array(Path(path), array.shape, array.dtype, axes, lambda: array, is_array=is_array)
    chosen = choose(Path(path), stored, wanted.pages, wanted.layout)
    page = stored.page(0)
    if min(array.side) < 1:
        raise InputError(f"cannot read {path}: it declares tiles or strips of no size; save it again")
    refuse_large_blocks(path, array.block, "tiles or strips", "save it with smaller tiles")
    array.file = file
    return LazyImage(
        name=masked(path),
        shape=(n_channels(axes, array.shape, chosen), page.height, page.width),
        dtype=array.dtype,
        read=lambda region: part_of(array, axes, chosen, region),
        chunk=array.chunk,
        block=array.block,
        n_stacked=len(chosen) * array.key.shaped[0],
        level=level,
        n_levels=len(levels),
        pixel=pixels[level],
        identity={"path": masked(path), "level": level, "pages": list(chosen), **identity_of_file(path)},
        words=words(stored, chosen),
    )


class _Open:
    """Closes a file once nobody reads from it any more."""

    def __init__(self, tiff: Any) -> None:
        weakref.finalize(self, tiff.close)


class _Pages:
    """The array that pages of one kind stand for; only the parts of pages are decoded that are asked for."""

    def __init__(self, name: str, pages: Sequence[Any], axes: str, shape: Sequence[int], is_unnamed: bool) -> None:
        self.name, self.pages, self.axes, self.shape, self.is_unnamed = name, pages, axes, tuple(shape), is_unnamed
        self.key = pages[0].keyframe
        self.dtype = np.dtype(self.key.dtype)
        refuse_false_places(pages)
        bound_decoding(self.key)
        self.n_leading = len(self.shape) - len(self.key.shape)
        self.numbers = np.arange(len(pages)).reshape(self.shape[: self.n_leading])
        self.lock = threading.Lock()
        self.file: _Open | None = None
        self.size = tuple(self.key.shaped[i] for i in (2, 3))
        self.side = (
            (self.key.tilelength, self.key.tilewidth)
            if self.key.is_tiled
            else (min(self.key.rowsperstrip, self.size[0]), self.size[1])
        )

    @staticmethod
    def fit(pages: Sequence[Any], shape: Sequence[int]) -> bool:
        """Whether every page is there and holds the last axes of the array."""
        if any(page is None for page in pages):
            return False
        key = pages[0].keyframe
        n_leading = len(shape) - len(key.shape)
        plain = key.dtype is not None and key.shaped[1] == 1 and key.axes in ("YX", "YXS", "SYX")
        return plain and tuple(shape[n_leading:]) == tuple(key.shape) and prod(shape[:n_leading]) == len(pages)

    @property
    def chunk(self) -> tuple[int, int]:
        return (256, 256) if self.is_mapped else self.side

    @property
    def block(self) -> int:
        """Bytes that are decoded at once."""
        return 0 if self.is_mapped else prod(self.side) * self.key.shaped[4] * self.dtype.itemsize

    @property
    def is_mapped(self) -> bool:
        """Whether pixels lie in the file as they are in memory."""
        return bool(self.key.is_contiguous) and not is_remote(self.name)

    def __getitem__(self, place: tuple[int | slice, ...]) -> np.ndarray:
        numbers = self.numbers[place[: self.n_leading]]
        inner = dict(zip(self.key.axes, place[self.n_leading :], strict=True))
        rows, columns = (range(*inner[axis].indices(n)) for axis, n in zip("YX", self.size, strict=True))
        pages = [self._part(self.pages[int(i)], rows, columns) for i in np.ravel(numbers)]
        found = np.stack(pages).reshape(*np.shape(numbers), *pages[0].shape)
        return found[(..., *(inner[axis] if axis == "S" else slice(None) for axis in self.key.axes))]

    def _part(self, page: Any, rows: range, columns: range) -> np.ndarray:
        """Rows and columns of a page, with the axes of the page."""
        key, (n_planes, _, _, _, n_samples) = self.key, self.key.shaped
        if self.is_mapped:
            self._refuse_cut(page)
            flat = page.parent.filehandle.memmap_array(
                page.parent.byteorder + key.dtype.char, (n_planes, *self.size, n_samples), page.dataoffsets[0]
            )
            found = np.array(flat[:, rows.start : rows.stop, columns.start : columns.stop])
            return self._shaped(found.astype(self.dtype, copy=False))
        found = np.full((n_planes, len(rows), len(columns), n_samples), key.nodata, self.dtype)
        high, wide = self.side
        n_down, n_across = -(-self.size[0] // high), -(-self.size[1] // wide)
        for plane in range(n_planes):
            for r in range(rows.start // high, -(-rows.stop // high)):
                for c in range(columns.start // wide, -(-columns.stop // wide)):
                    block = self._block(page, (plane * n_down + r) * n_across + c)
                    if block is None:
                        continue  # not stored: there is nothing
                    top, left = r * high, c * wide
                    t, b = max(rows.start, top), min(rows.stop, top + block.shape[0])
                    w, e = max(columns.start, left), min(columns.stop, left + block.shape[1])
                    into = found[plane, t - rows.start : b - rows.start, w - columns.start : e - columns.start]
                    into[...] = block[t - top : b - top, w - left : e - left]
        return self._shaped(found)

    def _refuse_cut(self, page: Any) -> None:
        try:
            refuse_cut(page.parent, page.dataoffsets[0], self.key.nbytes)
        except ValueError as problem:
            raise InputError(f"cannot read {self.name}: {problem}; copy or save the image again") from problem

    def _shaped(self, found: np.ndarray) -> np.ndarray:
        """(planes,h,w,samples) with the axes of a page."""
        if self.key.axes == "YX":
            return found[0, ..., 0]
        return found[0] if self.key.axes == "YXS" else found[..., 0]

    def _block(self, page: Any, index: int) -> np.ndarray | None:
        """(h,w,samples): a tile or strip."""
        offset, n_bytes = page.dataoffsets[index], page.databytecounts[index]
        if n_bytes == 0:
            return None
        file = page.parent.filehandle

        def read() -> bytes:
            with self.lock:
                file.seek(offset)
                return bytes(file.read(n_bytes))

        try:
            refuse_long_block(n_bytes, self.block)
            data = patiently(read, f"cannot read {self.name}", is_asked=is_remote(self.name))
            if len(data) < n_bytes:
                raise ValueError("the file ends before it")
            decoded, _, _ = self.key.decode(data, index, jpegtables=self.key.jpegtables)
        except (InputError, MemoryError):
            raise
        except Exception as problem:
            kind = "tile" if self.key.is_tiled else "strip"
            raise InputError(
                f"cannot read {self.name}: its {kind} {index}, counted from 0, is damaged ({one_line(problem)}); copy"
                " or save the image again"
            ) from problem
        return np.asarray(decoded[0])


def _levels(tiff: Any, path: str) -> list[_Pages]:
    """The levels of the only image of a file, the largest first; none if it must be read in another way."""
    series = joined_pages(tiff)
    if len(series) == 1:
        found = []
        unnamed = series[0].kind.lower() == "shaped" and series[0].axes == "QYX"
        for level in series[0].levels:
            pages = list(level)
            if level.transform is not None or not _Pages.fit(pages, level.shape):
                return []
            found.append(_Pages(path, pages, series[0].axes, level.shape, unnamed))
        return found
    pages = plain_pages(tiff) if not series else []
    if len(pages) != 1:
        return []
    smaller = [one.aspage() for one in (*tiff.pages, *(pages[0].pages or ())) if one.aspage().subfiletype & _REDUCED]
    alike = [one for one in smaller if one.dtype == pages[0].dtype and one.axes == pages[0].axes]
    ordered = [pages[0], *sorted(alike, key=lambda page: -page.imagelength)]
    if not all(_Pages.fit([page], page.shape) for page in ordered):
        return []
    return [_Pages(path, [page], page.axes, page.shape, False) for page in ordered]


def _shrinkage(levels: Sequence[_Pages]) -> list[tuple[float, float]]:
    height, width = levels[0].size
    return [(height / level.size[0], width / level.size[1]) for level in levels]


def _file(path: str) -> Any:
    system, inside = file_system(path)
    return patiently(lambda: system.open(inside, "rb"), f"cannot read {path}")
