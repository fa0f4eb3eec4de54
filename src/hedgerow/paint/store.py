"""What is computed once per image and kept while there is room: the least recently used goes first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Protocol, TypeVar

MEMORY = 320 * 2**20  # bytes; a process with these, its libraries and one image at work stays below 1 GB


class Sized(Protocol):
    """Something that knows how much memory it takes."""

    @property
    def nbytes(self) -> int: ...


Item = TypeVar("Item", bound=Sized)


class Store:
    """Items by key, together at most `memory` bytes; what is in use elsewhere lives on there."""

    def __init__(self, memory: int = MEMORY) -> None:
        self.memory = memory
        self._items: OrderedDict[Hashable, Any] = OrderedDict()
        self._making: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        with self._lock:
            return sum(item.nbytes for item in self._items.values())

    def __contains__(self, key: Hashable) -> bool:
        with self._lock:
            return key in self._items

    def get(self, key: Hashable, make: Callable[[], Item]) -> Item:
        """The item of this key, made by the first who asks; others who ask meanwhile wait for it."""
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            with self._lock:
                if key in self._items:
                    self._items.move_to_end(key)
                    return self._items[key]
            made = make()
            with self._lock:
                self._items[key] = made
                self._making.pop(key, None)
                self._make_room(key)
            return made

    def forget(self, key: Hashable) -> None:
        with self._lock:
            self._items.pop(key, None)

    def _make_room(self, newest: Hashable) -> None:
        total = sum(item.nbytes for item in self._items.values())
        while total > self.memory and len(self._items) > 1:
            oldest = next(iter(self._items))
            if oldest == newest:
                break
            total -= self._items.pop(oldest).nbytes
