"""A cache of the results of encoders, by the content of the part of an image: in memory and, on request, in a folder
that later trainings read.

A file is written whole or not at all and is checked when it is read, so several processes can share a folder. If there
are too many files, the least recently used are removed.
"""

import hashlib
import os
import threading
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from hedgerow.files import PathLike, atomic_path, make_folder
from hedgerow.overwrite_guard import is_state, remove_state

MAX_BYTES_IN_MEMORY = 2**28  # bytes kept in memory
MAX_BYTES_ON_DISK = 2**34  # bytes kept in a folder

Layers = list[np.ndarray]


class RecentLayers:
    """The most recently used results, up to `memory` bytes. Threads can share it."""

    def __init__(self, memory: int = MAX_BYTES_IN_MEMORY) -> None:
        self._memory, self._results, self._lock = memory, OrderedDict[str, Layers](), threading.Lock()

    def get(self, key: str, compute: Callable[[], Layers]) -> Layers:
        with self._lock:
            if key in self._results:
                self._results.move_to_end(key)
                return self._results[key]
        layers = compute()
        with self._lock:
            self._results[key] = layers
            while sum(layer.nbytes for kept in self._results.values() for layer in kept) > self._memory:
                self._results.popitem(last=False)
        return layers

    def forget(self) -> None:
        with self._lock:
            self._results.clear()


class CacheFolder:
    """Results in a folder, one file each."""

    def __init__(self, path: PathLike, most: int = MAX_BYTES_ON_DISK) -> None:
        """most: bytes of all files together"""
        self.path, self._most = Path(path), most
        make_folder(self.path)

    def get(self, key: str, compute: Callable[[], Layers]) -> Layers:
        path = self.path / f"{key}.npz"
        layers = self._read(path)
        if layers is None:
            layers = compute()
            with atomic_path(path, noted=False) as temporary, open(temporary, "wb") as file:
                # The array "hedgerow" comes first in the file, and shows that the file may be removed.
                np.savez(file, *layers, hedgerow=np.int8(1))
            self._make_room()
        return layers

    def _read(self, path: Path) -> Layers | None:
        """The layers of a file; None if there is no file, or if it is damaged and must be computed again."""
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
                layers = [stored[f"arr_{i}"] for i in range(len(stored.files) - ("hedgerow" in stored.files))]
            os.utime(path)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
            return None
        return layers if all(layer.dtype == np.float32 and layer.ndim == 3 for layer in layers) else None

    def _make_room(self) -> None:
        files = []
        for path in filter(is_state, self.path.glob("*.npz")):  # files from elsewhere stay
            with suppress(OSError):  # another process may have removed it
                files.append((path.stat().st_mtime_ns, path.stat().st_size, path))
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files)[:-1]:
            if total <= self._most:
                break
            with suppress(OSError):
                remove_state(path)
            total -= size


_recent_layers = RecentLayers()
_folder: CacheFolder | None = None


def cache_features(folder: PathLike | None) -> None:
    """Keep the results of pretrained networks in this folder, and look there first; None: in no folder.

    >>> hr.cache_features("features")
    >>> hr.cache_features(None)
    """
    global _folder
    _folder = None if folder is None else CacheFolder(folder)


def cached(key: str, compute: Callable[[], Layers], on_disk: bool = False) -> Layers:
    """The result of `compute`, or its earlier result for the same key."""
    folder = _folder
    if on_disk and folder is not None:
        return _recent_layers.get(key, lambda: folder.get(key, compute))
    return _recent_layers.get(key, compute)


def forget() -> None:
    """Free the results that are kept in memory."""
    _recent_layers.forget()


def key_of(planes: np.ndarray, *settings: object) -> str:
    """The name of the result that these settings give for an image (C,H,W)."""
    digest = hashlib.blake2b(repr((planes.shape, *settings)).encode(), digest_size=20)
    digest.update(np.ascontiguousarray(planes).data)
    return digest.hexdigest()
