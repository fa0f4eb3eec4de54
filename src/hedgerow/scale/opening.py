"""Opening an image of any kind: what can be read in parts is, and anything else is read whole."""

import re
import warnings
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np

from hedgerow.errors import HedgerowError, InputError
from hedgerow.files import one_line
from hedgerow.images.array_checks import to_planes
from hedgerow.images.places import ENDINGS, ending_of, refuse_unreadable, what_is_wrong
from hedgerow.images.reading import naming_missing_package, read_input, read_pixel_size, what_was_read
from hedgerow.scale.lazy_image import LazyImage, Wanted, chosen_level
from hedgerow.scale.npy_in import open_npy
from hedgerow.scale.remote import identity_of_file, is_remote
from hedgerow.scale.tiff_in import open_tiff
from hedgerow.scale.zarr_in import open_zarr

_OPENERS: dict[str, Callable[[Wanted], LazyImage | None]] = {
    ".tif": open_tiff,
    ".tiff": open_tiff,
    ".npy": open_npy,
    ".zarr": open_zarr,
}


def open_image(wanted: Wanted) -> LazyImage:
    """The image, of which nothing but its description has been read unless its file can only be read whole.

    Whatever goes wrong is one sentence that names the file.
    """
    path = wanted.path
    ending = _ending(path)
    try:
        with warnings.catch_warnings(), naming_missing_package(Path(path)):
            warnings.simplefilter("ignore")
            found = _OPENERS[ending](wanted) if ending in _OPENERS else None
            return found or _read_whole(wanted)
    except HedgerowError:
        raise
    except PermissionError as problem:
        raise InputError(f"cannot read {path}: {what_is_wrong(problem)}") from problem
    except FileNotFoundError as problem:
        raise InputError(f"cannot read {path}: there is no such file; check its name and address") from problem
    except Exception as problem:
        raise InputError(
            f"cannot read {path}: {one_line(problem)}; expected a complete {ending} file, so check that other programs"
            " open it, and save it again"
        ) from problem


@lru_cache(maxsize=4)
def opened(wanted: Wanted) -> LazyImage:
    """The same, kept for the next shard."""
    return open_image(wanted)


def is_lazy(path: str) -> bool:
    """Whether a file is of a kind that can be read in parts."""
    return _kind(path) in _OPENERS


def _kind(path: str) -> str:
    if not is_remote(path):
        return ending_of(path)
    name = re.split("[?#]", path)[0].rstrip("/").lower()  # a query may hold a key, but no ending
    return next((ending for ending in ENDINGS if name.endswith(ending)), ".zarr")


def _ending(path: str) -> str:
    ending = _kind(path)
    if not is_remote(path):
        refuse_unreadable(Path(path))
        if not ending:
            raise InputError(f"cannot read {path}: its ending is not one of {', '.join(ENDINGS)}; convert the file")
    elif ending not in _OPENERS:
        raise InputError(
            f"cannot read {path}: from another machine only {', '.join(_OPENERS)} are read; copy the file first"
        )
    return ending


def _read_whole(wanted: Wanted) -> LazyImage:
    """A file that can only be read whole; its size is checked against memory before."""
    path = wanted.path
    if is_remote(path):
        raise InputError(f"cannot read {path}: it can only be read whole, so copy it to this machine first")
    chosen_level(path, wanted, [None])
    pages = list(wanted.pages) if isinstance(wanted.pages, tuple) else wanted.pages  # as a record gives it back
    said = what_was_read(path, wanted.layout, wanted.pages)
    image = read_input(path, wanted.layout, wanted.pages)
    own = np.asarray(image)
    planes = to_planes(own, path, wanted.layout)
    height, width = planes.shape[1:]
    return LazyImage(
        name=path,
        shape=(len(planes), height, width),
        dtype=own.dtype,
        read=lambda region: np.ascontiguousarray(region.of(planes)),
        pixel=read_pixel_size(path),
        identity={"path": path, "pages": pages, **identity_of_file(path)},
        words=said,
    )
