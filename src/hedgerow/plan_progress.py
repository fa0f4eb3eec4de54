"""Progress over several stages whose durations are estimates; a stage may be such a plan itself."""

import logging
import math
import time
from collections.abc import Callable, Sequence

from hedgerow.progress import Pace, Report, Timed

PERMILLE = 1000
OVERDUE = 0.25  # additional time of a stage that has used its estimate, as a fraction of the estimate
# Of the whole estimate: how much of it must have passed before the stages that have begun correct the rest.
PRIOR = 0.05
NEAR_END = 0.9  # fraction done after which a rising time left is not shown

log = logging.getLogger("hedgerow")


class WholePlan:
    """Reports the progress of the whole plan with every report of a stage.

    The fraction done and the time left follow from one estimate: the fraction is the time spent divided by the whole
    time expected. An estimate that turns out too short is replaced before it runs out, so that the fraction does not
    approach the end too early. The fraction never falls: if it was too large, it stays until it is right.

    expected: estimated seconds of each stage
    name:     begins the text of each report, so that the progress bar does not start its clock again; may be empty
    counts:   whether the reports say which stage it is
    is_even:  whether all estimates are too long or too short by the same factor, as those of one machine for another:
              then the stages that have begun correct the others
    until:    time limit by the clock: before it has passed, no more than what remains of it is shown
    """

    def __init__(
        self,
        expected: Sequence[float],
        report: Report,
        clock: Callable[[], float] = time.monotonic,
        *,
        name: str = "training",
        counts: bool = True,
        is_even: bool = False,
        until: float | None = None,
    ) -> None:
        self._expected, self._report, self._clock = list(expected), report, clock
        self._name, self._counts, self._is_even, self._until = name, counts, is_even, until
        self._begun = self._stage_begun = clock()
        self._stage, self._part = 0, 0.0
        self._shown = math.inf  # the time left, when it was last shown
        self._works: dict[str, Pace | None] = {}

    def begin(self, stage: int) -> None:
        """Begin a stage, counted from 0; the earlier stages have ended."""
        if self._is_even:
            factor = self._factor(self._clock() - self._begun, stage)
            self._expected = [factor * seconds for seconds in self._expected]
            # What has ended took what it took.
            self._expected[:stage] = [(self._clock() - self._begun) / max(stage, 1)] * stage
        self._stage, self._stage_begun = stage, self._clock()
        self._works.clear()
        if self._counts:
            log.info("stage %d of %d", stage + 1, len(self._expected))

    def expect(self, stage: int, seconds: float) -> None:
        """Replace the estimate of a stage."""
        self._expected[stage] = seconds

    def report(self, task: str, done: int, total: int) -> None:
        """A report of the current stage."""
        now, left = self._clock(), None
        if isinstance(task, Timed):
            left = task.left
        else:
            self._note(task, now, done, total)
        if left is None:
            left = self._stage_left(now)
        spent = now - self._begun
        rest = sum(self._expected[self._stage + 1 :])
        if self._is_even:
            rest *= self._factor(spent + left, self._stage + 1)
        left += rest
        if self._until is not None and now < self._until:
            left = min(left, self._until - now)
        self._part = max(self._part, spent / (spent + left) if spent else 0.0)
        stage = f"stage {self._stage + 1} of {len(self._expected)}, " if self._counts else ""
        words = f"{self._name}: {stage}{task.replace(': ', ', ')}" if self._name else task
        part = min(round(PERMILLE * self._part), PERMILLE - 1)
        self._report(Timed(words, self._left_to_show(left)), part, PERMILLE)

    def _factor(self, seconds: float, n_stages: int) -> float:
        """How many times longer than expected all takes, if the first stages took so long; short stages say little."""
        doubt = PRIOR * sum(self._expected)
        return (seconds + doubt) / max(sum(self._expected[:n_stages]) + doubt, 1e-9)

    def _note(self, task: str, now: float, done: int, total: int) -> None:
        """Update the pace of a task, from its second report on: before it, kernels are compiled."""
        work = task.partition(":")[0]
        pace = self._works.get(work)
        if work not in self._works:
            log.info("%s", task)
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
        """Seconds until this stage ends: the longest of the rest of its estimate, the time left of its tasks, and an
        allowance that grows more slowly than the time spent. If the estimate may be wrong by a factor, the time left of
        the tasks replaces it."""
        spent, planned = now - self._stage_begun, self._expected[self._stage]
        left = [pace.left(now) for pace in self._works.values() if pace is not None]
        known = [seconds for seconds in left if seconds is not None]
        if self._is_even and known:
            return max(known)
        return max(planned - spent, OVERDUE * (spent * planned) ** 0.5, *known)
