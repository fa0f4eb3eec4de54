"""Reading image files: PNG, JPEG, TIFF, NPY and Zarr.

Pillow, tifffile and zarr are imported where they are used: importing Hedgerow stays fast, and a machine
without one of them can still use the other formats.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from hedgerow.errors import HedgerowError, InputError
from hedgerow.files import PathLike, one_line
from hedgerow.images.array_checks import Layout
from hedgerow.images.array_files import opened_npy, opened_zarr
from hedgerow.images.limits import refuse_oversized
from hedgerow.images.pages import Pages, choose, page_numbers, words
from hedgerow.images.pixel_size import PixelSize
from hedgerow.images.places import ENDINGS, ending_of, is_zarr_folder, refuse_unreadable, what_is_wrong
from hedgerow.images.png_jpeg import opened_jpeg, opened_png
from hedgerow.images.stored import Page, Role, Stored
from hedgerow.images.tiff import opened_tiff

__all__ = [
    "ENDINGS",
    "Pages",
    "described_image",
    "ending_of",
    "is_zarr_folder",
    "naming_missing_package",
    "opened",
    "page_numbers",
    "read_channels",
    "read_image",
    "read_input",
    "read_pixel_size",
    "read_stored",
    "what_was_read",
]

_READERS: dict[str, Callable[[Path, Role], AbstractContextManager[Stored]]] = {
    ".png": opened_png,
    ".jpg": opened_jpeg,
    ".jpeg": opened_jpeg,
    ".tif": opened_tiff,
    ".tiff": opened_tiff,
    ".npy": opened_npy,
    ".zarr": opened_zarr,
}


def read_image(path: PathLike, pages: Pages = None) -> np.ndarray:
    """Read one 2-D image: (H,W) or (H,W,C), in the dtype of the file and native byte order.

    pages: which pages, z planes or time points become channels: "all", or numbers from 1, as 3, "3", "1,3-5" or
           [1, 3]; None: there must be one, or the file must say that they are channels

    Alpha of a PNG is dropped and a palette becomes its colours; TIFF samples are all kept, since writers
    often call a fourth channel alpha when it is not.

    >>> np.save("image.npy", np.zeros((40, 48, 3), np.uint8))
    >>> hr.read_image("image.npy").shape
    (40, 48, 3)
    """
    return read_stored(path, "picture", pages)


def read_channels(path: PathLike, pages: Pages = None) -> np.ndarray:
    """Read a user's own channels, (F,H,W): an array file exactly as stored, other images channel by channel."""
    image = read_stored(path, "planes", pages)
    return image[None] if image.ndim == 2 else np.moveaxis(image, -1, 0)


def read_input(path: PathLike, layout: Layout, pages: Pages = None) -> np.ndarray:
    """Read an image as planes (F,H,W), the user's own channels, or as a picture (H,W[,C])."""
    return read_channels(path, pages) if layout == "planes" else read_image(path, pages)


def what_was_read(path: PathLike, layout: Layout = "picture", pages: Pages = None) -> str:
    """What `read_input` makes of a file with several pages or channels, in words: "page 3 of 5", "3 channels; z plane 2
    of 10", "pages 1-5 read as 5 channels"; "" for a plain grey or colour picture. Reads only what describes the file.
    """
    path = Path(path)
    with opened(path, layout) as stored:
        return words(stored, choose(path, stored, pages, layout))


def described_image(path: PathLike, pages: Pages = None) -> Page:
    """The size, channels and number type of what `read_image` would return; reads no pixels."""
    path = Path(path)
    with opened(path, "picture") as stored:
        chosen = choose(path, stored, pages, "picture")
        page = stored.page(chosen[0])
        return replace(page, n_channels=stored.n_channels(chosen), dtype=page.dtype.newbyteorder("="))


def read_pixel_size(path: PathLike) -> PixelSize | None:
    """How large a pixel of an image file is; None if the file does not say so. The 72 or 96 dots per inch that programs
    write when they know nothing are no size."""
    with opened(Path(path), "picture") as stored:
        return stored.pixel()


def read_stored(path: PathLike, role: Role, pages: Pages) -> np.ndarray:
    """Read a file as what it is for: (H,W), or (H,W,C) for several channels."""
    path = Path(path)
    with opened(path, role) as stored:
        chosen = choose(path, stored, pages, role)
        refuse_oversized(path, stored, chosen)
        array = stored.load(chosen)
        return array.astype(array.dtype.newbyteorder("="), copy=False)


@contextmanager
def opened(path: Path, role: Role) -> Iterator[Stored]:
    """The file, opened by the reader for its ending; whatever goes wrong is one sentence that names it."""
    refuse_unreadable(path)
    ending = ending_of(path)
    if not ending:
        raise InputError(f"cannot read {path}: its ending is not one of {', '.join(ENDINGS)}; convert the file")
    try:
        with warnings.catch_warnings(), naming_missing_package(path):
            warnings.simplefilter("ignore")
            with _READERS[ending](path, role) as stored:
                yield stored
    except HedgerowError:
        raise
    except MemoryError as problem:
        raise InputError(
            f"cannot read {path}: it does not fit in memory: {one_line(problem)}; crop or shrink the image, or use a"
            " machine with more memory"
        ) from problem
    except PermissionError as problem:
        raise InputError(f"cannot read {path}: {what_is_wrong(problem)}") from problem
    except Exception as problem:
        raise InputError(
            f"cannot read {path}: {one_line(problem)}; expected a complete {ending} file, so check"
            " that other programs open it, and save it again"
        ) from problem


@contextmanager
def naming_missing_package(path: Path) -> Iterator[None]:
    """Say which package this kind of file needs, if it is not installed."""
    try:
        yield
    except ModuleNotFoundError as missing:
        raise InputError(
            f"{path} needs the Python package {missing.name}, which is not installed; run pip install"
            f" {missing.name} or choose another format"
        ) from missing
