"""Lock files, which allow only one run or server at a time to write an output.

The system frees a lock when the process ends, even if it is killed, so a lock file that was left behind blocks nobody.
Some network drives have no locks: on them, a run prints a warning and continues, so that they can be used.
"""

from __future__ import annotations

import errno
import logging
import os
import platform
import re
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from hedgerow.errors import InputError, one_line
from hedgerow.temporary import remove

HELD_BYTE = 2**30  # on Windows no one else can read a locked byte, so it must be far behind the note
HELD_BY_ANOTHER = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK)
MAX_NOTE_BYTES = 1000
NOTE = re.compile(rb"process \d{1,20}( on .* since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d)?( at http://\S+)?\r?\n")
WRITTEN = "is already being written by {holder}; wait for that run, stop it, or choose another output."
log = logging.getLogger("hedgerow")

if sys.platform == "win32":
    import msvcrt

    def hold(file: BinaryIO) -> None:
        """Hold a file until it is closed or the process ends; OSError: another process holds it."""
        file.seek(HELD_BYTE)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def hold(file: BinaryIO) -> None:
        """Hold a file until it is closed or the process ends; OSError: another process holds it."""
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def check_lock(path: Path) -> None:
    """Raise InputError if this path exists and is not a lock file of ours; changes nothing."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe may never end
            raise _foreign(path, "it is not a file")
        with open(path, "rb") as file:
            content = file.read(MAX_NOTE_BYTES + 1)
    except FileNotFoundError:
        return
    except OSError as problem:
        raise InputError(f"cannot open {path}: {one_line(problem)}; check its permissions.") from problem
    if content and not NOTE.fullmatch(content):  # empty if the process was killed before it wrote the note
        raise _foreign(path, "it has other content")


def _foreign(path: Path, why: str) -> InputError:
    return InputError(f"{path} is not a Hedgerow lock file ({why}); move it away, or give another folder or output.")


class Lock:
    """A lock that is held until `release` or the end of the process."""

    def __init__(self, path: Path, subject: str, refusal: str) -> None:
        """subject: the file or folder that is locked; refusal: the rest of the error message about it"""
        self.path, self._since = path, time.strftime("%Y-%m-%d %H:%M:%S")
        self._file = _opened(path)
        try:
            while not self._is_held(subject, refusal):  # its previous holder has just removed it
                self._file.close()
                self._file = _opened(path)
        except BaseException:
            self._file.close()
            raise
        try:
            self.note("")
        except BaseException:  # for instance on a full disk: do not leave an empty lock file behind
            self.release(removing=True)
            raise

    def note(self, address: str) -> None:
        """Write into the file who holds the lock, and the address of its page."""
        at = f" at {address}" if address else ""
        try:
            self._file.seek(0)
            self._file.truncate()
            self._file.write(f"process {os.getpid()} on {platform.node()} since {self._since}{at}\n".encode())
        except OSError as problem:
            raise InputError(f"cannot write {self.path}: {one_line(problem)}; check the free space.") from problem

    def release(self, *, removing: bool = False) -> None:
        """removing: whether to remove the lock file, too"""
        if removing and sys.platform != "win32":  # while it is locked: afterwards it may belong to another run
            remove(self.path)
        self._file.close()
        if removing and sys.platform == "win32":  # which refuses to remove a file that another run has open
            remove(self.path)

    def _is_held(self, subject: str, refusal: str) -> bool:
        """Lock the file; False if another file, or none, is at its path by now."""
        try:
            hold(self._file)
        except OSError as problem:
            if problem.errno in HELD_BY_ANOTHER:
                self._file.seek(0)
                holder = self._file.read(MAX_NOTE_BYTES).decode(errors="replace").strip() or "another process"
                raise InputError(f"{subject} {refusal.format(holder=holder)}") from problem
            why = one_line(problem)
            log.warning("%s cannot be locked (%s): make sure that no other run writes there", self.path.parent, why)
            return True
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), os.stat(self.path))
        except FileNotFoundError:
            return False


def _opened(path: Path) -> BinaryIO:
    check_lock(path)
    try:
        return cast(BinaryIO, open(path, "ab+", buffering=0))  # unbuffered, so that closing it writes nothing
    except OSError as problem:
        raise InputError(f"cannot open {path}: {one_line(problem)}; check its permissions.") from problem


@contextmanager
def locked(output: Path) -> Iterator[None]:
    """Allow no other run to write `output` during the block; raises InputError, with its name, if another run does.

    The lock also covers the work folder or checkpoint beside the output.
    """
    place = Path(os.path.realpath(output))  # two links may have the same target
    lock = Lock(place.with_name(f".hedgerow-{place.name}.lock"), os.fspath(output), WRITTEN)
    try:
        yield
    finally:
        lock.release(removing=True)
