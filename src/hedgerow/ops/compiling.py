"""One place that compiles: `kernel` marks a function for Numba, caches it on disk, and says when it compiles."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core import event

log = logging.getLogger("hedgerow")


class _SayOnce(event.Listener):
    """Tells the user, at the first real compilation, what the wait is for (a load from the cache is silent)."""

    def __init__(self) -> None:
        self._said = threading.Event()

    def on_start(self, event: Any) -> None:
        if not self._said.is_set():
            self._said.set()
            log.warning("compiling kernels: once after an install, under half a minute ...")

    def on_end(self, event: Any) -> None:
        pass


event.register("numba:compile", _SayOnce())


def kernel(function: Callable[..., Any]) -> Any:
    """Compile on first use. No fast-math: a value must not depend on how a row was cut into vectors."""
    return njit(cache=True, nogil=True, error_model="numpy")(function)
