"""One run per output, which a second one is told; and a run that was killed anywhere resumes to the same bytes."""

import itertools
import multiprocessing
import os
import signal

import pytest

pytest.importorskip("torch")

import hedgerow as hr
from hedgerow import jobs, work_folder
from hedgerow.deep import refinement_search
from hedgerow.deep.folds import search_folds
from hedgerow.forest.autocontext import grow_stack
from hedgerow.forest.settings_choice import SettingsChoice
from hedgerow.images.given import labelled_set
from hedgerow.jobs import effort_run
from hedgerow.locking import locked
from hedgerow.progress import quiet, silent
from hedgerow.refinement import checkpoints
from hedgerow.work_folder import WorkFolder
from helpers.deep import STACK, pictures
from helpers.efforts import make_small, silent_plan
from helpers.files import listing, write
from helpers.large import picture, write_zarr
from helpers.refinements import SHORT, Stopped
from helpers.refusals import assert_one_sentence

PATIENCE = 300  # seconds, for a process to import everything
TRIED = hr.RefineConfig(n_steps=6, check_every=1, pixels=200, held_out=0.0)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with images and labels, and refinements of a few steps."""
    make_small(monkeypatch, first_refinement=TRIED)
    images, labels = pictures()
    for name, some in (("images", images), ("labels", labels)):
        for k, one in enumerate(some):
            write(tmp_path / name / f"{k}.tif", one)
    return tmp_path


def train(place, output="model.hedge", which="good", *, say=quiet, progress=silent, **options):
    request = jobs.TrainRequest(
        place / "images", place / "labels", place / output, which, **{"config": STACK, **options}
    )
    return jobs.train(request, say=say, progress=progress)


# Two runs on one output


def train_until_told(place, pipe):
    """A run that stops for ever after its first stage."""

    def say(text):
        if text.startswith("choosing"):
            pipe.send("running")
            pipe.recv()

    train(place, say=say)


def test_a_second_effort_is_refused_at_once_and_resumes_when_the_first_is_killed(place):
    train(place, "whole.hedge")
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    first = context.Process(target=train_until_told, args=(place, there), daemon=True)
    first.start()
    try:
        assert here.poll(PATIENCE)
        before, messages = listing(place), []
        for restart in (False, True):
            with pytest.raises(hr.InputError) as problem:
                train(place, restart=restart, say=messages.append)
            assert_one_sentence(problem, place / "model.hedge", f"process {first.pid} on ", "wait for that run")
        assert messages == [], "no image was read"
        assert listing(place) == before, "nothing of the first was touched"
    finally:
        os.kill(first.pid, getattr(signal, "SIGKILL", signal.SIGTERM))
        first.join(PATIENCE)
    assert list((place / "model.hedge.work").glob("stack-*.hedge"))
    train(place)
    assert (place / "model.hedge").read_bytes() == (place / "whole.hedge").read_bytes()
    assert not (place / "model.hedge.work").exists()
    assert not list(place.glob(".hedgerow*"))


def test_no_other_command_writes_what_a_run_holds(place, stack, monkeypatch):
    monkeypatch.chdir(place)
    hr.save(hr.fit_stack(*pictures(), STACK), "stack.hedge")
    image = write_zarr("image.zarr", picture())
    net = hr.to_convnet(hr.load("stack.hedge"))
    runs = {
        "b.hedge": lambda: jobs.refine(
            jobs.RefineRequest("stack.hedge", "images", "labels", "b.hedge", SHORT), progress=silent
        ),
        "c.hedge": lambda: train(place, "c.hedge", "fast"),
        "d.ome.zarr": lambda: hr.predict_large(stack, image, "d.ome.zarr"),
        "e_proba.ome.tif": lambda: hr.predict_large(stack, image, "e.ome.tif", what=("labels", "proba")),
        "f.state": lambda: hr.refine(net, *pictures(), SHORT, checkpoint="f.state", progress=silent),
    }
    for output, run in runs.items():
        with locked(place / output):
            before = listing(place)
            with pytest.raises(hr.InputError) as problem:
                run()
            assert_one_sentence(problem, output, f"process {os.getpid()} on ")
            assert listing(place) == before
        run()
    assert not list(place.glob(".hedgerow*"))


def test_large_training_is_locked_too(place, monkeypatch):
    monkeypatch.setattr("hedgerow.scale.sparse_growth.LARGE_SET_PIXELS", 100)
    with locked(place / "model.hedge"), pytest.raises(hr.InputError, match=f"process {os.getpid()} on "):
        train(place, which="fast")
    train(place, which="fast")
    assert not list(place.glob(".hedgerow*"))


# What a killed run leaves


@pytest.mark.parametrize("restart", [False, True])
def test_a_temporary_file_alone_in_the_work_folder_blocks_nobody(place, restart):
    """Of a machine that is not this one, so that it is not removed in passing."""
    left = place / "model.hedge.work" / f".hedgerow-00000000-1-{'0' * 32}.tmp"
    left.parent.mkdir()
    left.write_bytes(b"half a file")
    train(place, restart=restart)
    assert not left.parent.exists()


def test_what_shows_that_a_folder_is_ours_is_removed_last(place, monkeypatch):
    """A run that is killed while it clears its folder would otherwise leave one that the next run refuses."""
    with pytest.raises(Stopped):
        train(place, progress=stop_when("refining"))
    folder, removed = place / "model.hedge.work", []
    remove = work_folder.remove_state
    monkeypatch.setattr(work_folder, "remove_state", lambda path: (removed.append(path.name), remove(path)))
    work_folder.remove_work_folder(folder)
    assert removed[-1] == work_folder.RUN_FILE
    assert len(removed) > 3
    assert not folder.exists()


def stop_when(work):
    def report(what, done, total):
        if work in what:
            raise Stopped

    return report


def test_settings_that_an_interrupted_run_chose_are_not_chosen_again(place, monkeypatch):
    chosen, messages = [], []
    monkeypatch.setattr(SettingsChoice, "settings", lambda choice, *_: (chosen.append(choice), STACK)[1])

    def interrupt(output):
        with pytest.raises(Stopped):
            train(place, output, config=None, progress=stop_when("refining"))

    interrupt("model.hedge")
    train(place, config=None, say=messages.append)
    assert len(chosen) == 1
    assert "resuming: the settings that the interrupted run chose are reused" in messages
    train(place, "whole.hedge", config=None)
    assert (place / "model.hedge").read_bytes() == (place / "whole.hedge").read_bytes()
    interrupt("again.hedge")
    train(place, "again.hedge", config=None, restart=True)
    assert len(chosen) == 4
    interrupt("other.hedge")
    before = listing(place)
    for output in ("other.hedge", "new.hedge"):
        for options in ({"minutes": 0.001}, {"device": "cuda:99"}):
            with pytest.raises(hr.errors.HedgerowError):
                train(place, output, "best", config=None, restart=True, **options)
    assert listing(place) == before, "what is refused discards nothing and begins nothing"
    assert len(chosen) == 5
    write(place / "images" / "0.tif", pictures()[0][0][::-1])
    train(place, "other.hedge", config=None, say=messages.append)
    assert len(chosen) == 6, "other images may prefer other settings"
    assert "holds an interrupted run with other images" in "".join(messages)


# A search that is killed


@pytest.fixture
def trials(monkeypatch):
    """What is computed: ("grow", 0) for each stack, (settings, step it began with) for each trial."""
    computed, dice = [], refinement_search.Trial.dice

    def noted(self, config):
        scored = dice(self, config)
        computed.append((config, self.resumed_from))
        return scored

    grow = effort_run.grow_stack
    monkeypatch.setattr(refinement_search.Trial, "dice", noted)
    monkeypatch.setattr(effort_run, "grow_stack", lambda *a, **o: (computed.append(("grow", 0)), grow(*a, **o))[1])
    return computed


def test_a_search_killed_after_any_trial_goes_on_to_the_same_bytes(place, monkeypatch, trials):
    train(place, "whole.hedge")
    whole = list(trials)
    assert len(whole) > 5
    real, n_killed = refinement_search.Trial.outcome, 0
    trials.clear()
    while not (place / "model.hedge").exists():
        calls = itertools.count()

        def outcome(self, config, calls=calls):
            result = real(self, config)
            if not result[1]:  # it was measured just now
                raise Stopped
            return result

        with monkeypatch.context() as patch:
            patch.setattr(refinement_search.Trial, "outcome", outcome)
            try:
                train(place)
            except Stopped:
                n_killed += 1
        assert n_killed < 20
    assert n_killed == len(whole) - 2, "once after each trial, but not after the two stacks"
    assert trials == whole, "nothing was computed twice"
    assert (place / "model.hedge").read_bytes() == (place / "whole.hedge").read_bytes()
    assert not (place / "model.hedge.work").exists()


@pytest.mark.parametrize("n_saved", [1, 3, 9])
def test_a_search_killed_within_a_trial_goes_on_from_its_checkpoint(place, monkeypatch, trials, n_saved):
    train(place, "whole.hedge")
    whole, save, calls = list(trials), checkpoints.save, itertools.count(1)
    trials.clear()

    def save_then_stop(*given):
        save(*given)
        if next(calls) == n_saved:
            raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "save", save_then_stop)
        with pytest.raises(Stopped):
            train(place)
    train(place)
    assert [config for config, _ in trials] == [config for config, _ in whole], "no finished trial was repeated"
    assert [step for _, step in trials if step] != [], "the trial went on from its checkpoint"
    assert (place / "model.hedge").read_bytes() == (place / "whole.hedge").read_bytes()


def test_time_spent_before_the_interruption_counts(tmp_path):
    """Otherwise a search that is interrupted often would try more than one that is not."""
    clock = [0.0]

    class SlowTrial(refinement_search.Trial):
        def dice(self, config):
            clock[0] += 100.0
            return super().dice(config)

    folds = search_folds(labelled_set(*pictures()), STACK.seed)
    stack = grow_stack(folds.training(0), STACK, progress=silent)

    def choose(folder, stop_at=""):
        def say(text):
            if stop_at and stop_at in text:
                raise Stopped

        trial = SlowTrial(folds, stack, "cpu", silent_plan(), "key", WorkFolder(folder), lambda: clock[0])
        return refinement_search.choose_refinement(trial, TRIED, until=clock[0] + 350.0, say=say)

    whole = choose(tmp_path / "whole")
    assert [name for name, _ in whole.tried] == ["small changes", "any rotation, mirrored", "softness 0.3"]
    with pytest.raises(Stopped):
        choose(tmp_path / "work", "any rotation")
    assert choose(tmp_path / "work") == whole
