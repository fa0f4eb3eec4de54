"""Progress over a plan of several stages: one part done and one time left, which never contradict each other."""

import itertools

import pytest

from hedgerow.jobs.plan_progress import WholePlan
from hedgerow.progress import Progress


class Simulated:
    """A plan on a clock of its own; shown: (when, part done, seconds left or None) after each report."""

    def __init__(self, *expected):
        self.now, self.told, self.shown = 0.0, [], []
        self.progress = Progress(lambda: self.now)
        self.plan = WholePlan(expected, self._report, lambda: self.now)

    def _report(self, what, done, total):
        self.told.append((what, done, total))
        self.progress.report(what, done, total)
        self.shown.append((self.now, done / total, what.left))

    def stage(self, number, seconds, n=100, work="steps", is_told=True):
        """A stage of n reports; is_told: whether they tell how much there is to do, or only that something is done."""
        self.plan.begin(number)
        begun = self.now
        for done in range(n):
            self.now = begun + seconds * done / n
            self.plan.report(*((work, done, n) if is_told else (f"work {done}", 1, 2)))
        self.now = begun + seconds


def test_progress_is_that_of_the_whole_plan():
    run = Simulated(10.0, 30.0, 60.0)
    for number, seconds in enumerate((10.0, 30.0, 60.0)):
        run.stage(number, seconds, n=10)
    assert run.told[-1][0] == "training: stage 3 of 3, steps"
    for when, part, left in run.shown[1:]:
        assert part == pytest.approx(when / 100, abs=0.08)
        assert left == pytest.approx(100 - when, abs=10)


def never_contradicts_itself(shown):
    """The part never falls; near the end the time left never rises; elsewhere not by much, but for one new estimate."""
    parts = [part for _, part, _ in shown]
    assert parts == sorted(parts)
    near = [left for _, part, left in shown if part >= 0.9 and left is not None]
    assert near == sorted(near, reverse=True)
    known = [left for _, part, left in shown if left is not None]
    rises = [(left, then) for left, then in itertools.pairwise(known) if then > 1.05 * left + 0.5]
    assert len(rises) <= 1, "when the works of a stage first tell how much there is"
    for when, part, left in shown[1:]:
        if left is not None and not rises:
            assert part == pytest.approx(when / (when + left), abs=0.02)


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize(("planned", "taken"), [(10.0, 300.0), (300.0, 10.0), (300.0, 300.0), (10.0, 15.0)])
@pytest.mark.parametrize("is_told", [True, False])
def test_a_stage_may_take_longer_or_shorter_than_planned(place, planned, taken, is_told):
    expected, real = [20.0, 20.0], [20.0, 20.0]
    expected[place], real[place] = planned, taken
    run = Simulated(*expected)
    for number, seconds in enumerate(real):
        run.stage(number, seconds, n=300, work=f"steps of {number}", is_told=is_told)
    never_contradicts_itself(run.shown)
    assert run.shown[-1][1] < 1, "the last stage is not over"
    if is_told and taken >= planned:
        when, part, left = run.shown[300 * place + 225]
        of_others = 0 if place else 20
        assert left == pytest.approx(taken / 4 + of_others, rel=0.1), "works tell how long the stage takes"
        assert part == pytest.approx(when / (when + left), rel=0.05)


def test_a_stage_thirty_times_as_long_does_not_claim_to_be_nearly_done_early():
    """A bar that stands at 95 % for most of the time tells nobody anything."""
    run = Simulated(10.0, 10.0)
    run.stage(0, 10.0)
    run.stage(1, 300.0, n=300, is_told=False)
    parts = {round(when): part for when, part, _ in run.shown}
    assert parts[20] < 0.9
    assert parts[30] < 0.92
    assert parts[300] < 0.99
    reports = Simulated(10.0, 10.0)
    reports.stage(0, 10.0)
    reports.stage(1, 300.0, n=300)
    assert reports.shown[-30][1] == pytest.approx(280 / 310, abs=0.02), "works that tell how much there is are believed"


def test_silence_does_not_let_the_time_left_rise():
    run = Simulated(10.0, 90.0)
    run.stage(0, 10.0)
    run.plan.begin(1)
    for _ in range(10):
        run.now += 5.0
        run.plan.report("networks", 1, 2)
    before = run.progress.text()
    run.now += 500.0
    assert before == "training: stage 2 of 2, networks, 60 %, about 40 s left"
    assert run.progress.text() == before


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


@pytest.mark.parametrize(("n_stages", "seconds", "part"), [(2, 25.0, 700), (3, 80.0, 219), (2, 5.0, 962)])
def test_a_plan_may_turn_out_shorter_or_longer(n_stages, seconds, part):
    run = Simulated(10.0, 30.0, 60.0)
    run.plan.change(n_stages, seconds)
    run.now = 10.0
    run.plan.begin(1)
    run.now += 7.5
    run.plan.report("steps", 1, 2)
    assert run.told == [(f"training: stage 2 of {n_stages}, steps", part, 1000)]
