"""Reads TIFF and OME-TIFF with tifffile: plain pages, pages that metadata joins, and pyramids."""

import html
import logging
import os
import re
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from hedgerow.errors import InputError
from hedgerow.images.file_checks import refuse_unreadable
from hedgerow.images.remote import is_remote, open_file
from hedgerow.images.stored import ImageSpec, Load, Stored, array_axes, page_of, pages_of, refuse_shape, stack_axes
from hedgerow.images.tiff_metadata import bytes_of_tags, planes_missing, refuse_false_metadata, refuse_many_levels
from hedgerow.images.tiff_tiles import MappedArray, TiffArray, bound_decoding, refuse_cut, refuse_false_places
from hedgerow.images.voxel_size import VoxelSize, of_tiff

# tifffile's names for the kinds of metadata that join the pages of a file.
_KINDS = (
    *("shaped", "ome", "imagej", "lsm", "mmstack", "ndtiff", "fluoview", "stk", "sis", "svs", "scn", "qpi", "ndpi"),
    *("bif", "avs", "eer", "philips", "scanimage", "nih", "mdgel"),
)
_SCANNERS = ("svs", "scn", "qpi", "ndpi", "bif", "avs", "philips")
_BESIDE = ("thumbnail", "label", "macro", "map")  # images that slide scanners store beside the main one
_PLAIN = "plain"  # our kind of series: pages that no metadata joins
_PALETTE = 3  # in PhotometricInterpretation
_TAG_BYTES = 2**22  # of all tags, plus a sixteenth of the file's size; as Python numbers they take ten times as much
_MOST_TAGS = 4096  # of a page: tifffile refuses more
_REDUCED = 0b1
_REDUCED_OR_MASK = 0b101  # in NewSubfileType: a smaller version of another page, or its mask


def open_tiff(spec: ImageSpec, files: ExitStack) -> Stored:
    """A TIFF, or a level of its pyramid. Only thumbnails and transparency masks are left out."""
    import tifffile

    path = spec.path
    with tifffile_errors(tifffile.logger()) as errors:
        tiff = files.enter_context(tifffile.TiffFile(files.enter_context(open_file(path)) if is_remote(path) else path))
        refuse_circles(tiff, path)
        refuse_false_metadata(tiff, path)
        if not is_remote(path):
            _refuse_special_parts(tiff, Path(path))
        with_colours = spec.layout != "labels" and not tiff.is_imagej
        series = joined_pages(tiff) or _plain_series(tiff, with_colours)
        if len(series) > 1:
            spec = replace(spec, level=0, pixel_size=None)  # only a single image has levels to choose from
        size = of_tiff(tiff)
        images = [_of_series(tiff, each, spec, with_colours, size) for each in series]
        _raise_first(errors)
        return images[0] if len(images) == 1 else _together(images, path)


def joined_pages(tiff: Any) -> Sequence[Any]:
    """tifffile's series of pages that metadata joins; empty for a file of plain pages."""
    if any(getattr(tiff, f"is_{kind}", False) for kind in _KINDS):
        series = tiff.series
        # Not series of plain pages, in which tifffile takes any page of half the size for a level.
        if series and series[0].kind.lower() not in ("generic", "uniform"):
            return _without_smaller(series)
    return ()


def _without_smaller(series: Sequence[Any]) -> Sequence[Any]:
    return [
        each
        for each in series
        if not each.keyframe.subfiletype & _REDUCED_OR_MASK
        and not (each.kind.lower() in _SCANNERS and each.name.lower() in _BESIDE)
    ] or series[:1]


def refuse_circles(tiff: Any, path: str) -> None:
    """Refuse pages that lead back to an earlier page, which tifffile would read without end.

    Refuse tags with too many values, too: tifffile reads all values of each tag, and several pages may share them.
    """
    form, file, seen, n_bytes = tiff.tiff, tiff.filehandle, set[int](), 0
    file.seek(form.offsetsize)  # where the offset of the first page is: at 4 in a TIFF, at 8 in a BigTIFF
    while offset := _number(file.read(form.offsetsize), form.offsetformat):
        if offset in seen:
            raise InputError(f"cannot read {path}: its pages lead back to each other, so it is damaged; save it again.")
        seen.add(offset)
        file.seek(offset)
        n_tags = _number(file.read(form.tagnosize), form.tagnoformat)
        n_bytes += bytes_of_tags(file.read(min(n_tags, _MOST_TAGS) * form.tagsize), form)
        if n_bytes > _TAG_BYTES + file.size // 16:
            raise ValueError("its tags have more values than an image of its size needs")
        file.seek(offset + form.tagnosize + n_tags * form.tagsize)


def _number(data: bytes, form: str) -> int:
    """The number in these bytes; 0 if the file ended before them."""
    return int(struct.unpack(form, data)[0]) if len(data) == struct.calcsize(form) else 0


def plain_pages(tiff: Any) -> list[Any]:
    """All pages that are not smaller versions or masks of others."""
    pages = []
    for page in (frame.aspage() for frame in tiff.pages):
        refuse_many_levels(page)
        pages.append(page)
        for inner in (frame.aspage() for frame in page.pages or ()):
            if inner.imagelength >= page.imagelength or inner.imagewidth >= page.imagewidth:
                pages.append(inner)
    return [page for page in pages if not page.subfiletype & _REDUCED_OR_MASK] or pages[:1]


def _plain_series(tiff: Any, with_colours: bool) -> list[Any]:
    """Pages that no metadata joins, as tifffile's series: one of all pages if they are alike, else one of each."""
    from tifffile import TiffPageSeries

    def series(pages: Sequence[Any], shape: tuple[int, ...], axes: str) -> Any:
        return TiffPageSeries(pages, shape, pages[0].dtype, axes, kind=_PLAIN)

    pages = plain_pages(tiff)
    for page in pages:
        _dtype(page)
        bound_decoding(page)
    first = pages[0]
    if len(pages) == 1:
        whole = series(pages, first.shape, first.axes)
        others = [other.aspage() for other in (*tiff.pages, *(first.pages or ()))]
        smaller = [o for o in others if o.subfiletype & _REDUCED and o.dtype == first.dtype and o.axes == first.axes]
        for level in sorted(smaller, key=lambda level: -level.imagelength):
            whole.levels.append(series([level], level.shape, level.axes))
        return [whole]
    has_colours = with_colours and first.axes == "YX" and first.photometric == _PALETTE
    if first.axes in ("YX", "YXS", "SYX") and len({page.hash for page in pages}) == 1 and not has_colours:
        return [series(pages, (len(pages), *first.shape), "I" + first.axes)]
    return [series([page], page.shape, page.axes) for page in pages]


def _of_series(tiff: Any, series: Any, spec: ImageSpec, with_colours: bool, size: VoxelSize | None) -> Stored:
    """The image in one of tifffile's series, at the requested level of its pyramid; size: of a voxel at full size."""
    path, key = spec.path, series.keyframe
    # The meaning of axis Q is unknown: often an (H,W,C) array was saved without the names of its axes.
    is_array = series.kind.lower() == "shaped" and series.axes == "QYX"
    shape = tuple(series.shape)
    axes = spec.axes_for(shape, array_axes(series.shape) if is_array else series.axes)
    is_array = is_array and not (spec.axes or axes == spec.assumed)
    is_one_block = series.dataoffset is not None and not series.is_multifile
    _refuse_false_planes(tiff, series, path, is_one_block)
    bound_decoding(key)
    refuse_shape(path, shape, axes)
    colours = _palette(key) if with_colours and axes == "YX" else None
    levels: Sequence[TiffArray | MappedArray] = []
    if colours is None and not any(level.transform is not None for level in series.levels):
        if is_one_block and len(series.levels) == 1 and not is_remote(path) and series.kind != _PLAIN:
            levels = [MappedArray(tiff, series)]
        else:
            levels = _arrays(path, [(list(level), level.shape) for level in series.levels], series.axes)
    sizes = _voxel_sizes(size, levels)
    level = spec.level_of(sizes) if levels else 0
    array = levels[level] if levels else None
    if array is not None:
        shape = array.shape
        refuse_shape(path, shape, axes)

    def load(chosen: Sequence[int]) -> np.ndarray:
        is_all = chosen == range(prod(stack_axes(axes, shape).values()))
        if array is not None and (level or is_remote(path) or not is_all):
            return pages_of(array, axes, chosen)
        if is_one_block:
            refuse_cut(tiff, series.dataoffset, series.nbytes)
        elif key.is_contiguous:
            for page in series:
                refuse_cut(page.parent, page.dataoffsets[0], page.nbytes)
        planes = pages_of(series.asarray(), axes, chosen)
        return planes if colours is None else colours[:, planes[0]]

    page = page_of(axes, shape, _dtype(series))
    if colours is not None:
        page = replace(page, n_channels=len(colours), dtype=colours.dtype, is_colour=True)
    chunks = () if array is None else array.chunks
    block = 0 if key.is_contiguous else prod(key.chunks) * _dtype(key).itemsize
    return Stored(
        (page,), _checked(load), axes, shape, is_array, array, chunks, block, level=level, n_levels=len(sizes),
        voxel=lambda: sizes[level],
    )  # fmt: skip


def _refuse_false_planes(tiff: Any, series: Any, path: str, is_one_block: bool) -> None:
    """Refuse a series whose planes are not all in the file."""
    if series.kind.lower() == "ome":
        n_missing = sum(page is None for page in series)
        if n_missing:
            raise planes_missing(path, n_missing, len(series))
    n_planes = prod(series.shape) // max(prod(series.keyframe.shape), 1)
    if is_one_block:
        if series.kind != _PLAIN:  # of plain pages, those that are there can be read
            refuse_cut(tiff, series.dataoffset, series.nbytes)
    elif n_planes > len(series):
        raise planes_missing(path, n_planes - len(series), n_planes)
    elif n_planes < len(series):
        raise ValueError(f"its metadata declare {n_planes:,} planes, but it has {len(series):,}")
    else:
        refuse_false_places(series)


def _arrays(path: str, levels: Sequence[tuple[Sequence[Any], Sequence[int]]], axes: str) -> list[TiffArray]:
    """The levels of a pyramid, from their pages and shapes; empty unless all can be read by tiles or strips."""
    if not all(TiffArray.fits(pages, shape) for pages, shape in levels):
        return []
    return [TiffArray(path, pages, axes, shape) for pages, shape in levels]


def _voxel_sizes(full: VoxelSize | None, levels: Sequence[TiffArray | MappedArray]) -> list[VoxelSize | None]:
    """The voxel size of each level, or of the whole image if it cannot be read by tiles or strips."""
    if full is None or not levels:
        return [full] * max(len(levels), 1)
    height, width = levels[0].size
    sizes = (level.size for level in levels)
    return [replace(full, height=full.height * height / h, width=full.width * width / w) for h, w in sizes]


def _together(images: Sequence[Stored], path: str) -> Stored:
    """Several images, each of them a page."""
    for image in images:
        if image.stack:
            raise InputError(
                f"cannot read {path}: found {len(images)} images, one of them a stack with axes {image.axes} of shape"
                f" {image.shape}, expected one image; save one image per file."
            )

    def load(chosen: Sequence[int]) -> np.ndarray:
        return np.concatenate([images[i].load(range(1)) for i in chosen])

    pages, block = tuple(image.page(0) for image in images), max(image.block for image in images)
    alike = len(set(pages)) == 1
    axes, shape = ("I" + images[0].axes, (len(images), *images[0].shape)) if alike else ("I", (len(images),))
    return Stored(pages[:1] if alike else pages, load, axes, shape, block=block, voxel=images[0].voxel)


def _checked(load: Load) -> Load:
    """The same loader, but raising errors that tifffile only logs."""
    import tifffile

    def checked(chosen: Sequence[int]) -> np.ndarray:
        with tifffile_errors(tifffile.logger()) as errors:
            planes = load(chosen)
            _raise_first(errors)
            return planes

    return checked


def _palette(page: Any) -> np.ndarray | None:
    """(3,N) colours that the pixels stand for. A file may also have a palette although its pixels are grey values."""
    return page.colormap if page.photometric == _PALETTE else None


def _dtype(page: Any) -> np.dtype:
    if page.dtype is None:
        raise ValueError("its number type is not supported")
    return np.dtype(page.dtype)


def _refuse_special_parts(tiff: Any, path: Path) -> None:
    """Refuse a pipe or device in place of a file that OME metadata names: opening it could wait forever."""
    for name in re.findall(r"""FileName\s*=\s*["']([^"']+)""", tiff.ome_metadata or ""):
        part = path.parent / html.unescape(name)
        if os.path.lexists(part) and not os.path.isfile(part):
            refuse_unreadable(part)


def _raise_first(errors: Sequence[str]) -> None:
    if errors:
        raise ValueError(errors[0])


@contextmanager
def tifffile_errors(logger: logging.Logger) -> Iterator[list[str]]:
    """Collect tifffile's errors, and keep its messages off the screen.

    If pages are missing from a truncated file, tifffile only logs that, and returns the rest as if it were the image.
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
