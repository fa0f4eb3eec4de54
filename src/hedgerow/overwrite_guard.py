"""Guards existing files: decides which of them Hedgerow may overwrite or delete, and refuses all others.

For every folder into which Hedgerow writes, a list in the user's folder for program state has a line per file, with its
size, the time of its last change, and its name. An edited file differs from its line, so a prediction that someone
corrected by hand does not count as ours. The first bytes of models, checkpoints and the state of a run identify them.
"""

import errno
import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from hedgerow.errors import InputError, first_few, one_path
from hedgerow.temporary import temporary_in

_MODEL = re.compile(rb'.{8}\{"__metadata__":\{"hedgerow', re.DOTALL)  # models and checkpoints, after 8 bytes of length
_CHECKPOINT = re.compile(rb'.{8}\{"__metadata__":\{"hedgerow-refinement"', re.DOTALL)
_DOCUMENT = re.compile(rb'\s*\{\s*"hedgerow"\s*:')  # our JSON, such as the record of a run
_DIGEST = re.compile(rb"[0-9a-f]{64}\s*\Z")  # of a run
_LAYERS = re.compile(rb"PK\x03\x04.{26}hedgerow\.npy", re.DOTALL)  # an archive of cached features begins with this file
_FIRST_BYTES = 100  # of a file, enough to recognise it
_SPARE_LINES = 20
_DISK_FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
_OWN = ".hedgerow-"  # the beginning of the names of temporary files and folders
ELSEWHERE = "choose another place, or add --overwrite (in Python overwrite=True)."
_writer: ContextVar[str] = ContextVar("writer", default="")


@contextmanager
def writing_as(writer: str) -> Iterator[None]:
    """Within the block, only files that this writer wrote in such a block count as ours.

    The page uses this: it must not replace label maps that a command wrote into its folder, since people continue to
    work on them.
    """
    before = _writer.set(writer)
    try:
        yield
    finally:
        _writer.reset(before)


def note_written(written: Path, final: Path) -> None:
    """Record a file or folder that is about to be renamed to `final`.

    If this user cannot keep records, the file will not count as ours. A full disk is an error, as for the file itself.
    """
    try:
        listed = _list_of(final.parent)
    except RuntimeError:  # this user has no home folder
        return
    try:
        listed.parent.mkdir(parents=True, exist_ok=True)
        _shorten(listed, final.parent)
        with open(listed, "a", encoding="ascii", newline="") as file:
            file.write(_line(written, final.name))
    except OSError as problem:
        if problem.errno in _DISK_FULL:
            raise InputError(
                f"cannot write {one_path(final)}: the record of written files in {one_path(listed.parent)} "
                f"cannot be updated ({problem.strerror}); free some space, or set XDG_STATE_HOME to another folder."
            ) from problem


def _shorten(listed: Path, folder: Path) -> None:
    """Shorten a long list to the last line of each name, and the line of the existing file of this name, which differs
    if a run was killed after it had recorded a new file."""
    lines = listed.read_text(encoding="ascii", errors="replace").splitlines(True) if listed.exists() else []
    latest = {line.split(" ", 2)[-1]: line for line in lines}
    if len(lines) > 2 * len(latest) + _SPARE_LINES:
        known = set(lines) - set(latest.values())
        there = []
        for path in folder.iterdir():
            with suppress(OSError):  # another program may have removed it
                there.append(_line(path, path.name))
        remaining = "".join([*sorted(known.intersection(there)), *latest.values()])
        shorter = listed.with_name(f"{listed.name}-{os.getpid()}")
        shorter.write_text(remaining, encoding="ascii", errors="replace", newline="")
        os.replace(shorter, listed)


def is_recorded(path: Path) -> bool:
    """Whether Hedgerow wrote this file or folder, and it has not been changed since."""
    with suppress(OSError):
        path = Path(os.path.realpath(path)) if path.is_symlink() else path
        return _line(path, path.name) in _lines(path.parent)
    return False


def is_ours(path: Path) -> bool:
    """Whether a file or folder may be overwritten, because it is recorded or a model."""
    return is_recorded(path) or (not _writer.get() and is_model(path))


def is_model(path: Path) -> bool:
    """Whether a file begins as a model or a checkpoint does."""
    return bool(_MODEL.match(_first_bytes(path)))


def is_state(path: Path) -> bool:
    """Whether this is a file, not a link, whose first bytes show that Hedgerow wrote it: a model, a checkpoint, the
    record of a run, or cached features."""
    head = b"" if path.is_symlink() else _first_bytes(path)
    return any(kind.match(head) for kind in (_MODEL, _DOCUMENT, _DIGEST, _LAYERS))


def is_checkpoint(path: Path) -> bool:
    """Whether this is a file, not a link, that begins like a checkpoint of a refinement."""
    return not path.is_symlink() and bool(_CHECKPOINT.match(_first_bytes(path)))


def check_overwriting(
    outputs: Iterable[Path],
    inputs: Iterable[str | os.PathLike[str]],
    overwrite: bool,
    *,
    done: str = "overwritten",
    remedy: str = "",
) -> None:
    """Refuse to overwrite files that are read and, unless `overwrite`, any existing file that is not ours.

    done, remedy: for the message: what would happen to the files, and what to do instead
    """
    outputs, paths = list(outputs), [Path(path) for path in inputs]
    read, instead = {_identity(path) for path in paths}, remedy or "choose another name."
    taken = [path for path in outputs if _identity(path) in read]
    if taken:
        which = "is one" if len(taken) == 1 else "are some"
        raise InputError(f"{_first(taken)} would be {done}, but {which} of the files to read; {instead}")
    folders = [path for path in paths if path.is_dir()]  # Zarr images
    changed = [path for path in outputs if any(lies_in(path, folder) for folder in folders)]
    replaced = [path for path in outputs if path.is_dir() and any(lies_in(read_path, path) for read_path in paths)]
    if changed or replaced:
        raise InputError(f"{_first(changed or replaced)} contains a file to read, or is inside one; {instead}")
    if overwrite:
        return
    listed = {folder: _lines(folder) for folder in {path.parent for path in outputs}}
    foreign = [
        path
        for path in outputs
        if path.exists() and _line(path, path.name) not in listed[path.parent] and not is_ours(path)
    ]
    if foreign:
        who = "this page" if _writer.get() else "Hedgerow"
        it, subject = ("it", "it was") if len(foreign) == 1 else ("them", "they were")
        raise InputError(
            f"{_first(foreign)} would be {done}, but {who} did not write {it}, or {subject} changed since; "
            f"{remedy or ELSEWHERE}"
        )


def remove_recorded(path: Path) -> None:
    """Delete a file, if it exists, that is recorded and unchanged; refuse to delete any other file."""
    _remove_if(is_recorded(path) and not path.is_symlink(), path, ", or it was changed since")


def remove_state(path: Path) -> None:
    """Delete a checkpoint, or another file of a run, if it exists; refuse to delete any other file."""
    _remove_if(is_state(path), path, "")


def _remove_if(is_ours: bool, path: Path, why: str) -> None:
    if is_ours:
        path.unlink(missing_ok=True)
    elif os.path.lexists(path):
        raise InputError(f"{path} would be deleted, but Hedgerow did not write it{why}; move it away first.")


def remove_empty(folder: Path) -> None:
    """Remove a folder if it is empty."""
    if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
        folder.rmdir()


def check_removable(folder: Path, marker: str, overwrite: bool = False) -> None:
    """Refuse to remove a folder unless it is recorded, or the file `marker` in it shows that Hedgerow made it.

    overwrite: whether the user allowed it (--overwrite)
    """
    is_made = overwrite or is_recorded(folder) or is_state(folder / marker)
    if os.path.lexists(folder) and (folder.is_symlink() or not folder.is_dir() or not is_made):
        raise InputError(
            f"{folder} would be removed, but Hedgerow did not make it, or it was changed since; move it away first."
        )


def remove_folder(folder: Path, marker: str, overwrite: bool = False) -> None:
    """Remove a folder and its content, see `check_removable`. The targets of links in it stay.

    It is renamed first, so that its name never stands for half a folder.
    """
    check_removable(folder, marker, overwrite)
    if folder.exists():
        temporary = temporary_in(folder.parent)
        os.replace(folder, temporary)
        shutil.rmtree(temporary, ignore_errors=True)


def lies_in(path: Path, folder: Path) -> bool:
    """Whether a path is a folder or inside it, through any links."""
    places = Path(os.path.realpath(path)), Path(os.path.realpath(path.parent), path.name)
    return _identity(folder) in {_identity(above) for place in places for above in (place, *place.parents)}


def _first_bytes(path: Path) -> bytes:
    with suppress(OSError):
        if path.is_file():
            with open(path, "rb") as file:
                return file.read(_FIRST_BYTES)
    return b""


def _identity(path: Path) -> tuple[int, int] | str:
    """A value that is the same for all names of a file, also through hard and symbolic links."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return os.path.realpath(path)
    return (status.st_dev, status.st_ino) if status.st_ino else os.path.realpath(path)


def _list_of(folder: Path) -> Path:
    """The path of a folder's list; each writer has its own."""
    home = os.environ.get("XDG_STATE_HOME") or os.environ.get("LOCALAPPDATA") or Path.home() / ".local" / "state"
    name = hashlib.sha256(os.fsencode(os.path.realpath(folder))).hexdigest()[:32]
    return Path(home) / "hedgerow" / "written" / "-".join(filter(None, (name, _writer.get())))


def _lines(folder: Path) -> set[str]:
    with (
        suppress(OSError, RuntimeError),
        open(_list_of(folder), encoding="ascii", errors="replace", newline="") as file,
    ):
        return set(file)
    return set()


def _line(path: Path, name: str) -> str:
    """The line of a file, or of a folder with all its files except our temporary ones."""
    stats = [path.stat()]
    if path.is_dir():
        stats = [os.lstat(file) for file in _files_in(path)] or stats
    size, changed = sum(stat.st_size for stat in stats), max(stat.st_mtime_ns for stat in stats)
    name = name.encode("unicode_escape", "surrogatepass").decode()
    return f"{size} {changed} {name}\n"


def _files_in(folder: Path) -> Iterator[Path]:
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(_OWN)]
        yield from (Path(where) / name for name in names if not name.startswith(_OWN))


def _first(paths: Sequence[Path]) -> str:
    return first_few(list(map(one_path, paths)))
