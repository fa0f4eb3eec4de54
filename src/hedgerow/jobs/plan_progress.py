"""Progress over a plan of several stages, whose lengths are only expected."""

import logging
import math
import time
from collections.abc import Callable, Sequence

from hedgerow.progress import Pace, Report, Timed

PERMILLE = 1000
OVERDUE = 0.25  # of a stage that took as long as planned, the part that it is expected to take beyond that
NEAR_END = 0.9  # part of the whole from which on a time left that rises is not shown
WORK = "training"  # all stages are one work to whoever shows it, and its clock runs on

log = logging.getLogger("hedgerow")


class WholePlan:
    """Tells, with every report of a stage's work, how far the whole plan is.

    The part that is done and the time left follow from one estimate: the part is the time spent over the time that all
    should take. An estimate that turns out too short is replaced before it runs out, so that the part does not come
    close to the end too early. The part never falls: where it was too large, it waits until it is true.

    expected: seconds of each stage. A stage that ends early or takes longer moves those after it
    """

    def __init__(self, expected: Sequence[float], report: Report, clock: Callable[[], float] = time.monotonic) -> None:
        self._expected, self._report, self._clock = list(expected), report, clock
        self._begun = self._stage_begun = clock()
        self._stage, self._part = 0, 0.0
        self._shown = math.inf  # the time left, when it was last shown
        self._works: dict[str, Pace | None] = {}

    def begin(self, stage: int) -> None:
        """The stage of this number, from 0, begins; those before it have ended."""
        self._stage, self._stage_begun = stage, self._clock()
        self._works.clear()
        log.info("stage %d of %d", stage + 1, len(self._expected))

    def change(self, n_stages: int, seconds: float) -> None:
        """There are so many stages, of which the last has what is left of the seconds for all."""
        del self._expected[n_stages:]
        self._expected[-1] = max(seconds - sum(self._expected[:-1]), 1.0)

    def report(self, what: str, done: int, total: int) -> None:
        """What is being done in this stage, and how much of that."""
        n = len(self._expected)
        if n == 1:
            self._report(what, done, total)
            return
        now = self._clock()
        self._note(what.partition(":")[0], now, done, total)
        left = self._stage_left(now) + sum(self._expected[self._stage + 1 :])
        spent = now - self._begun
        self._part = max(self._part, spent / (spent + left) if spent else 0.0)
        words = f"{WORK}: stage {self._stage + 1} of {n}, {what.replace(': ', ', ')}"
        part = min(round(PERMILLE * self._part), PERMILLE - 1)
        self._report(Timed(words, self._left_to_show(left)), part, PERMILLE)

    def _note(self, work: str, now: float, done: int, total: int) -> None:
        """How fast a work of this stage advances, from its second report on: much is compiled before that."""
        pace = self._works.get(work)
        if work not in self._works:
            self._works[work] = None
        elif pace is None or done < pace.done:
            self._works[work] = Pace(now, done, now, done, total)
        else:
            pace.advance(now, done, total)

    def _left_to_show(self, left: float) -> float | None:
        if self._part >= NEAR_END and left > self._shown:
            return None
        self._shown = left
        return left

    def _stage_left(self, now: float) -> float:
        """Seconds until this stage ends: what is left of the plan, or what its works still need if that is more, or, as
        the plan runs out and they do not tell, a time that grows, but more slowly than the time spent."""
        spent, planned = now - self._stage_begun, self._expected[self._stage]
        of_works = [pace.left(now) or 0.0 for pace in self._works.values() if pace is not None]
        return max(planned - spent, OVERDUE * (spent * planned) ** 0.5, *of_works)
