"""What was computed for an object is kept for as long as the object lives."""

import weakref
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

Result = TypeVar("Result")


class WeakCache:
    """Results by object and key; objects are told apart by identity, since those that hold arrays have no hash.

    Several threads may ask at once: what is kept is replaced, never changed, so each sees a whole state. At worst two
    make the same result, or one that was kept a moment ago is made again.
    """

    def __init__(self, most: int = 4) -> None:
        """most: results that are kept for one object; the oldest goes first"""
        self._known: dict[int, tuple[weakref.ref[Any], tuple[tuple[Hashable, Any], ...]]] = {}
        self._most = most

    def get(self, owner: object, key: Hashable, make: Callable[[], Result]) -> Result:
        """What `make` returned for this object and key, now or earlier."""
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
