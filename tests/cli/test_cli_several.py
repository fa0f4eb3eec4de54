"""Several files in place of a folder, as a shell leaves them that has expanded a pattern without quotes."""

import json
import os
import shutil

import pytest

import hedgerow as hr
from helpers.refusals import assert_refused


def each(folder):
    return sorted(folder.iterdir())


def test_train_takes_several_files(hedgerow, place):
    options = ("--config", place / "settings.toml", "-o", place / "model.hedge")
    images, labels = place / "images", place / "labels"
    result = []
    for given in ([images, labels], [*each(images), *each(labels)], [*each(images), labels], [images, *each(labels)]):
        finished = hedgerow("train", *given, *options)
        assert finished.code == 0, finished.err
        result.append((place / "model.hedge").read_bytes())
    assert result[1:] == result[:1] * 3


def test_predict_takes_several_files(hedgerow, place, model_file):
    assert hedgerow("predict", model_file, *each(place / "images"), "-o", place / "out").code == 0
    assert sorted(os.listdir(place / "out")) == ["a0.png", "a1.png"]
    assert hedgerow("predict", model_file, "-o", place / "one", place / "images" / "a1.png").code == 0
    assert os.listdir(place / "one") == ["a1.png"]


def test_evaluate_and_report_take_several_files(hedgerow, place, model_file):
    files = [*each(place / "images"), *each(place / "labels")]
    scores = hedgerow("evaluate", model_file, *files, "--json")
    assert scores == hedgerow("evaluate", model_file, place / "images", place / "labels", "--json")
    assert json.loads(scores.out)["mean_dice"] > 0.8
    pytest.importorskip("jinja2")
    finished = hedgerow("report", model_file, *files, "-o", place / "report.html")
    assert finished.code == 0, finished.err
    assert "2 image(s)" in finished.out


def test_refine_and_back_take_several_files(hedgerow, trained_place):
    place = trained_place
    files = [*each(place / "images"), *each(place / "labels")]
    short = ("--config", place / "short.toml", "--steps", 1)
    assert hedgerow("refine", place / "model.hedge", *files, "-o", place / "net.hedge", *short).code == 0
    for given in ([place / "images"], each(place / "images")):
        assert hedgerow("back", place / "net.hedge", *given, "-o", place / f"{len(given)}.hedge").code == 0
    assert (place / "1.hedge").read_bytes() == (place / "2.hedge").read_bytes()


def test_a_pattern_that_was_meant_for_both_is_explained(hedgerow, place):
    for path in each(place / "labels"):
        shutil.copy(path, place / "images" / f"{path.stem}_mask.png")
    finished = hedgerow("train", *each(place / "images"), "-o", place / "model.hedge")
    assert_refused(finished, "all 4 files are in one folder", f'"{place / "images" / "*.png"}" labels/')


def test_files_that_are_named_in_a_refusal_are_few(hedgerow, place):
    files = [*each(place / "images"), *each(place / "labels")]
    finished = hedgerow("train", *files, "-o", place / "model.hedge", "--max-classes", 2)
    assert_refused(finished, f"the labels in {place / 'labels' / 'a0.png'} and 1 more have 3 different values")


def test_look_takes_one_image(hedgerow, place, model_file):
    finished = hedgerow("look", model_file, *each(place / "images"), "-o", place / "inside.png")
    assert finished.code == 2
    assert len(finished.err.splitlines()) == 1
    assert "a1.png" in finished.err
    assert not (place / "inside.png").exists()


def test_scores_come_level_by_level(train, place):
    """Each is printed when it is known, before the next level grows: here, before the last line."""
    lines = train().out.splitlines()
    scores = [score["mean_dice"] for score in hr.load(place / "model.hedge").settings["held_out"]]
    told = [f"level {k}: mean Dice {score:.3f} on held-out blocks of the training images"
            for k, score in enumerate(scores, start=1)]  # fmt: skip
    assert lines[-3:-1] == told
