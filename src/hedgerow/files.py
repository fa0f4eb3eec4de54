"""Writing files: each is written whole or not at all, in folders that are checked before long work begins."""

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from hedgerow.errors import InputError

PathLike = str | os.PathLike[str]


def one_line(problem: Exception) -> str:
    """The text of an exception as part of one sentence."""
    text = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
    text = " ".join(text.split()).rstrip(".") or type(problem).__name__
    return text if len(text) <= 200 else text[:197] + "..."


def megabytes(n_bytes: int) -> str:
    """A file size for display: "1.47 MB", or "12.3 kB" for a small file."""
    return f"{n_bytes / 1e6:.2f} MB" if n_bytes >= 1e5 else f"{n_bytes / 1e3:.1f} kB"


@contextmanager
def atomic_path(path: PathLike) -> Iterator[Path]:
    """Yield a temporary path beside `path`; the file or folder that the body writes there is moved to `path`.

    If the body fails or is interrupted, the temporary is removed and whatever was at `path` stays. A folder
    replaces an existing folder: the caller decides whether that may happen.
    """
    final = Path(path)
    if not final.parent.is_dir():
        raise InputError(f"cannot write {final}: there is no folder {final.parent}; create it first")
    temporary = final.parent / f".hedgerow-{uuid.uuid4().hex}.tmp"
    try:
        yield temporary
        _move_into_place(temporary, final)
    except OSError as problem:
        raise InputError(
            f"cannot write {final}: {one_line(problem)}; check the folder's permissions and free space, or"
            " choose another place"
        ) from problem
    finally:
        _remove(temporary)


def write_text(path: PathLike, text: str) -> None:
    """Write a text and a final newline, whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def check_folder_writable(folder: Path) -> None:
    """Raise InputError unless files can be created in the folder."""
    probe = folder / f".hedgerow-{uuid.uuid4().hex}.tmp"
    try:
        probe.touch()
    except OSError as problem:
        raise InputError(f"cannot write in {folder}: {one_line(problem)}; choose another place") from problem
    finally:
        _remove(probe)


def make_folder(folder: Path) -> None:
    """Create a folder for results, with its parents, and check that files can be written in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise InputError(f"cannot create the folder {folder}: {one_line(problem)}; choose another place") from problem
    check_folder_writable(folder)


def _move_into_place(temporary: Path, final: Path) -> None:
    if not (temporary.is_dir() and final.exists()):
        os.replace(temporary, final)
        return
    # No system replaces a non-empty folder in one step: move the old one aside, and back if that fails.
    aside = temporary.with_suffix(".old")
    os.replace(final, aside)
    try:
        os.replace(temporary, final)
    except BaseException:
        os.replace(aside, final)
        raise
    _remove(aside)


def _remove(path: Path) -> None:
    with suppress(OSError):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def digest(head: Any, arrays: Mapping[str, np.ndarray]) -> str:
    """A digest of all that a file holds: anything JSON can represent, and arrays by name."""
    found = hashlib.sha256(json.dumps(head).encode())
    for name in sorted(arrays):
        found.update(f"{name} {arrays[name].dtype.str} {arrays[name].shape}".encode())
        found.update(np.ascontiguousarray(arrays[name]).tobytes())
    return found.hexdigest()


def fingerprint(*parts: Any) -> str:
    """A digest of arrays and of anything JSON can represent."""
    found = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            found.update(f"{part.dtype.str} {part.shape}".encode())
            found.update(np.ascontiguousarray(part).tobytes())
        else:
            found.update(json.dumps(part).encode())
    return found.hexdigest()
