"""The journal of a project: one line for every stroke, undo and redo, on the disk before it is confirmed.

A line is a checksum of 8 digits, a space, and an entry in JSON. A killed program may leave half a line at the end, and
a disk may corrupt data: bytes after the last intact line are saved to a separate file before they are cut off. An
entry that lacks only its newline is intact.
"""

from __future__ import annotations

import errno
import json
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from hedgerow.errors import InputError, one_line
from hedgerow.files import atomic_path
from hedgerow.paint.messages import Refused
from hedgerow.paint.project_file import first_bytes, foreign

Entry = dict[str, Any]
MAX_LINE_BYTES = 2**20  # the longest stroke has a fifth of it
FIRST_ENTRY: Entry = {"hedgerow": "what was painted", "version": 1}


def check_journal(path: Path) -> None:
    """Raise InputError if this path exists and is not a journal of this version; changes nothing."""
    expected = _line(FIRST_ENTRY)
    start = first_bytes(path, len(expected)) or b""
    if start != expected[: len(start)]:  # the program may have been killed while it wrote the first line
        raise foreign(path, "its first line is not that of a journal of this version")


class Journal:
    """An open journal. Opening it passes each existing entry to `replay`, which raises Refused for an invalid entry; on
    any InputError, the file is left unchanged.

    note: a sentence about an entry that was cut off; empty: none was
    """

    def __init__(self, path: Path, replay: Callable[[Entry], None]) -> None:
        self.path, self.note = path, ""
        check_journal(path)
        try:
            # Unbuffered: data that a full disk refused must not be written later.
            self._file = open(path, "ab+", buffering=0)  # noqa: SIM115 (stays open as long as the project)
        except OSError as problem:
            raise InputError(f"cannot open {path}: {one_line(problem)}; check its permissions.") from problem
        try:
            self._load(replay)
        except BaseException:
            self._file.close()
            raise

    def append(self, *entries: Entry) -> None:
        """Write entries to the disk; if that fails, the journal is as before."""
        self._write(b"".join(map(_line, entries)))

    def close(self) -> None:
        self._file.close()

    def _load(self, replay: Callable[[Entry], None]) -> None:
        self._file.seek(0)
        content = self._file.read()
        self._end = len(content)  # of the intact entries
        first = _line(FIRST_ENTRY)
        if len(content) < len(first):
            self._write(first[len(content) :])
            return
        *lines, rest = content.split(b"\n")
        tail = rest
        for number, line in enumerate(lines, start=1):
            if not _is_intact(line):
                if number < len(lines) or rest:
                    raise InputError(
                        f"line {number} of {self.path} is damaged, and it is not the last one; restore the file, or "
                        "move it away to start over (exported labels stay)."
                    )
                tail = line + b"\n"
            elif number > 1:
                self._replay_line(line, number, replay)
        self._end -= len(tail)
        intact = next((text for text in (tail, tail[:-1]) if _is_intact(text)), None)
        if intact is not None:  # only the newline is missing or corrupt
            self._replay_line(intact, content.count(b"\n") + 1, replay)
            self._end += len(intact)
            self._write(b"\n")
        elif tail:
            self._cut_off(tail)

    def _replay_line(self, line: bytes, number: int, replay: Callable[[Entry], None]) -> None:
        try:
            if len(line) > MAX_LINE_BYTES:
                raise Refused(f"it has {len(line):,} bytes, expected at most {MAX_LINE_BYTES:,}")
            try:
                entry = json.loads(line[9:])
            except (ValueError, RecursionError) as problem:
                raise Refused("it is not JSON that Hedgerow writes") from problem
            replay(entry)
        except Refused as problem:
            raise InputError(
                f"line {number} of {self.path} cannot be replayed: {str(problem).rstrip('.')}; restore the file, or "
                "move it away to start over (exported labels stay)."
            ) from problem

    def _cut_off(self, tail: bytes) -> None:
        """Save a damaged tail to a separate file, then remove it from the journal."""
        names = (f"{self.path.stem}.damaged-{n}{self.path.suffix}" for n in count(1))
        backup = next(path for path in map(self.path.with_name, names) if not os.path.lexists(path))
        with atomic_path(backup, noted=False) as temporary:
            temporary.write_bytes(tail)
        with self._saving():
            self._file.truncate(self._end)
            os.fsync(self._file.fileno())
        why = (
            "is damaged: its checksum is wrong"
            if tail.endswith(b"\n")
            else "is incomplete: the program was stopped while writing it"
        )
        self.note = f"the last entry of {self.path} {why}; it is skipped, and its {len(tail):,} bytes are in {backup}."

    def _write(self, line: bytes) -> None:
        try:
            with self._saving():
                self._file.truncate(self._end)  # an earlier write may have failed and left something behind
                if self._file.write(line) != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(self._file.fileno())
        except InputError:
            with suppress(OSError):  # the next write tries again
                self._file.truncate(self._end)
            raise
        self._end += len(line)

    @contextmanager
    def _saving(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            raise InputError(f"cannot write {self.path}: {one_line(problem)}; make room on the disk.") from problem


def _line(entry: Entry) -> bytes:
    text = json.dumps(entry, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _is_intact(line: bytes) -> bool:
    return line[8:9] == b" " and line[:8] == b"%08x" % zlib.crc32(line[9:])
