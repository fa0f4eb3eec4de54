"""A cache of what is computed once per image; the least recently used items are evicted first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Protocol, TypeVar

DEFAULT_BYTES = 320 * 2**20  # with libraries and one image at work, the process stays below 1 GB


class Sized(Protocol):
    """Something that knows its memory use."""

    @property
    def nbytes(self) -> int: ...


Item = TypeVar("Item", bound=Sized)


class MemoryCache:
    """Items by key, together at most `max_bytes`. Evicted items live on where they are in use."""

    def __init__(self, max_bytes: int = DEFAULT_BYTES) -> None:
        self.max_bytes = max_bytes
        self._items: OrderedDict[Hashable, Any] = OrderedDict()
        self._key_locks: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        with self._lock:
            return sum(item.nbytes for item in self._items.values())

    def __contains__(self, key: Hashable) -> bool:
        with self._lock:
            return key in self._items

    def get(self, key: Hashable, make: Callable[[], Item]) -> Item:
        """The item of this key. The first caller makes it; other callers wait for it meanwhile."""
        with self._lock:
            key_lock = self._key_locks.setdefault(key, threading.Lock())
        with key_lock:
            with self._lock:
                if key in self._items:
                    self._items.move_to_end(key)
                    return self._items[key]
            item = make()
            with self._lock:
                self._items[key] = item
                self._key_locks.pop(key, None)
                self._evict(key)
            return item

    def _evict(self, newest: Hashable) -> None:
        total = sum(item.nbytes for item in self._items.values())
        while total > self.max_bytes and len(self._items) > 1:
            oldest = next(iter(self._items))
            if oldest == newest:
                break
            total -= self._items.pop(oldest).nbytes
