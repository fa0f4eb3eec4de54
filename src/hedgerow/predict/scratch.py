"""Room for results that may be larger than memory: large arrays lie in a temporary file until they are written."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from hedgerow.errors import InputError
from hedgerow.files import one_line
from hedgerow.temporary import remove, temporary_in

IN_MEMORY = 2**26  # bytes; arrays up to this size are not worth a file


@contextmanager
def scratch(folder: Path, shape: tuple[int, ...], dtype: DTypeLike) -> Iterator[np.ndarray]:
    """An array to fill within the block; if it is large, in a file of the folder that is gone afterwards."""
    n_bytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    if n_bytes <= IN_MEMORY:
        yield np.empty(shape, dtype)
        return
    path = temporary_in(folder)
    try:
        # Taken now: a disk that fills up later would end the process when the array is written to.
        with open(path, "wb") as file:
            _reserve(file.fileno(), n_bytes)
        yield np.memmap(path, dtype, "r+", shape=shape)
    except OSError as problem:
        raise InputError(
            f"cannot write in {folder}: {one_line(problem)}; the result needs {n_bytes / 1e9:.1f} GB there while it is "
            "computed"
        ) from problem
    finally:
        remove(path)


def _reserve(file: int, n_bytes: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, n_bytes)
    else:
        os.truncate(file, n_bytes)
