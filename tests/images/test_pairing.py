"""Images and labels told apart in one row of names."""

import os

import pytest

from hedgerow.errors import InputError
from hedgerow.images.pairing import in_words, split_images_and_labels
from helpers.files import touch
from helpers.refusals import assert_one_sentence


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Two folders of images, one of labels, and a Zarr folder of labels."""
    monkeypatch.chdir(tmp_path)
    for folder in ("day1", "day2", "painted"):
        touch(*(tmp_path / folder / f"{name}.png" for name in "abc"))
    touch(tmp_path / "painted.zarr" / ".zarray")
    return tmp_path


FILES = {folder: [f"{folder}/{name}.png" for name in "abc"] for folder in ("day1", "day2", "painted")}
ROWS = [
    # Two names are what they are, whether they exist or not.
    (["day1", "painted"], "day1", "painted"),
    (["day1/a.png", "day1/b.png"], "day1/a.png", "day1/b.png"),
    (["no", "such"], "no", "such"),
    # The last folder or pattern holds the labels.
    (["day1", "day2", "painted"], ["day1", "day2"], "painted"),
    ([*FILES["day1"], "painted/"], FILES["day1"], "painted/"),
    ([*FILES["day1"], "painted/*.png"], FILES["day1"], "painted/*.png"),
    ([*FILES["day1"], "painted.zarr"], FILES["day1"], "painted.zarr"),
    (["day1", "day2", "missing"], ["day1", "day2"], "missing"),
    # Files: the last ones of one folder.
    ([*FILES["day1"], *FILES["painted"]], FILES["day1"], FILES["painted"]),
    (["day1", *FILES["painted"]], "day1", FILES["painted"]),
    ([*FILES["day1"], *FILES["day2"], *FILES["painted"]], FILES["day1"] + FILES["day2"], FILES["painted"]),
    ([*FILES["day1"], "painted/a.png"], FILES["day1"], "painted/a.png"),
    (["day1/*.png", *FILES["painted"]], "day1/*.png", FILES["painted"]),
]


@pytest.mark.parametrize(("names", "images", "labels"), ROWS)
def test_images_and_labels_are_split(here, names, images, labels):
    assert split_images_and_labels(names) == (images, labels)


@pytest.mark.parametrize("folder", ["", "day1"])
def test_files_of_one_folder_are_not_guessed_at(here, monkeypatch, folder):
    if not folder:
        monkeypatch.chdir(here / "day1")
    with pytest.raises(InputError) as problem:
        split_images_and_labels([os.path.join(folder, f"{name}.png") for name in "abc"])
    assert_one_sentence(problem, "3 files", f'"{os.path.join(folder, "*.png")}" labels/')


def test_names_in_a_sentence():
    assert in_words("a") == "a"
    assert in_words(["a"]) == "a"
    assert in_words(["a", "b", "c"]) == "a and 2 more"
