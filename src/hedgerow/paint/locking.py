"""One server for a project: a file that is held as long as the server runs, whatever ends it."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import IO

from hedgerow.errors import InputError
from hedgerow.files import one_line
from hedgerow.paint.own_files import first_bytes, foreign

BEYOND = 2**30  # Windows lets nobody else read a byte that is held: this one is far behind what the file says
MAX_BYTES = 400  # of what it says
_CONTENT = re.compile(rb"process [0-9]{1,20}( at http://\S+)?\r?\n")  # older versions wrote \r on Windows

if sys.platform == "win32":
    import msvcrt

    def hold(file: IO[bytes]) -> None:
        """Hold a file until it is closed or the process ends; OSError: another process holds it."""
        file.seek(BEYOND)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def hold(file: IO[bytes]) -> None:
        """Hold a file until it is closed or the process ends; OSError: another process holds it."""
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def check_lock(path: Path) -> None:
    """Raise InputError if there is something of this name that no project left there; changes nothing."""
    content = first_bytes(path, MAX_BYTES)
    if content and not _CONTENT.fullmatch(content):  # it is empty if the program ended when it had just been created
        raise foreign(path, "it is not the lock of a project")


class Lock:
    """Held from the beginning until `release`, or the end of the process."""

    def __init__(self, path: Path) -> None:
        check_lock(path)
        self.path = path
        try:
            # Unbuffered: what a full disk refused must not be written later.
            self._file = open(path, "ab+", buffering=0)  # noqa: SIM115 (held open)
        except OSError as problem:
            raise InputError(f"cannot open {path}: {one_line(problem)}; check its permissions.") from problem
        try:
            self._hold()
        except BaseException:
            self._file.close()
            raise

    def _hold(self) -> None:
        try:
            hold(self._file)
        except OSError as problem:
            self._file.seek(0)
            holder = self._file.read(MAX_BYTES).decode(errors="replace").strip() or "another one"
            raise InputError(
                f"{self.path.parent} is being painted already by {holder}; use that page, end that program, or give "
                "another folder (--project)."
            ) from problem
        self.note("")

    def note(self, address: str) -> None:
        """Write who holds it, and where its page is."""
        at = f" at {address}" if address else ""
        try:
            self._file.truncate(0)
            self._file.write(f"process {os.getpid()}{at}\n".encode())
        except OSError as problem:
            raise InputError(f"cannot write {self.path}: {one_line(problem)}; make room on the disk.") from problem

    def release(self) -> None:
        self._file.close()
