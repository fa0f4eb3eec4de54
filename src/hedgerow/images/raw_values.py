"""Numbers that lie one after another in a file, plain or compressed by gzip: the pixels of NIfTI and NRRD files."""

import gzip
import os
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from hedgerow import memory
from hedgerow.errors import InputError

MOST_RATIO = 1032  # gzip cannot compress more than this
_PIECE_BYTES = 2**26


@dataclass(frozen=True)
class RawValues:
    """An array that is mapped, or decompressed as a whole, when it is first indexed.

    path:     the file; start: the byte at which the numbers begin, if they are compressed after decompression
    dtype:    of the numbers in the file
    gzipped:  where a stream of gzip begins; None: the numbers are not compressed
    scale:    factor and summand of the values that the numbers stand for; None: themselves
    """

    path: str
    start: int
    shape: tuple[int, ...]
    stored: np.dtype
    gzipped: int | None = None
    scale: tuple[float, float] | None = None

    @property
    def dtype(self) -> np.dtype:
        return self.stored.newbyteorder("=") if self.scale is None else np.dtype(np.float32)

    @property
    def n_bytes(self) -> int:
        return prod(self.shape) * self.stored.itemsize

    @property
    def chunks(self) -> tuple[int, ...]:
        """Shape of the part that is decoded at once; () if nothing is compressed."""
        return () if self.gzipped is None else self.shape

    def check(self) -> None:
        """Raise InputError if the file is too short for all numbers; before memory is taken for them."""
        size = os.path.getsize(self.path)
        most = size if self.gzipped is None else (size - self.gzipped) * MOST_RATIO
        if self.start < 0 or self.start + self.n_bytes > most:
            raise InputError(
                f"cannot read {self.path}: its header declares {self.n_bytes:,} bytes of pixels, but the file ends "
                "before; copy or save it again."
            )

    def __getitem__(self, place: tuple[int | slice, ...]) -> np.ndarray:
        part: np.ndarray = self._values[place]
        if self.scale is None:
            return part
        factor, summand = self.scale
        return (part * np.float64(factor) + summand).astype(np.float32)

    @cached_property
    def _values(self) -> np.ndarray:
        self.check()
        if self.gzipped is None:
            return np.asarray(np.memmap(self.path, self.stored, "r", self.start, self.shape))
        available = memory.available()
        if available is not None and self.n_bytes > available:
            raise InputError(
                f"cannot read {self.path}: it takes {memory.gigabytes(self.n_bytes)} of memory, but only"
                f" {memory.gigabytes(available)} are available; crop the image, or use a machine with more memory."
            )
        values = np.empty(self.shape, self.stored)
        into: Any = values.reshape(-1).view(np.uint8)
        with open(self.path, "rb") as file:
            file.seek(self.gzipped)
            with gzip.GzipFile(fileobj=file) as unzipped:
                unzipped.seek(self.start)
                _fill(into, unzipped, self.path)
        return values


def _fill(into: Any, file: Any, path: str) -> None:
    done = 0
    while done < len(into):
        n_read = file.readinto(memoryview(into[done : done + _PIECE_BYTES]))
        if not n_read:
            raise InputError(f"cannot read {path}: it ends after {done:,} of {len(into):,} bytes; copy it again.")
        done += n_read
