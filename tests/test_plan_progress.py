"""Progress over a plan of several stages: one part done and one time left, which never contradict each other."""

import itertools

import pytest

from hedgerow.plan_progress import WholePlan
from hedgerow.progress import Progress


class Simulated:
    """A plan on a clock of its own; shown: (when, part done, seconds left or None) after each report."""

    def __init__(self, *expected, is_even=False):
        self.now, self.reported, self.shown = 0.0, [], []
        self.progress = Progress(lambda: self.now)
        self.plan = WholePlan(expected, self._report, lambda: self.now, is_even=is_even)

    def _report(self, what, done, total):
        self.reported.append((what, done, total))
        self.progress.report(what, done, total)
        self.shown.append((self.now, done / total, what.left))

    def stage(self, number, seconds, n=100, work="steps", is_counted=True):
        """A stage of n reports; is_counted: whether they say how much there is to do."""
        self.plan.begin(number)
        begun = self.now
        for done in range(n):
            self.now = begun + seconds * done / n
            self.plan.report(*((work, done, n) if is_counted else (f"work {done}", 1, 2)))
        self.now = begun + seconds


def test_progress_is_that_of_the_whole_plan():
    run = Simulated(10.0, 30.0, 60.0)
    for number, seconds in enumerate((10.0, 30.0, 60.0)):
        run.stage(number, seconds, n=10)
    assert run.reported[-1][0] == "training: stage 3 of 3, steps"
    for when, part, left in run.shown[1:]:
        assert part == pytest.approx(when / 100, abs=0.08)
        assert left == pytest.approx(100 - when, abs=10)


def never_contradicts_itself(shown, n_estimates=1):
    """The part never falls; near the end the time left never rises; elsewhere not by much, but for a new estimate."""
    parts = [part for _, part, _ in shown]
    assert parts == sorted(parts)
    near = [left for _, part, left in shown if part >= 0.9 and left is not None]
    assert near == sorted(near, reverse=True)
    known = [left for _, part, left in shown if left is not None]
    rises = [(left, then) for left, then in itertools.pairwise(known) if then > 1.05 * left + 0.5]
    assert len(rises) <= n_estimates, "when the works of a stage first tell how much there is"
    for when, part, left in shown[1:]:
        if left is not None and not rises:
            assert part == pytest.approx(when / (when + left), abs=0.02)


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize(("planned", "taken"), [(10.0, 300.0), (300.0, 10.0), (300.0, 300.0), (10.0, 15.0)])
@pytest.mark.parametrize("is_counted", [True, False])
def test_a_stage_may_take_longer_or_shorter_than_planned(place, planned, taken, is_counted):
    expected, real = [20.0, 20.0], [20.0, 20.0]
    expected[place], real[place] = planned, taken
    run = Simulated(*expected)
    for number, seconds in enumerate(real):
        run.stage(number, seconds, n=300, work=f"steps of {number}", is_counted=is_counted)
    never_contradicts_itself(run.shown)
    assert run.shown[-1][1] < 1, "the last stage is not over"
    if is_counted and taken >= planned:
        when, part, left = run.shown[300 * place + 225]
        of_others = 0 if place else 20
        assert left == pytest.approx(taken / 4 + of_others, rel=0.1), "works tell how long the stage takes"
        assert part == pytest.approx(when / (when + left), rel=0.05)


def test_a_stage_thirty_times_as_long_does_not_claim_to_be_nearly_done_early():
    """A bar that stands at 95 % for most of the time tells nobody anything."""
    run = Simulated(10.0, 10.0)
    run.stage(0, 10.0)
    run.stage(1, 300.0, n=300, is_counted=False)
    parts = {round(when): part for when, part, _ in run.shown}
    assert parts[20] < 0.9
    assert parts[30] < 0.92
    assert parts[300] < 0.99
    reports = Simulated(10.0, 10.0)
    reports.stage(0, 10.0)
    reports.stage(1, 300.0, n=300)
    assert reports.shown[-30][1] == pytest.approx(280 / 310, abs=0.02), "works that tell how much there is are believed"


def test_in_silence_the_time_left_falls():
    """So that what is shown never stands still, and never rises."""
    run = Simulated(10.0, 90.0)
    run.stage(0, 10.0)
    run.plan.begin(1)
    for _ in range(10):
        run.now += 5.0
        run.plan.report("networks", 1, 2)
    before = run.progress.text()
    assert before == "training: stage 2 of 2, networks, 60 %, about 40 s left"
    run.now += 10.0
    assert run.progress.text() == "training: stage 2 of 2, networks, 60 %, about 30 s left"
    run.now += 500.0
    assert run.progress.text() == "training: stage 2 of 2, networks, 60 %, 9 min 30 s so far"


def test_a_score_that_changes_does_not_set_the_clock_back():
    run = Simulated(10.0, 90.0)
    run.stage(0, 10.0)
    run.plan.begin(1)
    for done in range(1, 5):
        run.plan.report(f"convolutional networks: held-out Dice 0.{done}", done, 6)
        run.now += 15.0
    run.plan.report("convolutional networks: held-out Dice 0.8", 5, 6)
    assert run.progress.text() == (
        "training: stage 2 of 2, convolutional networks, held-out Dice 0.8, 70 %, about 30 s left"
    )


def test_an_estimate_may_be_replaced():
    run = Simulated(10.0, 30.0, 60.0)
    run.plan.expect(2, 12.5)
    run.now = 10.0
    run.plan.begin(1)
    run.now += 7.5
    run.plan.report("steps", 1, 2)
    assert run.reported == [("training: stage 2 of 3, steps", round(1000 * 17.5 / 52.5), 1000)]


@pytest.mark.parametrize("factor", [0.25, 0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("expected", [(1.0, 30.0, 1.0, 35.0, 1.0, 35.0), (40.0, 20.0, 20.0, 20.0), (5.0, 90.0)])
def test_on_another_machine_the_time_left_is_right_from_a_quarter_on(expected, factor):
    """All stages take longer, or shorter, by the same factor, which nobody knows beforehand."""
    run = Simulated(*expected, is_even=True)
    for number, seconds in enumerate(expected):
        run.stage(number, factor * seconds, n=40)
    whole = factor * sum(expected)
    late = [(when, left) for when, _, left in run.shown if when > whole / 4 and left is not None]
    assert late
    for when, left in late:
        assert when + left == pytest.approx(whole, rel=0.3)


@pytest.mark.parametrize("factor", [0.5, 1.0, 3.0])
def test_a_stage_may_be_a_plan(factor):
    """Its own estimate of the time left counts, also for stages that have not begun."""
    run = Simulated(30.0, 20.0)
    inner = WholePlan((10.0, 20.0), run.plan.report, lambda: run.now, name="forests", counts=False, is_even=True)
    run.plan.begin(0)
    for number, seconds in enumerate((10.0, 20.0)):
        inner.begin(number)
        begun = run.now
        for done in range(50):
            run.now = begun + factor * seconds * done / 50
            inner.report("trees", done, 50)
    assert run.reported[-1][0] == "training: stage 1 of 2, forests, trees"
    whole = 30 * factor + 20
    late = [(when, left) for when, _, left in run.shown if when > whole / 4]
    for when, left in late:
        assert when + left == pytest.approx(whole, rel=0.3)
    never_contradicts_itself(run.shown, n_estimates=2)
