"""Large arrays whose memory is used again.

A step of training needs the same few hundred megabytes as the step before. Memory that goes back to the system comes
from it again page by page, each of them cleared: that took a quarter of a step.
"""

import os
import threading
import weakref
from typing import Any

import numpy as np

MIN_BYTES = 2**20  # bytes; smaller arrays are cheap either way
MAX_IDLE_BYTES = 2**29  # bytes that are kept while nobody uses them
MAX_OVERSIZE = 1.25  # an array may take memory that is larger by so much
# Part that is added to new memory, for the next array may be a little larger; untouched, it costs nothing.
SPARE_FRACTION = 1 / 8

_lock = threading.RLock()  # a holder may be collected while the same thread is in here
_idle: list[np.ndarray] = []  # the one that was used last comes last


class _Holder:
    """What owns an array's memory as far as others can tell: it lives as long as the array or any view of it."""

    def __init__(self, memory: np.ndarray, shape: tuple[int, ...]) -> None:
        self.__array_interface__: dict[str, Any] = {
            "version": 3, "shape": shape, "typestr": np.dtype(np.float32).str, "data": (memory.ctypes.data, False),
        }  # fmt: skip
        weakref.finalize(self, _give_back, memory).atexit = False


def empty(shape: tuple[int, ...]) -> np.ndarray:
    """A float32 array of this shape that holds anything; once the last view of it is gone, its memory is used again."""
    size = int(np.prod(shape, dtype=np.int64))
    if 4 * size < MIN_BYTES:
        return np.empty(shape, np.float32)
    return np.asarray(_Holder(_take(size), shape))


def _take(size: int) -> np.ndarray:
    with _lock:
        fits = [k for k, memory in enumerate(_idle) if size <= memory.size <= MAX_OVERSIZE * size]
        if fits:
            return _idle.pop(min(fits, key=lambda k: _idle[k].size))
        # What has been outgrown would only lie there beside what replaces it.
        _idle[:] = [memory for memory in _idle if not size / 2 <= memory.size < size]
    return np.empty(int((1 + SPARE_FRACTION) * size), np.float32)


def _give_back(memory: np.ndarray) -> None:
    with _lock:
        _idle.append(memory)
        while sum(each.nbytes for each in _idle) > MAX_IDLE_BYTES:
            del _idle[0]


def _after_fork() -> None:
    """Another thread may have held the lock, and does not exist in the child."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def release() -> None:
    """Give the memory that nobody uses back to the system."""
    with _lock:
        _idle.clear()
