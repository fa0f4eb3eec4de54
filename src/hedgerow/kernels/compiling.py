"""One place that compiles: `kernel` marks a function for Numba, caches it on disk, and says when it compiles."""

import functools
import hashlib
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from numba import config as numba_config
from numba import njit
from numba.core import event
from numba.extending import intrinsic as numba_intrinsic

log = logging.getLogger("hedgerow")
config: Any = numba_config  # its attributes are made at run time
intrinsic: Any = numba_intrinsic  # Numba itself gives the first argument, which its types do not say


class _SayOnce(event.Listener):
    """Tells the user, at the first real compilation, what the wait is for (a load from the cache is silent)."""

    def __init__(self) -> None:
        self._said = threading.Event()

    def on_start(self, event: Any) -> None:
        ours = event.data["dispatcher"].py_func.__module__.startswith("hedgerow.")
        if ours and not self._said.is_set():
            self._said.set()
            log.warning("compiling kernels for this step: only once after an install, under half a minute ...")

    def on_end(self, event: Any) -> None:
        pass


event.register("numba:compile", _SayOnce())


def _cache_folder() -> str:
    """Where compiled kernels are kept: a folder for this state of the sources.

    Numba looks only at the file of the function itself, yet a kernel holds the code of every kernel it calls: after an
    upgrade that touched another file it would go on using the old one.
    """
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for source in sorted(here.rglob("*.py")):
        digest.update(source.read_bytes())
    name = f"hedgerow-{digest.hexdigest()[:16]}"
    if config.CACHE_DIR:
        return str(Path(config.CACHE_DIR) / name)
    beside = here / "__pycache__"
    with suppress(OSError):
        beside.mkdir(exist_ok=True)
    if os.access(beside, os.W_OK):
        return str(beside / name)
    return str(Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "hedgerow" / name)


_FOLDER = _cache_folder()


@functools.cache  # said once, not for every kernel
def _say_that_nothing_is_kept() -> None:
    log.warning("no folder can be written to keep compiled kernels; set NUMBA_CACHE_DIR to one that can")


def _compiled(function: Callable[..., Any], **options: Any) -> Any:
    options |= {"nogil": True, "error_model": "numpy"}
    before = config.CACHE_DIR
    config.CACHE_DIR = _FOLDER  # read when the function is made; other packages' kernels go where they went
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # no folder to be found that can be written
        _say_that_nothing_is_kept()
        return njit(**options)(function)
    finally:
        config.CACHE_DIR = before


kernel = functools.partial(_compiled, fastmath=False)  # said outright, or a kernel would take its caller's
"""Compile on first use. No fast-math: a value must not depend on how a row was cut into vectors."""
# The parts of a larger kernel make no arrays, so they need not count who holds one: at every row of an array that is
# handed on, counting took as long as the work on it.
kernel_part = functools.partial(_compiled, fastmath=False, _nrt=False)
"""A part of a kernel, which makes no arrays."""
multiply_add_part = functools.partial(_compiled, fastmath={"contract"}, _nrt=False)
"""A kernel or part in which a product and the sum that takes it may be rounded once, each in its place."""
reducing_kernel = functools.partial(_compiled, fastmath={"contract", "reassoc", "nsz"}, _nrt=False)
"""A kernel whose sums over pixels may be taken in any order, the same at every run; only for gradients."""
reducing_part = njit(inline="always", error_model="numpy")
"""A part of a reducing kernel, written into it. Compiled by itself it could take its sums in another order, and which
of the two is run would depend on whether the kernel came from the cache."""
