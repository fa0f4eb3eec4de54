"""Temporary files, whose names show which process created them, so that those of killed runs can be removed."""

import ctypes
import hashlib
import os
import platform
import re
import shutil
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

_NAME = re.compile(r"\.hedgerow-(?:([0-9a-f]{8})-(\d+)-)?[0-9a-f]{32}\.tmp")
_ABANDONED_SECONDS = 24 * 3600  # the age at which a file counts as left behind if its process cannot be checked
_swept: set[str] = set()


def temporary_in(folder: Path) -> Path:
    """A new path in the folder; creates nothing."""
    return folder / f".hedgerow-{_machine()}-{os.getpid()}-{uuid.uuid4().hex}.tmp"


@contextmanager
def temporary_file(folder: Path, n_bytes: int) -> Iterator[Path]:
    """A file of this size, which is removed after the block. Its space is reserved now: if the disk filled up later,
    writing to the file through a memory map would end the process."""
    path = temporary_in(folder)
    try:
        with open(path, "wb") as file:
            reserve(file.fileno(), n_bytes)
        yield path
    finally:
        remove(path)


def reserve(file: int, n_bytes: int) -> None:
    """Give an open file this size, and reserve its space on the disk; raises OSError if there is not enough."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, n_bytes)
    else:
        os.truncate(file, n_bytes)


@contextmanager
def temporary_folder(parent: Path) -> Iterator[Path]:
    """An empty folder, which is removed after the block."""
    path = temporary_in(parent)
    path.mkdir()
    try:
        yield path
    finally:
        remove(path)


def is_temporary(path: Path) -> bool:
    """Whether `temporary_in` made the name of a path, in this process or another."""
    return _NAME.fullmatch(path.name) is not None


def remove_temporaries(folder: Path) -> None:
    """Remove all temporary files in a folder that no other process uses."""
    for path in folder.glob("*"):
        if is_temporary(path):
            remove(path)


def sweep(folder: Path) -> None:
    """Remove the temporary files that killed runs left in a folder, once per folder and process."""
    where = os.path.realpath(folder)
    if where in _swept:
        return
    _swept.add(where)
    with suppress(OSError):
        for entry in os.scandir(folder):
            named = _NAME.fullmatch(entry.name)
            if named and _is_left_behind(Path(entry.path), named[1], named[2]):
                remove(Path(entry.path))


def remove(path: Path) -> None:
    """Remove a file or a folder, if that is possible."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _is_left_behind(path: Path, machine: str | None, process: str | None) -> bool:
    if machine == _machine() and process is not None and sys.platform != "win32":  # where `kill` would end it
        return not _is_running(int(process))
    try:
        return time.time() - path.lstat().st_mtime > _ABANDONED_SECONDS
    except OSError:
        return False


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass  # it belongs to another user
    return True


@cache
def _machine() -> str:
    """8 digits for this machine or container, since process numbers are unique only within it."""
    space = ""
    with suppress(OSError):
        space = os.readlink("/proc/self/ns/pid")
    return hashlib.sha256(f"{platform.node()} {space}".encode()).hexdigest()[:8]


def exchanged(first: Path, second: Path) -> bool:
    """Exchange the names of two files or folders in one step; False if the system cannot."""
    names = os.fsencode(first), os.fsencode(second)
    with suppress(OSError, AttributeError):
        system = ctypes.CDLL(None, use_errno=True)
        if sys.platform == "linux":
            here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
            return int(system.renameat2(here, names[0], here, names[1], exchange)) == 0
        if sys.platform == "darwin":
            return int(system.renamex_np(names[0], names[1], 2)) == 0  # RENAME_SWAP
    return False
