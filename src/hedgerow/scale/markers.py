"""The folder that marks a result as unfinished and records which of its shards are done.

While a result is being computed, it has a folder named UNFINISHED with a record of the run, and an empty file for each
shard that is done, created after the data of the shard. A missing chunk does not mean that a shard is missing, since
chunks of the fill value are not written.
"""

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from hedgerow import __version__
from hedgerow.errors import InputError
from hedgerow.files import atomic_path
from hedgerow.images.file_checks import METADATA_BYTES, refuse_special
from hedgerow.images.remote import file_system, is_remote, is_there, start_of_file, with_retries
from hedgerow.images.zarr_files import RECORD, UNFINISHED
from hedgerow.overwrite_guard import is_state, remove_folder

MARK = f"{UNFINISHED}/{RECORD}"  # in a result: shows that Hedgerow is computing it


class Markers:
    """The record of the run, and the markers of the finished shards of a result, on this machine or another."""

    def __init__(self, result: str) -> None:
        self.result = result
        self.folder = f"{result.rstrip('/')}/{UNFINISHED}"

    def are_there(self) -> bool:
        """Whether there is an unfinished result of a run, even if it only claimed the name."""
        if is_remote(self.result):
            return is_there(f"{self.folder}/{RECORD}")
        return is_state(Path(self.result, MARK))

    def read_record(self) -> dict[str, Any] | None:
        """The record of the unfinished run; None if there is none, or only a claim."""
        try:
            content = self._read(RECORD)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            record: dict[str, Any] = json.loads(content)
            if not isinstance(record, dict):
                raise ValueError("it is not an object")
        except ValueError as problem:
            raise InputError(
                f"{self.folder} is damaged, so the run in {self.result} cannot be resumed; remove {self.result}."
            ) from problem
        return record if len(record) > 1 else None

    def claim(self) -> None:
        """Mark the result as ours before anything is created, so that a killed run can be removed."""
        self._write(RECORD, json.dumps({"hedgerow": __version__}).encode())

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
        """Remove the markers of a complete result, the record last."""
        if not is_remote(self.folder):
            if self.are_there():
                remove_folder(Path(self.folder), RECORD)
            return
        names = self._names()
        self._remove_there(name for name in names if name != RECORD)
        self._remove_there(name for name in names if name == RECORD)

    def _read(self, name: str) -> bytes:
        if not is_remote(self.folder):
            refuse_special(Path(self.folder, name), METADATA_BYTES)
            return Path(self.folder, name).read_bytes()
        return start_of_file(f"{self.folder}/{name}")

    def _write(self, name: str, content: bytes) -> None:
        """Write a file, whole or not at all."""
        if is_remote(self.folder):
            system, inside = file_system(self.folder)
            with_retries(lambda: system.pipe_file(f"{inside}/{name}", content), f"cannot write {self.folder}")
            return
        folder = Path(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_path(folder / name, noted=False) as temporary:
            temporary.write_bytes(content)

    def _names(self) -> list[str]:
        if not is_remote(self.folder):
            with suppress(FileNotFoundError):
                return os.listdir(self.folder)
            return []
        system, inside = file_system(self.folder)
        system.invalidate_cache()
        try:
            paths = with_retries(lambda: system.ls(inside, detail=False), f"cannot read {self.folder}")
        except FileNotFoundError:
            return []
        return [str(name).rstrip("/").rpartition("/")[2] for name in paths]

    def _remove_there(self, names: Iterable[str]) -> None:
        """Remove files of a result on another machine."""
        system, inside = file_system(self.folder)
        paths = [f"{inside}/{name}" for name in names]
        if paths:
            with_retries(lambda: system.rm(paths), f"cannot write {self.folder}")
