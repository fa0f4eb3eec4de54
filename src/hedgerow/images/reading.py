"""Opens and reads image files of any kind, whole or region by region.

Pillow, tifffile and zarr are imported where they are used, so that importing Hedgerow stays fast, and a machine without
one of them can still read the other formats.
"""

import os
import re
import warnings
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from hedgerow.errors import InputError
from hedgerow.files import PathLike
from hedgerow.images.file_checks import is_zarr_folder, refuse_unreadable
from hedgerow.images.npy_files import open_npy
from hedgerow.images.pages import chosen_pages
from hedgerow.images.png_jpeg import open_jpeg, open_png
from hedgerow.images.remote import absolute, is_remote
from hedgerow.images.source import ImageSource, naming_file
from hedgerow.images.stored import ImageSpec, Role, Stored
from hedgerow.images.stored import Pages as Pages  # also imported from here
from hedgerow.images.tiff import open_tiff
from hedgerow.images.voxel_size import VoxelSize
from hedgerow.images.zarr_files import open_zarr


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
            raise InputError(f"cannot read {path}: it can only be read whole, so copy it to this machine first")
        if stored.n_levels == 1:
            spec.level_of([stored.voxel() if spec.pixel_size else None])
        source = ImageSource(spec, stored, chosen_pages(path, stored, spec.pages, spec.layout), files, ending)
        weakref.finalize(source, files.close)
        undo.pop_all()
        return source


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
            raise InputError(f"cannot read {path}: its ending is not one of {', '.join(ENDINGS)}; convert the file")
    elif not READERS[ending].by_region:
        endings = ", ".join(ending for ending, reader in READERS.items() if reader.by_region)
        raise InputError(f"cannot read {path}: only {endings} can be read from another machine; copy the file first")
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


def read_input(path: PathLike, layout: Role, pages: Pages = None) -> np.ndarray:
    """Read an image as a picture or labels, (H,W) or (H,W,C), or as planes (F,H,W), the user's own channels."""
    with open_image(path, layout, pages) as source:
        return source.array()


def what_was_read(path: PathLike, layout: Role = "picture", pages: Pages = None) -> str:
    """How `read_input` reads a file of several pages or channels: "page 3 of 5", "3 channels; z plane 2 of 10" or
    "pages 1-5 read as 5 channels"; "" for a plain grey or colour picture. Reads only the description of the file.
    """
    with open_image(path, layout, pages) as source:
        return source.words


def read_voxel_size(path: PathLike) -> VoxelSize | None:
    """How large a pixel of an image file is; None if the file does not say so, or gives only the 72 or 96 dots per inch
    that programs write when they do not know."""
    with open_image(path, pages=1) as source:
        return source.voxel_size
