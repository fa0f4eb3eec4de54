"""One knob for effort: what each does, what it says, and that it goes on where it stopped."""

import time
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

import hedgerow as hr
from hedgerow import jobs
from hedgerow.deep import adapting, held_out
from hedgerow.deep.adapting import Choice, choose_refinement
from hedgerow.deep.choosing import n_tried
from hedgerow.deep.fitting import tasks_of
from hedgerow.forest import choosing
from hedgerow.images.labelled import labelled_set
from hedgerow.jobs import effort, plans
from hedgerow.jobs.stage_files import StageFiles
from hedgerow.jobs.whole_plan import WholePlan
from hedgerow.progress import Progress, silent
from hedgerow.threads import threads
from helpers.deep import SMALL, STACK, pictures
from helpers.efforts import FEW_STEPS, make_small
from helpers.files import write
from helpers.refusals import assert_one_sentence

CPU = plans.CPU


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Small networks, briefly trained."""
    plan = hr.DeepConfig(n_folds=2, n_networks=1, judges=0, members=("reading",), conv=SMALL)
    make_small(monkeypatch, plan)


def fitted(which, images=None, said=None, **options):
    images, labels = images or pictures()
    say = (said if said is not None else []).append
    return hr.fit(images, labels, which, STACK, say=say, progress=silent, **options)


def helping(refined):
    """A choice that scores so."""
    return lambda *given, **options: Choice(FEW_STEPS, 0.5, refined, [])


def test_fast_is_the_stack():
    images, labels = pictures()
    said = []
    found = fitted("fast", said=said)
    assert isinstance(found, hr.ForestStack)
    np.testing.assert_array_equal(found.predict(images[0]), hr.fit_stack(images, labels, STACK).predict(images[0]))
    assert "effort fast: expected to take about" in said[0]
    assert any(line.startswith("stack of forests: held-out mean Dice 0.") for line in said[-2].splitlines())


def test_good_refines_with_what_was_chosen_and_keeps_it_only_if_it_helps(monkeypatch):
    monkeypatch.setattr(adapting, "choose_refinement", helping(0.6))
    found = fitted("good")
    assert isinstance(found, hr.StackNet)
    assert found.refinements[-1].config["n_steps"] == FEW_STEPS.n_steps
    monkeypatch.setattr(adapting, "choose_refinement", helping(0.4))
    said = []
    assert isinstance(fitted("good", said=said), hr.ForestStack)
    assert "it does not help, so the model is that of before" in said[-2]


def test_best_adds_a_convolutional_level_and_keeps_it_only_if_it_helps(monkeypatch):
    monkeypatch.setattr(adapting, "choose_refinement", helping(0.6))
    monkeypatch.setattr("hedgerow.deep.fitting.find_weights", lambda said, target, *usual: dict.fromkeys(said, 0.5))
    labelled = labelled_set(*pictures())
    scores = iter([0.5, 0.5, 0.7, 0.5, 0.6, 0.5])  # of stack, reading and both, twice
    monkeypatch.setattr("hedgerow.deep.fitting.mean_dice", lambda proba, target: next(scores))
    found = effort.fit_labelled(labelled, STACK, "best", progress=silent)
    assert isinstance(found.model, hr.DeepStack)
    assert [stage.kept for stage in found.stages] == [True, True, True]
    found = effort.fit_labelled(labelled, STACK, "best", progress=silent)
    assert isinstance(found.model, hr.StackNet), "the level scored no better than the stack's network"
    assert not found.stages[-1].kept


def test_the_way_to_refine_is_chosen_by_what_it_brings(monkeypatch):
    worth = {"small": 0.3, "turned": 0.5, "soft": 0.6}

    def dice(self, config):
        if config.relax == 0.3:
            return worth["soft"]
        return worth["turned"] if config.augment == adapting.TURNED else worth["small"]

    monkeypatch.setattr(adapting.Trial, "dice", dice)
    said, labelled = [], labelled_set(*pictures())
    found = choose_refinement(labelled, STACK, FEW_STEPS, say=said.append, report=silent)
    assert found.is_turned
    assert found.config.relax == 0.3
    assert found.refined == 0.6
    assert [name for name, _ in found.tried][:3] == ["small changes", "any rotation, mirrored", "softness 0.3"]
    assert len(said) == 1 + len(found.tried)


def test_the_images_that_choose_are_not_trained_on():
    labelled = labelled_set(*pictures(8))
    trial = adapting.Trial(labelled, STACK, "cpu", silent)
    held = {labelled.images[i].mark for i in trial.folds.held(0)}
    assert held
    assert not held & set(trial.stack.known.seen)
    assert not held & {image.mark for image in trial.training}
    assert 0 <= trial.dice(FEW_STEPS) <= 1


@pytest.mark.parametrize(("seconds", "steps"), [(0.0, 1), (1e6, FEW_STEPS.n_steps)])
def test_when_the_time_is_up_what_was_tried_is_used_for_as_many_steps_as_fit(monkeypatch, seconds, steps):
    monkeypatch.setattr(adapting.Trial, "dice", lambda self, config: 0.4)
    found = choose_refinement(labelled_set(*pictures()), STACK, FEW_STEPS, until=0.0, seconds=seconds, report=silent)
    assert len(found.tried) == 2
    assert found.refined == 0.4
    assert found.config.n_steps == steps, "a third of the steps, as tried, at least"


@pytest.mark.parametrize(("seconds", "steps"), [(20, 20), (30, 30), (89, 30), (90, 90)])
def test_no_more_steps_are_tried_than_refinement_has_time_for(monkeypatch, seconds, steps):
    clock = [0.0]

    def dice(self, config):
        clock[0] += config.n_steps  # a second each
        return 0.1 + config.n_steps / 1000

    monkeypatch.setattr(adapting.Trial, "dice", dice)
    monkeypatch.setattr(adapting.time, "monotonic", lambda: clock[0])
    config = replace(FEW_STEPS, n_steps=30)
    found = choose_refinement(labelled_set(*pictures()), STACK, config, until=1e6, seconds=seconds, report=silent)
    tried = [name for name, _ in found.tried]
    assert found.config.n_steps == steps
    assert ("30 steps" in tried, "90 steps" in tried) == (steps >= 30, steps == 90)


def test_an_interrupted_run_goes_on_from_its_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(adapting, "choose_refinement", helping(0.6))
    images, labels = pictures()
    for name, some in (("images", images), ("labels", labels)):
        for k, one in enumerate(some):
            write(tmp_path / name / f"{k}.tif", one)
    job = {"config": STACK, "progress": silent}
    whole = jobs.train_with_effort(tmp_path / "images", tmp_path / "labels", tmp_path / "a.hedge", "best", **job)
    assert not (tmp_path / "a.hedge.work").exists()

    def stop(net, labelled, report):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(held_out, "made_again", stop)
        with pytest.raises(KeyboardInterrupt):
            jobs.train_with_effort(tmp_path / "images", tmp_path / "labels", tmp_path / "b.hedge", "best", **job)
    assert (tmp_path / "b.hedge.work" / "refined.hedge").exists()
    assert not (tmp_path / "b.hedge").exists()
    with pytest.raises(hr.InputError) as problem:
        jobs.train_with_effort(tmp_path / "images", tmp_path / "labels", tmp_path / "b.hedge", "good", **job)
    assert_one_sentence(problem, "interrupted run", "--restart")
    monkeypatch.setattr(effort, "grow_stack", None)  # the stack is there
    monkeypatch.setattr("hedgerow.refinement.loop.refine_labelled", None)
    resumed = jobs.train_with_effort(tmp_path / "images", tmp_path / "labels", tmp_path / "b.hedge", "best", **job)
    assert type(resumed.model) is type(whole.model)
    np.testing.assert_array_equal(resumed.model.predict_proba(images[0]), whole.model.predict_proba(images[0]))
    assert not (tmp_path / "b.hedge.work").exists()


def test_reserved_images_are_seen_by_no_stage(monkeypatch):
    monkeypatch.setattr(adapting, "choose_refinement", helping(0.6))
    labelled, said = labelled_set(*pictures(6)), []
    found = effort.fit_labelled(labelled, replace(STACK, reserve=0.34), "good", say=said.append, progress=silent)
    known = found.model.known
    assert len(known.reserved) == 2
    assert not set(known.reserved) & set(known.seen)
    assert any("on 2 reserved image(s)" in line for line in said)


@pytest.mark.parametrize(("wrong", "words"), [({"effort": "most"}, "fast, good, best"), ({"minutes": -1}, "positive")])
def test_impossible_efforts_are_refused(wrong, words):
    images, labels = pictures(2)
    with pytest.raises(hr.ConfigError) as problem:
        hr.fit(images, labels, **{"effort": "good", **wrong})
    assert_one_sentence(problem, words)


def test_somebody_elses_folder_is_left_alone(tmp_path):
    images, labels = pictures(2)
    for name, some in (("images", images), ("labels", labels)):
        write(tmp_path / name / "0.tif", some[0])
    theirs = tmp_path / "m.hedge.work" / "thesis.txt"
    theirs.parent.mkdir()
    theirs.write_text("all of it")
    for restart in (False, True):
        with pytest.raises(hr.InputError) as problem:
            jobs.train_with_effort(
                tmp_path / "images", tmp_path / "labels", tmp_path / "m.hedge", "good", restart=restart, progress=silent
            )
        assert_one_sentence(problem, "m.hedge.work", "move it away")
    assert theirs.read_text() == "all of it"


@pytest.mark.parametrize(("is_here", "members"), [(True, ("reading", "pretrained")), (False, ("reading", "alone"))])
def test_on_a_cpu_pretrained_networks_take_the_place_of_those_alone(monkeypatch, is_here, members):
    images, labels = pictures()
    net = hr.to_convnet(hr.fit_stack(images, labels, STACK))
    monkeypatch.setattr(plans, "CPU", CPU)
    monkeypatch.setattr(choosing, "encoder_is_here", lambda: is_here)
    assert plans.deep_plan(net, labelled_set(images, labels), False, "cpu", 0).members == members


def test_the_plan_for_a_cpu_fits_the_time(monkeypatch):
    images, labels = pictures()
    labelled = labelled_set(images, labels)
    net = hr.to_convnet(hr.fit_stack(images, labels, STACK))
    monkeypatch.setattr("hedgerow.deep.fitting.seconds_of_a_step", lambda *given: 0.5)
    monkeypatch.setattr(plans, "MOST_STEPS", 10**6)
    with threads(1):
        plan = plans.deep_plan(net, labelled, True, "cpu", 7)
        found = plans.deep_settings(plan, net, labelled, "cpu", time.monotonic() + 1000)
    assert found.conv.n_steps == pytest.approx(plans.SPARE * 1000 / 0.5, abs=3), "one network, one thread"
    assert found.conv.augment == adapting.TURNED
    assert found.conv.orientations == 8
    assert found.seed == 7
    four = replace(labelled, images=labelled.images[:4])
    few = plans.deep_settings(plan, net, four, "cpu", time.monotonic() + 1000)
    assert (few.conv.batch, few.conv.learning_rate) == (2 * found.conv.batch, found.conv.learning_rate / 3)
    hurried = plans.deep_settings(plan, net, labelled, "cpu", time.monotonic())
    assert hurried.conv.n_steps == plans.FEWEST_STEPS


def test_steps_are_planned_when_it_is_known_what_the_folds_took(monkeypatch):
    order, again, planned = [], held_out.held_out_proba, plans.deep_settings

    def noted(name, function):
        def call(*given, **options):
            order.append(name)
            return function(*given, **options)

        return call

    monkeypatch.setattr("hedgerow.deep.fitting.held_out_proba", noted("folds", again))
    monkeypatch.setattr(effort, "deep_settings", noted("plan", planned))
    fitted("best")
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

    monkeypatch.setattr("hedgerow.deep.fitting.choose_network", chosen)
    plan = plans.deep_plan(net, labelled, False, "cuda", 0)
    found = plans.deep_settings(plan, net, labelled, "cuda", None, said.append)
    members = ("alone", "reading")  # there are no pretrained weights here
    chosen_conv = replace(plans.GPU.conv, base=32, norm="image", crop=512)
    assert found == replace(plans.GPU, members=members, conv=chosen_conv)
    assert "32 channels normalised over each image in crops of 512 pixels 0.200" in said[-1]

    def seconds(net, labelled, plan, device):
        return 0.5 * (plan.conv.base / 32) * (plan.conv.crop / 256) ** 2

    monkeypatch.setattr("hedgerow.deep.fitting.seconds_of_a_step", seconds)
    monkeypatch.setattr(plans, "MOST_STEPS", 10**6)
    found = plans.deep_settings(plan, net, labelled, "cuda", time.monotonic() + 1000)
    n_networks, affordable = len(tasks_of(plans.GPU, labelled)), plans.SPARE * 1000 / 0.5
    assert steps[-1] == pytest.approx(affordable / (n_networks + n_tried(plan.conv, labelled)), abs=3)
    assert found.conv.n_steps == pytest.approx(affordable / 4 / n_networks, abs=3), "what is left is planned anew"


def test_smaller_networks_are_planned_where_larger_ones_could_not_be_trained_long_enough(monkeypatch):
    images, labels = pictures()
    labelled = labelled_set(images, labels)
    net = hr.to_convnet(hr.fit_stack(images, labels, STACK))
    monkeypatch.setattr(
        plans, "CPU", hr.DeepConfig(n_networks=1, judges=0, members=("reading",), conv=hr.ConvConfig(base=16))
    )
    monkeypatch.setattr(plans, "MOST_STEPS", 10**6)
    monkeypatch.setattr("hedgerow.deep.fitting.seconds_of_a_step", lambda net, labelled, plan, device: plan.conv.base)

    def planned(steps):
        plan, left = plans.deep_plan(net, labelled, False, "cpu", 7), 16 * steps / plans.SPARE
        with threads(1):
            return plans.deep_settings(plan, net, labelled, "cpu", time.monotonic() + left).conv

    assert planned(plans.ENOUGH + 5).base == 16
    few = planned(plans.ENOUGH - 200)
    assert few.base == plans.SMALLER
    assert few.n_steps == pytest.approx(2 * (plans.ENOUGH - 200), abs=3)


def test_progress_is_that_of_the_whole_plan():
    now, told = [0.0], []
    plan = WholePlan([10.0, 30.0, 60.0], lambda *report: told.append(report), lambda: now[0])
    for stage, seconds in ((0, 5.0), (1, 0.0), (1, 15.0), (1, 99.0), (2, 30.0)):
        if seconds == 0.0 or stage != 1:
            plan.begin(stage)
        now[0] += seconds
        plan.report("trees: many", 3, 4)
    assert [done for _, done, _ in told] == [50, 100, 250, 385, 700], "late work does not run ahead of its stage"
    assert {total for _, _, total in told} == {1000}
    assert told[-1][0] == "stage 3 of 3: trees, many"


def test_every_stage_tells_how_far_all_is(monkeypatch):
    told = []
    images, labels = pictures()
    hr.fit(images, labels, "best", STACK, progress=lambda *report: told.append(report))
    parts = [done / total for _, done, total in told]
    assert parts == sorted(parts), "it never goes back"
    assert {what.partition(":")[0] for what, _, _ in told} == {f"stage {n} of 3" for n in (1, 2, 3)}, "three works"
    told.clear()
    hr.fit(images, labels, "fast", STACK, progress=lambda *report: told.append(report))
    assert not any("stage" in what for what, _, _ in told)


def test_a_score_that_changes_does_not_set_the_clock_back():
    now = [0.0]
    shown = Progress(lambda: now[0])
    plan = WholePlan([10.0, 90.0], shown.report, lambda: now[0])
    plan.begin(1)
    for dice in (0.5, 0.6, 0.7):
        plan.report(f"convolutional networks: held-out Dice {dice}", 1, 4)
        now[0] += 15.0
    plan.report("convolutional networks: held-out Dice 0.8", 2, 4)
    assert shown.text() == "stage 2 of 2: convolutional networks, held-out Dice 0.8, 55 %, about 45 s left"


def test_few_images_are_planned_for_in_two_rounds(monkeypatch):
    """The judge comes first, and nothing runs beside it."""
    images, labels = pictures(2)
    labelled = labelled_set(images, labels)
    net = hr.to_convnet(hr.fit_stack(images, labels, STACK))
    monkeypatch.setattr(plans, "MOST_STEPS", 10**6)
    monkeypatch.setattr("hedgerow.deep.fitting.seconds_of_a_step", lambda *given: 1.0)
    plan = replace(plans.deep_plan(net, labelled, False, "cpu", 0), members=("alone",))
    with threads(2):
        steps = plans.deep_settings(plan, net, labelled, "cpu", time.monotonic() + 4000 / plans.SPARE).conv.n_steps
    assert steps == pytest.approx(2000, abs=3)


@pytest.fixture
def slow(monkeypatch):
    """A machine on which a stack takes 100 s, and refinements and networks 60."""
    monkeypatch.setattr(StageFiles, "seconds", lambda files, name, taken: 100.0)
    monkeypatch.setattr(plans, "LEAST_CPU", 60.0)


def test_too_little_time_for_networks_is_spent_on_refinement(monkeypatch, caplog, slow):
    """Half-trained networks after folds that took all the time would help nobody."""
    labelled, told = labelled_set(*pictures()), []
    monkeypatch.setattr(adapting, "choose_refinement", helping(0.6))
    monkeypatch.setattr(effort, "deep_settings", None)
    job = {"minutes": 7, "progress": lambda *report: told.append(report)}
    found = effort.fit_labelled(labelled, STACK, "best", **job)
    assert isinstance(found.model, hr.StackNet)
    assert [stage.name for stage in found.stages] == ["stack of forests", "refinement"]
    assert "7 min 0 s is too short for convolutional networks" in caplog.text
    assert "about 9 minutes in all" in caplog.text, (
        "four stacks, two of them for the folds, and 60 s: 460 s, and a tenth"
    )
    assert any(what.startswith("stage 2 of 2: ") for what, _, _ in told)


def test_just_enough_time_is_enough(monkeypatch, slow):
    monkeypatch.setattr(adapting, "choose_refinement", helping(0.6))
    found = effort.fit_labelled(labelled_set(*pictures()), STACK, "best", minutes=460 / 60, progress=silent)
    assert [stage.name for stage in found.stages][2:] == ["convolutional level"]


def test_if_no_time_is_given_there_is_enough(monkeypatch, slow):
    """A run that goes on decides as before, since it is kept how long the stack took."""
    said, until = [], []
    monkeypatch.setattr(adapting, "choose_refinement", helping(0.6))
    monkeypatch.setattr(plans, "BEST_MINUTES", 0.1)
    planned = plans.deep_settings
    monkeypatch.setattr(effort, "deep_settings", lambda *given: until.append(given[4]) or planned(*given))
    begun = time.monotonic()
    found = effort.fit_labelled(labelled_set(*pictures()), STACK, "best", say=said.append, progress=silent)
    assert [stage.name for stage in found.stages][2:] == ["convolutional level"]
    assert until[0] == pytest.approx(begun + 460, abs=5)
    assert any("all takes about 7 min 40 s" in line for line in said)


def test_what_best_needs_depends_on_its_folds(slow):
    many, few = (labelled_set(*pictures(n)) for n in (8, 2))
    assert plans.seconds_for_networks(many, "cpu", 100) - plans.LEAST_CPU == (plans.CPU.n_folds + 2) * 100
    assert plans.seconds_for_networks(few, "cpu", 100) - plans.LEAST_CPU == 3 * 100
    assert plans.seconds_for_networks(many, "cuda", 100) == (plans.GPU.n_folds + 2) * 100 + plans.LEAST_GPU
    assert plans.allowed_seconds(many, "best", 3, "cuda") == 180
    assert plans.allowed_seconds(many, "best", None, "cuda") is None
    assert plans.allowed_seconds(many, "good", None, "cpu") is None
    assert plans.allowed_seconds(many, "best", None, "cpu") == 60 * plans.BEST_MINUTES


def test_how_long_a_stage_took_is_remembered(tmp_path):
    labelled = labelled_set(*pictures(2))
    files = StageFiles(tmp_path / "a.work", "best", None, "cpu", STACK, labelled)
    assert files.seconds("stack", 70.0) == 70.0
    assert files.seconds("stack", 0.1) == 70.0, "the second time it was only read"


@pytest.mark.parametrize(("n_stages", "seconds", "part"), [(2, 25.0, 700), (3, 80.0, 219), (2, 5.0, 995)])
def test_a_plan_may_turn_out_shorter_or_longer(n_stages, seconds, part):
    now, told = [0.0], []
    plan = WholePlan([10.0, 30.0, 60.0], lambda *report: told.append(report), lambda: now[0])
    plan.change(n_stages, seconds)
    plan.begin(1)
    now[0] += 7.5
    plan.report("steps", 1, 2)
    assert told == [(f"stage 2 of {n_stages}: steps", part, 1000)]


def test_a_run_on_another_device_is_another_run(tmp_path):
    labelled = labelled_set(*pictures(2))
    StageFiles(tmp_path / "work", "best", None, "cpu", STACK, labelled)
    StageFiles(tmp_path / "work", "best", None, "cpu", STACK, labelled)
    with pytest.raises(hr.InputError, match="another effort, time or device"):
        StageFiles(tmp_path / "work", "best", None, "cuda", STACK, labelled)
