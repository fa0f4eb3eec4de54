"""Features of training images, computed once and kept: in memory or, beyond a limit, in a temporary file."""

import os
import tempfile
from collections.abc import Sequence
from typing import IO

import numpy as np

from hedgerow.errors import InputError
from hedgerow.features.protocol import FeatureSet

MAX_BYTES_IN_MEMORY = (
    2**26
)  # bytes of features that stay in memory: those of a small set; writing and reading the rest is quick


class FeatureStore(Sequence[np.ndarray]):
    """Raw features (F,H,W) float32 of one image after another, returned standardised once `finish` has been called."""

    def __init__(self, memory: int = MAX_BYTES_IN_MEMORY) -> None:
        """memory: bytes that stay in memory; the rest goes to a file that is deleted with this object"""
        self._room = memory
        self._kept: list[np.ndarray | tuple[int, tuple[int, ...]]] = []  # or its position in the file, and its shape
        self._file: IO[bytes] | None = None
        self._features: FeatureSet | None = None

    def append(self, raw: np.ndarray) -> None:
        if raw.nbytes <= self._room:
            self._room -= raw.nbytes
            self._kept.append(raw)
            return
        try:
            self._file = self._file or tempfile.TemporaryFile()  # noqa: SIM115 (closed with this object)
            self._kept.append((self._file.seek(0, os.SEEK_END), raw.shape))
            self._file.write(np.ascontiguousarray(raw).data)
        except OSError as problem:
            raise InputError(
                f"the features of the training images fit neither in memory nor in {tempfile.gettempdir()} "
                f"({problem.strerror}); give fewer or smaller images, or set TMPDIR to a larger disk."
            ) from problem

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()

    def finish(self, features: FeatureSet) -> None:
        """Standardise what has been kept with the statistics of these features."""
        self._features = features
        for stored in self._kept:
            if isinstance(stored, np.ndarray):
                features.standardise(stored)

    def __len__(self) -> int:
        return len(self._kept)

    def __getitem__(self, i: int) -> np.ndarray:  # type: ignore[override]  # one at a time
        stored = self._kept[i]
        if isinstance(stored, np.ndarray):
            return stored
        assert self._file is not None
        assert self._features is not None
        place, shape = stored
        self._file.seek(place)
        raw = np.fromfile(self._file, np.float32, int(np.prod(shape))).reshape(shape)
        return self._features.standardise(raw)
