"""Decorators that compile functions with Numba, cache them on the disk, and announce the first compilation."""

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
config: Any = numba_config  # its attributes are created at run time
intrinsic: Any = numba_intrinsic  # Numba passes the first argument itself, which its types do not declare


class _Compilations(event.Listener):
    """Counts compilations, and explains the wait at the first one; loading from the cache is silent."""

    def __init__(self) -> None:
        self._is_announced = threading.Event()
        self.count = 0

    def on_start(self, event: Any) -> None:
        ours = event.data["dispatcher"].py_func.__module__.startswith("hedgerow.")
        self.count += ours
        if ours and not self._is_announced.is_set():
            self._is_announced.set()
            log.warning("compiling kernels (once for each kind of work; half a minute on an idle machine) ...")

    def on_end(self, event: Any) -> None:
        pass


_compilations = _Compilations()
event.register("numba:compile", _compilations)


def n_compiled() -> int:
    """The number of kernels compiled by this process so far."""
    return _compilations.count


def _cache_folder() -> str:
    """The folder for kernels compiled from this state of the sources.

    Numba checks only the file of the function itself, yet a kernel contains the code of all kernels it calls. After an
    upgrade that changed another file, it would still use the old code.
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


@functools.cache  # once, not for every kernel
def _warn_uncached() -> None:
    log.warning("compiled kernels cannot be cached, since no folder is writable; set NUMBA_CACHE_DIR to one that is")


def _compiled(function: Callable[..., Any], **options: Any) -> Any:
    options |= {"nogil": True, "error_model": "numpy"}
    before = config.CACHE_DIR
    config.CACHE_DIR = _FOLDER  # read by njit; kernels of other packages keep their folder
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # no folder is writable
        _warn_uncached()
        return njit(**options)(function)
    finally:
        config.CACHE_DIR = before


kernel = functools.partial(_compiled, fastmath=False)  # explicit, since a kernel would inherit its caller's setting
"""Compile on first use. No fast-math: a value must not depend on how a row was divided into vectors."""
# Parts of a kernel make no arrays, so they need not count references: counting them for each row of an array that is
# passed on took as long as the work on it.
kernel_part = functools.partial(_compiled, fastmath=False, _nrt=False)
"""A part of a kernel, which makes no arrays."""
multiply_add_part = functools.partial(_compiled, fastmath={"contract"}, _nrt=False)
"""A kernel or part whose products and sums may be fused, so that they are rounded once."""
reducing_kernel = functools.partial(_compiled, fastmath={"contract", "reassoc", "nsz"}, _nrt=False)
"""A kernel whose sums over pixels may be taken in any order, the same in every run; only for gradients."""
reducing_part = njit(inline="always", error_model="numpy")
"""A part of a reducing kernel, inlined into it. Compiled by itself it could sum in another order, and which of the two
versions runs would depend on whether the kernel came from the cache."""
