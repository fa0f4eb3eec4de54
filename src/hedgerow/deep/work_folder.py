"""What a long run keeps in a folder, so that it goes on where it was interrupted."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from hedgerow.files import atomic_path, make_folder

FORMAT = "hedgerow-work"


class Work:
    """Files of a run; without a folder nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        if folder is not None:
            make_folder(folder)

    def state(self, name: str) -> Path | None:
        """The file for the state of a network in training."""
        return None if self.folder is None else self.folder / f"{name}.state"

    def kept(self, name: str, mark: str, make: Callable[[], np.ndarray]) -> np.ndarray:
        """The array that was kept under this name with this mark of what decides it; or it is made now, and kept."""
        if self.folder is None:
            return make()
        path = self.folder / f"{name}.array"
        if path.exists():
            try:
                with safe_open(path, framework="np") as file:
                    if json.loads((file.metadata() or {})[FORMAT]) == mark:
                        found: np.ndarray = file.get_tensor("array")
                        return found
            except (SafetensorError, ValueError, KeyError):
                pass  # not a whole one: made again
        made = make()
        with atomic_path(path, noted=False) as temporary:
            temporary.write_bytes(to_bytes({"array": np.ascontiguousarray(made)}, metadata={FORMAT: json.dumps(mark)}))
        return made
