"""`hedgerow refine`: what it prints, writes, resumes and refuses."""

import os
import re
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import hedgerow as hr
from conftest import CLASSES, draw
from hedgerow.config import RefineConfig, Sharpness
from hedgerow.files import write_text
from hedgerow.io import model_file
from hedgerow.network.mapping import to_convnet
from hedgerow.network.stacknet import StackNet
from hedgerow.progress import silent
from hedgerow.refinement import checkpoints, loop
from helpers.files import listing, unchanged, write
from helpers.refinements import SHORT, Stopped, assert_same_weights, stop_at
from helpers.refusals import assert_refused


@pytest.fixture
def run(hedgerow, trained_place):
    """Refines the model of the folder: run("--steps", 3) -> Finished, the network in net.hedge."""

    def refine(*options, model="model.hedge", images="images", labels="labels", output="net.hedge"):
        quick = () if {"--config", "--preset"} & set(options) else ("--config", trained_place / "short.toml")
        model, images, labels, output = (trained_place / name for name in (model, images, labels, output))
        given = (model, images, labels, "-o", output)
        return hedgerow("refine", *given, *quick, *options)

    return refine


# refine


def test_reserved_images_give_three_scores_and_the_network_is_written(train, run, hedgerow, place):
    for number in (2, 3):
        image, labels = draw(number)
        write(place / "images" / f"a{number}.png", image)
        write(place / "labels" / f"a{number}.png", labels.astype(np.uint8))
    trained = train("--reserve", 0.25)
    assert trained.code == 0, trained.err
    assert re.search(r"^mean Dice \d\.\d{3} on 1 reserved image\(s\)$", trained.out, re.MULTILINE), trained.out
    before = set(os.listdir(place))
    finished = run()
    assert finished.code == 0, finished.err
    net = hr.load(place / "net.hedge")
    assert isinstance(net, StackNet)
    assert net.split == "soft"
    scores = net.refinements[-1].scores
    for what, name in (("stack", "stack"), ("mapped", "network before"), ("refined", "network after")):
        assert re.search(rf"^  {name} +{scores[what]:.3f}$", finished.out, re.MULTILINE), finished.out
    assert "on 1 image(s) that neither the forests nor the refinement saw" in finished.out
    info = hedgerow("info", place / "net.hedge").out
    assert f"mean Dice on 1 held-out image(s): stack {scores['stack']:.3f}" in info
    assert "on 1 reserved image(s)" in info
    assert "trained on 3 image(s)" in info
    assert str(place / "net.hedge") in finished.out
    assert set(os.listdir(place)) == {*before, "net.hedge"}, "the checkpoint is gone"


def test_the_command_line_and_the_library_refine_alike(run, place, stack, example):
    finished = run("--split", "tanh", "--sharpness", "50,2,0.25", "--seed", 3, "--steps", 4, "--stride", 3)
    assert finished.code == 0, finished.err
    config = replace(SHORT, seed=3, n_steps=4, stride=3)
    net = to_convnet(stack, "tanh", Sharpness(50.0, 2.0, 0.25))
    expected = hr.refine(net, example.images, example.labels, config, progress=silent)
    found = hr.load(place / "net.hedge")
    assert_same_weights(found, expected)
    assert RefineConfig.from_dict(found.refinements[-1].config) == config


def test_a_refined_network_is_refined_further(run, net_file, refined, place):
    finished = run(model=net_file.name)
    assert finished.code == 0, finished.err
    result = hr.load(place / "net.hedge")
    assert len(result.refinements) == 2
    assert result.refinements[0] == refined.refinements[0]
    assert not torch.equal(result.level(0).split_weight, refined.level(0).split_weight)


def test_images_that_the_forests_know_give_no_score_but_the_way_to_one(run, place, hedgerow):
    for more in ((), ("--validation", place / "images", place / "labels")):
        finished = run(*more)
        assert finished.code == 0, finished.err
        assert "Dice" not in finished.out
        assert re.search(r"not scored: .*--validation.*--reserve", finished.out), finished.out
        assert "Dice:" not in hedgerow("info", place / "net.hedge").out
        (place / "net.hedge").unlink()


@pytest.fixture
def validation(place):
    image, labels = draw(60)
    write(place / "more" / "images" / "v.png", image)
    write(place / "more" / "labels" / "v.png", labels.astype(np.uint8))
    return place / "more" / "images", place / "more" / "labels"


def test_validation_images_give_the_scores(run, place, validation):
    finished = run("--validation", *validation)
    assert finished.code == 0, finished.err
    assert "on 1 image(s) that neither the forests nor the refinement saw" in finished.out
    net = hr.load(place / "net.hedge")
    image, labels = draw(60)
    assert net.refinements[-1].refined == hr.evaluate(net, [image], [labels]).mean_dice


def test_without_held_out_images_no_scores_are_printed(run, place):
    replace(SHORT, held_out=0.0).write(place / "short.toml")
    finished = run()
    assert finished.code == 0, finished.err
    assert "Dice" not in finished.out


def test_another_value_may_mean_unlabelled(run, place, example):
    for number, labels in enumerate(example.labels):
        some = labels.astype(np.uint8)
        some[:3] = 9
        write(place / "labels" / f"a{number}.png", some)
    before = listing(place)
    assert_refused(run(), "9", place / "images")
    unchanged(place, before)
    assert run("--unlabelled", 9).code == 0


def test_the_settings_of_refine_are_accepted_by_it(hedgerow, run, place):
    text = hedgerow("settings", "refine").out
    (place / "all.toml").write_text(text)
    assert RefineConfig.read(place / "all.toml") == RefineConfig()
    finished = run("--config", place / "all.toml", "--steps", 1)
    assert finished.code == 0, finished.err
    found = RefineConfig.from_dict(hr.load(place / "net.hedge").refinements[-1].config)
    assert found == RefineConfig(n_steps=1, pixels=8000)  # what a CPU is given


def test_presets_are_the_papers(run, place):
    finished = run("--preset", "zebrafish", "--steps", 1)
    assert finished.code == 0, finished.err
    found = RefineConfig.from_dict(hr.load(place / "net.hedge").refinements[-1].config)
    assert found == RefineConfig.zebrafish(n_steps=1)


# Interrupted


def stop_after_a_checkpoint(monkeypatch, problem):
    save = checkpoints.save

    def save_and_stop(*arguments):
        save(*arguments)
        raise problem

    monkeypatch.setattr(checkpoints, "save", save_and_stop)


def test_an_interrupted_run_goes_on_and_ends_as_if_it_had_not_been(run, place, caplog, monkeypatch):
    assert run().code == 0
    whole = (place / "net.hedge").read_bytes()
    write_text(place / "net.hedge", "old")
    stop_after_a_checkpoint(monkeypatch, KeyboardInterrupt())
    finished = run()
    monkeypatch.undo()
    assert finished.code == 130
    assert "interrupted" in finished.err
    assert (place / "net.hedge").read_bytes() == b"old\n"
    assert (place / "net.hedge.checkpoint").exists()
    caplog.clear()
    finished = run()
    assert finished.code == 0, finished.err
    assert "resuming from step 2" in caplog.text
    assert (place / "net.hedge").read_bytes() == whole
    assert not (place / "net.hedge.checkpoint").exists()


def leave_checkpoint(place, stack, example):
    with pytest.raises(Stopped):
        hr.refine(
            to_convnet(stack), example.images, example.labels, SHORT,
            checkpoint=place / "net.hedge.checkpoint", progress=stop_at(5),
        )  # fmt: skip


def test_a_run_that_the_library_began_is_ended_by_the_command(run, place, stack, example, refined, caplog):
    leave_checkpoint(place, stack, example)
    finished = run()
    assert finished.code == 0, finished.err
    assert "resuming from step 4" in caplog.text
    assert_same_weights(hr.load(place / "net.hedge"), refined)


def test_restart_forgets_the_interrupted_run(run, place, stack, example, caplog):
    leave_checkpoint(place, stack, example)
    before = listing(place)
    assert_refused(run("--seed", 5), place / "net.hedge.checkpoint", "delete it")
    unchanged(place, before)
    finished = run("--seed", 5, "--restart")
    assert finished.code == 0, finished.err
    assert "resuming" not in caplog.text
    assert hr.load(place / "net.hedge").refinements[-1].config["seed"] == 5
    assert not (place / "net.hedge.checkpoint").exists()
    assert run("--restart").code == 0, "also where there is nothing to forget"


def test_a_damaged_checkpoint_is_refused(run, place, stack, example):
    leave_checkpoint(place, stack, example)
    checkpoint = place / "net.hedge.checkpoint"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-10])
    before = listing(place)
    assert_refused(run(), checkpoint, "delete it")
    unchanged(place, before)


@pytest.mark.parametrize("content", ["text", "model", "link"])
def test_a_file_that_is_only_named_like_a_checkpoint_stays(run, place, content, tmp_path):
    checkpoint = place / "net.hedge.checkpoint"
    if content == "link":
        (place / "theirs").write_text("by hand")
        checkpoint.symlink_to(place / "theirs")
    else:
        checkpoint.write_bytes((place / "model.hedge").read_bytes() if content == "model" else b"by hand")
    before = listing(place)
    for more in ((), ("--restart",), ("--overwrite",)):
        assert_refused(run(*more), checkpoint, "move it away")
        unchanged(place, before)


def test_a_network_that_cannot_be_written_is_not_lost(run, place, monkeypatch):
    def full(*_):
        raise hr.InputError("the disk is full.")

    monkeypatch.setattr(model_file, "save", full)
    assert_refused(run(), "full")
    assert (place / "net.hedge.checkpoint").exists()


def test_a_run_that_diverges_writes_the_last_good_network_and_says_so(run, place):
    RefineConfig(n_steps=20, check_every=5, optimiser="sgd", learning_rate=1e3).write(place / "wild.toml")
    finished = run("--config", place / "wild.toml")
    assert_refused(finished, "learning rate", "kept")
    net = hr.load(place / "net.hedge")
    assert set(np.unique(net.predict(draw(0)[0]))) <= set(CLASSES)
    assert not (place / "net.hedge.checkpoint").exists()


# What is refused


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--config", "short.toml", "--preset", "kinect"), ["--config", "--preset"]),
        (("--config", "none.toml"), ["none.toml"]),
        (("--sharpness", "100"), ["--sharpness", "'100'"]),
        (("--sharpness", "a,b,c"), ["--sharpness", "'a,b,c'"]),
        (("--sharpness", "1,2,3,4"), ["--sharpness"]),
        (("--sharpness", ""), ["--sharpness"]),
        (("--sharpness", "0,1,1"), ["Sharpness.split"]),
        (("--sharpness", "nan,1,1"), ["Sharpness.split"]),
        (("--sharpness", "30,2,1"), ["Sharpness.leaf"]),
        (("--steps", "0"), ["n_steps", "0"]),
        (("--stride", "0"), ["stride", "0"]),
        (("--seed", "-1"), ["seed", "-1"]),
        (("--preset", "kinect"), ["trim", "depth"]),
    ],
    ids=str,
)
def test_options_out_of_range_are_refused(run, place, options, words, monkeypatch):
    monkeypatch.chdir(place)
    before = listing(place)
    assert_refused(run(*options), *words)
    unchanged(place, before)


def test_help_explains_each_preset(hedgerow):
    text = " ".join(hedgerow("refine", "--help").out.split())
    assert "default: Hedgerow's settings; kinect, zebrafish: those of the paper's experiments." in text


@pytest.mark.parametrize("options", [("--split", "tanh"), ("--sharpness", "1,1,1")], ids=str)
def test_a_network_has_its_splits_already(run, net_file, place, options):
    before = listing(place)
    assert_refused(run(*options, model=net_file.name), net_file, "already a network")
    unchanged(place, before)


@pytest.mark.parametrize("output", ["model.hedge", "images/a0.png", "labels/a1.png", "short.toml", "", "no/net.hedge"])
def test_an_output_that_cannot_or_must_not_be_is_refused_before_the_work(run, place, output, monkeypatch):
    monkeypatch.setattr(loop, "refine_labelled", lambda *_, **__: pytest.fail("the work was begun"))
    before = listing(place)
    assert_refused(run(output=output), place / output)
    unchanged(place, before)


@pytest.mark.parametrize("kind", ["images", "labels"])
def test_validation_files_are_not_written_over(run, place, validation, kind):
    before = listing(place)
    assert_refused(run("--validation", *validation, output=f"more/{kind}/v.png"), f"more/{kind}/v.png")
    unchanged(place, before)


@pytest.mark.parametrize("what", ["model", "images", "labels", "validation"])
def test_missing_files_are_refused(run, place, what):
    before = listing(place)
    given = {"model": {"model": "none.hedge"}, "images": {"images": "none"}, "labels": {"labels": "none"}}.get(what, {})
    options = () if what != "validation" else ("--validation", place / "none", place / "labels")
    assert_refused(run(*options, **given), place / "none")
    unchanged(place, before)


def test_labels_of_an_unknown_class_are_refused_with_the_file(run, place, example):
    labels = example.labels[1].astype(np.uint8)
    labels[2, 3] = 9
    write(place / "labels" / "a1.png", labels)
    before = listing(place)
    assert_refused(run(), place / "images" / "a1.png", "9")
    unchanged(place, before)


def test_validation_labels_of_an_unknown_class_are_refused_with_the_file(run, place, validation):
    write(validation[1] / "v.png", np.full((24, 32), 9, np.uint8))
    assert_refused(run("--validation", *validation), "v.png", "9")


def test_labels_of_another_size_are_refused_with_the_file(run, place, example):
    write(place / "labels" / "a1.png", example.labels[1].astype(np.uint8)[:-1])
    before = listing(place)
    assert_refused(run(), "a1.png")
    unchanged(place, before)


def test_a_damaged_model_is_refused(run, place):
    (place / "model.hedge").write_bytes((place / "model.hedge").read_bytes()[:-10])
    before = listing(place)
    assert_refused(run(), place / "model.hedge")
    unchanged(place, before)


def test_without_pytorch_refine_says_how_to_get_it(run, place, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    before = listing(place)
    assert_refused(run(), "torch", "pip install")
    unchanged(place, before)
