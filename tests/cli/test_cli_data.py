"""Every kind of image and label through `train`, `predict` and `evaluate`."""

import json
import os
import re
import shutil

import numpy as np
import pytest

import hedgerow as hr
from conftest import CLASSES, draw
from hedgerow.images.label_files import read_labels
from helpers.files import write
from helpers.refusals import assert_refused


@pytest.mark.parametrize(
    ("classes", "ending", "result"),
    [
        ((0, 1, 2), ".png", "png"),
        ((3, 77, 200), ".png", "png"),
        ((5, 1000, 65535), ".tif", "png"),
        ((7, 1000, 70_000), ".tif", "tif"),
        ((-5, 0, 9), ".npy", "tif"),
        ((-(2**31), 0, 2**31 - 1), ".npy", "tif"),
    ],
)
def test_class_values_come_back_as_given(hedgerow, train, place, classes, ending, result):
    shutil.rmtree(place / "labels")
    for number in range(2):
        labels = draw(number, classes)[1]
        if ending == ".tif" and max(classes) < 2**16:
            labels = labels.astype(np.uint16)
        elif ending == ".png":
            labels = labels.astype(np.uint8)
        write(place / "labels" / f"a{number}{ending}", labels)
    finished = train()
    assert finished.code == 0, finished.err
    assert hr.load(place / "model.hedge").classes == classes
    for value in classes:
        assert re.search(rf"^ *{value} ", finished.out, re.MULTILINE)

    finished = hedgerow("predict", place / "model.hedge", place / "images", "-o", place / "out")
    assert finished.code == 0, finished.err
    for number in range(2):
        outcome = read_labels(place / "out" / f"a{number}.{result}")
        truth = draw(number, classes)[1]
        assert set(np.unique(outcome)) == set(classes)
        assert (outcome == truth).mean() > 0.9


def test_sparse_labels(hedgerow, train, place, example):
    """One pixel in six is labelled, and 0 says: no label here."""
    keep = np.random.default_rng(0).random((24, 32)) < 1 / 6
    for number, labels in enumerate(example.labels):
        write(place / "labels" / f"a{number}.png", np.where(keep, labels, 0).astype(np.uint8))
    finished = train("--unlabelled", 0)
    assert finished.code == 0, finished.err
    n_unlabelled = 2 * int((~keep).sum())
    assert re.search(rf"unlabelled +{n_unlabelled:,} +\(value 0\)", finished.out)
    stack = hr.load(place / "model.hedge")
    assert stack.classes == CLASSES
    assert stack.unlabelled == 0
    found = stack.predict(example.images[0])
    assert (found == example.labels[0]).mean() > 0.85
    # The model remembers what unlabelled means: only labelled pixels are compared.
    finished = hedgerow("evaluate", place / "model.hedge", place / "images", place / "labels", "--json", "-")
    assert np.sum(json.loads(finished.out)["confusion"]) == 2 * keep.sum()


def test_without_unlabelled_255_is_it(train, place, example):
    labels = example.labels[0].astype(np.uint8)
    labels[:5] = 255
    write(place / "labels" / "a0.png", labels)
    assert re.search(r"unlabelled +160 +\(value 255\)", train().out)
    assert hr.load(place / "model.hedge").classes == CLASSES
    assert train("--unlabelled", -1).code == 0
    assert hr.load(place / "model.hedge").classes == (*CLASSES, 255)


def image_kinds():
    grey = np.stack([draw(seed)[0] for seed in range(2)])
    rng = np.random.default_rng(1)
    colour = np.stack([grey, 255 - grey, rng.integers(0, 255, grey.shape, np.uint8)], axis=-1)
    many = np.repeat(grey[:, None], 5, axis=1) + np.arange(5, dtype=np.uint8)[:, None, None]
    return {
        "8-bit grey": (grey, ".png", "bank"),
        "16-bit grey": (grey.astype(np.uint16) * 200 + 5000, ".tif", "bank"),
        "16-bit png": (grey.astype(np.uint16) * 200, ".png", "bank"),
        "float": (grey / np.float32(255), ".tif", "bank"),
        "double": (grey / 1e6 - 3, ".npy", "bank"),
        "signed": (grey.astype(np.int16) - 100, ".npy", "bank"),
        "flags": (grey > 100, ".npy", "bank"),
        "colour": (colour, ".png", "bank"),
        "many channels": (many, ".npy", "bank"),
        "own channels": (many.astype(np.float32), ".npy", "channels"),
        "own channels and their filters": (many.astype(np.float32), ".npy", "bank+channels"),
        "more channels than rows": (np.repeat(many.astype(np.float32), 8, axis=1), ".npy", "channels"),
        "one own channel": (grey[:, None].astype(np.float32), ".npy", "channels"),
        "depth": (grey.astype(np.uint16) * 10 + 400, ".png", "depth"),
    }


@pytest.mark.parametrize("kind", image_kinds())
def test_images_of_every_kind_are_learned_and_predicted(hedgerow, train, place, kind, example):
    images, ending, features = image_kinds()[kind]
    shutil.rmtree(place / "images")
    for number, image in enumerate(images):
        write(place / "images" / f"a{number}{ending}", image)
    finished = train("--features", features)
    assert finished.code == 0, finished.err
    assert f" ({features}); receptive field" in hedgerow("info", place / "model.hedge").out
    finished = hedgerow("predict", place / "model.hedge", place / "images", "-o", place / "out")
    assert finished.code == 0, finished.err
    assert "note" not in finished.out
    finished = hedgerow("evaluate", place / "model.hedge", place / "images", place / "labels", "--json", "-")
    assert finished.code == 0, finished.err
    found = [read_labels(place / "out" / f"a{number}.png") for number in range(2)]
    hits = sum(int((f == truth).sum()) for f, truth in zip(found, example.labels, strict=True))
    assert json.loads(finished.out)["accuracy"] == hits / (2 * 24 * 32)
    # Two of the three classes are enough for images that show no more.
    assert hits / (2 * 24 * 32) > (0.6 if kind == "flags" else 0.8)


def test_images_of_different_sizes_in_one_set(hedgerow, train, place):
    for number, size in enumerate([(24, 32), (40, 17), (9, 50)]):
        image, labels = draw(number, size=size)
        write(place / "images" / f"a{number}.png", image)
        write(place / "labels" / f"a{number}.png", labels.astype(np.uint8))
    finished = train()
    assert finished.code == 0, finished.err
    assert "3 image(s): 24 x 32 uint8, 40 x 17 uint8, 9 x 50 uint8" in finished.out
    assert hedgerow("predict", place / "model.hedge", place / "images", "-o", place / "out").code == 0
    assert [read_labels(place / "out" / f"a{i}.png").shape for i in range(3)] == [(24, 32), (40, 17), (9, 50)]


def test_the_fourth_size_is_one_more_kind(train, place):
    for number, size in enumerate([(24, 32), (40, 17), (9, 50), (30, 20)]):
        image, labels = draw(number, size=size)
        write(place / "images" / f"a{number}.png", image)
        write(place / "labels" / f"a{number}.png", labels.astype(np.uint8))
    assert re.search("4 image.s.: .* and 1 more kind$", train().out, re.MULTILINE)


def test_depth_features_refuse_colour(train, place):
    for number in range(2):
        write(place / "images" / f"a{number}.png", np.zeros((24, 32, 3), np.uint8))
    assert_refused(train("--features", "depth"), "depth features", "3")


def test_globs_and_single_files(hedgerow, train, place):
    assert train(images="images/*.png", labels="labels/a?.png").code == 0
    assert train(images="images/a0.png", labels="labels/a0.png").code == 0
    finished = hedgerow("predict", place / "model.hedge", place / "images" / "a1.*", "-o", place / "out")
    assert finished.code == 0
    assert os.listdir(place / "out") == ["a1.png"]
