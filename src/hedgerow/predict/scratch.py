"""Room for results that may be larger than memory: large arrays lie in a temporary file until they are written."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from hedgerow.errors import InputError
from hedgerow.files import one_line
from hedgerow.temporary import temporary_file

IN_MEMORY = 2**26  # bytes; arrays up to this size are not worth a file


@contextmanager
def scratch(folder: Path, shape: tuple[int, ...], dtype: DTypeLike) -> Iterator[np.ndarray]:
    """An array to fill within the block; if it is large, in a file of the folder that is gone afterwards."""
    n_bytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    if n_bytes <= IN_MEMORY:
        yield np.empty(shape, dtype)
        return
    try:
        with temporary_file(folder, n_bytes) as temporary:
            yield np.memmap(temporary, dtype, "r+", shape=shape)
    except OSError as problem:
        raise InputError(
            f"cannot write in {folder}: {one_line(problem)}; the result needs {n_bytes / 1e9:.1f} GB there while it is "
            "computed"
        ) from problem
