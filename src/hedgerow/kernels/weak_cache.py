"""A cache of results computed for objects, each kept as long as its object lives."""

import weakref
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

Result = TypeVar("Result")


class WeakCache:
    """Results by object and key. Objects are distinguished by identity, since those that hold arrays have no hash.

    Several threads may use it: entries are replaced, never changed, so each thread sees a complete state. At worst two
    threads compute the same result, or a result is computed again right after it was stored.
    """

    def __init__(self, most: int = 4) -> None:
        """most: results per object; beyond that, the oldest is dropped"""
        self._known: dict[int, tuple[weakref.ref[Any], tuple[tuple[Hashable, Any], ...]]] = {}
        self._most = most

    def get(self, owner: object, key: Hashable, make: Callable[[], Result]) -> Result:
        """The result of `make` for this object and key, from the cache if it is there."""
        at = id(owner)
        known = self._known.get(at)
        if known is None or known[0]() is not owner:
            known = weakref.ref(owner, lambda _: self._known.pop(at, None)), ()
        for known_key, result in known[1]:
            if known_key == key:
                return result
        created = make()
        self._known[at] = known[0], (*known[1], (key, created))[-self._most :]
        return created
