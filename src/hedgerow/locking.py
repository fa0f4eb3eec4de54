"""One writer at a time: a lock file that is held as long as a run or a server lasts, whatever ends it.

The system frees the lock when the process ends, killed or not, so a lock file that was left behind blocks nobody. Some
network drives have no locks: there a warning is printed and the run goes on, since refusing would forbid such drives.
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

HELD_BYTE = 2**30  # Windows lets nobody else read a byte that is held: this one is far behind the note
HELD_BY_ANOTHER = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK)
MAX_NOTE_BYTES = 1000
NOTE = re.compile(rb"process \d{1,20}( on .* since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d)?( at http://\S+)?\r?\n")
WRITTEN = "is already being written by {holder}; wait until that run ends, end it, or choose another output."
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
    """Raise InputError if there is something of this name that no `Lock` left there; changes nothing."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe may never end
            raise _foreign(path, "it is not a file")
        with open(path, "rb") as file:
            content = file.read(MAX_NOTE_BYTES + 1)
    except FileNotFoundError:
        return
    except OSError as problem:
        raise InputError(f"cannot open {path}: {one_line(problem)}; check its permissions.") from problem
    if content and not NOTE.fullmatch(content):  # it is empty if the process was killed before it wrote the note
        raise _foreign(path, "it holds something else")


def _foreign(path: Path, why: str) -> InputError:
    return InputError(f"{path} is not a Hedgerow lock file ({why}); move it away, or give another folder or output.")


class Lock:
    """Held from the beginning until `release`, or the end of the process."""

    def __init__(self, path: Path, subject: str, refusal: str) -> None:
        """subject: the file or folder that only one may write; refusal: how the sentence about it goes on"""
        self.path, self._since = path, time.strftime("%Y-%m-%d %H:%M:%S")
        self._file = _opened(path)
        try:
            while not self._is_held(subject, refusal):  # its last holder just removed it
                self._file.close()
                self._file = _opened(path)
        except BaseException:
            self._file.close()
            raise
        try:
            self.note("")
        except BaseException:  # the disk is full: an empty lock file would be left behind
            self.release(removing=True)
            raise

    def note(self, address: str) -> None:
        """Write down who holds it, and where its page is."""
        at = f" at {address}" if address else ""
        try:
            self._file.seek(0)
            self._file.truncate()
            self._file.write(f"process {os.getpid()} on {platform.node()} since {self._since}{at}\n".encode())
        except OSError as problem:
            raise InputError(f"cannot write {self.path}: {one_line(problem)}; check the free space.") from problem

    def release(self, *, removing: bool = False) -> None:
        """removing: the lock file too"""
        if removing and sys.platform != "win32":  # while it is held: afterwards it may be another run's
            remove(self.path)
        self._file.close()
        if removing and sys.platform == "win32":  # where an open file cannot be removed, be it another run's
            remove(self.path)

    def _is_held(self, subject: str, refusal: str) -> bool:
        """Whether the file that is at the path is held now; False: another file is there by now, or none."""
        try:
            hold(self._file)
        except OSError as problem:
            if problem.errno in HELD_BY_ANOTHER:
                self._file.seek(0)
                holder = self._file.read(MAX_NOTE_BYTES).decode(errors="replace").strip() or "another process"
                raise InputError(f"{subject} {refusal.format(holder=holder)}") from problem
            log.warning(
                "%s cannot be locked (%s): take care that no other run writes there",
                self.path.parent,
                one_line(problem),
            )
            return True
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), os.stat(self.path))
        except FileNotFoundError:
            return False


def _opened(path: Path) -> BinaryIO:
    check_lock(path)
    try:
        return cast(BinaryIO, open(path, "ab+", buffering=0))  # nothing is left to write when it is closed
    except OSError as problem:
        raise InputError(f"cannot open {path}: {one_line(problem)}; check its permissions.") from problem


@contextmanager
def locked(output: Path) -> Iterator[None]:
    """Let no other run write `output` while the block runs; raises an InputError that names the run that does.

    Whatever a run keeps beside its output, a work folder or a checkpoint, is covered by the lock of the output.
    """
    place = Path(os.path.realpath(output))  # what a link points to is written, under whatever name
    lock = Lock(place.with_name(f".hedgerow-{place.name}.lock"), os.fspath(output), WRITTEN)
    try:
        yield
    finally:
        lock.release(removing=True)
