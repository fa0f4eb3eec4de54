"""Estimates of an effort: the steps, networks and time that it is planned to take."""

from dataclasses import replace
from functools import partial

import pytest

pytest.importorskip("torch")

import hedgerow as hr
from hedgerow.deep import fitting, refinement_search
from hedgerow.deep.network_search import n_tried
from hedgerow.deep.recipe import Recipe
from hedgerow.forest import default_settings
from hedgerow.images.labelled import labelled_set
from hedgerow.jobs import estimates, training
from hedgerow.jobs.estimates import Budget
from hedgerow.progress import silent
from hedgerow.threads import threads
from hedgerow.work_folder import WorkFolder
from helpers.deep import SMALL, STACK, pictures
from helpers.efforts import helping, make_small, small_budget

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


@pytest.fixture
def slow(monkeypatch):
    """A budget for a machine on which a stack takes 100 s, and refinements and networks 60."""
    monkeypatch.setattr(WorkFolder, "seconds", lambda files, name, taken: 100.0)
    return partial(small, "best", least_seconds=60.0)


def test_too_little_time_for_networks_is_spent_on_refinement(monkeypatch, caplog, slow):
    """Half-trained networks after folds that took all the time would help nobody."""
    labelled, reports = labelled_set(*pictures()), []
    monkeypatch.setattr(refinement_search, "choose_refinement", helping(0.6))
    monkeypatch.setattr(Budget, "level_settings", None)
    found = training.fit_labelled(labelled, STACK, slow(7), progress=lambda *report: reports.append(report))
    assert isinstance(found.model, hr.StackNet)
    assert [stage.name for stage in found.stages] == ["stack of forests", "refinement"]
    assert "7 min 0 s is too short for convolutional networks" in caplog.text
    assert "about 9 minutes in all" in caplog.text, (
        "four stacks, two of them for the folds, and 60 s: 460 s, and a tenth"
    )
    assert any(what.startswith("training: stage 2 of 2, ") for what, _, _ in reports)


def test_just_enough_time_is_enough(monkeypatch, slow):
    monkeypatch.setattr(refinement_search, "choose_refinement", helping(0.6))
    found = training.fit_labelled(labelled_set(*pictures()), STACK, slow(460 / 60), progress=silent)
    assert [stage.name for stage in found.stages][2:] == ["convolutional level"]


def test_if_no_time_is_given_there_is_enough(monkeypatch, slow):
    """A resumed run makes the same decision, since the duration of the stack is recorded."""
    messages, until = [], []
    monkeypatch.setattr(refinement_search, "choose_refinement", helping(0.6))
    planned, budget = Budget.level_settings, slow(best_seconds=6.0, clock=lambda: NOW)
    monkeypatch.setattr(Budget, "level_settings", lambda *given: until.append(given[4]) or planned(*given))
    found = training.fit_labelled(labelled_set(*pictures()), STACK, budget, say=messages.append, progress=silent)
    assert [stage.name for stage in found.stages][2:] == ["convolutional level"]
    assert until[0] == pytest.approx(NOW + 460)
    assert any("the whole run now takes about 7 min 40 s" in line for line in messages)


def test_what_best_needs_depends_on_its_folds():
    many, few = (labelled_set(*pictures(n)) for n in (8, 2))
    cpu, gpu = small("best", least_seconds=60.0), Budget("best", device="cuda")
    assert cpu.seconds_for_networks(many, 100) == 60 + (PLAN.n_folds + 2) * 100
    assert cpu.seconds_for_networks(few, 100) == 60 + 3 * 100
    expected = (estimates.GPU_PLAN.n_folds + 2) * 100 + estimates.LEAST_GPU_SECONDS
    assert gpu.seconds_for_networks(many, 100) == expected
    assert replace(gpu, minutes=3).seconds(many) == 180
    assert gpu.seconds(many) is None
    assert Budget("good").seconds(many) is None
    assert cpu.seconds(many) == 60 * estimates.BEST_MINUTES
