"""Which files are ours: a command overwrites what Hedgerow wrote and nobody changed since, and nothing else.

For every folder into which files are written, a list is kept in the user's own folder for such things: a line per
file, with its size, the time of its last change, and its name. A file that was edited afterwards differs from its
line, so a prediction that someone corrected by hand is not taken for ours. A model file shows by itself that it is one.
"""

import errno
import hashlib
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from hedgerow.errors import InputError, one_path

_MODEL = b'{"__metadata__":{"hedgerow'  # how the text of a model or checkpoint begins, after 8 bytes of its length
_NAMED = 3  # files that a refusal names
_SPARE = 20  # lines
_FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


def remember(written: Path, final: Path) -> None:
    """Note a file or folder that is about to be renamed to `final`.

    Where this user can keep no notes, the file will not be ours. A disk that is full is an error, as for the file.
    """
    try:
        listed = _list_of(final.parent)
    except RuntimeError:  # this user has no home
        return
    try:
        listed.parent.mkdir(parents=True, exist_ok=True)
        _forget_older(listed, final.parent)
        with open(listed, "a", encoding="ascii", newline="") as file:
            file.write(_line(written, final.name))
    except OSError as problem:
        if problem.errno in _FULL:
            raise InputError(
                f"cannot write {one_path(final)}: what Hedgerow wrote is noted in {one_path(listed.parent)}, and there "
                f"is no room for that ({problem.strerror}); free some, or let XDG_STATE_HOME name another folder."
            ) from problem


def _forget_older(listed: Path, folder: Path) -> None:
    """Of a list that has grown long, only the last line of each name is kept, and the one of the file that is there: a
    run that is killed has noted a file that it never put into place."""
    lines = listed.read_text(encoding="ascii", errors="replace").splitlines(True) if listed.exists() else []
    latest = {line.split(" ", 2)[-1]: line for line in lines}
    if len(lines) > 2 * len(latest) + _SPARE:
        known = set(lines) - set(latest.values())
        there = []
        for path in folder.iterdir():
            with suppress(OSError):  # another program may have removed it
                there.append(_line(path, path.name))
        kept = "".join([*sorted(known.intersection(there)), *latest.values()])
        shorter = listed.with_name(f"{listed.name}-{os.getpid()}")
        shorter.write_text(kept, encoding="ascii", errors="replace", newline="")
        os.replace(shorter, listed)


def is_ours(path: Path) -> bool:
    """Whether Hedgerow wrote this file or folder, and nobody changed it since."""
    with suppress(OSError):
        if path.is_file():
            with open(path, "rb") as file:
                if file.read(8 + len(_MODEL))[8:] == _MODEL:
                    return True
        return _line(path, path.name) in _lines(path.parent)
    return False


def check_overwriting(outputs: Iterable[Path], inputs: Iterable[str | os.PathLike[str]], overwrite: bool) -> None:
    """Refuse to overwrite what is read, and, unless `overwrite`, any existing file that is not ours."""
    outputs = list(outputs)
    read = {_identity(Path(path)) for path in inputs}
    taken = [path for path in outputs if _identity(path) in read]
    if taken:
        raise InputError(f"{_first(taken)} would be overwritten, but is one of the files to read; choose another name.")
    if overwrite:
        return
    listed = {folder: _lines(folder) for folder in {path.parent for path in outputs}}
    foreign = [
        path
        for path in outputs
        if path.exists() and _line(path, path.name) not in listed[path.parent] and not is_ours(path)
    ]
    if foreign:
        raise InputError(
            f"{_first(foreign)} would be overwritten, but Hedgerow did not write it, or it was changed since; choose "
            "another place, or add --overwrite (in Python overwrite=True)."
        )


def _identity(path: Path) -> tuple[int, int] | str:
    """The same for two names of one file, be it through links of either kind."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return os.path.realpath(path)
    return (found.st_dev, found.st_ino) if found.st_ino else os.path.realpath(path)


def _list_of(folder: Path) -> Path:
    """Where the list of a folder lies."""
    home = os.environ.get("XDG_STATE_HOME") or os.environ.get("LOCALAPPDATA") or Path.home() / ".local" / "state"
    name = hashlib.sha256(os.fsencode(os.path.realpath(folder))).hexdigest()[:32]
    return Path(home) / "hedgerow" / "written" / name


def _lines(folder: Path) -> set[str]:
    with (
        suppress(OSError, RuntimeError),
        open(_list_of(folder), encoding="ascii", errors="replace", newline="") as file,
    ):
        return set(file)
    return set()


def _line(path: Path, name: str) -> str:
    """Of a folder: the size and last change of all that is in it."""
    stats = [path.stat()]
    if path.is_dir():
        stats = [os.lstat(Path(folder) / name) for folder, _, names in os.walk(path) for name in names] or stats
    size, changed = sum(one.st_size for one in stats), max(one.st_mtime_ns for one in stats)
    name = name.encode("unicode_escape", "surrogatepass").decode()
    return f"{size} {changed} {name}\n"


def _first(paths: Sequence[Path]) -> str:
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return ", ".join(one_path(path) for path in paths[:_NAMED]) + more
