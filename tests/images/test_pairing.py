"""Image files and their labels: found, paired by name, and split from one row of names."""

import os
from pathlib import Path

import pytest
import zarr

from hedgerow.errors import InputError
from hedgerow.images.pairing import Pair, find_files, in_words, pair_files, split_images_and_labels, stem_of
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


def test_folder_gives_supported_files_in_natural_order(tmp_path):
    touch(*(tmp_path / name for name in ("b10.png", "b9.PNG", "notes.txt", ".hidden.png", "sub/c.png")))
    (tmp_path / "folder.png").mkdir()
    zarr.create_array(tmp_path / "b1.zarr", shape=(2, 2), dtype="u1")
    zarr.create_array(tmp_path / "plain", shape=(2, 2), dtype="u1")
    assert [path.name for path in find_files(tmp_path)] == ["b1.zarr", "b9.PNG", "b10.png", "plain"]
    assert find_files(str(tmp_path / "plain")) == [tmp_path / "plain"]


def test_globs_files_and_lists_of_them(tmp_path):
    touch(tmp_path / "a[1].png", tmp_path / "a1.png", tmp_path / "c.tif", tmp_path / "d.txt")
    assert find_files(tmp_path / "a[1].png") == [tmp_path / "a[1].png"]
    assert find_files(str(tmp_path / "*.png")) == [tmp_path / "a1.png", tmp_path / "a[1].png"]
    assert find_files([tmp_path / "c.tif", str(tmp_path / "*")]) == [
        tmp_path / name for name in ("c.tif", "a1.png", "a[1].png")
    ]


@pytest.mark.parametrize("name", ["empty", "d.txt", "missing.png", "*.png", ""])
def test_nothing_found_is_one_sentence(tmp_path, name):
    (tmp_path / "empty").mkdir()
    touch(tmp_path / "d.txt")
    with pytest.raises(InputError) as problem:
        find_files(name and str(tmp_path / name))
    assert_one_sentence(problem, name)


def test_an_empty_list_of_files_is_refused():
    with pytest.raises(InputError, match="no files"):
        find_files([])


def test_unlistable_folder(tmp_path, monkeypatch):
    def refuse(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(InputError, match="Permission denied"):
        find_files(tmp_path)


@pytest.mark.parametrize(
    ("path", "stem"),
    [
        ("x/a.ome.tif", "a"),
        ("a.OME.TIFF", "a"),
        ("b.zarr", "b"),
        ("b.ome.zarr/", "b"),
        ("c.PNG", "c"),
        ("d.v2.npy", "d.v2"),
        ("e.ome.png", "e.ome"),
        ("folder", "folder"),
    ],
)
def test_stems(path, stem):
    assert stem_of(path) == stem


def test_pairs_by_stem_or_usual_suffix(tmp_path):
    images, labels = tmp_path / "images", tmp_path / "labels"
    touch(*(images / name for name in ("a1.jpg", "a2.ome.tif", "a10_seg.png", "b.png")))
    touch(*(labels / name for name in ("a1.png", "a2_labels.tif", "a10_seg.png", "b-Mask.npy")))
    assert pair_files(images, labels) == [
        Pair("a1", images / "a1.jpg", labels / "a1.png"),
        Pair("a2", images / "a2.ome.tif", labels / "a2_labels.tif"),
        Pair("a10_seg", images / "a10_seg.png", labels / "a10_seg.png"),
        Pair("b", images / "b.png", labels / "b-Mask.npy"),
    ]


def test_pairing_refusals(tmp_path):
    images, labels = tmp_path / "images", tmp_path / "labels"
    touch(*(images / f"{i}.png" for i in range(6)), labels / "other.txt", tmp_path / "others" / "7.png")
    with pytest.raises(InputError) as problem:
        pair_files(images, tmp_path / "others")
    assert_one_sentence(problem, "6 image(s)", images / "0.png", "and 3 more", "0.png among the labels")
    touch(labels / "0.png")
    with pytest.raises(InputError, match=r"1 label\(s\) have no image.*1\.png"):
        pair_files(labels, [images / "0.png", images / "1.png"])
    with pytest.raises(InputError, match="both as image and as label"):
        pair_files(images, images)
    touch(labels / "0_mask.png")
    with pytest.raises(InputError, match=r"1 label.*0_mask\.png"):
        pair_files(images / "0.png", labels)
    touch(labels / "0.tif")
    with pytest.raises(InputError, match=r"0\.png and .*0\.tif have the same name"):
        pair_files(images / "0.png", labels)


def test_one_image_and_one_label_belong_together_whatever_their_names(here):
    assert pair_files("day1/a.png", ["painted/b.png"]) == [Pair("a", Path("day1/a.png"), Path("painted/b.png"))]
    for images, labels in (("day1/a.p*", "painted/b.png"), ("day1/a.png", ["painted/b.png", "painted/c.png"])):
        with pytest.raises(InputError, match="no label with the same name"):
            pair_files(images, labels)
