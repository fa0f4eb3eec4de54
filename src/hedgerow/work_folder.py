"""The folder of a long run: checkpoints and finished results, from which an interrupted run resumes."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from hedgerow.errors import HedgerowError, InputError
from hedgerow.files import atomic_path, make_folder, write_text
from hedgerow.overwrite_guard import is_state, remove_empty, remove_state
from hedgerow.temporary import is_temporary, remove_temporaries

Item = TypeVar("Item")
RUN_FILE = "run.txt"  # holds the fingerprint of the run, and shows that the folder is a work folder
SUFFIXES = (".hedge", ".json", ".state", ".array", ".checkpoint")
ARRAY_KEY = "hedgerow-work"  # in the metadata of a cached array


class WorkFolder:
    """Files of a run, which are computed once and read when it resumes. Without a folder, nothing is cached."""

    def __init__(self, folder: Path | None, run: str | None = None) -> None:
        """run: fingerprint of everything that determines the results; the folder of a different run is refused;
        None: the folder belongs to the caller's run"""
        self.folder = folder
        if folder is None:
            return
        if run is not None:
            check_work_folder(folder)
        make_folder(folder)
        if run is None:
            return
        run_file = folder / RUN_FILE
        if run_file.exists() and run_file.read_text(encoding="utf-8").strip() != run:
            raise InputError(
                f"{folder} holds an interrupted run with another effort, time or device, other settings or images; "
                "start over with --restart, or rerun the original command to resume."
            )
        write_text(run_file, run)

    def path(self, name: str) -> Path | None:
        """The path of the file with this name; None without a folder."""
        return None if self.folder is None else self.folder / name

    def state(self, name: str) -> Path | None:
        """The path of the checkpoint of a network in training."""
        return self.path(f"{name}.state")

    def file(
        self, name: str, make: Callable[[], Item], store: Callable[[Item, Path], Any], load: Callable[[Path], Item]
    ) -> Item:
        """The content of the file; if it is missing or damaged, the result of `make`, which is stored in it."""
        path = self.path(name)
        if path is None:
            return make()
        if path.exists():
            try:
                return load(path)
            except (HedgerowError, ValueError, KeyError, TypeError):
                pass
        item = make()
        store(item, path)
        return item

    def record(
        self,
        name: str,
        make: Callable[[], Item],
        to_dict: Callable[[Item], dict[str, Any]],
        from_dict: Callable[[dict[str, Any]], Item],
    ) -> Item:
        """`file`, for an object that is stored as JSON."""

        def store(item: Item, path: Path) -> None:
            write_text(path, json.dumps({"hedgerow": "the state of a run", **to_dict(item)}))

        def load(path: Path) -> Item:
            values = json.loads(path.read_text(encoding="utf-8"))
            del values["hedgerow"]
            return from_dict(values)

        return self.file(f"{name}.json", make, store, load)

    def seconds(self, name: str, measured: float) -> float:
        """The duration recorded by the run that first measured it, so that a resumed run makes the same decisions."""
        return self.record(
            f"{name}-seconds",
            lambda: measured,
            lambda seconds: {"seconds": seconds},
            lambda values: float(values["seconds"]),
        )

    def array(self, name: str, key: str, make: Callable[[], np.ndarray]) -> np.ndarray:
        """`file`, for an array. key: everything that determines it; an array with another key is made again"""

        def store(array: np.ndarray, path: Path) -> None:
            metadata = {ARRAY_KEY: json.dumps(key)}
            with atomic_path(path, noted=False) as temporary:
                temporary.write_bytes(to_bytes({"array": np.ascontiguousarray(array)}, metadata=metadata))

        def load(path: Path) -> np.ndarray:
            try:
                with safe_open(path, framework="np") as file:
                    if json.loads((file.metadata() or {})[ARRAY_KEY]) != key:
                        raise ValueError("another key")
                    return file.get_tensor("array")
            except SafetensorError as problem:
                raise ValueError("damaged") from problem

        return self.file(f"{name}.array", make, store, load)


def remove_work_folder(folder: Path) -> None:
    """Remove the files of a run, and the folder unless it holds other files."""
    check_work_folder(folder)
    for path in _files(folder):
        remove_state(path)
    remove_temporaries(folder)
    remove_state(folder / RUN_FILE)  # last, so that after an interruption the rest is still recognised as ours
    remove_empty(folder)


def check_work_folder(folder: Path) -> None:
    """Raise InputError if the path exists but is not a work folder."""
    if not os.path.lexists(folder):
        return
    if not folder.is_dir() or not (is_state(folder / RUN_FILE) or all(map(is_temporary, folder.iterdir()))):
        raise InputError(f"{folder} is needed for the state of the run, but is not a work folder; move it away first.")
    foreign = next((path for path in _files(folder) if not is_state(path)), None)
    if foreign is not None:
        raise InputError(f"{foreign} is in a work folder, but Hedgerow did not write it; move it away first.")


def _files(folder: Path) -> list[Path]:
    """Files with names like those of a run, except RUN_FILE."""
    return sorted(path for path in folder.glob("*") if path.suffix in SUFFIXES)
