"""Checks files before they are opened, and the sizes that they declare before anything is decoded or allocated."""

from __future__ import annotations

import errno
import math
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from hedgerow import memory
from hedgerow.errors import ConfigError, HedgerowError, InputError, one_line, one_path
from hedgerow.images.array_checks import too_large
from hedgerow.images.stored import Stored
from hedgerow.memory import megabytes, ran_out

if TYPE_CHECKING:
    from hedgerow.files import PathLike

ZARR_METADATA = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")

# Opening one of these may wait for another program or affect a device.
_NOT_FILES = (
    (stat.S_ISFIFO, "a pipe (FIFO)"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_REMEDIES = {
    errno.ELOOP: "it is a symbolic link that leads back to itself; remove or repair it",
    errno.ENAMETOOLONG: "its name is longer than the system allows; shorten it",
    errno.EACCES: "permission denied; change the permissions of the file and its folders, or copy it elsewhere",
    errno.EPERM: "permission denied; change the permissions of the file and its folders, or copy it elsewhere",
    errno.ENOTDIR: "a part of its path is a file and not a folder; check the path",
}


def is_zarr_folder(path: PathLike) -> bool:
    """Whether a path is a folder that holds one Zarr image, by its name or the metadata in it."""
    if not os.path.isdir(path):
        return False
    return os.fspath(path).lower().endswith(".zarr") or has_zarr_metadata(path)


def has_zarr_metadata(folder: PathLike) -> bool:
    """Whether a folder holds the metadata of a Zarr image, whatever its name."""
    return any(os.path.exists(os.path.join(folder, name)) for name in ZARR_METADATA)


def reason_and_remedy(problem: OSError | ValueError) -> str:
    """Why a path cannot be used, with the remedy, as the end of a sentence."""
    if isinstance(problem, OSError):
        remedy = f"{one_line(problem)}; check the disk and the path, or copy the file again"
        return _REMEDIES.get(problem.errno or 0, remedy)
    return "its name contains a character that file names cannot have; check the name"


def refuse_unreadable(path: Path) -> None:
    """Raise InputError with the reason unless the path is a file with content or a Zarr folder; opens nothing."""
    try:
        status = os.stat(path)
    except FileNotFoundError as problem:
        if os.path.islink(path):
            raise InputError(
                f"cannot read {path}: it is a symbolic link to something that is not there; remove or repair it."
            ) from problem
        raise InputError(f"cannot read {path}: there is no such file; check its name and folder.") from problem
    except (OSError, ValueError) as problem:
        raise InputError(f"cannot read {one_path(path)}: {reason_and_remedy(problem)}.") from problem
    for is_of_kind, kind in _NOT_FILES:
        if is_of_kind(status.st_mode):
            raise InputError(f"cannot read {path}: it is {kind}, expected an image file; leave it out.")
    if stat.S_ISREG(status.st_mode) and status.st_size == 0:
        raise InputError(f"cannot read {path}: the file is empty (0 bytes); copy or save it again.")
    if stat.S_ISDIR(status.st_mode) and not is_zarr_folder(path):
        raise InputError(f"cannot read {path}: it is a folder, expected an image file; give a file in it.")


def refuse_special(path: Path, most: int | None) -> None:
    """Refuse a pipe or device, which could be read forever, a link that leads nowhere, and a file that is too long."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        if os.path.islink(path):
            refuse_unreadable(path)
        return  # a missing chunk has the fill value
    if stat.S_ISDIR(status.st_mode):
        return
    if not stat.S_ISREG(status.st_mode):
        refuse_unreadable(path)
    if most is not None:
        refuse_longer(str(path), status.st_size, most)


def refuse_longer(name: str, n_bytes: int, most: int) -> None:
    if n_bytes > most:
        raise InputError(
            f"cannot read {name}: it has {megabytes(n_bytes)}, but should have at most {megabytes(most)}, so it is"
            " damaged; copy or save the image again."
        )


@contextmanager
def naming_missing_package(path: PathLike) -> Iterator[None]:
    """Name the package that this kind of file needs, if it is not installed."""
    try:
        yield
    except ModuleNotFoundError as missing:
        raise InputError(
            f"{os.fspath(path)} needs the Python package {missing.name}, which is not installed; run pip install"
            f" {missing.name} or choose another format."
        ) from missing


@contextmanager
def naming_file(path: PathLike, ending: str = "") -> Iterator[None]:
    """Turn any failure to read a file into one sentence that names it."""
    path = os.fspath(path)
    try:
        with naming_missing_package(path):
            yield
    except HedgerowError:
        raise
    except PermissionError as problem:
        raise InputError(f"cannot read {path}: {reason_and_remedy(problem)}.") from problem
    except Exception as problem:
        if ran_out(problem):
            raise too_large(f"cannot read {path}", problem) from problem
        if isinstance(problem, FileNotFoundError) and "://" in path:
            raise InputError(f"cannot read {path}: there is no such file; check its name and address.") from problem
        raise InputError(
            f"cannot read {path}: {one_line(problem)}; expected a complete {ending or 'image'} file, so check"
            " that other programs can open it, and save it again."
        ) from problem


VARIABLE = "HEDGEROW_MAX_MEGAPIXELS"
DEFAULT_MEGAPIXELS = 1000.0
CHUNKS = "HEDGEROW_MAX_CHUNKS"
DEFAULT_CHUNKS = 50_000_000
LARGE_PIXELS = 2**26  # an image with more is read and predicted in parts
METADATA_BYTES = 2**26  # the largest file that describes an image
MOST_BYTES_READ: ContextVar[int] = ContextVar("MOST_BYTES_READ", default=METADATA_BYTES)
"""The most bytes that a server may send in answer to the current request."""
_PLANE_BYTES = 4  # every image becomes float32
_BLOCKS_IN_MEMORY = 3  # one as stored, one decoded, and one copied to its place in the image


def max_megapixels() -> float:
    """The most pixels that an image may have, in millions: HEDGEROW_MAX_MEGAPIXELS, or 1,000."""
    return number_from_environment(VARIABLE, DEFAULT_MEGAPIXELS, "2000 for images of up to two thousand million pixels")


def number_from_environment(variable: str, default: float, example: str) -> float:
    """The positive number in an environment variable, or the default if it is empty. Raises ConfigError."""
    text = os.environ.get(variable, "").strip()
    if not text:
        return default
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:  # also true of NaN
        raise ConfigError(
            f"the environment variable {variable} is {text!r}, expected a number above 0, e.g. {example}."
        )
    return number


def refuse_oversized(path: str, stored: Stored, chosen: Sequence[int]) -> None:
    """Raise InputError if the chosen pages exceed the limit on pixels or the available memory."""
    limit = max_megapixels()
    alike = len(stored.pages) == 1
    pages = [stored.page(i) for i in (chosen[:1] if alike else chosen)]
    for page in pages:
        megapixels = page.height * page.width / 1e6
        if megapixels > limit:
            raise InputError(
                f"cannot read {path}: found {page.height:,} x {page.width:,} pixels, which is"
                f" {megapixels:,.1f} megapixels and more than the limit of {limit:,.10g}; crop or shrink the image, or"
                f" raise the limit by the environment variable {VARIABLE}."
            )
    times = len(chosen) if alike else 1
    decoded = times * sum(page.n_bytes for page in pages)
    planes = times * sum(page.height * page.width * page.n_channels for page in pages) * _PLANE_BYTES
    needed = decoded + max(planes, stored.block)  # the last block is freed before the planes are made
    available = memory.available()
    if available is not None and needed > available:
        raise InputError(
            f"cannot read {path}: it takes {memory.gigabytes(needed)} of memory, but only"
            f" {memory.gigabytes(available)} are available; crop or shrink the image, or use a machine with more"
            " memory."
        )


def refuse_many_chunks(name: str, n_chunks: int, chunk: tuple[int, int]) -> None:
    """Raise InputError if this number of chunks, tiles or strips of this size (h,w) exceeds the limit."""
    limit = number_from_environment(CHUNKS, DEFAULT_CHUNKS, "2e8 for images in two hundred million chunks")
    if n_chunks > limit:
        raise InputError(
            f"cannot read {name}: it is stored in {n_chunks:,} chunks of {chunk[0]:,} x {chunk[1]:,} pixels, more than"
            f" the limit of {limit:,.10g}; save it with larger chunks, or raise the limit by the environment variable"
            f" {CHUNKS}."
        )


def refuse_large_blocks(name: str, n_bytes: int) -> None:
    """Raise InputError if a chunk, tile or strip of this size does not fit in memory."""
    available = memory.available()
    if available is not None and _BLOCKS_IN_MEMORY * n_bytes > available:
        raise InputError(
            f"cannot read {name}: it is stored in chunks of {memory.gigabytes(n_bytes)} each, but only"
            f" {memory.gigabytes(available)} of memory are available; save it with smaller chunks, tiles or strips."
        )
