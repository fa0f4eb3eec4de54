"""Folders of images: what is predicted, said, refused and left behind; and the entropy of probabilities."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from hedgerow import temporary
from hedgerow.errors import ConfigError, InputError
from hedgerow.images.label_files import read_labels
from hedgerow.predict import file_outputs
from hedgerow.predict.batch import Predicted, predict_files
from hedgerow.predict.file_outputs import Outputs
from hedgerow.predict.protocol import relative_entropy
from helpers.files import listing


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


def test_a_folder_is_predicted(folder, stack, example):
    notes = []
    assert predict_files(stack, folder / "images", folder / "out", Outputs(), say=notes.append) == Predicted(3)
    assert notes == []
    for name, image in zip("abc", (*example.images, example.images[0]), strict=True):
        np.testing.assert_array_equal(read_labels(folder / "out" / f"{name}.png"), stack.predict(image))


class Failing:
    """A model that fails at one of the images that it predicts, counted from 0."""

    def __init__(self, model, problem, image):
        self.model, self.problem, self.image = model, problem, image

    def __getattr__(self, name):
        return getattr(self.model, name)

    def run_level(self, level, level_input):
        if level == 0:
            self.image -= 1
            if self.image == -1:
                raise self.problem
        return self.model.run_level(level, level_input)


@pytest.mark.parametrize("problem", [InputError("too dark"), ConfigError("too large"), MemoryError()])
def test_one_failure_does_not_stop_the_batch(folder, stack, problem):
    failing = Failing(stack, problem, image=1)
    failures = predict_files(failing, folder / "images", folder / "out", Outputs()).failures
    assert len(failures) == 1
    assert failures[0].startswith(f"{folder / 'images' / 'b.npy'}: ")
    assert len(failures[0]) > len(f"{folder / 'images' / 'b.npy'}: ")
    assert sorted(os.listdir(folder / "out")) == ["a.png", "c.png"]


def test_a_bug_is_not_hidden_as_a_bad_image(folder, stack):
    with pytest.raises(ZeroDivisionError):
        predict_files(Failing(stack, ZeroDivisionError(), image=0), folder / "images", folder / "out", Outputs())


def test_a_full_disk_fails_every_image_and_leaves_nothing(folder, stack, monkeypatch):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    failures = predict_files(stack, folder / "images", folder / "out", Outputs(proba=True)).failures
    assert len(failures) == 3
    for name, failure in zip("abc", failures, strict=True):
        assert f"{name}.npy" in failure
        assert "No space left" in failure
        assert "\n" not in failure
    assert os.listdir(folder / "out") == []


def test_the_label_map_comes_last(folder, stack, monkeypatch):
    """Where a label map exists, the other files of its image do too."""
    written = []
    for name in ("write_labels", "write_scaled"):
        monkeypatch.setattr(file_outputs, name, lambda path, *_: written.append(path.name))
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


def test_a_stop_from_the_progress_report_ends_the_batch(folder, stack):
    class Stopped(Exception):
        pass

    def report(message, done, total):
        assert (message, total) == ("images", 3)
        if done == 1:
            raise Stopped

    with pytest.raises(Stopped):
        predict_files(stack, folder / "images", folder / "out", Outputs(), progress=report)
    assert os.listdir(folder / "out") == ["a.png"]


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


@pytest.mark.parametrize("ending", ["tif", "npy", "zarr"])
def test_maps_too_large_for_memory_are_the_same(folder, stack, monkeypatch, ending):
    everything = Outputs(labels=ending, maps=ending, proba=True, confidence=True, entropy=True, dtype="uint8")
    predict_files(stack, folder / "images", folder / "small", everything)
    files = []
    monkeypatch.setattr(np, "memmap", lambda *a, memmap=np.memmap, **o: files.append(a[0]) or memmap(*a, **o))
    predict_files(stack, folder / "images", folder / "large", replace(everything, memory=0), tile=7)
    assert len(files) >= 4
    assert listing(folder / "small") == listing(folder / "large")


def test_label_maps_are_held_in_their_own_type(folder, stack, monkeypatch):
    held = []
    monkeypatch.setattr(file_outputs, "write_labels", lambda path, labels, *_: held.append(labels.dtype))
    predict_files(stack, folder / "images" / "a.npy", folder / "out", Outputs())
    assert held == [np.uint8]


def test_a_disk_that_cannot_hold_the_result_fails_the_image(folder, stack, monkeypatch):
    def full(file, n_bytes):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(temporary, "reserve", full)
    predicted = predict_files(stack, folder / "images" / "a.npy", folder / "out", Outputs(memory=0))
    assert "No space left" in predicted.failures[0]
    assert os.listdir(folder / "out") == []
