"""What tells an unfinished result from a finished one, and which of its shards are done.

While a result is being computed it holds a folder of the name UNFINISHED: a record of the run, and an empty file for
each shard that is done, made after the shard's data. A chunk that is not there says nothing, since chunks of the fill
value are not written.
"""

import json
import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from hedgerow.errors import InputError
from hedgerow.images.array_files import UNFINISHED, unfinished
from hedgerow.images.limits import METADATA_BYTES
from hedgerow.images.places import refuse_special
from hedgerow.scale.remote import file_system, is_remote, is_there, patiently, start_of_file
from hedgerow.temporary import temporary_in

RECORD = "run.json"


class Markers:
    """The record and the done-markers of a result, on this machine or another."""

    def __init__(self, result: str) -> None:
        self.result = result
        self.folder = f"{result.rstrip('/')}/{UNFINISHED}"

    def read_record(self) -> dict[str, Any] | None:
        """What the run was asked for; None if there is no unfinished run."""
        try:
            content = self._read(RECORD)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            found: dict[str, Any] = json.loads(content)
        except ValueError as problem:
            raise InputError(
                f"{self.folder} is damaged, so the run in {self.result} cannot go on; remove {self.result}."
            ) from problem
        return found

    def begin(self, record: dict[str, Any]) -> None:
        self._write(RECORD, json.dumps(record, indent=1).encode())

    def set_done(self, shard: str) -> None:
        self._write(f"done-{shard}", b"")

    def is_done(self, shard: str) -> bool:
        """Whether a shard is done."""
        return is_there(f"{self.folder}/done-{shard}")

    def done(self) -> set[str]:
        """The shards that are done."""
        return {name.removeprefix("done-") for name in self._names() if name.startswith("done-")}

    def finish(self) -> None:
        """The result is complete: nothing says any more that it is not. The record goes last."""
        names = self._names()
        self._remove(name for name in names if name != RECORD)
        self._remove(name for name in names if name == RECORD)
        if not is_remote(self.folder):
            shutil.rmtree(self.folder, ignore_errors=True)

    def _read(self, name: str) -> bytes:
        if not is_remote(self.folder):
            refuse_special(Path(self.folder, name), METADATA_BYTES)
            return Path(self.folder, name).read_bytes()
        return start_of_file(f"{self.folder}/{name}")

    def _write(self, name: str, content: bytes) -> None:
        """Whole or not at all."""
        if is_remote(self.folder):
            system, inside = file_system(self.folder)
            patiently(lambda: system.pipe_file(f"{inside}/{name}", content), f"cannot write {self.folder}")
            return
        folder = Path(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        temporary = temporary_in(folder)
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, folder / name)

    def _names(self) -> list[str]:
        if not is_remote(self.folder):
            with suppress(FileNotFoundError):
                return os.listdir(self.folder)
            return []
        system, inside = file_system(self.folder)
        system.invalidate_cache()
        try:
            found = patiently(lambda: system.ls(inside, detail=False), f"cannot read {self.folder}")
        except FileNotFoundError:
            return []
        return [str(name).rstrip("/").rpartition("/")[2] for name in found]

    def _remove(self, names: Iterable[str]) -> None:
        if is_remote(self.folder):
            system, inside = file_system(self.folder)
            paths = [f"{inside}/{name}" for name in names]
            if paths:
                patiently(lambda: system.rm(paths), f"cannot write {self.folder}")
            return
        for name in names:
            Path(self.folder, name).unlink(missing_ok=True)


def refuse_unfinished(path: str) -> None:
    """Raise InputError if a result is not complete. A web page cannot be asked what lies in a folder."""
    if not path.startswith(("http://", "https://")) and Markers(path).read_record() is not None:
        raise InputError(unfinished(path))
