"""`ImageSource`: an image in a file or store that is opened once, and read whole or by regions."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from types import EllipsisType
from typing import Any

import numpy as np

from hedgerow.errors import HedgerowError, InputError, masked, one_line
from hedgerow.files import PathLike
from hedgerow.images.array_checks import to_planes
from hedgerow.images.file_checks import naming_missing_package, reason_and_remedy
from hedgerow.images.limits import refuse_large_blocks, refuse_many_chunks, refuse_oversized
from hedgerow.images.pages import words
from hedgerow.images.regions import Region
from hedgerow.images.remote import identity_of_file, is_remote
from hedgerow.images.stored import ImageSpec, Stored, as_picture, pages_of
from hedgerow.images.voxel_size import VoxelSize


@dataclass(frozen=True, eq=False)
class ImageSource:
    """An image (C,H,W) in an open file or store.

    stored: the content of the file
    chosen: the pages that are read as channels, counted from 0
    files:  are closed with the source, or when it is no longer used
    ending: the file's ending, which names its kind
    """

    spec: ImageSpec
    stored: Stored
    chosen: Sequence[int]
    files: ExitStack
    ending: str = ""

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
    def shape(self) -> tuple[int, int, int]:
        """(C,H,W)"""
        page = self.stored.page(self.chosen[0])
        return self.stored.n_channels(self.chosen), page.height, page.width

    @property
    def size(self) -> tuple[int, int]:
        """(H, W)"""
        return self.shape[1:]

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
    def level(self) -> int:
        return self.stored.level

    @property
    def n_levels(self) -> int:
        return self.stored.n_levels

    @property
    def fill(self) -> float | None:
        """The value of pixels that are not stored; None: all pixels are stored."""
        return self.stored.fill

    @property
    def words(self) -> str:
        """How a file of several pages or channels is read, such as "page 3 of 5"; "" for a plain picture."""
        return words(self.stored, self.chosen)

    @cached_property
    def voxel_size(self) -> VoxelSize | None:
        """How large a pixel is and how far apart z planes are, if the file says so."""
        return self.stored.voxel()

    @cached_property
    def identity(self) -> Mapping[str, Any]:
        """Values that identify the image; no pixels are read."""
        place = self.name if is_remote(self.path) else str(Path(self.path).resolve())
        own = self.stored.identity or identity_of_file(self.path)
        return {"path": place, "level": self.level, "pages": list(self.chosen), **own}

    @property
    def by_region(self) -> bool:
        """Whether a region can be read without the rest of the image."""
        return self.stored.array is not None

    @property
    def chunk(self) -> tuple[int, int]:
        """(h,w) of the part that is decoded at once, the natural tile for reading; else the size of the image."""
        sides = dict(zip(self.stored.axes, self.stored.chunks, strict=False))
        return sides.get("Y", self.size[0]), sides.get("X", self.size[1])

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
        return down * across * prod(others) * (len(self.chosen) if stored.stack else 1)

    def read(self, region: Region | None = None) -> np.ndarray:
        """(C,h,w) of a region, or (C,H,W) of the whole image, in the number type of the file."""
        if not self.by_region and region is not None:
            return np.ascontiguousarray(region.of(self._decoded))
        if "_decoded" in vars(self):
            return self._decoded
        with naming_file(self.path, self.ending):
            if region is not None:
                part = pages_of(self.stored.array, self.stored.axes, self.chosen, region)
            else:
                refuse_oversized(self.path, self.stored, self.chosen)
                self.check_chunks(self.whole)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    part = self.stored.load(self.chosen)
            return part.astype(part.dtype.newbyteorder("="), copy=False)

    def array(self) -> np.ndarray:
        """The whole image as public functions take it: (H,W), (H,W,C), or a user's own channels (F,H,W)."""
        planes = self.read()
        return planes if self.spec.layout == "planes" else as_picture(planes)

    def planes(self, region: Region) -> np.ndarray:
        """(C,h,w) float32 of a region, checked like every image."""
        name = f"{self.name}, from row {region.top} and column {region.left} on,"
        return to_planes(self.read(region), name, "planes")

    def window(self, part: Region | None = None) -> SourcePlanes:
        """The image as an array (C,H,W) float32: a part is read now, the rest when it is indexed."""
        return SourcePlanes(self.planes, self.shape, part)

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


class SourcePlanes:
    """An image (C,H,W) float32 that is indexed like an array, and read when it is indexed.

    Models use it in place of the image. A part of it may be in memory; indices are still those of the whole image.
    """

    ndim, dtype = 3, np.dtype(np.float32)

    def __init__(
        self, read: Callable[[Region], np.ndarray], shape: tuple[int, int, int], part: Region | None = None
    ) -> None:
        """read: returns (C,h,w) float32 of a region; part: is read now"""
        self.shape, self._read, self.part = shape, read, part
        self.values = None if part is None else read(part)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, place: tuple[Any, ...]) -> np.ndarray:
        channels, rows, columns = place if len(place) == 3 else (..., *place)
        (top, bottom, down), (left, right, across) = rows.indices(self.shape[1]), columns.indices(self.shape[2])
        region = Region(top, bottom, left, right)
        if self.part is not None and self.values is not None and region.clipped(self.part) == region:
            values = region.within(self.part).of(self.values)
        else:
            values = self._read(region)
        values = values[..., ::down, ::across]
        return values if isinstance(channels, EllipsisType) else values[channels]


@contextmanager
def naming_file(path: PathLike, ending: str = "") -> Iterator[None]:
    """Turn any failure to read a file into one sentence that names it."""
    path = os.fspath(path)
    try:
        with naming_missing_package(path):
            yield
    except HedgerowError:
        raise
    except MemoryError as problem:
        raise InputError(
            f"cannot read {path}: it does not fit in memory: {one_line(problem)}; crop or shrink the image, or use a"
            " machine with more memory"
        ) from problem
    except PermissionError as problem:
        raise InputError(f"cannot read {path}: {reason_and_remedy(problem)}") from problem
    except Exception as problem:
        if isinstance(problem, FileNotFoundError) and is_remote(path):
            raise InputError(f"cannot read {path}: there is no such file; check its name and address") from problem
        raise InputError(
            f"cannot read {path}: {one_line(problem)}; expected a complete {ending or 'image'} file, so check"
            " that other programs can open it, and save it again"
        ) from problem
