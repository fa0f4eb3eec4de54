"""The folder of a long run: checkpoints and finished results, from which an interrupted run resumes."""

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
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
RUN_FILE = "run.txt"  # holds the fingerprint of the images, and shows that the folder is a work folder
SUFFIXES = (".hedge", ".json", ".state", ".array", ".checkpoint")
KEY_DIGITS = 16
ARRAY_KEY = "hedgerow-work"  # in the metadata of a cached array


class WorkFolder:
    """Files of a run, which are computed once and read when it resumes. Without a folder, nothing is cached.

    The name of a file ends with its key, a fingerprint of everything that determines its content. A run with other
    settings reuses what they do not change, and makes the rest again.

    reused: the names of the files that were read
    """

    def __init__(self, folder: Path | None, run: str | None = None) -> None:
        """run: fingerprint of the images and labels, for the owner of the folder, which removes it; None: the folder
        belongs to the caller's run"""
        self.folder, self.run, self.reused = folder, run, list[str]()
        self.is_of_other_images = False
        if folder is None:
            return
        if run is not None:
            check_work_folder(folder)
        make_folder(folder)
        if run is not None:
            run_file = folder / RUN_FILE
            self.is_of_other_images = run_file.exists() and run_file.read_text(encoding="utf-8").strip() != run
            write_text(run_file, run)

    def path(self, name: str, key: str, suffix: str) -> Path | None:
        """The path of a file; None without a folder."""
        return None if self.folder is None else self.folder / f"{name}-{key[:KEY_DIGITS]}{suffix}"

    def state(self, name: str, key: str) -> Path | None:
        """The path of the checkpoint of a network in training."""
        return self.path(name, key, ".state")

    def holds(self, name: str, key: str, suffix: str) -> bool:
        """Whether an interrupted run stored this file."""
        path = self.path(name, key, suffix)
        return path is not None and path.exists()

    def file(
        self,
        name: str,
        key: str,
        suffix: str,
        make: Callable[[], Item],
        store: Callable[[Item, Path], Any],
        load: Callable[[Path], Item],
    ) -> Item:
        """The content of the file; if it is missing or damaged, the result of `make`, which is stored in it."""
        path = self.path(name, key, suffix)
        if path is None:
            return make()
        if path.exists():
            with suppress(HedgerowError, ValueError, KeyError, TypeError):
                item = load(path)
                self.reused.append(name)
                return item
        item = make()
        store(item, path)
        return item

    def record(
        self,
        name: str,
        key: str,
        make: Callable[[], Item],
        to_dict: Callable[[Item], dict[str, Any]],
        from_dict: Callable[[dict[str, Any]], Item],
    ) -> Item:
        """`file` for an object that is stored as JSON."""

        def store(item: Item, path: Path) -> None:
            write_text(path, json.dumps({"hedgerow": "the state of a run", **to_dict(item)}))

        def load(path: Path) -> Item:
            values = json.loads(path.read_text(encoding="utf-8"))
            del values["hedgerow"]
            return from_dict(values)

        return self.file(name, key, ".json", make, store, load)

    def seconds(self, name: str, key: str, measured: float) -> float:
        """The duration recorded by the run that first measured it, so that a resumed run makes the same decisions."""
        return self.record(
            f"{name}-seconds",
            key,
            lambda: measured,
            lambda seconds: {"seconds": seconds},
            lambda values: float(values["seconds"]),
        )

    def array(self, name: str, key: str, make: Callable[[], np.ndarray]) -> np.ndarray:
        """`file` for an array."""

        def store(array: np.ndarray, path: Path) -> None:
            write_arrays(path, key, {"array": array})

        return self.file(name, key, ".array", make, store, lambda path: read_arrays(path, key)["array"])


def write_arrays(path: Path, key: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays to a file of a work folder."""
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    with atomic_path(path, noted=False) as temporary:
        temporary.write_bytes(to_bytes(contiguous, metadata={ARRAY_KEY: json.dumps(key)}))


def read_arrays(path: Path, key: str) -> dict[str, np.ndarray]:
    """Read arrays that were written with this key; raises ValueError if the file is damaged or has another key."""
    try:
        with safe_open(path, framework="np") as file:
            if json.loads((file.metadata() or {}).get(ARRAY_KEY, "null")) != key:
                raise ValueError("another key")
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # it is no mapping
    except SafetensorError as problem:
        raise ValueError("damaged") from problem


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
