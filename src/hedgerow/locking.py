"""One server for a project: a file that is held as long as the server runs, whatever ends it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import IO

from hedgerow.errors import InputError
from hedgerow.files import one_line

BEYOND = 2**30  # Windows lets nobody else read a byte that is held: this one is far behind what the file says

if sys.platform == "win32":
    import msvcrt

    def hold(file: IO[str]) -> None:
        """Hold a file until it is closed or the process ends; OSError: another process holds it."""
        file.seek(BEYOND)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def hold(file: IO[str]) -> None:
        """Hold a file until it is closed or the process ends; OSError: another process holds it."""
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


class Lock:
    """Held from the beginning until `release`, or the end of the process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file: IO[str] = open(path, "a+", encoding="utf-8")  # noqa: SIM115 (held open)
        except OSError as problem:
            raise InputError(f"cannot open {path}: {one_line(problem)}; check its permissions.") from problem
        try:
            hold(self._file)
        except OSError as problem:
            self._file.seek(0)
            told = self._file.read(200).strip() or "another one"
            self._file.close()
            raise InputError(
                f"{path.parent} is being painted already by {told}; use that page, end that program, or give "
                "another folder (--project)."
            ) from problem
        self.note("")

    def note(self, address: str) -> None:
        """Say who holds it, and where its page is."""
        self._file.seek(0)
        self._file.truncate()
        at = f" at {address}" if address else ""
        self._file.write(f"process {os.getpid()}{at}\n")
        self._file.flush()

    def release(self) -> None:
        self._file.close()
