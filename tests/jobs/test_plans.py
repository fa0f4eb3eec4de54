"""What an effort is planned to take: steps, networks and time; and progress over the whole plan."""

import itertools
import time
from dataclasses import replace

import pytest

pytest.importorskip("torch")

import hedgerow as hr
from hedgerow.deep import fitting, refinement_search
from hedgerow.deep.network_search import n_tried
from hedgerow.deep.recipe import Recipe
from hedgerow.forest import default_settings
from hedgerow.images.labelled import labelled_set
from hedgerow.jobs import efforts, estimates
from hedgerow.jobs.plan_progress import WholePlan
from hedgerow.progress import Progress, silent
from hedgerow.threads import threads
from hedgerow.work_folder import WorkFolder
from helpers.deep import SMALL, STACK, pictures
from helpers.efforts import helping, make_small

CPU = estimates.CPU


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Small networks, briefly trained."""
    plan = hr.DeepConfig(n_folds=2, n_networks=1, judges=0, members=("reading",), conv=SMALL)
    make_small(monkeypatch, plan)


@pytest.mark.parametrize(("is_here", "members"), [(True, ("reading", "pretrained")), (False, ("reading", "alone"))])
def test_on_a_cpu_pretrained_networks_take_the_place_of_those_alone(monkeypatch, is_here, members):
    images, labels = pictures()
    net = hr.to_convnet(hr.fit_stack(images, labels, STACK))
    monkeypatch.setattr(estimates, "CPU", CPU)
    monkeypatch.setattr(default_settings, "default_encoder_is_installed", lambda: is_here)
    assert estimates.deep_plan(net, labelled_set(images, labels), False, "cpu", 0).members == members


def test_the_plan_for_a_cpu_fits_the_time(monkeypatch):
    images, labels = pictures()
    labelled = labelled_set(images, labels)
    net = hr.to_convnet(hr.fit_stack(images, labels, STACK))
    monkeypatch.setattr("hedgerow.deep.fitting.seconds_of_a_step", lambda *given: 0.5)
    monkeypatch.setattr(estimates, "MOST_STEPS", 10**6)
    with threads(1):
        plan = estimates.deep_plan(net, labelled, True, "cpu", 7)
        found = estimates.deep_settings(plan, net, labelled, "cpu", time.monotonic() + 1000)
    assert found.conv.n_steps == pytest.approx(estimates.SPARE * 1000 / 0.5, abs=3), "one network, one thread"
    assert found.conv.augment == refinement_search.TURNED
    assert found.conv.orientations == 8
    assert found.seed == 7
    four = replace(labelled, images=labelled.images[:4])
    few = estimates.deep_settings(plan, net, four, "cpu", time.monotonic() + 1000)
    assert (few.conv.batch, few.conv.learning_rate) == (2 * found.conv.batch, found.conv.learning_rate / 3)
    hurried = estimates.deep_settings(plan, net, labelled, "cpu", time.monotonic())
    assert hurried.conv.n_steps == estimates.FEWEST_STEPS


def test_steps_are_planned_when_it_is_known_what_the_folds_took(monkeypatch):
    order, again, planned = [], fitting.held_out_probabilities, estimates.deep_settings

    def noted(name, function):
        def call(*given, **options):
            order.append(name)
            return function(*given, **options)

        return call

    monkeypatch.setattr("hedgerow.deep.fitting.held_out_probabilities", noted("folds", again))
    monkeypatch.setattr(efforts, "deep_settings", noted("plan", planned))
    hr.fit(*pictures(), "best", STACK, progress=silent)
    assert order == ["folds", "plan"], "and the folds are made once"


def test_a_gpu_trains_the_networks_that_do_best_on_what_they_did_not_see(monkeypatch):
    images, labels = pictures()
    labelled, said, steps = labelled_set(images, labels), [], []
    net = hr.to_convnet(hr.fit_stack(images, labels, STACK))

    def chosen(net, labelled, plan, device, is_timed, progress):
        assert (device, is_timed) == ("cuda", bool(steps))
        steps.append(plan.conv.n_steps)
        tried = {(16, "batch", 256): 0.1, (32, "image", 512): 0.2}
        return replace(plan, conv=replace(plan.conv, base=32, norm="image", crop=512)), tried

    monkeypatch.setattr("hedgerow.deep.network_search.choose_network", chosen)
    plan = estimates.deep_plan(net, labelled, False, "cuda", 0)
    found = estimates.deep_settings(plan, net, labelled, "cuda", None, said.append)
    members = ("alone", "reading")  # there are no pretrained weights here
    chosen_conv = replace(estimates.GPU.conv, base=32, norm="image", crop=512)
    assert found == replace(estimates.GPU, members=members, conv=chosen_conv)
    assert "32 channels normalised over each image in crops of 512 pixels 0.200" in said[-1]

    def seconds(net, labelled, plan, device):
        return 0.5 * (plan.conv.base / 32) * (plan.conv.crop / 256) ** 2

    monkeypatch.setattr("hedgerow.deep.fitting.seconds_of_a_step", seconds)
    monkeypatch.setattr(estimates, "MOST_STEPS", 10**6)
    found = estimates.deep_settings(plan, net, labelled, "cuda", time.monotonic() + 1000)
    n_networks, affordable = len(Recipe(estimates.GPU, labelled).tasks), estimates.SPARE * 1000 / 0.5
    assert steps[-1] == pytest.approx(affordable / (n_networks + n_tried(plan.conv, labelled)), abs=3)
    assert found.conv.n_steps == pytest.approx(affordable / 4 / n_networks, abs=3), "what is left is planned anew"


def test_smaller_networks_are_planned_where_larger_ones_could_not_be_trained_long_enough(monkeypatch):
    images, labels = pictures()
    labelled = labelled_set(images, labels)
    net = hr.to_convnet(hr.fit_stack(images, labels, STACK))
    monkeypatch.setattr(
        estimates, "CPU", hr.DeepConfig(n_networks=1, judges=0, members=("reading",), conv=hr.ConvConfig(base=16))
    )
    monkeypatch.setattr(estimates, "MOST_STEPS", 10**6)
    monkeypatch.setattr("hedgerow.deep.fitting.seconds_of_a_step", lambda net, labelled, plan, device: plan.conv.base)

    def planned(steps):
        plan, left = estimates.deep_plan(net, labelled, False, "cpu", 7), 16 * steps / estimates.SPARE
        with threads(1):
            return estimates.deep_settings(plan, net, labelled, "cpu", time.monotonic() + left).conv

    assert planned(estimates.ENOUGH + 5).base == 16
    few = planned(estimates.ENOUGH - 200)
    assert few.base == estimates.SMALLER
    assert few.n_steps == pytest.approx(2 * (estimates.ENOUGH - 200), abs=3)


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
    told = Simulated(10.0, 10.0)
    told.stage(0, 10.0)
    told.stage(1, 300.0, n=300)
    assert told.shown[-30][1] == pytest.approx(280 / 310, abs=0.02), "works that tell how much there is are believed"


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


def test_few_images_are_planned_for_in_two_rounds(monkeypatch):
    """The judge comes first, and nothing runs beside it."""
    images, labels = pictures(2)
    labelled = labelled_set(images, labels)
    net = hr.to_convnet(hr.fit_stack(images, labels, STACK))
    monkeypatch.setattr(estimates, "MOST_STEPS", 10**6)
    monkeypatch.setattr("hedgerow.deep.fitting.seconds_of_a_step", lambda *given: 1.0)
    plan = replace(estimates.deep_plan(net, labelled, False, "cpu", 0), members=("alone",))
    with threads(2):
        steps = estimates.deep_settings(
            plan, net, labelled, "cpu", time.monotonic() + 4000 / estimates.SPARE
        ).conv.n_steps
    assert steps == pytest.approx(2000, abs=3)


@pytest.fixture
def slow(monkeypatch):
    """A machine on which a stack takes 100 s, and refinements and networks 60."""
    monkeypatch.setattr(WorkFolder, "seconds", lambda files, name, taken: 100.0)
    monkeypatch.setattr(estimates, "LEAST_CPU", 60.0)


def test_too_little_time_for_networks_is_spent_on_refinement(monkeypatch, caplog, slow):
    """Half-trained networks after folds that took all the time would help nobody."""
    labelled, told = labelled_set(*pictures()), []
    monkeypatch.setattr(refinement_search, "choose_refinement", helping(0.6))
    monkeypatch.setattr(efforts, "deep_settings", None)
    job = {"minutes": 7, "progress": lambda *report: told.append(report)}
    found = efforts.fit_labelled(labelled, STACK, "best", **job)
    assert isinstance(found.model, hr.StackNet)
    assert [stage.name for stage in found.stages] == ["stack of forests", "refinement"]
    assert "7 min 0 s is too short for convolutional networks" in caplog.text
    assert "about 9 minutes in all" in caplog.text, (
        "four stacks, two of them for the folds, and 60 s: 460 s, and a tenth"
    )
    assert any(what.startswith("training: stage 2 of 2, ") for what, _, _ in told)


def test_just_enough_time_is_enough(monkeypatch, slow):
    monkeypatch.setattr(refinement_search, "choose_refinement", helping(0.6))
    found = efforts.fit_labelled(labelled_set(*pictures()), STACK, "best", minutes=460 / 60, progress=silent)
    assert [stage.name for stage in found.stages][2:] == ["convolutional level"]


def test_if_no_time_is_given_there_is_enough(monkeypatch, slow):
    """A resumed run makes the same decision, since the duration of the stack is recorded."""
    said, until = [], []
    monkeypatch.setattr(refinement_search, "choose_refinement", helping(0.6))
    monkeypatch.setattr(estimates, "BEST_MINUTES", 0.1)
    planned = estimates.deep_settings
    monkeypatch.setattr(efforts, "deep_settings", lambda *given: until.append(given[4]) or planned(*given))
    begun = time.monotonic()
    found = efforts.fit_labelled(labelled_set(*pictures()), STACK, "best", say=said.append, progress=silent)
    assert [stage.name for stage in found.stages][2:] == ["convolutional level"]
    assert until[0] == pytest.approx(begun + 460, abs=5)
    assert any("the whole run now takes about 7 min 40 s" in line for line in said)


def test_what_best_needs_depends_on_its_folds(slow):
    many, few = (labelled_set(*pictures(n)) for n in (8, 2))
    assert estimates.seconds_for_networks(many, "cpu", 100) - estimates.LEAST_CPU == (estimates.CPU.n_folds + 2) * 100
    assert estimates.seconds_for_networks(few, "cpu", 100) - estimates.LEAST_CPU == 3 * 100
    assert estimates.seconds_for_networks(many, "cuda", 100) == (estimates.GPU.n_folds + 2) * 100 + estimates.LEAST_GPU
    assert estimates.allowed_seconds(many, "best", 3, "cuda") == 180
    assert estimates.allowed_seconds(many, "best", None, "cuda") is None
    assert estimates.allowed_seconds(many, "good", None, "cpu") is None
    assert estimates.allowed_seconds(many, "best", None, "cpu") == 60 * estimates.BEST_MINUTES


@pytest.mark.parametrize(("n_stages", "seconds", "part"), [(2, 25.0, 700), (3, 80.0, 219), (2, 5.0, 962)])
def test_a_plan_may_turn_out_shorter_or_longer(n_stages, seconds, part):
    run = Simulated(10.0, 30.0, 60.0)
    run.plan.change(n_stages, seconds)
    run.now = 10.0
    run.plan.begin(1)
    run.now += 7.5
    run.plan.report("steps", 1, 2)
    assert run.told == [(f"training: stage 2 of {n_stages}, steps", part, 1000)]
