"""TIFF files, read by tifffile: plain pages, or what metadata says that the pages are."""

import html
import logging
import os
import re
import struct
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from hedgerow.errors import InputError
from hedgerow.files import PathLike
from hedgerow.images.pixel_size import of_tiff
from hedgerow.images.places import refuse_unreadable
from hedgerow.images.stored import (
    Page,
    Role,
    Stored,
    array_axes,
    channels_first,
    page_of,
    pages_of,
    refuse_shape,
    side_by_side,
    stack_axes,
)
from hedgerow.images.tiff_metadata import bytes_of_tags, planes_missing, refuse_false_metadata, refuse_many_levels
from hedgerow.images.tiff_tiles import bound_decoding, refuse_false_places

# tifffile's names for the kinds of metadata that say how the pages of a file belong together.
_KINDS = (
    *("shaped", "ome", "imagej", "lsm", "mmstack", "ndtiff", "fluoview", "stk", "sis", "svs", "scn", "qpi", "ndpi"),
    *("bif", "avs", "eer", "philips", "scanimage", "nih", "mdgel"),
)
_SCANNERS = ("svs", "scn", "qpi", "ndpi", "bif", "avs", "philips")
_BESIDE = ("thumbnail", "label", "macro", "map")  # what slide scanners store beside the image
PALETTE = 3  # in PhotometricInterpretation
_TAG_BYTES = 2**22  # of all tags of a file, beside a sixteenth of its size: as Python numbers they take ten times that
_MOST_TAGS = 4096  # of a page: tifffile refuses more
REDUCED_OR_MASK = 0b101  # in NewSubfileType: a smaller version of another page, or its mask


@contextmanager
def opened_tiff(path: Path, role: Role) -> Iterator[Stored]:
    """A TIFF; thumbnails, the smaller levels of a pyramid and masks of transparency are left out, nothing else is."""
    import tifffile

    with tifffile_errors(tifffile.logger()) as errors, tifffile.TiffFile(path) as tiff:
        refuse_circles(tiff, path)
        refuse_false_metadata(tiff, str(path))
        refuse_special_parts(tiff, path)
        images = _images(tiff, path, with_colours=role != "labels" and not tiff.is_imagej)
        _raise_first(errors)
        stored = _alone(images[0], path) if len(images) == 1 else _together(images, path)
        yield replace(stored, pixel=lambda: of_tiff(tiff))
        _raise_first(errors)


@dataclass(frozen=True)
class _Image:
    """One of the images in a TIFF: a page, or pages that metadata joins.

    axes, shape: as tifffile gives them
    block:       bytes of a strip or tile
    read:        gives the chosen pages, (H,W) or (H,W,C), for the given axis letters
    colours:     (3,N) palette, if the pixels are indices into it
    """

    axes: str
    shape: tuple[int, ...]
    dtype: np.dtype
    block: int
    read: Callable[[str, Sequence[int]], np.ndarray]
    colours: np.ndarray | None = None
    is_array: bool = False
    lazy: Callable[[], Any] | None = None

    @property
    def page(self) -> Page:
        page = page_of(self.axes, self.shape, self.dtype)
        if self.colours is None:
            return page
        return Page(page.height, page.width, len(self.colours), self.colours.dtype, is_colour=True)

    def load(self, chosen: Sequence[int]) -> np.ndarray:
        image = self.read(self.axes, chosen)
        return image if self.colours is None else np.moveaxis(self.colours[:, image], 0, -1)


def _images(tiff: Any, path: Path, with_colours: bool) -> list[_Image]:
    """The images of a file."""
    series = joined_pages(tiff)
    if series:
        return [_of_series(tiff, one, path, with_colours) for one in series]
    return [_of_page(tiff, page, with_colours) for page in plain_pages(tiff)]


def joined_pages(tiff: Any) -> Sequence[Any]:
    """tifffile's series of pages that metadata joins; none for a file of plain pages."""
    if any(getattr(tiff, f"is_{kind}", False) for kind in _KINDS):
        series = tiff.series
        # tifffile falls back to its own idea of plain pages, which takes any page of half the size for a level.
        if series and series[0].kind.lower() not in ("generic", "uniform"):
            return _without_smaller(series)
    return ()


def _without_smaller(series: Sequence[Any]) -> Sequence[Any]:
    return [
        one
        for one in series
        if not one.keyframe.subfiletype & REDUCED_OR_MASK
        and not (one.kind.lower() in _SCANNERS and one.name.lower() in _BESIDE)
    ] or series[:1]


def refuse_circles(tiff: Any, path: Path) -> None:
    """Refuse pages of which a later one leads back to an earlier one: tifffile would read them without end.

    Also tags that make it take much time or memory: it reads all values of each, which several pages may share.
    """
    form, file, seen, n_bytes = tiff.tiff, tiff.filehandle, set[int](), 0
    file.seek(form.offsetsize)  # of the first page: 4 in a TIFF, 8 in a BigTIFF
    while offset := _number(file.read(form.offsetsize), form.offsetformat):
        if offset in seen:
            raise InputError(f"cannot read {path}: its pages lead back to each other, so it is damaged; save it again")
        seen.add(offset)
        file.seek(offset)
        n_tags = _number(file.read(form.tagnosize), form.tagnoformat)
        n_bytes += bytes_of_tags(file.read(min(n_tags, _MOST_TAGS) * form.tagsize), form)
        if n_bytes > _TAG_BYTES + file.size // 16:
            raise ValueError("its tags have more values than an image of its size needs")
        file.seek(offset + form.tagnosize + n_tags * form.tagsize)


def _number(data: bytes, form: str) -> int:
    """0 where the file has ended."""
    return int(struct.unpack(form, data)[0]) if len(data) == struct.calcsize(form) else 0


def plain_pages(tiff: Any) -> list[Any]:
    """The pages that are images of their own."""
    found = []
    for page in (one.aspage() for one in tiff.pages):
        refuse_many_levels(page)
        found.append(page)
        for inner in (one.aspage() for one in page.pages or ()):
            if inner.imagelength >= page.imagelength or inner.imagewidth >= page.imagewidth:
                found.append(inner)
    return [page for page in found if not page.subfiletype & REDUCED_OR_MASK] or found[:1]


def _of_page(tiff: Any, page: Any, with_colours: bool) -> _Image:
    def read(axes: str, chosen: Sequence[int]) -> np.ndarray:
        if page.is_contiguous:
            refuse_cut(tiff, page.dataoffsets[0], page.nbytes)
        return pages_of(page.asarray(), axes, chosen)

    if page.dtype is not None:
        refuse_false_places([page])
        bound_decoding(page)
    colours = _palette(page) if with_colours and page.axes == "YX" else None
    lazy = None if colours is not None or page.treeindex[1:] else _lazily(tiff.filehandle.path, key=page.index)
    return _Image(page.axes, tuple(page.shape), _dtype(page), _block(page), read, colours, lazy=lazy)


def _of_series(tiff: Any, series: Any, path: Path, with_colours: bool) -> _Image:
    # Q is an axis of unknown meaning: often an (H,W,C) array was saved without naming its axes.
    is_array = series.kind.lower() == "shaped" and series.axes == "QYX"
    axes, shape = array_axes(series.shape) if is_array else series.axes, tuple(series.shape)
    if series.kind.lower() == "ome":
        n_missing = sum(page is None for page in series)
        if n_missing:
            raise planes_missing(str(path), n_missing, len(series))
    is_one_block = series.dataoffset is not None and not series.is_multifile
    n_planes = prod(shape) // max(prod(series.keyframe.shape), 1)
    if is_one_block:
        refuse_cut(tiff, series.dataoffset, series.nbytes)
    elif n_planes > len(series):
        raise planes_missing(str(path), n_planes - len(series), n_planes)
    elif n_planes < len(series):
        raise ValueError(f"its metadata declare {n_planes:,} planes and it has {len(series):,}")
    else:
        refuse_false_places(series)

    def read(axes: str, chosen: Sequence[int]) -> np.ndarray:
        if chosen == range(prod(stack_axes(axes, shape).values())):
            return pages_of(series.asarray(), axes, chosen)
        if is_one_block:
            dtype = tiff.byteorder + series.dtype.char
            return np.array(pages_of(tiff.filehandle.memmap_array(dtype, shape, series.dataoffset), axes, chosen))
        return pages_of(_Separate(series) if _Separate.fits(series) else series.asarray(), axes, chosen)

    key = series.keyframe
    bound_decoding(key)
    colours = _palette(key) if with_colours and series.axes == "YX" else None
    number = next(i for i, one in enumerate(tiff.series) if one is series)
    lazy = None if colours is not None else _lazily(path, series=number, level=0)
    return _Image(axes, shape, _dtype(series), _block(key), read, colours, is_array, lazy)


def _lazily(path: PathLike, **which: Any) -> Callable[[], Any]:
    """The array of a page or a series, decoded strip by strip or tile by tile as it is indexed."""

    def lazy() -> Any:
        import tifffile
        import zarr

        tiff = tifffile.TiffFile(path)
        try:
            bound_decoding(tiff.pages[which["key"]].aspage() if "key" in which else tiff.series[which["series"]])
            array = zarr.open(tiff.aszarr(**which), mode="r")
        except BaseException:
            tiff.close()
            raise
        weakref.finalize(array, tiff.close)  # the file is open for as long as somebody reads it
        return array

    return lazy


class _Separate:
    """The array that a series of pages stands for, of which only the pages are read that are asked for."""

    def __init__(self, series: Any) -> None:
        self.series, self.shape = series, tuple(series.shape)
        self.n_leading = len(self.shape) - len(series.keyframe.shape)
        self.numbers = np.arange(len(series)).reshape(self.shape[: self.n_leading])

    @staticmethod
    def fits(series: Any) -> bool:
        """Whether every page holds the last axes of the array."""
        shape, n_leading = tuple(series.shape), len(series.shape) - len(series.keyframe.shape)
        return (
            series.transform is None
            and shape[n_leading:] == tuple(series.keyframe.shape)
            and prod(shape[:n_leading]) == len(series)
        )

    def __getitem__(self, place: tuple[int | slice, ...]) -> np.ndarray:
        numbers = self.numbers[place[: self.n_leading]]
        pages = np.stack([self.series[int(i)].asarray() for i in numbers.ravel()])
        inside = (slice(None),) * numbers.ndim + place[self.n_leading :]
        return pages.reshape(*numbers.shape, *pages.shape[1:])[inside]


def _alone(image: _Image, path: Path) -> Stored:
    refuse_shape(path, image.shape, image.axes)
    return Stored((image.page,), image.load, image.axes, image.shape, image.is_array, image.block, lazy=image.lazy)


def _together(images: Sequence[_Image], path: Path) -> Stored:
    """Several images, each of which is a page."""
    for image in images:
        refuse_shape(path, image.shape, image.axes)
        if stack_axes(image.axes, image.shape):
            raise InputError(
                f"cannot read {path}: found {len(images)} images, one of them a stack with axes {image.axes} of shape"
                f" {image.shape}, expected one image; save one image per file"
            )

    def load(chosen: Sequence[int]) -> np.ndarray:
        found = [images[i].load((0,)) for i in chosen]
        return side_by_side([channels_first(one, "YXC"[: one.ndim]) for one in found])

    pages = tuple(image.page for image in images)
    alike, block = len(set(pages)) == 1, max(image.block for image in images)
    if alike:
        return Stored(pages[:1], load, "I" + images[0].axes, (len(images), *images[0].shape), block=block)
    return Stored(pages, load, "I", (len(images),), block=block)


def _palette(page: Any) -> np.ndarray | None:
    """(3,N) colours for which the pixels stand; a table of colours may also lie beside pixels that are grey values."""
    return page.colormap if page.photometric == PALETTE else None


def _dtype(page: Any) -> np.dtype:
    if page.dtype is None:
        raise ValueError("its number type is not supported")
    return np.dtype(page.dtype)


def _block(page: Any) -> int:
    return 0 if page.is_contiguous else prod(page.chunks) * _dtype(page).itemsize


def refuse_cut(tiff: Any, offset: int, n_bytes: int) -> None:
    """Refuse pixels that would lie behind the end of the file, before memory is taken for them."""
    if offset + n_bytes > tiff.filehandle.size:
        raise ValueError(f"it should hold {n_bytes:,} bytes of pixels but ends before")


def refuse_special_parts(tiff: Any, path: Path) -> None:
    """Refuse a pipe or the like in place of a file that OME metadata names: opening it would wait for ever."""
    for name in re.findall(r"""FileName\s*=\s*["']([^"']+)""", tiff.ome_metadata or ""):
        part = path.parent / html.unescape(name)
        if os.path.lexists(part) and not os.path.isfile(part):
            refuse_unreadable(part)


def _raise_first(errors: Sequence[str]) -> None:
    if errors:
        raise ValueError(errors[0])


@contextmanager
def tifffile_errors(logger: logging.Logger) -> Iterator[list[str]]:
    """Keep tifffile's messages off the screen and collect its errors.

    It merely logs that pages are missing from a truncated file, and returns the rest as if it were the image.
    """
    errors: list[str] = []
    reader = threading.get_ident()

    def keep_quiet(record: logging.LogRecord) -> bool:
        if record.thread == reader and record.levelno >= logging.ERROR:
            errors.append(record.getMessage())
        return False

    logger.addFilter(keep_quiet)
    try:
        yield errors
    finally:
        logger.removeFilter(keep_quiet)
