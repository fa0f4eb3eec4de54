"""Progress over a plan of several stages whose durations are estimates."""

import logging
import math
import time
from collections.abc import Callable, Sequence

from hedgerow.progress import Pace, Report, Timed

PERMILLE = 1000
OVERDUE = 0.25  # additional time of a stage that has used its estimate, as a fraction of the estimate
NEAR_END = 0.9  # fraction done after which a rising time left is not shown
WORK = "training"  # one name for all stages, so that the progress bar does not start its clock again

log = logging.getLogger("hedgerow")


class WholePlan:
    """Reports the progress of the whole plan with every report of a stage.

    The fraction done and the time left follow from one estimate: the fraction is the time spent divided by the whole
    time expected. An estimate that turns out too short is replaced before it runs out, so that the fraction does not
    approach the end too early. The fraction never falls: if it was too large, it stays until it is right.

    expected: estimated seconds of each stage
    """

    def __init__(self, expected: Sequence[float], report: Report, clock: Callable[[], float] = time.monotonic) -> None:
        self._expected, self._report, self._clock = list(expected), report, clock
        self._begun = self._stage_begun = clock()
        self._stage, self._part = 0, 0.0
        self._shown = math.inf  # the time left, when it was last shown
        self._works: dict[str, Pace | None] = {}

    def begin(self, stage: int) -> None:
        """Begin a stage, counted from 0; the earlier stages have ended."""
        self._stage, self._stage_begun = stage, self._clock()
        self._works.clear()
        log.info("stage %d of %d", stage + 1, len(self._expected))

    def change(self, n_stages: int, seconds: float) -> None:
        """Change the number of stages; the last stage gets what the others leave of `seconds`."""
        del self._expected[n_stages:]
        self._expected[-1] = max(seconds - sum(self._expected[:-1]), 1.0)

    def report(self, task: str, done: int, total: int) -> None:
        """A report of the current stage."""
        n, now = len(self._expected), self._clock()
        self._note(task.partition(":")[0], now, done, total)
        left = self._stage_left(now) + sum(self._expected[self._stage + 1 :])
        spent = now - self._begun
        self._part = max(self._part, spent / (spent + left) if spent else 0.0)
        words = f"{WORK}: stage {self._stage + 1} of {n}, {task.replace(': ', ', ')}"
        part = min(round(PERMILLE * self._part), PERMILLE - 1)
        self._report(Timed(words, self._left_to_show(left)), part, PERMILLE)

    def _note(self, work: str, now: float, done: int, total: int) -> None:
        """Update the pace of a task, from its second report on: before it, kernels are compiled."""
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
        """Seconds until this stage ends: the largest of the rest of its estimate, the time left of its tasks, and a
        time that grows with the square root of the time spent."""
        spent, planned = now - self._stage_begun, self._expected[self._stage]
        of_works = [pace.left(now) or 0.0 for pace in self._works.values() if pace is not None]
        return max(planned - spent, OVERDUE * (spent * planned) ** 0.5, *of_works)
