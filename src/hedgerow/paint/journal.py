"""The journal of a project: every stroke, undo and redo, one line each, on the disk before anybody is told.

A line is a checksum of 8 digits, a space, and an entry in JSON. A program that is killed may leave half a line at the
end: it is taken away when the journal is opened again, for nobody was told that it is there.
"""

from __future__ import annotations

import errno
import json
import os
import zlib
from pathlib import Path
from typing import Any

from hedgerow.errors import InputError
from hedgerow.files import one_line

Entry = dict[str, Any]
FIRST: Entry = {"hedgerow": "what was painted", "version": 1}


class Journal:
    """An open journal.

    entries: those that were there when it was opened
    dropped: bytes of a torn last line that were taken away
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            # Unbuffered: what a full disk refused must not be written later.
            self._file = open(path, "ab+", buffering=0)  # noqa: SIM115 (kept open for as long as the project)
        except OSError as problem:
            raise InputError(f"cannot open {path}: {one_line(problem)}; check its permissions.") from problem
        try:
            self.entries, self.dropped = self._opened()
        except BaseException:
            self._file.close()
            raise

    def _opened(self) -> tuple[list[Entry], int]:
        """The entries, and how many bytes of a torn line were taken away."""
        self._file.seek(0)
        content = self._file.read()
        whole, entries = _read(content, self.path)
        if whole < len(content):
            self._file.truncate(whole)
            os.fsync(self._file.fileno())
        if not entries:
            self.append(FIRST)
        return entries[1:], len(content) - whole

    def append(self, entry: Entry) -> None:
        """Returns when the entry is on the disk; if that fails, the journal is as before."""
        end = self._file.seek(0, os.SEEK_END)
        try:
            line = _line(entry)
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file.fileno())
        except OSError as problem:
            try:
                self._file.truncate(end)
            finally:
                raise InputError(
                    f"the stroke cannot be kept in {self.path}: {one_line(problem)}; make room on the disk."
                ) from problem

    def close(self) -> None:
        self._file.close()


def _line(entry: Entry) -> bytes:
    text = json.dumps(entry, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _read(content: bytes, path: Path) -> tuple[int, list[Entry]]:
    """The bytes of whole lines, and their entries; raises InputError if a line in the middle is damaged."""
    entries: list[Entry] = []
    whole = 0
    lines = content.splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        entry = _entry(line)
        if entry is None:
            if number == len(lines):
                break
            raise InputError(
                f"line {number} of {path} is damaged, though it is not the last one; restore the file, or move it away "
                "to begin anew (exported labels stay)."
            )
        entries.append(entry)
        whole += len(line)
    if entries and entries[0] != FIRST:
        raise InputError(f"{path} is not a journal of this version of Hedgerow; give another folder (--project).")
    return whole, entries


def _entry(line: bytes) -> Entry | None:
    """None: the line is not whole."""
    if not line.endswith(b"\n") or len(line) < 11 or line[8:9] != b" ":
        return None
    text = line[9:-1]
    try:
        entry = json.loads(text) if int(line[:8], 16) == zlib.crc32(text) else None
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None
