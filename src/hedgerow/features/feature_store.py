"""Features of training images, computed once and kept in memory or, beyond a limit, in a temporary file."""

import os
import tempfile
from collections.abc import Sequence
from typing import IO, Self

import numpy as np

from hedgerow.errors import InputError
from hedgerow.features.protocol import FeatureSet, Statistics

MAX_BYTES_IN_MEMORY = 2**26  # enough for a small set; the rest is written to a file and read again quickly


class FeatureStore(Sequence[np.ndarray]):
    """The features (F,H,W) float32 of one image after another: appended raw, and returned standardised."""

    def __init__(self, memory: int = MAX_BYTES_IN_MEMORY) -> None:
        """memory: bytes that stay in memory; the rest goes to a file that is deleted with this object"""
        self._room = memory
        self._kept: list[np.ndarray | tuple[int, tuple[int, ...]]] = []  # an array, or its place in the file and shape
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

    def finished(self, features: FeatureSet, statistics: Statistics) -> tuple[FeatureSet, Self]:
        """The features with these statistics, and the store, which from now on standardises with them."""
        self._features = features.with_statistics(*statistics.result())
        for stored in self._kept:
            if isinstance(stored, np.ndarray):
                self._features.standardise(stored)
        return self._features, self

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
