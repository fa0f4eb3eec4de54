"""The journal of a project: every stroke, undo and redo, one line each, on the disk before anybody is told.

A line is a checksum of 8 digits, a space, and an entry in JSON. A program that is killed may leave half a line at the
end, and a disk may damage what it stores: bytes after the last whole line are set aside in a file of their own before
they are cut off. An entry that lacks only the newline behind it is whole.
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

from hedgerow.errors import InputError
from hedgerow.files import atomic_path, one_line
from hedgerow.paint.messages import Refused
from hedgerow.paint.own_files import first_bytes, foreign

Entry = dict[str, Any]
FIRST: Entry = {"hedgerow": "what was painted", "version": 1}


def check_journal(path: Path) -> None:
    """Raise InputError if there is something of this name that is not a journal of this version; changes nothing."""
    expected = _line(FIRST)
    given = first_bytes(path, len(expected)) or b""
    if given != expected[: len(given)]:  # a journal may have been killed while its first line was written
        raise foreign(path, "its first line is not that of a journal of this version")


class Journal:
    """An open journal. Each entry that is there when it is opened is given to `replay`, which raises Refused if it can
    make nothing of it; then, and in all other cases of InputError, the file is left as it is.

    note: a sentence about what was cut off; empty: nothing
    """

    def __init__(self, path: Path, replay: Callable[[Entry], None]) -> None:
        self.path, self.note = path, ""
        check_journal(path)
        try:
            # Unbuffered: what a full disk refused must not be written later.
            self._file = open(path, "ab+", buffering=0)  # noqa: SIM115 (kept open for as long as the project)
        except OSError as problem:
            raise InputError(f"cannot open {path}: {one_line(problem)}; check its permissions.") from problem
        try:
            self._begin(replay)
        except BaseException:
            self._file.close()
            raise

    def append(self, entry: Entry) -> None:
        """Returns when the entry is on the disk; if that fails, the journal is as before."""
        self._write(_line(entry))

    def close(self) -> None:
        self._file.close()

    def _begin(self, replay: Callable[[Entry], None]) -> None:
        self._file.seek(0)
        content = self._file.read()
        self._end = len(content)  # of what is known to be whole
        first = _line(FIRST)
        if len(content) < len(first):
            self._write(first[len(content) :])
            return
        tail = _replayed(content, self.path, replay)
        self._end -= len(tail)
        whole = next((text for text in (tail, tail[:-1]) if _is_whole(text)), None)
        if whole is not None:  # the newline is lost, or was turned into something else
            _replay_line(whole, content.count(b"\n") + 1, self.path, replay)
            self._end += len(whole)
            self._write(b"\n")
        elif tail:
            self._set_aside(tail)

    def _set_aside(self, tail: bytes) -> None:
        names = (f"{self.path.stem}.damaged-{n}{self.path.suffix}" for n in count(1))
        aside = next(path for path in map(self.path.with_name, names) if not os.path.lexists(path))
        with atomic_path(aside, noted=False) as temporary:
            temporary.write_bytes(tail)
        with self._saving():
            self._file.truncate(self._end)
            os.fsync(self._file.fileno())
        why = (
            "is damaged: its checksum is not right"
            if tail.endswith(b"\n")
            else "was not whole, since the program was ended while it was written"
        )
        self.note = f"the last entry of {self.path} {why}; it is left out, and its {len(tail):,} bytes are in {aside}."

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


def _replayed(content: bytes, path: Path, replay: Callable[[Entry], None]) -> bytes:
    """Replay all whole lines but the first; returns what follows them. A damaged line in the middle is refused."""
    *lines, rest = content.split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not _is_whole(line):
            if number == len(lines) and not rest:
                return line + b"\n"
            raise InputError(
                f"line {number} of {path} is damaged, though it is not the last one; restore the file, or move it away "
                "to begin anew (exported labels stay)."
            )
        if number > 1:
            _replay_line(line, number, path, replay)
    return rest


def _is_whole(line: bytes) -> bool:
    return line[8:9] == b" " and line[:8] == b"%08x" % zlib.crc32(line[9:])


def _replay_line(line: bytes, number: int, path: Path, replay: Callable[[Entry], None]) -> None:
    try:
        try:
            entry = json.loads(line[9:])
        except (ValueError, RecursionError) as problem:
            raise Refused("it is not JSON that Hedgerow writes") from problem
        replay(entry)
    except Refused as problem:
        raise InputError(
            f"line {number} of {path} cannot be replayed: {str(problem).rstrip('.')}; restore the file, or move it "
            "away to begin anew (exported labels stay)."
        ) from problem
