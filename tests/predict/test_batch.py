"""Folders of images through the library; and what batches are made of: scores, progress, pictures."""

import dataclasses
import io
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

import hedgerow as hr
from conftest import CLASSES, draw
from hedgerow import progress
from hedgerow.errors import ConfigError, InputError
from hedgerow.images import pictures
from hedgerow.images.reading import read_image, read_labels
from hedgerow.predict import batch
from hedgerow.predict.batch import Outputs, predict_files, relative_entropy
from hedgerow.synthetic import write_sample


@pytest.fixture
def folder(tmp_path, example):
    """images/ with three images as NPY."""
    (tmp_path / "images").mkdir()
    for name, image in zip("abc", (*example.images, example.images[0]), strict=True):
        np.save(tmp_path / "images" / f"{name}.npy", image)
    return tmp_path


def test_only_what_is_wanted_has_a_path():
    assert Outputs().paths(Path("out"), "a") == {"labels": Path("out/a.png")}
    wanted = Outputs(labels="npy", maps="zarr", proba=True, entropy=True)
    assert wanted.paths(Path("out"), "a") == {
        "labels": Path("out/a.npy"),
        "proba": Path("out/a_proba.zarr"),
        "entropy": Path("out/a_entropy.zarr"),
    }


def test_a_folder_is_predicted_and_told_of(folder, stack, example):
    said = []
    failures = predict_files(stack, folder / "images", folder / "out", Outputs(), say=said.append)
    assert failures == []
    assert said == [f"3 of 3 image(s) predicted into {folder / 'out'}"]
    for name, image in zip("abc", (*example.images, example.images[0]), strict=True):
        np.testing.assert_array_equal(read_labels(folder / "out" / f"{name}.png"), stack.predict(image))


@pytest.mark.parametrize("problem", [InputError("too dark"), ConfigError("too large"), MemoryError()])
def test_one_failure_does_not_stop_the_batch(folder, stack, monkeypatch, problem):
    write = batch._write_outputs

    def fail_on_b(model, image, outputs, paths, *rest):
        if paths["labels"].stem == "b":
            raise problem
        write(model, image, outputs, paths, *rest)

    monkeypatch.setattr(batch, "_write_outputs", fail_on_b)
    failures = predict_files(stack, folder / "images", folder / "out", Outputs())
    assert len(failures) == 1
    assert failures[0].startswith(f"{folder / 'images' / 'b.npy'}: ")
    assert len(failures[0]) > len(f"{folder / 'images' / 'b.npy'}: ")
    assert sorted(os.listdir(folder / "out")) == ["a.png", "c.png"]


def test_a_bug_is_not_hidden_as_a_bad_image(folder, stack, monkeypatch):
    def stumble(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(batch, "_write_outputs", stumble)
    with pytest.raises(ZeroDivisionError):
        predict_files(stack, folder / "images", folder / "out", Outputs())


def test_a_full_disk_fails_every_image_and_leaves_nothing(folder, stack, monkeypatch):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    failures = predict_files(stack, folder / "images", folder / "out", Outputs(proba=True))
    assert len(failures) == 3
    for name, failure in zip("abc", failures, strict=True):
        assert f"{name}.npy" in failure
        assert "No space left" in failure
        assert "\n" not in failure
    assert os.listdir(folder / "out") == []


def test_the_label_map_comes_last(folder, stack, monkeypatch):
    """Where a label map exists, the other files of its image do too."""
    written = []
    for name in ("write_labels", "write_planes"):
        monkeypatch.setattr(batch, name, lambda path, *_: written.append(path.name))
    everything = Outputs(proba=True, confidence=True, entropy=True)
    predict_files(stack, folder / "images" / "a.npy", folder / "out", everything)
    assert written == ["a_proba.tif", "a_confidence.tif", "a_entropy.tif", "a.png"]


def test_results_in_the_place_of_inputs_are_refused(folder, stack):
    before = (folder / "images" / "a.npy").read_bytes()
    with pytest.raises(InputError, match="holds the images themselves"):
        predict_files(stack, folder / "images", folder / "images", Outputs(labels="npy"))
    assert (folder / "images" / "a.npy").read_bytes() == before
    with pytest.raises(InputError, match="looks like a file"):
        predict_files(stack, folder / "images", folder / "out.png", Outputs())
    assert not (folder / "out.png").exists()


def test_a_stop_from_the_progress_report_ends_the_batch(folder, stack, monkeypatch):
    class Stopped(Exception):
        pass

    def report(what, done, total):
        assert (what, total) == ("images", 3)
        if done == 1:
            raise Stopped

    monkeypatch.setattr(batch, "progress_bar", lambda: progress.reporting(report))
    with pytest.raises(Stopped):
        predict_files(stack, folder / "images", folder / "out", Outputs())
    assert os.listdir(folder / "out") == ["a.png"]


# Entropy


def test_entropy_from_sure_to_open():
    proba = np.zeros((4, 1, 3), np.float32)
    proba[2, 0, 0] = 1
    proba[:2, 0, 1] = 0.5
    proba[:, 0, 2] = 0.25
    np.testing.assert_allclose(relative_entropy(proba), [[0, 0.5, 1]], atol=1e-6)


@given(st_numpy.arrays(np.float32, (5, 2, 3), elements=st.floats(0, 1, width=32)))
def test_entropy_stays_in_its_range(scores):
    total = scores.sum(axis=0)
    proba = np.where(total > 1e-3, scores / np.maximum(total, 1e-3), np.float32(0.2)).astype(np.float32)
    entropy = relative_entropy(proba)
    assert entropy.dtype == np.float32
    assert entropy.shape == (2, 3)
    assert (entropy >= 0).all()
    assert (entropy <= 1).all()


# Evaluation


def test_evaluation_equals_scores_of_the_predictions(stack, example):
    found = hr.evaluate(stack, example.images, example.labels)
    predicted = [stack.predict(image) for image in example.images]
    hits = sum(int((p == t).sum()) for p, t in zip(predicted, example.labels, strict=True))
    assert found.classes == CLASSES
    assert found.accuracy == hits / (2 * 24 * 32)
    for i, truth in enumerate(CLASSES):
        for j, guess in enumerate(CLASSES):
            pairs = zip(predicted, example.labels, strict=True)
            assert found.confusion[i, j] == sum(((p == guess) & (t == truth)).sum() for p, t in pairs)


def test_evaluation_ignores_what_is_not_labelled(stack, example):
    labels = [labels.copy() for labels in example.labels]
    labels[0][:12] = 255
    assert hr.evaluate(stack, example.images, labels).confusion.sum() == 2 * 24 * 32 - 12 * 32
    labels[0][:12] = -1
    found = hr.evaluate(stack, example.images, labels, unlabelled=-1)
    assert found.confusion.sum() == 2 * 24 * 32 - 12 * 32


def test_evaluation_reports_its_progress_and_can_be_stopped(stack, example):
    seen = []
    hr.evaluate(stack, example.images, example.labels, progress=lambda *now: seen.append(now))
    assert seen == [("evaluating", 1, 2), ("evaluating", 2, 2)]

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hr.evaluate(stack, example.images, example.labels, progress=stop)


@pytest.mark.parametrize(
    ("images", "labels", "words"),
    [
        ([], [], "0 image"),
        ([np.zeros((24, 32))], [], "1 image"),
        ([np.zeros((24, 32))], [np.zeros((24, 31), int)], "painting"),
        ([np.full((24, 32), np.nan)], [np.full((24, 32), 3)], "painting"),
        ([np.zeros((24, 32, 3))], [np.full((24, 32), 3)], "painting has 3 channel"),
        ([np.zeros((24, 32))], [np.full((24, 32), 4)], "painting"),
        ([np.zeros((24, 32))], [np.full((24, 32), 255)], "painting"),
        ([np.zeros((24, 32))], [np.full((24, 32), 0.5)], "painting"),
    ],
)
def test_evaluation_refuses_by_name_before_it_predicts(stack, monkeypatch, images, labels, words):
    monkeypatch.setattr(type(stack), "predict", lambda *_, **__: pytest.fail("the work was begun"))
    with pytest.raises(InputError, match=words):
        hr.evaluate(stack, images, labels, names=["painting"] * len(images))


def test_own_channels_are_evaluated_as_they_are_trained(tiny_config, example):
    images = [np.stack([image, image[::-1]]).astype(np.float32) for image in example.images]
    model = hr.fit_stack(images, example.labels, dataclasses.replace(tiny_config, features="channels"))
    assert hr.evaluate(model, images, example.labels).accuracy > 0.8


# Samples


def test_a_sample_of_another_seed_is_another(tmp_path):
    for seed in (0, 1):
        write_sample("somites", tmp_path / str(seed), 1, seed)
    first, second = (read_image(tmp_path / str(seed) / "images" / "somites_000.png") for seed in (0, 1))
    assert not np.array_equal(first, second)


# Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_there_is_no_bar_where_there_is_no_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress.progress_bar() as report:
        report("work", 1, 2)
    assert sys.stderr.getvalue() == ""


def test_an_interrupt_that_was_dropped_stops_the_work_at_the_next_report(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress.heeding_interrupts(), progress.progress_bar() as report:
        report("work", 1, 3)
        with suppress(KeyboardInterrupt):  # as a compiler's callback does
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            report("work", 2, 3)
    with progress.progress_bar() as report:
        report("work", 3, 3)  # it is over with the block


def test_the_bar_shows_the_present_work_also_when_it_returns(monkeypatch):
    from rich.progress import Progress

    bars = []
    start = Progress.start
    monkeypatch.setattr(Progress, "start", lambda self: (bars.append(self), start(self))[1])
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress.progress_bar() as report:
        for what, done in (("trees", 1), ("predictions", 2), ("trees", 3), ("predictions", 4)):
            report(what, done, 9)
            shown = [(task.description, task.completed) for task in bars[0].tasks if task.visible]
            assert shown == [(what, done)]
    assert "predictions" in sys.stderr.getvalue()


def test_a_callers_report_is_used_in_place_of_the_bar(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    seen = []
    with progress.reporting(lambda *now: seen.append(now)) as report:
        report("work", 1, 2)
    assert seen == [("work", 1, 2)]
    assert sys.stderr.getvalue() == ""


# Pictures


@pytest.mark.parametrize("n", [1, 2, 22, 255])
def test_every_class_has_its_own_colour(n):
    colours = pictures.class_colours(n)
    assert colours.shape == (n, 3)
    assert colours.dtype == np.uint8
    assert len(np.unique(colours, axis=0)) == n
    assert (colours.max(axis=1) > 60).all()  # none is as dark as the background


@pytest.mark.parametrize("shape", [(1, 5, 7), (3, 5, 7), (4, 5, 7)])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float64])
def test_pictures_of_images_use_the_whole_range(shape, dtype):
    image = (np.random.default_rng(0).random(shape) * 50 + 100).astype(dtype)
    picture = pictures.grey_picture(image)
    assert picture.shape == (5, 7, 3)
    assert picture.dtype == np.uint8
    assert picture.min() == 0
    assert picture.max() == 255


def test_a_flat_image_has_a_picture():
    np.testing.assert_array_equal(pictures.grey_picture(np.full((1, 3, 4), 7)), np.zeros((3, 4, 3)))


def test_label_pictures_have_one_colour_a_class_and_a_dark_background():
    _, labels = draw(0)
    plain = pictures.label_picture(labels, CLASSES)
    assert len(np.unique(plain.reshape(-1, 3), axis=0)) == 3
    picture = pictures.label_picture(labels, CLASSES, background=77)
    assert (picture[labels == 77] == 24).all()
    assert (picture[labels != 77].max(axis=1) > 60).all()
    assert (pictures.label_picture(np.full((2, 2), 9), CLASSES) == 24).all()  # unknown


def test_a_sheet_holds_every_panel(tmp_path):
    red, blue = np.zeros((10, 10, 3), np.uint8), np.zeros((14, 14, 3), np.uint8)
    red[..., 0], blue[..., 2] = 255, 255
    pictures.save_sheet(tmp_path / "sheet.png", ["red", "blue"], [[red, blue], [blue, red]])
    sheet = read_image(tmp_path / "sheet.png")
    assert (sheet == (255, 0, 0)).all(axis=2).sum() == 2 * 10 * 10
    assert (sheet == (0, 0, 255)).all(axis=2).sum() == 2 * 14 * 14
    assert os.listdir(tmp_path) == ["sheet.png"]


def test_large_panels_of_a_sheet_are_shrunk_alike(tmp_path):
    """So that the titles can be read beside them."""
    large, small = np.full((800, 950, 3), (255, 0, 0), np.uint8), np.full((90, 60, 3), (0, 0, 255), np.uint8)
    pictures.save_sheet(tmp_path / "sheet.png", ["large", "small"], [[large, small]])
    sheet = read_image(tmp_path / "sheet.png")
    assert (sheet == (255, 0, 0)).all(axis=2).sum() == 267 * 317
    assert (sheet == (0, 0, 255)).all(axis=2).sum() == 30 * 20
