"""Writes files whole or not at all, in folders that are checked before long work begins."""

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from hedgerow.errors import InputError, one_line, one_path
from hedgerow.overwrite_guard import note_written
from hedgerow.temporary import exchanged, remove, sweep, temporary_in

PathLike = str | os.PathLike[str]


@contextmanager
def atomic_path(path: PathLike, *, noted: bool = True) -> Iterator[Path]:
    """Yield a temporary path beside `path`. The file or folder that the block writes there is then moved to `path`.

    If the block fails or is interrupted, the temporary file is removed, and anything at `path` stays. A folder replaces
    an existing folder: the caller decides whether it may. Links are followed: their target is replaced.

    noted: whether to record the file as ours, see `overwrite_guard`; files that show it by themselves need no record
    """
    final = destination(path)
    if not final.parent.is_dir():
        raise InputError(f"cannot write {final}: there is no folder {final.parent}; create it first.")
    sweep(final.parent)
    temporary = temporary_in(final.parent)
    try:
        _restore(final)
        yield temporary
        flush(temporary)
        if noted:  # before the file has its name: even if this run is killed now, the file must count as ours
            note_written(temporary, final)
        _move_into_place(temporary, final)
        _flush_folder(final.parent)
    except OSError as problem:
        raise InputError(
            f"cannot write {final}: {one_line(problem)}; check the folder's permissions and free space, or"
            " choose another place."
        ) from problem
    finally:
        remove(temporary)


def destination(path: PathLike) -> Path:
    """The path at which a file of this name is written: follows links; refuses devices and pipes."""
    if not os.fspath(path):
        raise InputError("the name of the file to write is empty; give a name.")
    try:
        final = Path(os.path.realpath(path)) if os.path.islink(path) else Path(path)
        kind = os.stat(final).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return final
    except (OSError, ValueError) as problem:  # a name too long, links in a circle, a NUL character
        raise InputError(f"cannot write {one_path(path)}: {one_line(problem)}; choose another name.") from problem
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        raise InputError(f"cannot write {final}: it is a device or a pipe; give the name of a file.")
    return final


def write_text(path: PathLike, text: str) -> None:
    """Write a text and a final newline, whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def check_folder_writable(folder: Path) -> None:
    """Raise InputError unless files can be created in the folder."""
    probe = temporary_in(folder)
    try:
        probe.touch()
    except OSError as problem:
        raise InputError(f"cannot write in {folder}: {one_line(problem)}; choose another place.") from problem
    finally:
        remove(probe)


def make_folder(folder: Path) -> None:
    """Create a folder for results, with its parents, and check that files can be written in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as problem:
        raise InputError(
            f"cannot create the folder {one_path(folder)}: {one_line(problem)}; choose another place."
        ) from problem
    check_folder_writable(folder)


def flush(path: Path) -> None:
    """Flush the file, or all files in the folder, to the disk; otherwise a rename may get there first."""
    files = [Path(folder) / name for folder, _, names in os.walk(path) for name in names] if path.is_dir() else [path]
    for file in files:
        with open(file, "rb+") as opened:
            os.fsync(opened.fileno())


def _flush_folder(folder: Path) -> None:
    with suppress(OSError, AttributeError):  # not every system can open folders, and the rename is already done
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def _move_into_place(temporary: Path, final: Path) -> None:
    if not (temporary.is_dir() and final.exists()):
        os.replace(temporary, final)
    elif not exchanged(temporary, final):  # otherwise the old folder has the temporary name now, and is removed
        # This system cannot exchange folders, so the old one is moved aside; `_restore` can bring it back.
        os.replace(final, _aside(final))
        try:
            os.replace(temporary, final)
        finally:
            _restore(final)


def _aside(final: Path) -> Path:
    return final.with_name(f".hedgerow-{hashlib.sha256(os.fsencode(final.name)).hexdigest()[:16]}.old")


def _restore(final: Path) -> None:
    """Bring back a folder that was moved aside, even by a run that was killed; remove it if there is a new one."""
    aside = _aside(final)
    if aside.exists():
        if final.exists():
            remove(aside)
        else:
            os.replace(aside, final)


def digest(head: Any, arrays: Mapping[str, np.ndarray]) -> str:
    """A digest of the content of a file: a head that JSON can represent, and arrays by name."""
    content = hashlib.sha256(json.dumps(head).encode())
    for name in sorted(arrays):
        content.update(f"{name} {arrays[name].dtype.str} {arrays[name].shape}".encode())
        content.update(np.ascontiguousarray(arrays[name]).tobytes())
    return content.hexdigest()


def fingerprint(*parts: Any) -> str:
    """A digest of arrays and of values that JSON can represent."""
    content = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            content.update(f"{part.dtype.str} {part.shape}".encode())
            content.update(np.ascontiguousarray(part).tobytes())
        else:
            content.update(json.dumps(part).encode())
    return content.hexdigest()
