"""One knob for effort: what each does, what it says, and that it goes on where it stopped."""

import inspect
import re
import time
from dataclasses import replace
from functools import partial
from itertools import count

import numpy as np
import pytest

pytest.importorskip("torch")

import hedgerow as hr
from hedgerow import jobs
from hedgerow.deep import fitting, refinement_search
from hedgerow.deep.folds import search_folds
from hedgerow.deep.refinement_search import choose_refinement
from hedgerow.files import fingerprint
from hedgerow.forest.autocontext import grow_stack
from hedgerow.images.given import labelled_set
from hedgerow.jobs import effort_run, training
from hedgerow.progress import silent
from hedgerow.work_folder import WorkFolder, remove_work_folder
from helpers.deep import SMALL, STACK, pictures
from helpers.efforts import FEW_STEPS, helping, make_small, silent_plan, small_budget
from helpers.files import write
from helpers.refusals import assert_one_sentence

PLAN = hr.DeepConfig(n_folds=2, n_networks=1, judges=0, members=("reading",), conv=SMALL)
small = partial(small_budget, cpu_plan=PLAN, search=helping(0.6))


@pytest.fixture(autouse=True)
def small_networks(monkeypatch):
    """Small networks, briefly trained, of a refinement that helps."""
    make_small(monkeypatch, cpu_plan=PLAN, search=helping(0.6))


class Scored(refinement_search.Trial):
    """Trials that score as a function of their settings says, and refine nothing."""

    def __init__(self, score, clock=time.monotonic):
        folds = search_folds(labelled_set(*pictures()), STACK.seed)
        super().__init__(
            folds, grow_stack(folds.training(0), STACK, progress=silent), "cpu", silent_plan(), clock=clock
        )
        self.score = score

    def dice(self, config):
        return self.score(config)


def fitted(which, images=None, said=None, **options):
    images, labels = images or pictures()
    say = (said if said is not None else []).append
    return hr.fit(images, labels, which, STACK, say=say, progress=silent, **options)


def work_folder(folder):
    return WorkFolder(folder, fingerprint("images"))


def test_fast_is_the_stack():
    images, labels = pictures()
    messages = []
    found = fitted("fast", said=messages)
    assert isinstance(found, hr.ForestStack)
    np.testing.assert_array_equal(found.predict(images[0]), hr.fit_stack(images, labels, STACK).predict(images[0]))
    assert "effort fast: estimated time" in messages[0]
    assert messages[-1].startswith(f"level {STACK.n_levels}: mean Dice 0.")


def test_good_refines_with_what_was_chosen_and_keeps_it_only_if_it_helps(monkeypatch):
    found = fitted("good")
    assert isinstance(found, hr.StackNet)
    assert found.refinements[-1].config["n_steps"] == FEW_STEPS.n_steps
    make_small(monkeypatch, search=helping(0.4))
    said = []
    assert isinstance(fitted("good", said=said), hr.ForestStack)
    assert "discarded: no gain" in said[-2]


def test_best_adds_a_convolutional_level_and_keeps_it_only_if_it_helps(monkeypatch):
    monkeypatch.setattr("hedgerow.deep.fitting.find_weights", lambda said, target, *usual: dict.fromkeys(said, 0.5))
    labelled = labelled_set(*pictures())
    scores = iter([0.5, 0.5, 0.7, 0.5, 0.6, 0.5])  # of stack, reading and both, twice
    monkeypatch.setattr("hedgerow.deep.fitting.mean_dice", lambda proba, target: next(scores))
    result = training.fit_labelled(labelled, STACK, small("best"), progress=silent)
    assert isinstance(result.model, hr.DeepStack)
    assert [stage.kept for stage in result.stages] == [True, True, True]
    result = training.fit_labelled(labelled, STACK, small("best"), progress=silent)
    assert isinstance(result.model, hr.StackNet), "the level scored no better than the stack's network"
    assert not result.stages[-1].kept


def test_the_way_to_refine_is_chosen_by_what_it_brings():
    worth = {"small": 0.3, "turned": 0.5, "soft": 0.6}

    def dice(config):
        if config.relax == 0.3:
            return worth["soft"]
        return worth["turned"] if config.augment == refinement_search.TURNED else worth["small"]

    messages = []
    result = choose_refinement(Scored(dice), FEW_STEPS, say=messages.append)
    assert result.is_turned
    assert result.config.relax == 0.3
    assert result.refined == 0.6
    assert [name for name, _ in result.tried][:3] == ["small changes", "any rotation, mirrored", "softness 0.3"]
    assert len(messages) == 1 + len(result.tried)


def test_nothing_is_tried_where_forests_are_already_right_everywhere():
    trial, messages = Scored(lambda config: pytest.fail("a refinement was tried")), []
    trial.stack_dice = 1.0
    result = choose_refinement(trial, FEW_STEPS, say=messages.append)
    assert (result.stack, result.refined, result.tried) == (1.0, 1.0, [])
    assert messages == ["no refinement: the forests have a mean Dice of 1.000 on held-out images (2)"]


def test_the_images_that_choose_are_not_trained_on():
    labelled = labelled_set(*pictures(8))
    folds = search_folds(labelled, STACK.seed)
    stack = grow_stack(folds.training(0), STACK, progress=silent)
    trial = refinement_search.Trial(folds, stack, "cpu", silent_plan())
    held = {labelled.images[i].mark for i in trial.folds.held(0)}
    assert held
    assert not held & set(trial.stack.known.seen)
    assert not held & {image.mark for image in trial.training}
    assert 0 <= trial.dice(FEW_STEPS) <= 1


@pytest.mark.parametrize(("seconds", "steps"), [(0.0, 1), (1e6, FEW_STEPS.n_steps)])
def test_when_the_time_is_up_what_was_tried_is_used_for_as_many_steps_as_fit(seconds, steps):
    result = choose_refinement(Scored(lambda config: 0.4), FEW_STEPS, until=0.0, seconds=seconds)
    assert len(result.tried) == 2
    assert result.refined == 0.4
    assert result.config.n_steps == steps, "a third of the steps, as tried, at least"


@pytest.mark.parametrize(("n_tried", "refined"), [(0, 0.3), (1, 0.4)])
def test_trials_stop_when_the_time_is_up(n_tried, refined):
    asked = []

    def dice(config):
        asked.append(config)
        if len(asked) > n_tried:
            raise refinement_search.OutOfTimeError
        return refined

    trial, messages = Scored(dice), []
    trial.stack_dice = 0.3
    result = choose_refinement(trial, FEW_STEPS, until=0.0, seconds=0.0, say=messages.append)
    assert len(asked) == n_tried + 1, "none begins after that"
    assert (len(result.tried), result.refined, result.stack) == (n_tried, refined, 0.3)
    assert ("no time" in messages[-1]) == (n_tried == 0)


def test_a_trial_ends_at_its_deadline_and_keeps_its_checkpoint(tmp_path):
    folds = search_folds(labelled_set(*pictures()), STACK.seed)
    stack = grow_stack(folds.training(0), STACK, progress=silent)
    work = work_folder(tmp_path / "work")
    trial = refinement_search.Trial(folds, stack, "cpu", silent_plan(), work=work, clock=count(1).__next__, latest=3)
    config = replace(FEW_STEPS, check_every=1)
    with pytest.raises(refinement_search.OutOfTimeError):
        trial.outcome(config)
    later = refinement_search.Trial(folds, stack, "cpu", silent_plan(), work=work)
    later.outcome(config)
    assert later.resumed_from > 0


def test_good_leaves_refinement_out_if_the_forests_took_all_the_time(monkeypatch):
    now = [0.0]

    def clock():
        now[0] += 100.0
        return now[0]

    searched = lambda *_, **__: pytest.fail("a refinement was tried")  # noqa: E731
    make_small(monkeypatch, search=searched, clock=clock)
    messages = []
    assert isinstance(fitted("good", said=messages, minutes=10.0), hr.ForestStack)
    assert "no refinement: there is no time left for it" in messages
    (table,) = [text for text in messages if text.startswith("held-out mean Dice without")]
    assert re.search("refinement .* no time left$", table, re.MULTILINE)
    assert "Compare scores" not in table, "there is one row of them"


def test_forests_of_an_interrupted_search_take_no_time_again(monkeypatch, tmp_path):
    """Of 300 seconds, the forests took 200, so that others, without a fold, would end too late."""
    labelled, now = labelled_set(*pictures()), [0.0]

    def grown(*given, **options):
        now[0] += 200.0
        return grow_stack(*given, **options)

    def searched(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("hedgerow.jobs.effort_run.grow_stack", grown)
    budget = small("good", 5.0, search=searched, clock=lambda: now[0])
    result = training.fit_labelled(labelled, STACK, budget, files=work_folder(tmp_path / "work"), progress=silent)
    assert result.stages[-1].scored_on == "no time left"
    longer = replace(budget, minutes=10.0)
    with pytest.raises(KeyboardInterrupt):
        training.fit_labelled(labelled, STACK, longer, files=work_folder(tmp_path / "work"), progress=silent)
    for path in tmp_path.glob("work/choice-*"):
        path.unlink()
    assert any(path.name.startswith("held-out-stack-") for path in tmp_path.glob("work/*"))
    with pytest.raises(KeyboardInterrupt):
        training.fit_labelled(labelled, STACK, budget, files=work_folder(tmp_path / "work"), progress=silent)


@pytest.mark.parametrize(("seconds", "steps"), [(20, 20), (30, 30), (89, 30), (90, 90)])
def test_no_more_steps_are_tried_than_refinement_has_time_for(seconds, steps):
    clock = [0.0]

    def dice(config):
        clock[0] += config.n_steps  # a second each
        return 0.1 + config.n_steps / 1000

    config = replace(FEW_STEPS, n_steps=30)
    found = choose_refinement(Scored(dice, lambda: clock[0]), config, until=1e6, seconds=seconds)
    tried = [name for name, _ in found.tried]
    assert found.config.n_steps == steps
    assert ("30 steps" in tried, "90 steps" in tried) == (steps >= 30, steps == 90)


def test_an_interrupted_run_goes_on_from_its_folder(tmp_path, monkeypatch):
    images, labels = pictures()
    for name, some in (("images", images), ("labels", labels)):
        for k, one in enumerate(some):
            write(tmp_path / name / f"{k}.tif", one)
    request = jobs.TrainRequest(tmp_path / "images", tmp_path / "labels", tmp_path / "b.hedge", "best", config=STACK)
    whole = jobs.train(replace(request, output=tmp_path / "a.hedge"), progress=silent)
    assert not (tmp_path / "a.hedge.work").exists()

    def stop(*given):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fitting, "regrown", stop)
        with pytest.raises(KeyboardInterrupt):
            jobs.train(request, progress=silent)
    assert list((tmp_path / "b.hedge.work").glob("refined-*.hedge"))
    assert not (tmp_path / "b.hedge").exists()
    monkeypatch.setattr(effort_run, "grow_stack", None)  # the stack is there
    monkeypatch.setattr("hedgerow.refinement.loop.refine_labelled", None)
    messages = []
    resumed = jobs.train(request, say=messages.append, progress=silent)
    assert any("resuming: the stack of forests of the interrupted run is reused" in line for line in messages)
    assert type(resumed.model) is type(whole.model)
    np.testing.assert_array_equal(resumed.model.predict_proba(images[0]), whole.model.predict_proba(images[0]))
    assert not (tmp_path / "b.hedge.work").exists()


@pytest.mark.parametrize("change", [{"effort": "good"}, {"minutes": 40.0}, {"effort": "good", "minutes": 5.0}])
def test_an_interrupted_run_is_reused_with_another_effort_or_time(tmp_path, monkeypatch, change):
    """Only what depends on the change is done again."""
    for name, some in zip(("images", "labels"), pictures(), strict=True):
        for k, one in enumerate(some):
            write(tmp_path / name / f"{k}.tif", one)
    request = jobs.TrainRequest(tmp_path / "images", tmp_path / "labels", tmp_path / "b.hedge", "best", config=STACK)
    with monkeypatch.context() as patch:
        patch.setattr(fitting, "regrown", None)
        with pytest.raises(TypeError):
            jobs.train(request, progress=silent)
    stacks = []
    monkeypatch.setattr(effort_run, "grow_stack", lambda *given, **options: stacks.append(given))
    monkeypatch.setattr("hedgerow.refinement.loop.refine_labelled", None)
    if change.get("effort") == "good":
        jobs.train(replace(request, **change), progress=silent)
    else:
        with monkeypatch.context() as patch:
            patch.setattr(fitting, "regrown", None)  # the next thing to do
            with pytest.raises(TypeError):
                jobs.train(replace(request, **change), progress=silent)
    assert stacks == []


def test_other_groups_grow_another_stack(tmp_path, monkeypatch):
    """The held-out score and the number of levels depend on them."""
    monkeypatch.setattr(refinement_search, "choose_refinement", helping(0.6))
    for name, some in zip(("images", "labels"), pictures(), strict=True):
        for k, one in enumerate(some):
            write(tmp_path / name / f"{k}.tif", one)
    request = jobs.TrainRequest(tmp_path / "images", tmp_path / "labels", tmp_path / "b.hedge", "good", config=STACK)
    with monkeypatch.context() as patch:
        patch.setattr("hedgerow.refinement.loop.refine_labelled", None)
        with pytest.raises(TypeError):
            jobs.train(replace(request, groups="none"), progress=silent)
    grown = []
    monkeypatch.setattr(
        effort_run, "grow_stack", lambda labelled, *given, **more: grown.append(labelled.subjects) or {}["stop"]
    )
    n = len(list((tmp_path / "images").iterdir()))
    with pytest.raises(KeyError):
        jobs.train(replace(request, groups=["a"] * n), progress=silent)
    assert grown == [[list(range(n))]]


def test_other_images_reuse_nothing(tmp_path, monkeypatch):
    for seed in (0, 1):
        for name, some in zip(("images", "labels"), pictures(seed=seed), strict=True):
            for k, one in enumerate(some):
                write(tmp_path / f"{name}{seed}" / f"{k}.tif", one)
    requests = [
        jobs.TrainRequest(
            tmp_path / f"images{seed}", tmp_path / f"labels{seed}", tmp_path / "b.hedge", "good", config=STACK
        )
        for seed in (0, 1)
    ]
    expected = jobs.train(replace(requests[1], output=tmp_path / "a.hedge"), progress=silent).model
    with monkeypatch.context() as patch:
        patch.setattr("hedgerow.refinement.loop.refine_labelled", None)
        with pytest.raises(TypeError):
            jobs.train(requests[0], progress=silent)
    messages = []
    model = jobs.train(requests[1], say=messages.append, progress=silent).model
    assert any("other images or labels; nothing of it is reused" in line for line in messages)
    image = pictures(seed=1)[0][0]
    np.testing.assert_array_equal(model.predict_proba(image), expected.predict_proba(image))


def test_reserved_images_are_seen_by_no_stage():
    labelled, messages = labelled_set(*pictures(6)), []
    config = replace(STACK, reserve=0.34)
    found = training.fit_labelled(labelled, config, small("good"), say=messages.append, progress=silent)
    known = found.model.known
    assert len(known.reserved) == 2
    assert not set(known.reserved) & set(known.seen)
    assert any("on 2 reserved image(s)" in line for line in messages)


def test_fast_records_its_score_on_reserved_images_whoever_asks():
    labelled, messages = labelled_set(*pictures(6)), []
    fast = training.fit_labelled(
        labelled, replace(STACK, reserve=0.34), small("fast"), say=messages.append, progress=silent
    ).model
    assert fast.settings["reserved"]["n_images"] == 2
    assert messages[-1] == f"mean Dice {fast.settings['reserved']['mean_dice']:.3f} on 2 reserved image(s)"
    assert fast.settings["config"]["reserve"] == 0.34


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
            jobs.train(
                jobs.TrainRequest(
                    tmp_path / "images", tmp_path / "labels", tmp_path / "m.hedge", "good", restart=restart
                ),
                progress=silent,
            )
        assert_one_sentence(problem, "m.hedge.work", "move it away")
    assert theirs.read_text() == "all of it"


@pytest.mark.parametrize(
    ("name", "text"),
    [("run.txt", "5 km, 31 min"), ("choice.json", '{"config": 1}'), ("stack.hedge", ""), ("refining.checkpoint", "?")],
)
def test_a_file_that_is_only_named_like_one_of_a_run_stays(tmp_path, name, text):
    folder = tmp_path / "work"
    work_folder(folder)
    (folder / name).write_text(text)
    for refuse in (lambda: work_folder(folder), lambda: remove_work_folder(folder)):
        with pytest.raises(hr.InputError) as problem:
            refuse()
        assert_one_sentence(problem, folder, "move it away")
    assert (folder / name).read_text() == text
    assert (folder / "run.txt").exists()


def test_all_of_a_run_is_removed_but_the_notes_of_others(tmp_path):
    folder = tmp_path / "work"
    files = work_folder(folder)
    files.seconds("stack", "key", 70.0)
    hr.save(hr.fit_stack(*pictures(2), STACK), files.path("stack", "key", ".hedge"))
    (folder / "notes.txt").write_text("theirs")
    remove_work_folder(folder)
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    (folder / "notes.txt").unlink()
    work_folder(folder)
    remove_work_folder(folder)
    assert not folder.exists()


def test_every_stage_tells_how_far_all_is(monkeypatch):
    reports = []
    images, labels = pictures()
    hr.fit(images, labels, "best", STACK, progress=lambda *report: reports.append(report))
    parts = [done / total for _, done, total in reports]
    assert parts == sorted(parts), "it never goes back"
    assert {what.partition(",")[0] for what, _, _ in reports} == {f"training: stage {n} of 3" for n in (1, 2, 3)}
    reports.clear()
    hr.fit(images, labels, "fast", STACK, progress=lambda *report: reports.append(report))
    assert not any("stage" in what for what, _, _ in reports)


def test_how_long_a_stage_took_is_remembered(tmp_path):
    files = work_folder(tmp_path / "a.work")
    assert files.seconds("stack", "key", 70.0) == 70.0
    assert files.seconds("stack", "key", 0.1) == 70.0, "the second time it was only read"
    assert files.seconds("stack", "another key", 0.1) == 0.1


def test_stages_are_summed_up_in_a_table():
    stages = [
        effort_run.Stage("stack of forests", 0.445, 0.482, 30.0, "training images", "3 levels"),
        effort_run.Stage("refinement", 0.515, 0.559, 300.0, "held-out images (4)", "300 steps"),
        effort_run.Stage("convolutional level", 0.657, 0.640, 700.0, "2 held-out image(s)", "2 networks", kept=False),
    ]
    text = effort_run.summary(stages)
    assert "  refinement           0.515    0.559  5 min 0 s    held-out images (4)" in text.splitlines()
    assert "Compare scores within a row" in text
    assert "2 held-out image(s); discarded: no gain" in text
    assert text.splitlines()[-1] == "chosen: stack of forests: 3 levels; refinement: 300 steps"
    alike = effort_run.summary([replace(stage, scored_on="the same") for stage in stages])
    assert "Compare" not in alike


def test_a_refinement_that_nothing_is_known_of_is_in_the_table():
    text = effort_run.summary([effort_run.Stage("stack of forests", None, None, 30.0)])
    assert text.splitlines()[2].split() == ["stack", "of", "forests", "30", "s", "nothing", "held", "out"]


def test_python_and_the_command_have_the_same_default_effort():
    assert inspect.signature(hr.fit).parameters["effort"].default == jobs.TrainRequest.effort == "fast"
