"""Threads for kernels that release the interpreter lock.

A kernel is a plain function of one block of work, and Python distributes the blocks. So results do not depend on the
number of threads, two callers can run at once, and forks break nothing. PyTorch's own threads do not survive a fork,
and it would wait for them forever, so a forked process uses a single one.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import TypeVar

from hedgerow.errors import ConfigError

Item = TypeVar("Item")
Result = TypeVar("Result")


def _default() -> int:
    text = os.environ.get("HEDGEROW_THREADS", "")
    if text.isdecimal() and int(text) > 0:
        return int(text)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_count = _default()


def _after_fork() -> None:
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def get_threads() -> int:
    return _count


def set_threads(count: int) -> None:
    """Use `count` threads from now on. The default is every core this process may use, or HEDGEROW_THREADS.

    >>> hr.set_threads(2)
    """
    global _count
    if count < 1:
        raise ConfigError(f"the number of threads is {count}; it must be at least 1.")
    _count = count


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Within the block, use `count` threads."""
    before = get_threads()
    set_threads(count)
    try:
        yield
    finally:
        set_threads(before)


def map_threads(
    work: Callable[[Item], Result], items: Iterable[Item], stop: Callable[[], None] | None = None
) -> Iterator[Result]:
    """Run `work` on each item and yield the results in the items' order. After an error, no other item is begun.

    stop: called after an error or interrupt to end the items that are still running, before waiting for them
    """
    items = list(items)
    if get_threads() == 1 or len(items) < 2:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(min(get_threads(), len(items))) as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            for position, future in enumerate(futures):
                yield future.result()
                futures[position] = None  # type: ignore[call-overload]  # free the result once it is used
        finally:
            left = [future for future in futures if future is not None]
            for future in left:
                future.cancel()
            if left and stop is not None:
                stop()


def row_blocks(height: int) -> list[tuple[int, int]]:
    """Start and end of the parts into which this number of rows is divided for threads."""
    return [(first, end) for _, first, end in slice_blocks(1, height)]


def slice_blocks(depth: int, height: int, per_thread: int = 4) -> list[tuple[int, int, int]]:
    """Slice, first row and end of the parts into which slices are divided for threads; many small slices stay whole."""
    n_parts = max(min(height, -(-per_thread * get_threads() // depth)), 1)
    edges = [height * part // n_parts for part in range(n_parts + 1)]
    return [(z, first, end) for z in range(depth) for first, end in pairwise(edges)]
