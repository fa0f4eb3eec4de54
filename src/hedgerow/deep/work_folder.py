"""Files of a long run, from which it resumes after an interruption."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from hedgerow.files import atomic_path, make_folder

FORMAT = "hedgerow-work"


class Work:
    """Files of a run; without a folder, nothing is written."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        if folder is not None:
            make_folder(folder)

    def state(self, name: str) -> Path | None:
        """The file for the state of a network in training."""
        return None if self.folder is None else self.folder / f"{name}.state"

    def kept(self, name: str, mark: str, make: Callable[[], np.ndarray]) -> np.ndarray:
        """The array stored under this name with this mark of all that decides it; else it is made now and stored."""
        if self.folder is None:
            return make()
        path = self.folder / f"{name}.array"
        if path.exists():
            try:
                with safe_open(path, framework="np") as file:
                    if json.loads((file.metadata() or {})[FORMAT]) == mark:
                        array: np.ndarray = file.get_tensor("array")
                        return array
            except (SafetensorError, ValueError, KeyError):
                pass  # incomplete: computed again
        made = make()
        with atomic_path(path, noted=False) as temporary:
            temporary.write_bytes(to_bytes({"array": np.ascontiguousarray(made)}, metadata={FORMAT: json.dumps(mark)}))
        return made
