"""Estimates of an effort: the steps, networks and time that it is planned to take."""

import itertools
import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

pytest.importorskip("torch")

import hedgerow as hr
from hedgerow.deadline import Deadline
from hedgerow.deep import fitting, refinement_search
from hedgerow.deep.network_search import n_tried
from hedgerow.deep.recipe import Recipe
from hedgerow.errors import ConfigError
from hedgerow.forest import default_settings
from hedgerow.forest.history import Check
from hedgerow.forest.settings_choice import SettingsChoice, settings_choice
from hedgerow.images.given import labelled_set
from hedgerow.jobs import estimates, training
from hedgerow.jobs.estimates import Budget
from hedgerow.plan_progress import WholePlan
from hedgerow.predict.evaluate import labelled_for
from hedgerow.progress import silent
from hedgerow.refinement.loop import refine_labelled
from hedgerow.threads import get_threads, threads
from helpers.deep import SMALL, STACK, pictures, small_recipe
from helpers.efforts import helping, make_small, small_budget
from helpers.files import write
from helpers.refusals import assert_one_sentence

NOW = 5000.0  # of the stopped clock
PLAN = hr.DeepConfig(n_folds=2, n_networks=1, judges=0, members=("reading",), conv=SMALL)
small = partial(small_budget, cpu_plan=PLAN)
# Planning takes no time, however busy the machine, and there are as many steps as the time allows.
timeless = partial(small, steps=(estimates.FEWEST_STEPS, 10**6), clock=lambda: NOW)


@pytest.fixture(autouse=True)
def small_networks(monkeypatch):
    """Small networks, briefly trained."""
    make_small(monkeypatch, cpu_plan=PLAN)


@pytest.mark.parametrize(("is_here", "members"), [(True, ("reading", "pretrained")), (False, ("reading", "alone"))])
def test_on_a_cpu_pretrained_networks_take_the_place_of_those_alone(monkeypatch, is_here, members):
    images, labels = pictures()
    net = hr.to_convnet(hr.fit_stack(images, labels, STACK))
    monkeypatch.setattr(default_settings, "default_encoder_is_installed", lambda: is_here)
    assert Budget("best").level_plan(net, labelled_set(images, labels), False, 0).members == members


def test_the_plan_for_a_cpu_fits_the_time():
    images, labels = pictures()
    labelled = labelled_set(images, labels)
    net = hr.to_convnet(hr.fit_stack(images, labels, STACK))
    budget = timeless("best", step_seconds=lambda *given: 0.5)
    with threads(1):
        plan = budget.level_plan(net, labelled, True, 7)
        result = budget.level_settings(plan, net, labelled, NOW + 1000)
    assert result.conv.n_steps == pytest.approx(estimates.PLANNED_FRACTION * 1000 / 0.5, abs=3), (
        "one network, one thread"
    )
    assert result.conv.augment == refinement_search.TURNED
    assert result.conv.orientations == 8
    assert result.seed == 7
    four = replace(labelled, images=labelled.images[:4])
    few = budget.level_settings(plan, net, four, NOW + 1000)
    assert (few.conv.batch, few.conv.learning_rate) == (2 * result.conv.batch, result.conv.learning_rate / 3)
    hurried = budget.level_settings(plan, net, labelled, NOW)
    assert hurried.conv.n_steps == estimates.FEWEST_STEPS


def test_steps_are_planned_when_it_is_known_what_the_folds_took(monkeypatch):
    order, again, planned = [], fitting.held_out_probabilities, Budget.level_settings

    def noted(name, function):
        def call(*given, **options):
            order.append(name)
            return function(*given, **options)

        return call

    monkeypatch.setattr("hedgerow.deep.fitting.held_out_probabilities", noted("folds", again))
    monkeypatch.setattr(Budget, "level_settings", noted("plan", planned))
    hr.fit(*pictures(), "best", STACK, progress=silent)
    assert order == ["folds", "plan"], "and the folds are made once"


def test_a_gpu_trains_the_networks_that_do_best_on_what_they_did_not_see(monkeypatch):
    images, labels = pictures()
    labelled, messages, steps = labelled_set(images, labels), [], []
    net = hr.to_convnet(hr.fit_stack(images, labels, STACK))

    def chosen(net, recipe, device, is_timed, progress):
        plan = recipe.config
        assert (device, is_timed) == ("cuda", bool(steps))
        steps.append(plan.conv.n_steps)
        tried = {(16, "batch", 256): 0.1, (32, "image", 512): 0.2}
        return replace(plan, conv=replace(plan.conv, base=32, norm="image", crop=512)), tried

    monkeypatch.setattr("hedgerow.deep.network_search.choose_network", chosen)

    def seconds(net, recipe, device):
        conv = recipe.config.conv
        return 0.5 * (conv.base / 32) * (conv.crop / 256) ** 2

    budget = timeless("best", device="cuda", step_seconds=seconds)
    plan = budget.level_plan(net, labelled, False, 0)
    result = budget.level_settings(plan, net, labelled, None, messages.append)
    members = ("alone", "reading")  # there are no pretrained weights here
    chosen_conv = replace(estimates.GPU_PLAN.conv, base=32, norm="image", crop=512)
    assert result == replace(estimates.GPU_PLAN, members=members, conv=chosen_conv)
    assert "32 channels normalised over each image in crops of 512 pixels 0.200" in messages[-1]
    result = budget.level_settings(plan, net, labelled, NOW + 1000)
    n_networks, affordable = len(Recipe(estimates.GPU_PLAN, labelled).tasks), estimates.PLANNED_FRACTION * 1000 / 0.5
    assert steps[-1] == pytest.approx(affordable / (n_networks + n_tried(plan.conv, labelled)), abs=3)
    assert result.conv.n_steps == pytest.approx(affordable / 4 / n_networks, abs=3), "what is left is planned anew"


def test_smaller_networks_are_planned_where_larger_ones_could_not_be_trained_long_enough():
    images, labels = pictures()
    labelled = labelled_set(images, labels)
    net = hr.to_convnet(hr.fit_stack(images, labels, STACK))
    larger = replace(PLAN, conv=hr.ConvConfig(base=16))
    budget = timeless("best", cpu_plan=larger, step_seconds=lambda net, recipe, device: recipe.config.conv.base)

    def planned(steps):
        plan, left = budget.level_plan(net, labelled, False, 7), 16 * steps / estimates.PLANNED_FRACTION
        with threads(1):
            return budget.level_settings(plan, net, labelled, NOW + left).conv

    assert planned(estimates.ENOUGH_STEPS + 5).base == 16
    few = planned(estimates.ENOUGH_STEPS - 200)
    assert few.base == estimates.SMALL_BASE
    assert few.n_steps == pytest.approx(2 * (estimates.ENOUGH_STEPS - 200), abs=3)


def test_few_images_are_planned_for_in_two_rounds():
    """The judge comes first, and nothing runs beside it."""
    images, labels = pictures(2)
    labelled = labelled_set(images, labels)
    net = hr.to_convnet(hr.fit_stack(images, labels, STACK))
    budget = timeless("best", step_seconds=lambda *given: 1.0)
    plan = replace(budget.level_plan(net, labelled, False, 0), members=("alone",))
    with threads(2):
        planned = budget.level_settings(plan, net, labelled, NOW + 4000 / estimates.PLANNED_FRACTION)
    assert planned.conv.n_steps == pytest.approx(2000, abs=3)


def estimate(budget, n=8):
    return budget.estimate(labelled_set(*pictures(n)), STACK)


def test_a_time_too_short_for_networks_is_refused_before_anything_begins():
    """Half-trained networks after folds that took all the time would help nobody."""
    labelled, reports = labelled_set(*pictures()), []
    budget = small("best", 7.0, slowness=lambda: 2000.0, search=helping(0.6))
    with threads(1), pytest.raises(hr.ConfigError) as problem:
        training.fit_labelled(labelled, STACK, budget, progress=lambda *report: reports.append(report))
    assert_one_sentence(problem, "7 min 0 s is too short", "--effort good --minutes 7")
    assert reports == []
    needed = int(re.search("give --minutes ([0-9]+)", str(problem.value))[1])
    with threads(1):
        found = training.fit_labelled(labelled, STACK, replace(budget, minutes=needed), progress=silent)
    assert [stage.name for stage in found.stages][2:] == ["convolutional level"]


def test_a_slower_machine_takes_longer():
    for effort, n_stages in (("fast", 1), ("good", 2)):
        quick, slow = (estimate(small(effort, slowness=lambda factor=factor: factor)) for factor in (1.0, 3.0))
        assert len(quick.stages) == n_stages
        assert slow.stages == pytest.approx([3 * seconds for seconds in quick.stages])
        assert quick.limit is None


def test_best_on_a_cpu_always_has_a_limit():
    usual = estimate(small("best"))
    assert usual.limit == 60 * estimates.BEST_MINUTES
    slow = estimate(small("best", slowness=lambda: 30_000.0))
    assert slow.limit > 60 * estimates.BEST_MINUTES
    assert estimate(small("best", least_steps=100, step_seconds=lambda *given: 60.0)).limit > 6000
    assert estimate(Budget("best", device="cuda", slowness=lambda: 1.0)).limit is None
    assert estimate(Budget("best", 30.0, device="cuda", slowness=lambda: 1.0)).limit == 1800
    assert estimate(Budget("good", 30.0, slowness=lambda: 1.0)).limit == 1800


def test_the_last_stage_gets_what_the_others_leave():
    found = estimate(small("best", 10.0))
    assert sum(found.stages) == pytest.approx(600)
    assert str(found) == "limited to about 10 min 0 s"


def test_a_good_that_ends_before_its_limit_says_when():
    found = estimate(small("good", 60.0))
    assert sum(found.stages) < 3600
    assert str(found).startswith("estimated time ")


def test_too_little_time_is_refused_before_settings_are_chosen(monkeypatch, tmp_path):
    monkeypatch.setattr("hedgerow.forest.settings_choice.Search", lambda *_: pytest.fail("settings were chosen"))
    images, labels = pictures(3)
    with pytest.raises(ConfigError, match="too short for the convolutional networks"):
        training.fit(images, labels, "best", minutes=0.01)
    for name, some in zip(("images", "labels"), (images, labels), strict=True):
        for k, one in enumerate(some):
            write(tmp_path / name / f"{k}.tif", one)
    request = training.TrainRequest(
        tmp_path / "images", tmp_path / "labels", tmp_path / "m.hedge", "best", minutes=0.01
    )
    with pytest.raises(ConfigError, match="too short for the convolutional networks"):
        training.train(request)


def test_the_time_limit_counts_from_before_the_settings_are_chosen(monkeypatch):
    now, begun = [NOW], []

    def chosen(*_, **__):
        now[0] += 100
        return STACK

    def stages(labelled, config, budget, estimate, when, *_):
        begun.append(when)
        raise KeyboardInterrupt

    budget = small("good", 10.0, clock=lambda: now[0])
    monkeypatch.setattr(training, "Budget", lambda *_: budget)
    monkeypatch.setattr(SettingsChoice, "settings", chosen)
    monkeypatch.setattr(training, "fit_in_stages", stages)
    with pytest.raises(KeyboardInterrupt):
        training.fit(*pictures(3), "good", minutes=10.0)
    assert begun == [NOW]
    assert now == [NOW + 100]


def test_the_estimate_comes_before_the_choice_of_settings_and_counts_it(monkeypatch):
    """Choosing may take as long as growing, and computes what growing reads; what is printed after it came too late."""
    images, labels = pictures(6, size=(60, 70))
    choice, messages = settings_choice(labelled_set(images, labels)), []
    budget = small("fast")
    alone = budget.estimate(labelled_set(images, labels), choice.ruled)
    assert choice.cost > 0
    whole = budget.estimate(labelled_set(images, labels), choice.ruled, choice.cost)
    assert (whole.stages, whole.choice) == (alone.stages, pytest.approx(choice.cost * 1.0 / get_threads()))
    assert str(budget.estimate(labelled_set(images, labels), choice.ruled, 3600.0)).startswith("estimated time ")
    monkeypatch.setattr(training, "Budget", lambda *_: budget)
    training.fit(images, labels, say=messages.append, progress=silent)
    kinds = [text.split(":")[0].split(" by ")[0] for text in messages]
    assert kinds.index("effort fast") < kinds.index("choosing settings")
    assert kinds.count("effort fast") == 1
    assert f"effort fast: {whole}" in messages


def test_the_time_limit_includes_the_choice_of_settings():
    labelled = labelled_set(*pictures())
    for effort in ("good", "best"):
        limited = small(effort, 10.0).estimate(labelled, STACK, 300.0 * get_threads())
        assert limited.choice == pytest.approx(300)
        assert limited.choice + sum(limited.stages) <= 600 + 1e-6


def test_the_probe_measures_this_machine():
    assert 0.2 <= estimates.measured_slowness() <= 50


def test_the_probe_counts_what_a_busy_machine_takes_on_average():
    """Some of the small forests find a core of their own; a long run does not."""
    quiet, shared, loading, pause = (factor * estimates.PROBE_SECONDS for factor in (1, 3, 500, 90))
    assert estimates.slowness_of([loading, *[quiet] * 10, pause]) == pytest.approx(1)
    assert estimates.slowness_of([loading, *[quiet, shared] * 5, pause]) == pytest.approx(2)
    assert estimates.slowness_of([loading, *[loading] * 3]) == 50


def test_the_network_of_the_probe_reads_what_that_of_the_images_will():
    labelled = labelled_set(*pictures(3))
    net = estimates.probe_net(labelled, STACK)
    assert net.n_classes == 3
    whole = hr.to_convnet(hr.fit_stack(*pictures(3), STACK))
    assert net.features.n_features == whole.features.n_features


# Keeping the deadline


class Machine:
    """A clock that only steps advance, by a duration that may change."""

    def __init__(self, seconds):
        self.now, self.seconds = 0.0, seconds

    def run(self, deadline, n_steps):
        """The number of steps that are done until all count as done."""
        step = n_done = 0
        while step < n_steps:
            self.now += self.seconds(self.now)
            step, n_done = deadline.after(step, n_steps), n_done + 1
        return n_done


@pytest.mark.parametrize(
    ("seconds", "n_done"),
    [
        (lambda now: 1.0, 100),  # as planned
        (lambda now: 0.5, 100),  # faster: none is left out
        (lambda now: 2.0, 50),  # slower
        (lambda now: 1.0 if now < 50 else 3.0, 67),  # busy from the middle on
        (lambda now: 3.0 if now < 50 else 1.0, 56),  # until the middle
    ],
)
def test_a_training_keeps_its_deadline_whatever_else_the_machine_does(seconds, n_done):
    machine = Machine(seconds)
    done = machine.run(Deadline(100.0, lambda: machine.now), 100)
    assert machine.now <= 106
    assert done == pytest.approx(n_done, abs=4)


def test_a_deadline_that_has_passed_ends_the_training_soon():
    machine = Machine(lambda now: 10.0)
    assert machine.run(Deadline(0.0, lambda: machine.now), 1000) <= 3


def test_networks_share_the_time_that_is_left():
    """Of two threads: three networks in two rounds, the first of which has half of the time."""
    labelled = labelled_set(*pictures())
    net = hr.to_convnet(hr.fit_stack(*pictures(), STACK))
    deadlines = []

    def train(network, sheets, conv, score=None, *, deadline=None, **options):
        deadlines.append(deadline.until)
        return [Check(conv.n_steps, 0.5, 0.5)]

    recipe = small_recipe(labelled, n_networks=3, judges=0, members=("alone",), train_network=train)
    recipe = replace(recipe, until=1000.0, clock=lambda: 0.0)
    with threads(2):
        fitting.deepen_labelled(net, recipe, progress=silent)
    assert sorted(deadlines) == [pytest.approx(1000 / 2)] * 2 + [pytest.approx(1000)]


def test_a_refinement_leaves_steps_out_if_it_is_late():
    images, labels = pictures(2)
    net = hr.to_convnet(hr.fit_stack(images, labels, STACK))
    clock, shown = [0.0], []

    def report(what, done, total):
        clock[0] += 10.0
        shown.append(done)

    config = hr.RefineConfig(n_steps=40, pixels=100, held_out=0.0, check_every=10)
    refine_labelled(
        net, labelled_for(net, images, labels), config, deadline=Deadline(100.0, lambda: clock[0]), progress=report
    )
    assert shown[-1] == 40
    assert 6 <= len(shown) <= 14
    assert all(b > a for a, b in itertools.pairwise(shown))


def test_networks_without_a_fold_are_refined_within_their_share_of_the_time(monkeypatch):
    labelled = labelled_set(*pictures())
    net = hr.to_convnet(hr.fit_stack(*pictures(), STACK))
    net = hr.refine(net, *pictures(), hr.RefineConfig(n_steps=2, pixels=100, held_out=0.0), progress=silent)
    deadlines = []

    def refined(network, images, config, *, deadline, progress):
        deadlines.append(deadline.until)
        return network

    monkeypatch.setattr(fitting, "refine_labelled", refined)
    recipe = replace(small_recipe(labelled, n_folds=3), until=1200.0, clock=lambda: 0.0)
    fitting.held_out_probabilities(net, recipe, progress=silent)
    assert deadlines == [pytest.approx(seconds) for seconds in (200, 300, 600)], "half of it, for 3, 2 and 1 networks"


def test_the_probe_holds_labels_wherever_they_are():
    """Strokes around an object leave no label at the median of their rows and of their columns."""
    images, _ = pictures(1, size=(300, 320))
    strokes = np.full((300, 320), 255, np.uint8)
    strokes[:4], strokes[-4:], strokes[:, :4], strokes[:, -4:] = 1, 4, 9, 9
    net = estimates.probe_net(labelled_set(images, [strokes]), STACK)
    assert net.n_classes == 3


def test_no_more_time_left_is_shown_than_the_limit_leaves():
    now, shown = [0.0], []
    plan = WholePlan([100.0, 1000.0], lambda what, done, total: shown.append(what.left), lambda: now[0], until=180.0)
    for _ in range(20):
        now[0] += 5.0
        plan.report("steps", 1, 100)
    assert max(left for left in shown if left is not None) <= 175.0
