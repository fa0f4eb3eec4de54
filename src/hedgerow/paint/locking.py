"""One server for a project: a file that is held as long as the server runs, whatever ends it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

from hedgerow.errors import InputError
from hedgerow.files import one_line

try:
    import fcntl
except ImportError:  # not on every system: there, two servers are not told apart
    fcntl = None  # type: ignore[assignment]


class Lock:
    """Held from the beginning until `release`, or the end of the process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file: IO[str] = open(path, "a+", encoding="utf-8")  # noqa: SIM115 (held open)
        except OSError as problem:
            raise InputError(f"cannot open {path}: {one_line(problem)}; check its permissions.") from problem
        if fcntl is not None:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
