"""`open_image` opens a file of any kind or an address as an `ImageSource`, which is read whole or by regions.

Pillow, tifffile and zarr are imported where they are used, so that importing Hedgerow stays fast, and a machine without
one of them can still read the other formats.
"""

from __future__ import annotations

import os
import re
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from hedgerow.errors import InputError, masked
from hedgerow.files import PathLike
from hedgerow.images.array_checks import to_planes
from hedgerow.images.axes import frames_of, words_of_frames
from hedgerow.images.file_checks import (
    is_zarr_folder,
    naming_file,
    refuse_large_blocks,
    refuse_many_chunks,
    refuse_oversized,
    refuse_unreadable,
)
from hedgerow.images.hdf5_files import open_hdf5
from hedgerow.images.nifti_files import open_nifti
from hedgerow.images.npy_files import open_npy
from hedgerow.images.nrrd_files import open_nrrd
from hedgerow.images.pages import chosen_pages, words
from hedgerow.images.png_jpeg import open_jpeg, open_png
from hedgerow.images.regions import Region
from hedgerow.images.remote import absolute, identity_of_file, is_remote
from hedgerow.images.source_planes import SourcePlanes as SourcePlanes  # also imported from here
from hedgerow.images.stored import (
    MAX_CHANNELS,
    ImageSpec,
    Role,
    Stored,
    as_picture,
    pages_of,
)
from hedgerow.images.stored import Pages as Pages  # also imported from here
from hedgerow.images.tiff import open_tiff
from hedgerow.images.voxel_size import VoxelSize
from hedgerow.images.zarr_files import open_zarr


@dataclass(frozen=True, eq=False)
class ImageSource:
    """An image (C,H,W), or a volume (C,Z,H,W), in an open file or store.

    stored: the content of the file
    chosen: the pages that are read as channels or, of a volume, as its planes, counted from 0
    files:  are closed with the source, or when it is no longer used
    ending: the file's ending, which names its kind
    frames: the pages of each time point of a series; (): of a single image
    """

    spec: ImageSpec
    stored: Stored
    chosen: Sequence[int]
    files: ExitStack
    ending: str = ""
    is_volume: bool = False
    frames: Sequence[Sequence[int]] = ()

    def __enter__(self) -> ImageSource:
        return self

    def __exit__(self, *_: object) -> None:
        self.files.close()

    @property
    def path(self) -> str:
        return self.spec.path

    @property
    def name(self) -> str:
        """The path, with passwords masked."""
        return masked(self.path)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """(C,H,W), or (C,Z,H,W) of a volume"""
        page = self.stored.page(self.chosen[0])
        if self.is_volume:
            return page.n_channels, len(self.chosen), page.height, page.width
        return self.stored.n_channels(self.chosen), page.height, page.width

    @property
    def size(self) -> tuple[int, ...]:
        """(H,W), or (Z,H,W) of a volume"""
        return self.shape[1:]

    def each_frame(self) -> Iterator[ImageSource]:
        """The image at each time point of a series; the image itself if it is the only one. They share the file."""
        if not self.frames:
            yield self
        for pages in self.frames:
            yield replace(self, chosen=pages, frames=())

    @property
    def whole(self) -> Region:
        return Region.whole(self.size)

    @property
    def axes(self) -> str:
        """The file's own axes as letters: Y and X are rows and columns, C and S channels, the others count pages."""
        return self.stored.axes

    @property
    def n_pages(self) -> int:
        """The number of pages, z planes or time points in the file."""
        return self.stored.n_pages

    @property
    def dtype(self) -> np.dtype:
        """The number type of the pixels, in native byte order."""
        return self.stored.page(self.chosen[0]).dtype.newbyteorder("=")

    @property
    def words(self) -> str:
        """How a file of several pages or channels is read, such as "page 3 of 5"; "" for a plain picture."""
        if self.is_volume or self.frames:
            return words_of_frames(self.shape, len(self.frames), self.voxel_size)
        return words(self.stored, self.chosen)

    @cached_property
    def voxel_size(self) -> VoxelSize | None:
        """How large a pixel is and how far apart z planes are, if the file or the user says so."""
        return self.spec.voxel or self.stored.voxel()

    @cached_property
    def identity(self) -> Mapping[str, Any]:
        """Values that identify the image; no pixels are read."""
        place = self.name if is_remote(self.path) else str(Path(self.path).resolve())
        own = self.stored.identity or identity_of_file(self.path)
        return {"path": place, "level": self.stored.level, "pages": list(self.chosen), **own}

    @property
    def by_region(self) -> bool:
        """Whether a region can be read without the rest of the image."""
        return self.stored.array is not None

    @property
    def chunk(self) -> tuple[int, int]:
        """(h,w) of the part that is decoded at once, the natural tile for reading; else the size of the image."""
        sides = dict(zip(self.stored.axes, self.stored.chunks, strict=False))
        return sides.get("Y", self.size[-2]), sides.get("X", self.size[-1])

    @property
    def chunk_bytes(self) -> int:
        """Bytes that are decoded to read one pixel; 0: pixels are stored as they are in memory."""
        return prod(self.stored.chunks) * self.dtype.itemsize if self.stored.chunks else 0

    def n_blocks(self, region: Region) -> int:
        """The number of chunks that are decoded to read a region."""
        stored = self.stored
        if not stored.chunks:
            return 0
        high, wide = self.chunk
        down = -(-region.bottom // high) - region.top // high
        across = -(-region.right // wide) - region.left // wide
        sides = zip(stored.axes, stored.shape, stored.chunks, strict=True)
        others = (
            -(-length // side)
            for i, (axis, length, side) in enumerate(sides)
            if axis not in "YX" and i not in stored.stack
        )
        n_pages = region.depth if self.is_volume else len(self.chosen)
        return down * across * prod(others) * (n_pages if stored.stack else 1)

    def read(self, region: Region | None = None) -> np.ndarray:
        """(C,h,w) of a region, or (C,H,W) of the whole image, in the number type of the file; z comes after C."""
        if not self.by_region and region is not None:
            return np.ascontiguousarray((region.of_volume if self.is_volume else region.of)(self._decoded))
        if "_decoded" in vars(self):
            return self._decoded
        with naming_file(self.path, self.ending):
            if region is not None:
                chosen = self.chosen[region.front : region.back] if self.is_volume else self.chosen
                part = pages_of(self.stored.array, self.stored.axes, chosen, region)
            else:
                refuse_oversized(self.path, self.stored, self.chosen)
                self.check_chunks(self.whole)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    part = self.stored.load(self.chosen)
            if self.is_volume:
                part = part.reshape(-1, self.shape[0], *part.shape[-2:]).swapaxes(0, 1)
            return part.astype(part.dtype.newbyteorder("="), copy=False)

    def array(self) -> np.ndarray:
        """The whole image as public functions take it: (H,W), (H,W,C), or a user's own channels (F,H,W); with z before
        H if it is a volume."""
        planes = self.read()
        return planes if self.spec.layout == "planes" else as_picture(planes)

    def planes(self, region: Region) -> np.ndarray:
        """(C,h,w) float32 of a region, checked like every image."""
        name = f"{self.name}, from row {region.top} and column {region.left} on,"
        return to_planes(self.read(region), name, "planes")

    def source_planes(self, part: Region | None = None) -> SourcePlanes:
        """The image as an array (C,H,W) float32: a part is read now, the rest when it is indexed."""
        n_channels, height, width = self.shape
        return SourcePlanes(self.planes, (n_channels, height, width), part, source=self)

    @cached_property
    def _decoded(self) -> np.ndarray:
        """All pixels of a file that can only be read whole. Closes the file, whose reader may hold the pixels too."""
        planes, _ = self.read(), self.voxel_size
        self.files.close()
        return planes

    def check_chunks(self, region: Region) -> None:
        """Refuse a region that lies in so many chunks that reading it would take days."""
        refuse_many_chunks(self.path, self.n_blocks(region), self.chunk)

    def check_memory(self) -> None:
        """Refuse an image if the available memory is too small to read any region of it."""
        if self.by_region:
            refuse_large_blocks(self.path, self.chunk_bytes)
        else:
            refuse_oversized(self.path, self.stored, self.chosen)


@dataclass(frozen=True)
class Reader:
    """A kind of file.

    open:      describes the content of a file; puts onto the stack what must be closed later
    by_region: whether a region can be read without the rest of the file, and a file at an address
    """

    open: Callable[[ImageSpec, ExitStack], Stored]
    by_region: bool = False


READERS: dict[str, Reader] = {
    ".png": Reader(open_png),
    ".jpg": Reader(open_jpeg),
    ".jpeg": Reader(open_jpeg),
    ".tif": Reader(open_tiff, by_region=True),
    ".tiff": Reader(open_tiff, by_region=True),
    ".npy": Reader(open_npy, by_region=True),
    ".zarr": Reader(open_zarr, by_region=True),
    ".h5": Reader(open_hdf5, by_region=True),
    ".nii": Reader(open_nifti, by_region=True),
    ".nii.gz": Reader(open_nifti),
    ".nrrd": Reader(open_nrrd),
}
ENDINGS = READERS.keys()


def ending_of(path: PathLike) -> str:
    """The supported ending of a path in lower case; ".zarr" for a Zarr folder of any name; "" if it has none."""
    if is_remote(path):
        name = re.split("[?#]", os.fspath(path))[0].rstrip("/").lower()  # a query may hold a key, but not the ending
        return next((ending for ending in ENDINGS if name.endswith(ending)), ".zarr")
    if is_zarr_folder(path):
        return ".zarr"
    name = Path(path).name.lower()
    return next((ending for ending in ENDINGS if name.endswith(ending)), "")


def reads_regions(path: PathLike) -> bool:
    """Whether regions of this kind of file are read without the rest."""
    ending = ending_of(path)
    return bool(ending) and READERS[ending].by_region


def open_image(path: PathLike, layout: Role = "picture", pages: Pages = None, **more: Any) -> ImageSource:
    """Open an image file, or an image at an address. Reads its description but none of its pixels.

    layout: read it as a picture, as a user's own channels, or as a label map
    pages:  as in `read_image`
    more:   further fields of `ImageSpec`

    Any failure is one sentence that names the file.
    """
    spec = ImageSpec(os.fspath(path), layout, pages, **more)
    path = spec.path
    ending = _checked_ending(path)
    with naming_file(path, ending), warnings.catch_warnings(), ExitStack() as undo:
        warnings.simplefilter("ignore")
        files = undo.enter_context(ExitStack())
        stored = READERS[ending].open(spec, files)
        if is_remote(path) and stored.array is None:
            raise InputError(f"cannot read {path}: it can only be read whole, so copy it to this machine first.")
        if stored.n_levels == 1:
            spec.level_of([stored.voxel() if spec.pixel_size else None])
        source = _source(spec, stored, files, ending)
        weakref.finalize(source, files.close)
        undo.pop_all()
        return source


def _source(spec: ImageSpec, stored: Stored, files: ExitStack, ending: str) -> ImageSource:
    """The image, volume or series that the specification chooses from the content of a file."""
    if spec.axes:
        page = stored.page(0)  # not all kinds of files can have other axes than they say
        spec.axes_for(stored.shape or (page.height, page.width), "")
    series = frames_of(stored, bool(spec.axes)) if spec.volumes and spec.pages is None else None
    if series is None:
        return ImageSource(spec, stored, chosen_pages(spec.path, stored, spec.pages, spec.layout), files, ending)
    frames, is_volume = series
    n_channels = stored.page(0).n_channels
    if n_channels > MAX_CHANNELS:
        raise InputError(f"cannot read {spec.path}: it has {n_channels:,} channels, expected at most {MAX_CHANNELS:,}.")
    is_series = len(frames) > 1 or (bool(spec.axes) and "T" in spec.axes)
    return ImageSource(spec, stored, frames[0], files, ending, is_volume, frames if is_series else ())


def content_of_file(spec: ImageSpec) -> Stored | None:
    """What a file holds, before anything of it is chosen; None if it cannot be opened."""
    ending = ending_of(spec.path)
    with suppress(Exception), ExitStack() as files, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return READERS[_checked_ending(spec.path) and ending].open(spec, files)
    return None


def spec_for_workers(path: PathLike, layout: Role, pages: Pages = None, **more: Any) -> ImageSpec:
    """The image to open, for processes in other folders, in a form that can be a key; more: fields of `ImageSpec`"""
    numbers = pages if pages is None or isinstance(pages, str | int) else tuple(pages)
    return ImageSpec(absolute(path), layout, numbers, **more)


@lru_cache(maxsize=4)
def opened(spec: ImageSpec) -> ImageSource:
    """An image to be read region by region, kept open for the next shard; refused if one region exceeds the memory."""
    source = open_image(**vars(spec))
    source.check_memory()
    return source


def _checked_ending(path: str) -> str:
    ending = ending_of(path)
    if not is_remote(path):
        refuse_unreadable(Path(path))
        if not ending:
            raise InputError(f"cannot read {path}: its ending is not one of {', '.join(ENDINGS)}; convert the file.")
    elif not READERS[ending].by_region:
        endings = ", ".join(ending for ending, reader in READERS.items() if reader.by_region)
        raise InputError(f"cannot read {path}: only {endings} can be read from another machine; copy the file first.")
    return ending


def read_image(path: PathLike, pages: Pages = None) -> np.ndarray:
    """Read one 2-D image: (H,W) or (H,W,C), in the dtype of the file and native byte order.

    pages: the pages, z planes or time points that become channels: "all", or numbers from 1, as 3, "3", "1,3-5" or
           [1, 3]; None: the file must have only one, or say that they are channels

    The alpha channel of a PNG is dropped, and a palette becomes colours. All samples of a TIFF are kept, since programs
    often call a fourth channel alpha when it is not.

    >>> np.save("image.npy", np.zeros((40, 48, 3), np.uint8))
    >>> hr.read_image("image.npy").shape
    (40, 48, 3)
    """
    return read_input(path, "picture", pages)


def read_frame(spec: ImageSpec, frame: int) -> np.ndarray:
    """One time point of a file: an image as public functions take it, or the planes (C,Z,H,W) of a volume."""
    with open_image(**vars(spec)) as source:
        image = list(source.each_frame())[frame]
        return image.read() if source.is_volume else image.array()


def read_input(path: PathLike, layout: Role, pages: Pages = None) -> np.ndarray:
    """Read an image as a picture or labels, (H,W) or (H,W,C), or as planes (F,H,W), the user's own channels."""
    return read_frame(ImageSpec(os.fspath(path), layout, pages), 0)


def what_was_read(path: PathLike, layout: Role = "picture", pages: Pages = None, volumes: bool = False) -> str:
    """How `read_input` reads a file of several pages or channels: "page 3 of 5", "3 channels; z plane 2 of 10" or
    "pages 1-5 read as 5 channels"; "" for a plain grey or colour picture. Reads only the description of the file.
    """
    with open_image(path, layout, pages, volumes=volumes) as source:
        return source.words


def read_voxel_size(path: PathLike) -> VoxelSize | None:
    """How large a pixel of an image file is; None if the file does not say so, or gives only the 72 or 96 dots per inch
    that programs write when they do not know."""
    with open_image(path, pages=1) as source:
        return source.voxel_size
