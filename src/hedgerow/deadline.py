"""Ends training in time, although the duration of its steps is not known beforehand."""

from __future__ import annotations

import time
from collections.abc import Callable

RECENT = 0.1  # weight of the last step in the mean duration of a step


class Deadline:
    """Spreads the steps of one training over the time that is left: if it is late, it leaves steps out, evenly, so
    that its schedule still reaches the end. While it is in time, it leaves none out.

    until: the end, by the clock
    """

    def __init__(self, until: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.until, self._clock = until, clock
        self._then: float | None = None
        self._step_seconds: float | None = None
        self._place = 0.0

    def after(self, step: int, n_steps: int) -> int:
        """The number of steps that count as done, now that one more than `step` was done."""
        now, then = self._clock(), self._then
        self._then = now
        if then is None:  # the first step compiles kernels
            self._place = step + 1
            return step + 1
        mean = self._step_seconds
        self._step_seconds = now - then if mean is None else mean + RECENT * (now - then - mean)
        affordable = max((self.until - now) / max(self._step_seconds, 1e-9), 1.0)
        self._place = max(self._place, step) + max((n_steps - step - 1) / affordable, 1.0)
        return min(max(int(self._place), step + 1), n_steps)


def is_passed(step: int, before: int, every: int) -> bool:
    """Whether a multiple of `every` lies after `before` and not after `step`."""
    return step // every > before // every
