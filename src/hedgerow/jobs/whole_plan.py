"""Progress over a plan of several stages, whose lengths are only expected."""

import time
from collections.abc import Callable, Sequence

from hedgerow.progress import Report

LATE = 0.95  # part of a stage that its expected time may stand for: it has not ended yet


class WholePlan:
    """Tells, with every report of a stage's work, how far the whole plan is.

    expected: seconds of each stage. A stage that ends early or takes longer moves those after it
    """

    def __init__(self, expected: Sequence[float], report: Report, clock: Callable[[], float] = time.monotonic) -> None:
        self._expected, self._report, self._clock = list(expected), report, clock
        self._stage, self._begun = 0, clock()

    def begin(self, stage: int) -> None:
        """The stage of this number, from 0, begins; those before it have ended."""
        self._stage, self._begun = stage, self._clock()

    def change(self, n_stages: int, seconds: float) -> None:
        """There are so many stages, of which the last has what is left of the seconds for all."""
        del self._expected[n_stages:]
        self._expected[-1] = max(seconds - sum(self._expected[:-1]), 1.0)

    def report(self, what: str, done: int, total: int) -> None:
        """What is being done in this stage; how much of that is done says little, since a stage has many such works."""
        whole, here = sum(self._expected), self._expected[self._stage]
        spent = min(self._clock() - self._begun, LATE * here)
        position = sum(self._expected[: self._stage]) + spent
        n = len(self._expected)
        # A stage is one work to whoever shows it: what comes behind the colon may change, and its clock runs on.
        words = f"stage {self._stage + 1} of {n}: {what.replace(': ', ', ')}" if n > 1 else what
        self._report(words, *((round(1000 * position / whole), 1000) if n > 1 else (done, total)))
