"""Images and labels with one thing wrong: `train` and `evaluate` name it and write nothing."""

import shutil

import numpy as np
import pytest

from helpers.files import listing, write
from helpers.refusals import assert_refused

COLOURS = np.random.default_rng(0).integers(0, 255, (24, 32, 3), np.uint8)


def ones_but(value):
    image = np.ones((24, 32))
    image[3, 5] = value
    return image


def labels_of(value):
    return np.full((24, 32), value)


# What is wrong: which file or folder the refusal names, and what is put in place of which files (None: nothing).
DAMAGES = {
    "images without labels": (
        "images/a1.png",
        {"labels/a0.png": None, "labels/a1.png": None, "labels/b.png": np.zeros((24, 32), np.uint8)},
    ),
    "labels without image": ("labels/a0.png", {"images/a0.png": None}),
    "no folder": ("images", {"images": None}),
    "no images": ("images", {"images/a0.png": None, "images/a1.png": None}),
    "no labels": ("labels", {"labels/a0.png": None, "labels/a1.png": None}),
    "same name twice": ("images/a1.npy", {"images/a1.npy": np.zeros((24, 32), np.uint8)}),
    "image file of nothing": ("images/a0.png", {"images/a0.png": b""}),
    "damaged image file": ("images/a1.png", {"images/a1.png": b"\x89PNG\r\n\x1a\n and nothing else"}),
    "cut label file": ("labels/a1.png", {"labels/a1.png": slice(60)}),
    "pickle": ("images/a0.npy", {"images/a0.png": None, "images/a0.npy": np.array([{"a": 1}], object)}),
    "NaN": ("images/a0.npy", {"images/a0.png": None, "images/a0.npy": ones_but(np.nan).astype(np.float32)}),
    "infinity": ("images/a0.npy", {"images/a0.png": None, "images/a0.npy": ones_but(np.inf)}),
    "too many axes": ("images/a0.npy", {"images/a0.png": None, "images/a0.npy": np.zeros((2, 24, 32, 3), np.uint8)}),
    "another number of channels": ("images/a1.png", {"images/a1.png": np.zeros((24, 32, 3), np.uint8)}),
    "another size": ("images/a1.png", {"labels/a1.png": np.zeros((24, 31), np.uint8)}),
    "fractions as labels": ("labels/a0.npy", {"labels/a0.png": None, "labels/a0.npy": labels_of(0.5)}),
    "NaN as labels": ("labels/a0.npy", {"labels/a0.png": None, "labels/a0.npy": labels_of(np.nan)}),
    "colours as labels": ("labels/a0.png", {"labels/a0.png": COLOURS}),
    "nothing labelled": ("images/a1.png", {"labels/a1.png": labels_of(np.uint8(255))}),
    "too many classes": ("labels", {"labels/a0.png": None, "labels/a0.npy": np.arange(24 * 32).reshape(24, 32)}),
    "a single class": ("labels", dict.fromkeys(["labels/a0.png", "labels/a1.png"], labels_of(np.uint8(3)))),
}
# Classes are a matter of each image to `evaluate`, and a single one is enough to compare with.
IN_EVALUATION = {name: culprit for name, (culprit, _) in DAMAGES.items() if name != "a single class"} | {
    "nothing labelled": "images/a1.png has no labelled pixel",
    "too many classes": "images/a0.png",
}


@pytest.fixture
def damage(place):
    """Does the damage of a name to the folder: damage("NaN")."""

    def do(name):
        for file, content in DAMAGES[name][1].items():
            path = place / file
            if content is None:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            elif isinstance(content, np.ndarray):
                write(path, content)
            else:
                path.write_bytes(path.read_bytes()[content] if isinstance(content, slice) else content)

    return do


@pytest.mark.parametrize("name", DAMAGES)
def test_train_refuses_bad_input_by_name_and_writes_nothing(train, place, damage, name):
    damage(name)
    before = listing(place)
    assert_refused(train(), place / DAMAGES[name][0])
    assert listing(place) == before


@pytest.mark.parametrize("name", IN_EVALUATION)
def test_evaluate_refuses_bad_input_by_name_and_writes_nothing(hedgerow, place, model_file, damage, name):
    damage(name)
    before = listing(place)
    finished = hedgerow("evaluate", model_file, place / "images", place / "labels", "--json", place / "scores.json")
    assert_refused(finished, place / IN_EVALUATION[name])
    assert listing(place) == before
