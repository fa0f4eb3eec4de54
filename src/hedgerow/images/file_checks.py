"""Checks paths and files before they are opened: whether they are files, have content, and are not too long."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hedgerow.errors import InputError, one_line, one_path
from hedgerow.files import PathLike, megabytes

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
                f"cannot read {path}: it is a symbolic link to something that is not there; remove or repair it"
            ) from problem
        raise InputError(f"cannot read {path}: there is no such file; check its name and folder") from problem
    except (OSError, ValueError) as problem:
        raise InputError(f"cannot read {one_path(path)}: {reason_and_remedy(problem)}") from problem
    for is_of_kind, kind in _NOT_FILES:
        if is_of_kind(status.st_mode):
            raise InputError(f"cannot read {path}: it is {kind}, expected an image file; leave it out")
    if stat.S_ISREG(status.st_mode) and status.st_size == 0:
        raise InputError(f"cannot read {path}: the file is empty (0 bytes); copy or save it again")
    if stat.S_ISDIR(status.st_mode) and not is_zarr_folder(path):
        raise InputError(f"cannot read {path}: it is a folder, expected an image file; give a file in it")


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
            " damaged; copy or save the image again"
        )


@contextmanager
def naming_missing_package(path: PathLike) -> Iterator[None]:
    """Name the package that this kind of file needs, if it is not installed."""
    try:
        yield
    except ModuleNotFoundError as missing:
        raise InputError(
            f"{os.fspath(path)} needs the Python package {missing.name}, which is not installed; run pip install"
            f" {missing.name} or choose another format"
        ) from missing
