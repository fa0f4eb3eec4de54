"""Large arrays whose memory is reused.

Each step of training needs the same few hundred megabytes as the step before. If they were returned to the system, it
would clear every page before giving it out again, which took a quarter of a step.
"""

import os
import threading
import weakref
from typing import Any

import numpy as np

MIN_BYTES = 2**20  # smaller arrays are allocated quickly anyway
MAX_IDLE_BYTES = 2**29  # unused memory that is kept
MAX_OVERSIZE = 1.25  # an array may take memory up to this factor larger than itself
# Part added to new memory in case the next array is a little larger; as long as it is not written, it costs nothing.
SPARE_FRACTION = 1 / 8

_lock = threading.RLock()  # reentrant: a holder may be garbage-collected while its thread has the lock
_idle: list[np.ndarray] = []  # the most recently used memory comes last


class _Holder:
    """The owner of an array's memory: it lives as long as the array or any view of it."""

    def __init__(self, memory: np.ndarray, shape: tuple[int, ...]) -> None:
        self.__array_interface__: dict[str, Any] = {
            "version": 3, "shape": shape, "typestr": np.dtype(np.float32).str, "data": (memory.ctypes.data, False),
        }  # fmt: skip
        weakref.finalize(self, _give_back, memory).atexit = False


def empty(shape: tuple[int, ...]) -> np.ndarray:
    """A float32 array of this shape with arbitrary content; after its last view is gone, its memory is reused."""
    size = int(np.prod(shape, dtype=np.int64))
    if 4 * size < MIN_BYTES:
        return np.empty(shape, np.float32)
    return np.asarray(_Holder(_take(size), shape))


def _take(size: int) -> np.ndarray:
    with _lock:
        fits = [k for k, memory in enumerate(_idle) if size <= memory.size <= MAX_OVERSIZE * size]
        if fits:
            return _idle.pop(min(fits, key=lambda k: _idle[k].size))
        # Memory that is a little too small now would not be used again beside its replacement.
        _idle[:] = [memory for memory in _idle if not size / 2 <= memory.size < size]
    return np.empty(int((1 + SPARE_FRACTION) * size), np.float32)


def _give_back(memory: np.ndarray) -> None:
    with _lock:
        _idle.append(memory)
        while sum(each.nbytes for each in _idle) > MAX_IDLE_BYTES:
            del _idle[0]


def _after_fork() -> None:
    """Replace the lock: a thread that held it does not exist in the child."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def release() -> None:
    """Return unused memory to the system."""
    with _lock:
        _idle.clear()
