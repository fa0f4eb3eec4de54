"""The command line as a user meets it: refusals in one sentence, results where they were asked for."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

import hedgerow as hr
from conftest import CLASSES, draw
from hedgerow import batch, cli, demo, image_writing, model_io, synthetic
from hedgerow.config import StackConfig
from hedgerow.images import read_image, read_labels

SCRIPT = Path(sys.executable).with_name("hedgerow")


def write(path, array):
    """An array as a file of the kind that its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npy":
        np.save(path, array)
    elif path.suffix == ".tif":
        tifffile.imwrite(path, array, photometric="minisblack")
    else:
        Image.fromarray(array).save(path)
    return path


def listing(folder):
    """Every file below a folder with its content."""
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def place(tmp_path, example, tiny_config):
    """A folder with images/, labels/ and settings.toml, ready to train."""
    for number, (image, labels) in enumerate(zip(example.images, example.labels, strict=True)):
        write(tmp_path / "images" / f"a{number}.png", image)
        write(tmp_path / "labels" / f"a{number}.png", labels.astype(np.uint8))
    tiny_config.write(tmp_path / "settings.toml")
    return tmp_path


@pytest.fixture
def train(hedgerow, place):
    """Trains on the folder: train("--seed", 3) -> Finished, the model in model.hedge."""

    def run(*options, images="images", labels="labels"):
        settings = () if "--config" in options else ("--config", place / "settings.toml")
        return hedgerow("train", place / images, place / labels, "-o", place / "model.hedge", *settings, *options)

    return run


def assert_refused(finished, *words):
    """Exit 2 with one sentence on the error stream that holds the words."""
    assert finished.code == 2
    lines = finished.err.splitlines()
    assert len(lines) == 1, finished.err
    assert lines[0].startswith("hedgerow: ")
    assert "Traceback" not in finished.err
    assert "unexpected" not in finished.err
    for word in words:
        assert str(word) in lines[0], lines[0]


# Training


def test_train_prints_the_classes_with_their_pixels_and_writes_the_model(train, place, example):
    finished = train()
    assert finished.code == 0, finished.err
    assert "2 image(s): 24 x 32 uint8" in finished.out
    for value in CLASSES:
        pixels = sum(int((labels == value).sum()) for labels in example.labels)
        assert re.search(rf"^ *{value} +{pixels:,} ", finished.out, re.MULTILINE)
    assert finished.out.count("mean Dice") == 2
    stack = hr.load(place / "model.hedge")
    assert stack.classes == CLASSES
    assert stack.image_dtype == "uint8"
    assert set(os.listdir(place)) == {"images", "labels", "settings.toml", "model.hedge"}


def test_the_command_line_and_the_library_grow_the_same_model(train, place, example, tiny_config):
    train("--seed", 5, "--trees", 2, "--levels", 1)
    found = hr.load(place / "model.hedge")
    config = StackConfig.from_dict({**tiny_config.to_dict(), "seed": 5, "n_trees": 2, "n_levels": 1})
    expected = hr.fit_stack(example.images, example.labels, config)
    assert found.settings["config"] == config.to_dict()
    for image in example.images:
        np.testing.assert_array_equal(found.predict_proba(image), expected.predict_proba(image))


def test_the_number_of_threads_does_not_change_the_model(hedgerow, place):
    from hedgerow.threads import get_threads, threads

    contents = []
    for count in (1, 3):
        with threads(get_threads()):  # given back after the run
            finished = hedgerow(
                *("--threads", count, "train", place / "images", place / "labels"),
                *("-o", place / "model.hedge", "--config", place / "settings.toml"),
            )
        assert finished.code == 0
        contents.append((place / "model.hedge").read_bytes())
    assert contents[0] == contents[1]


def break_partner(place):
    (place / "labels" / "a1.png").unlink()
    return place / "images" / "a1.png"


def break_image_partner(place):
    (place / "images" / "a0.png").unlink()
    return place / "labels" / "a0.png"


def break_size(place):
    write(place / "labels" / "a1.png", np.zeros((24, 31), np.uint8))
    return place / "images" / "a1.png"


def break_image_file(place):
    (place / "images" / "a1.png").write_bytes(b"\x89PNG\r\n\x1a\n and nothing else")
    return place / "images" / "a1.png"


def break_label_file(place):
    path = place / "labels" / "a1.png"
    path.write_bytes(path.read_bytes()[:60])
    return path


def break_with_nothing(place):
    (place / "images" / "a0.png").write_bytes(b"")
    return place / "images" / "a0.png"


def break_with_nan(place):
    (place / "images" / "a0.png").unlink()
    image = np.ones((24, 32), np.float32)
    image[3, 5] = np.nan
    return write(place / "images" / "a0.npy", image)


def break_with_infinity(place):
    (place / "images" / "a0.png").unlink()
    image = np.ones((24, 32))
    image[3, 5] = np.inf
    return write(place / "images" / "a0.npy", image)


def break_with_fractions(place):
    (place / "labels" / "a0.png").unlink()
    return write(place / "labels" / "a0.npy", np.full((24, 32), 0.5))


def break_with_nan_labels(place):
    (place / "labels" / "a0.png").unlink()
    return write(place / "labels" / "a0.npy", np.full((24, 32), np.nan))


def break_unlabelled(place):
    return write(place / "labels" / "a1.png", np.full((24, 32), 255, np.uint8))


def break_single_class(place):
    for name in ("a0.png", "a1.png"):
        write(place / "labels" / name, np.full((24, 32), 3, np.uint8))
    return place / "labels"


def break_with_many_classes(place):
    (place / "labels" / "a0.png").unlink()
    write(place / "labels" / "a0.npy", np.arange(24 * 32).reshape(24, 32))
    return place / "labels"


def break_empty_images(place):
    shutil.rmtree(place / "images")
    (place / "images").mkdir()
    return place / "images"


def break_empty_labels(place):
    shutil.rmtree(place / "labels")
    (place / "labels").mkdir()
    return place / "labels"


def break_missing_folder(place):
    shutil.rmtree(place / "images")
    return place / "images"


def break_channels(place):
    return write(place / "images" / "a1.png", np.zeros((24, 32, 3), np.uint8))


def break_same_name(place):
    return write(place / "images" / "a1.npy", np.zeros((24, 32), np.uint8))


def break_dimensions(place):
    (place / "images" / "a0.png").unlink()
    return write(place / "images" / "a0.npy", np.zeros((2, 24, 32, 3), np.uint8))


def break_colour_labels(place):
    colours = np.random.default_rng(0).integers(0, 255, (24, 32, 3), np.uint8)
    return write(place / "labels" / "a0.png", colours)


def break_pickle(place):
    (place / "images" / "a0.png").unlink()
    path = place / "images" / "a0.npy"
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    return path


BREAKS = [value for name, value in sorted(globals().items()) if name.startswith("break_")]


@pytest.mark.parametrize("damage", BREAKS, ids=lambda damage: damage.__name__)
def test_train_refuses_bad_input_by_name_and_writes_nothing(train, place, damage):
    culprit = damage(place)
    before = listing(place)
    assert_refused(train(), culprit)
    assert listing(place) == before


@pytest.mark.parametrize("damage", BREAKS, ids=lambda damage: damage.__name__)
def test_evaluate_refuses_bad_input_by_name_and_writes_nothing(hedgerow, place, model_file, damage):
    culprit = damage(place)
    before = listing(place)
    json_file = place / "scores.json"
    finished = hedgerow("evaluate", model_file, place / "images", place / "labels", "--json", json_file)
    if damage is break_single_class:  # enough to compare with
        assert finished.code == 0
        return
    known_by_their_image = {break_unlabelled: "images/a1.png", break_with_many_classes: "images/a0.png"}
    assert_refused(finished, known_by_their_image.get(damage, culprit))
    assert listing(place) == before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--config", "none.toml"), ["none.toml"]),
        (("--levels", "0"), ["n_levels", "0"]),
        (("--trees", "100000"), ["n_trees", "100000"]),
        (("--seed", "-1"), ["seed", "-1"]),
        (("--features", "depth", "--config", "colour"), ["colour"]),
    ],
)
def test_settings_out_of_range_are_refused(train, place, options, words):
    before = listing(place)
    assert_refused(train(*options), *words)
    assert listing(place) == before


def test_settings_of_a_file_are_refused_with_its_name(train, place):
    (place / "settings.toml").write_text("n_trees = 3\nn_tree = 4\n")
    assert_refused(train(), place / "settings.toml", "n_tree")


@pytest.mark.parametrize(
    "output", ["", "no/such/folder/model.hedge", "images/a0.png", "labels/a1.png", "settings.toml"]
)
def test_an_output_that_cannot_or_must_not_be_is_refused_before_the_work(hedgerow, place, output, monkeypatch):
    from hedgerow import stack

    monkeypatch.setattr(stack, "fit_stack", lambda *_, **__: pytest.fail("the work was begun"))
    before = listing(place)
    target = place / output
    settings = ("--config", place / "settings.toml")
    finished = hedgerow("train", place / "images", place / "labels", "-o", target, *settings)
    assert_refused(finished, target)
    assert listing(place) == before


@pytest.mark.parametrize("arguments", [(), ("train",), ("train", "a", "b"), ("paint",), ("info", "a", "--colour", "3")])
def test_wrong_usage_exits_2_without_a_traceback(hedgerow, arguments):
    finished = hedgerow(*arguments)
    assert finished.code == 2
    assert "Traceback" not in finished.out + finished.err


def test_debug_shows_where_an_error_comes_from(hedgerow, tmp_path):
    with pytest.raises(hr.ModelError, match="no model file"):
        hedgerow("info", tmp_path / "none.hedge", "--debug")
    with pytest.raises(hr.ModelError, match="no model file"):
        hedgerow("--debug", "info", tmp_path / "none.hedge")


def test_a_bug_is_one_line_and_a_traceback_only_with_debug(hedgerow, model_file, monkeypatch):
    def stumble(path):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(model_io, "load", stumble)
    finished = hedgerow("info", model_file)
    assert finished.code == 1
    assert len(finished.err.splitlines()) == 1
    assert "a bug" in finished.err
    assert "--debug" in finished.err
    with pytest.raises(ZeroDivisionError):
        hedgerow("info", model_file, "--debug")


# Class values and kinds of images


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
        found = read_labels(place / "out" / f"a{number}.{result}")
        truth = draw(number, classes)[1]
        assert set(np.unique(found)) == set(classes)
        assert (found == truth).mean() > 0.9


def test_png_is_refused_at_once_where_it_cannot_hold_the_classes(hedgerow, stack, tmp_path, place):
    import dataclasses

    model_io.save(dataclasses.replace(stack, classes=(-1, 0, 1)), place / "model.hedge")
    finished = hedgerow("predict", place / "model.hedge", place / "images", "-o", place / "out", "--format", "png")
    assert_refused(finished, place / "model.hedge", "PNG", "--format")
    assert not (place / "out").exists()


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
    many = np.moveaxis(np.repeat(grey[:, None], 5, axis=1) + np.arange(5, dtype=np.uint8)[:, None, None], 1, 1)
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


# Prediction


def test_predict_writes_what_the_library_predicts(hedgerow, place, model_file, stack, example):
    finished = hedgerow("predict", model_file, place / "images", "-o", place / "deep" / "out")
    assert finished.code == 0
    assert "2 of 2 image(s)" in finished.out
    assert sorted(os.listdir(place / "deep" / "out")) == ["a0.png", "a1.png"]
    for number, image in enumerate(example.images):
        np.testing.assert_array_equal(read_labels(place / "deep" / "out" / f"a{number}.png"), stack.predict(image))


@pytest.mark.parametrize("format", [None, "tif", "npy", "zarr"])
@pytest.mark.parametrize("proba_type", ["float32", "uint8", "uint16"])
def test_probabilities_confidence_and_entropy(hedgerow, place, model_file, stack, example, format, proba_type):
    options = ["--proba", "--confidence", "--entropy", "--proba-type", proba_type]
    options += [] if format is None else ["--format", format]
    finished = hedgerow("predict", model_file, place / "images", "-o", place / "out", *options)
    assert finished.code == 0, finished.err
    ending, maps = format or "png", format or "tif"
    names = {f"a{n}.{ending}" for n in range(2)}
    names |= {f"a{n}_{what}.{maps}" for n in range(2) for what in ("proba", "confidence", "entropy")}
    assert set(os.listdir(place / "out")) == names

    scale = {"float32": 1, "uint8": 255, "uint16": 65535}[proba_type]
    proba = stack.predict_proba(example.images[0])
    wanted = {
        "proba": np.moveaxis(proba, 0, -1),
        "confidence": proba.max(axis=0),
        "entropy": batch.relative_entropy(proba),
    }
    for what, expected in wanted.items():
        found = read_image(place / "out" / f"a0_{what}.{maps}")
        assert found.dtype == proba_type
        assert found.shape == expected.shape
        # Rounding to whole steps, no more.
        assert np.abs(found / scale - expected.astype(np.float64)).max() <= (0 if scale == 1 else 0.5001 / scale)
    labels = read_labels(place / "out" / f"a0.{ending}")
    np.testing.assert_array_equal(labels, stack.predict(example.images[0]))
    np.testing.assert_array_equal(labels, np.array(CLASSES)[proba.argmax(axis=0)])


@pytest.mark.parametrize("proba", [True, False])
@pytest.mark.parametrize("proba_type", ["float32", "uint8"])
def test_png_holds_labels_and_single_maps_and_the_rest_goes_to_tiff(hedgerow, place, model_file, proba, proba_type):
    options = ["--confidence", "--format", "png", "--proba-type", proba_type, *(["--proba"] if proba else [])]
    finished = hedgerow("predict", model_file, place / "images", "-o", place / "out", *options)
    assert finished.code == 0, finished.err
    maps = "png" if proba_type == "uint8" and not proba else "tif"
    assert {"a0.png", f"a0_confidence.{maps}"} <= set(os.listdir(place / "out"))
    assert (place / "out" / "a0_proba.tif").exists() == proba


@pytest.mark.parametrize("tile", [7, 1000])
def test_tiles_do_not_change_the_prediction(hedgerow, place, model_file, stack, example, tile):
    hedgerow("predict", model_file, place / "images" / "a0.png", "-o", place / "out", "--tile", tile, "--proba")
    found = np.moveaxis(read_image(place / "out" / "a0_proba.tif"), -1, 0)
    assert found.tobytes() == stack.predict_proba(example.images[0]).tobytes()


@pytest.mark.parametrize("tile", ["0", "-3", "many"])
def test_impossible_tiles_are_refused_at_once(hedgerow, place, model_file, tile):
    finished = hedgerow("predict", model_file, place / "images", "-o", place / "out", "--tile", tile)
    assert finished.code == 2
    assert "tile" in finished.err
    assert not (place / "out").exists()


def test_a_batch_goes_on_past_bad_images_and_names_them_at_the_end(hedgerow, place, model_file, stack, example):
    bad = [
        break_image_file(place),
        write(place / "images" / "b_nan.npy", np.full((24, 32), np.nan, np.float32)),
        write(place / "images" / "c_colour.png", np.zeros((24, 32, 3), np.uint8)),
        write(place / "images" / "d_none.npy", np.zeros((0, 32), np.uint8)),
    ]
    write(place / "images" / "z_last.png", example.images[1])
    finished = hedgerow("predict", model_file, place / "images", "-o", place / "out", "--proba")
    assert finished.code == 2
    assert "Traceback" not in finished.err
    lines = finished.err.splitlines()
    assert len(lines) == len(bad) + 1
    for line, path in zip(lines, bad, strict=False):
        assert line.startswith("failed: ")
        assert str(path) in line
    assert lines[-1].startswith("hedgerow: 4 image(s)")
    assert "2 of 6 image(s)" in finished.out
    assert set(os.listdir(place / "out")) == {"a0.png", "a0_proba.tif", "z_last.png", "z_last_proba.tif"}
    np.testing.assert_array_equal(read_labels(place / "out" / "z_last.png"), stack.predict(example.images[1]))


@pytest.mark.parametrize(
    ("images", "output", "options"),
    [
        ("images", "images", []),
        ("images", "images/../images", []),
        ("images/a1.png", "images", []),
        ("images", "link", []),
    ],
)
def test_results_never_replace_inputs(hedgerow, place, model_file, images, output, options):
    (place / "link").symlink_to(place / "images", target_is_directory=True)
    before = listing(place)
    finished = hedgerow("predict", model_file, place / images, "-o", place / output, *options)
    assert_refused(finished, "replace an input")
    assert listing(place) == before


def test_results_never_replace_each_other(hedgerow, place, model_file, example):
    write(place / "images" / "a0_proba.png", example.images[0])
    folder = place / "images"
    finished = hedgerow("predict", model_file, folder, "-o", place / "out", "--proba", "--format", "tif")
    assert_refused(finished, folder / "a0.png", folder / "a0_proba.png")
    write(place / "images" / "a1.npy", example.images[0])
    finished = hedgerow("predict", model_file, folder, "-o", place / "out")
    assert_refused(finished, folder / "a1.npy", folder / "a1.png")
    assert not (place / "out").exists()


def test_results_of_before_are_replaced(hedgerow, place, model_file):
    for _ in range(2):
        assert hedgerow("predict", model_file, place / "images", "-o", place / "out", "--format", "zarr").code == 0
    assert sorted(os.listdir(place / "out")) == ["a0.zarr", "a1.zarr"]


def test_another_dtype_is_noted(hedgerow, place, model_file, example):
    path = write(place / "other" / "a0.npy", example.images[0].astype(np.float32))
    finished = hedgerow("predict", model_file, path, "-o", place / "out")
    assert finished.code == 0
    assert f"note: {path} is float32 but the model learned from uint8" in finished.out


@pytest.mark.parametrize("output", ["images/a0.png", "images/a0.png/deeper"])
def test_a_result_folder_that_cannot_be_made_is_refused(hedgerow, place, model_file, output):
    assert_refused(hedgerow("predict", model_file, place / "images", "-o", place / output), place / output)


@pytest.mark.parametrize("images", ["none", "none/*.png", "images/*.gif", "settings.toml"])
def test_no_images_to_predict(hedgerow, place, model_file, images):
    assert_refused(hedgerow("predict", model_file, place / images, "-o", place / "out"), place / images)
    assert not (place / "out").exists()


@pytest.mark.parametrize("command", ["predict", "evaluate", "info"])
def test_a_damaged_model_is_refused(hedgerow, place, model_file, command):
    path = place / "cut.hedge"
    path.write_bytes(model_file.read_bytes()[:-5])
    rest = {"predict": ["images", "-o", "out"], "evaluate": ["images", "labels"], "info": []}[command]
    assert_refused(hedgerow(command, path, *(a if a == "-o" else place / a for a in rest)), path)
    assert not (place / "out").exists()


@pytest.mark.parametrize("kind", [".tif", ".npy", ".png", ".zarr"])
def test_an_interrupted_write_leaves_no_part_under_the_final_name(hedgerow, place, model_file, monkeypatch, kind):
    """The interruption comes while the second image is written; the first stays."""
    format = kind[1:]
    finished = hedgerow("predict", model_file, place / "images", "-o", place / "old", "--format", format)
    assert finished.code == 0
    started = []
    move = image_writing._move_into_place

    def interrupt(temporary, final):
        started.append(final.name)
        assert temporary.exists()
        if len(started) == 2:
            raise KeyboardInterrupt
        move(temporary, final)

    monkeypatch.setattr(image_writing, "_move_into_place", interrupt)
    finished = hedgerow("predict", model_file, place / "images", "-o", place / "new", "--format", format)
    assert finished.code == 130
    assert finished.err.strip() == "hedgerow: interrupted; nothing was left half-written."
    assert started == [f"a0{kind}", f"a1{kind}"]
    assert os.listdir(place / "new") == [f"a0{kind}"]
    assert listing(place / "new") == {p: c for p, c in listing(place / "old").items() if p.parts[0] == f"a0{kind}"}


def test_interrupted_training_leaves_the_old_model(train, place, monkeypatch):
    from hedgerow import stack

    (place / "model.hedge").write_bytes(b"old")
    grow = stack.grow_forest
    grown = []

    def interrupt(*arguments):
        if grown:
            raise KeyboardInterrupt
        grown.append(True)
        return grow(*arguments)

    monkeypatch.setattr(stack, "grow_forest", interrupt)
    finished = train()
    assert finished.code == 130
    assert (place / "model.hedge").read_bytes() == b"old"
    assert set(os.listdir(place)) == {"images", "labels", "settings.toml", "model.hedge"}


# Evaluation and information


def test_evaluate_prints_tables_and_writes_json(hedgerow, place, model_file, stack, example):
    arguments = ("evaluate", model_file, place / "images", place / "labels")
    finished = hedgerow(*arguments, "--json", place / "scores.json", "--background", 77)
    assert finished.code == 0
    scores = hr.evaluate(stack, example.images, example.labels)
    values = json.loads((place / "scores.json").read_text())
    without = values.pop("balanced_accuracy_without_background")
    assert values == scores.to_dict()
    assert without == scores.balanced_accuracy_without(77)
    assert values["classes"] == list(CLASSES)
    assert f"mean Dice {scores.mean_dice:.4f}" in finished.out
    for value, row in zip(CLASSES, scores.confusion, strict=True):
        assert re.search(rf"^ *{value} \| +{' +'.join(map(str, row))}$", finished.out, re.MULTILINE)
        assert re.search(rf"^ *{value} +{row.sum():,} ", finished.out, re.MULTILINE)


def test_json_to_the_screen_is_json_alone(hedgerow, place, model_file):
    finished = hedgerow("evaluate", model_file, place / "images", place / "labels", "--json", "-")
    assert json.loads(finished.out)["mean_dice"] > 0.8
    assert len(finished.out.splitlines()) == 1
    assert set(os.listdir(place)) == {"images", "labels", "settings.toml"}


def strict_json(text):
    """JSON as other programs read it: without NaN."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_json_has_null_where_a_measure_is_not_defined(hedgerow, place, model_file):
    break_single_class(place)
    arguments = ("evaluate", model_file, place / "images", place / "labels", "--json", "-", "--background", 3)
    values = strict_json(hedgerow(*arguments).out)
    assert values["balanced_accuracy_without_background"] is None
    assert values["recall"][1:] == [None, None]


def test_evaluate_refuses_before_the_work(hedgerow, place, model_file, monkeypatch):
    from hedgerow.trees import ForestStack

    model = place / "model.hedge"
    shutil.copy(model_file, model)
    monkeypatch.setattr(ForestStack, "predict", lambda *_, **__: pytest.fail("the work was begun"))
    arguments = ("evaluate", model, place / "images", place / "labels")
    assert_refused(hedgerow(*arguments, "--background", 5), "5", "3, 77, 200")
    for target in (place, place / "none" / "a.json", place / "labels" / "a0.png", model):
        before = listing(place)
        assert_refused(hedgerow(*arguments, "--json", target), target)
        assert listing(place) == before
    labels = np.full((24, 32), 3, np.uint8)
    labels[4, 6] = 9
    write(place / "labels" / "a1.png", labels)
    assert_refused(hedgerow(*arguments), "a1.png", "unknown class", "9", "row 4, column 6")


def test_labels_without_a_label_are_refused_in_evaluation(hedgerow, place, model_file):
    write(place / "labels" / "a1.png", np.full((24, 32), 255, np.uint8))
    finished = hedgerow("evaluate", model_file, place / "images", place / "labels")
    assert_refused(finished, "a1.png", "no labelled pixel")


def test_info_says_what_a_model_is(hedgerow, model_file, stack):
    finished = hedgerow("info", model_file)
    assert finished.code == 0
    assert "classes: 3, 77, 200" in finished.out
    assert "trained on 2 image(s)" in finished.out
    assert f"features: {stack.features.n_features} (bank)" in finished.out
    assert f"looks {stack.receptive_field} pixels far" in finished.out
    for number, forest in enumerate(stack.levels, start=1):
        assert f"level {number}: 3 trees, {forest.n_leaves} leaves" in finished.out
    values = strict_json(hedgerow("info", model_file, "--json").out)
    assert values == json.loads(json.dumps(model_io.description(stack)))


# Settings, samples, demo


def test_printed_settings_are_read_back_the_same(hedgerow, place):
    finished = hedgerow("settings")
    assert finished.code == 0
    (place / "printed.toml").write_text(finished.out)
    assert StackConfig.read(place / "printed.toml") == StackConfig()


def test_the_settings_file_is_used(train, place, tiny_config):
    import dataclasses

    config = dataclasses.replace(tiny_config, n_trees=2, held_out="none", criterion="entropy")
    config.write(place / "other.json")
    finished = train("--config", place / "other.json")
    assert finished.code == 0, finished.err
    assert "did not see" not in finished.out  # nothing was held out
    assert StackConfig.from_dict(hr.load(place / "model.hedge").settings["config"]) == config


@pytest.mark.parametrize("kind", ["somites", "bodies"])
def test_samples_are_written_as_they_are_drawn(hedgerow, tmp_path, kind):
    finished = hedgerow("sample", kind, "-o", tmp_path / "s", "--n-images", 2, "--seed", 4)
    assert finished.code == 0
    images, labels = getattr(synthetic, kind)(n_images=2, seed=4)
    for number in range(2):
        name = f"{kind}_{number:03d}.png"
        found = read_image(tmp_path / "s" / "images" / name)
        assert found.dtype == images[number].dtype
        np.testing.assert_array_equal(found, images[number])
        np.testing.assert_array_equal(read_labels(tmp_path / "s" / "labels" / name), labels[number])
    assert len(listing(tmp_path)) == 4


@pytest.mark.parametrize("options", [("--n-images", "0"), ("--seed", "-1"), ("-o", "file/inside")])
def test_samples_that_cannot_be_are_refused(hedgerow, tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("in the way")
    assert_refused(hedgerow("sample", "somites", "-o", "out", "--n-images", "1", *options))
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("kind", ["somites", "bodies"])
def test_demo_tells_what_each_level_gains(hedgerow, tmp_path, monkeypatch, tiny_config, kind):
    import dataclasses

    class SmallImages:
        def __init__(self, draw):
            self.draw = draw

        def __call__(self, n_images, seed):
            return self.draw(n_images=n_images, seed=seed, size=(32, 40))

    def small_config(**changes):
        return dataclasses.replace(tiny_config, **changes)

    monkeypatch.setattr(synthetic, kind, SmallImages(getattr(synthetic, kind)))
    monkeypatch.setattr(demo, "StackConfig", small_config)
    monkeypatch.setattr(demo, "N_TRAIN", 3)
    monkeypatch.setattr(demo, "N_TEST", 2)
    finished = hedgerow("demo", "-o", tmp_path / "demo", "--data", kind)
    assert finished.code == 0, finished.err
    for level in (1, 2):
        assert re.search(rf"^level {level} +0\.\d+ +0\.\d+$", finished.out, re.MULTILINE)
    found = sorted(os.listdir(tmp_path / "demo"))
    assert found == ["images", "labels", "levels.png", "model.hedge"]
    assert len(os.listdir(tmp_path / "demo" / "images")) == 3
    picture = read_image(tmp_path / "demo" / "levels.png")
    assert picture.shape[2] == 3
    assert picture.shape[1] > 4 * 40
    # What it says to do next can be done.
    model, images = tmp_path / "demo" / "model.hedge", tmp_path / "demo" / "images"
    assert f"hedgerow predict {model} {images}" in finished.out
    assert hedgerow("predict", model, images, "-o", tmp_path / "out").code == 0


def test_demo_refuses_a_place_that_cannot_be(hedgerow, tmp_path):
    (tmp_path / "file").write_text("in the way")
    assert_refused(hedgerow("demo", "-o", tmp_path / "file"), tmp_path / "file")


# The installed program


def run_script(*arguments, **options):
    command = [SCRIPT, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


def test_the_installed_program_from_images_to_scores(place):
    done = run_script("train", "images", "labels", "-o", "m.hedge", "--config", "settings.toml", cwd=place)
    assert (done.returncode, done.stderr.replace(cli_notice(done.stderr), "")) == (0, "")
    done = run_script("predict", "m.hedge", "images", "-o", "out", cwd=place)
    assert (done.returncode, done.stderr.replace(cli_notice(done.stderr), "")) == (0, "")
    assert sorted(os.listdir(place / "out")) == ["a0.png", "a1.png"]
    done = run_script("evaluate", "m.hedge", "images", "labels", "--json", "-", cwd=place)
    assert json.loads(done.stdout)["mean_dice"] > 0.8


def cli_notice(text):
    """The line that tells of kernels being compiled, where they are not yet."""
    return "".join(line for line in text.splitlines(keepends=True) if line.startswith("compiling kernels"))


def test_the_installed_program_refuses_in_one_sentence(place):
    done = run_script("info", "none.hedge", cwd=place)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("hedgerow: there is no model file none.hedge")
    assert len(done.stderr.splitlines()) == 1
    done = run_script("info", "none.hedge", "--debug", cwd=place)
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_the_help_lists_every_command_and_debug():
    done = run_script("--help")
    assert done.returncode == 0
    for command in ("train", "predict", "evaluate", "info", "settings", "sample", "demo", "--debug"):
        assert command in done.stdout


def test_an_interrupted_program_leaves_no_model(place):
    """A long training is stopped from outside, as by Ctrl-C."""
    arguments = (
        "train",
        "images",
        "labels",
        "-o",
        "m.hedge",
        "--config",
        "settings.toml",
        "--trees",
        "10000",
    )
    with subprocess.Popen(
        [SCRIPT, *arguments], cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            if line.split()[:1] == ["unlabelled"]:  # the end of the table: training begins
                break
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "hedgerow: interrupted; nothing was left half-written."
    assert set(os.listdir(place)) == {"images", "labels", "settings.toml"}


def test_the_entry_point_is_the_one_that_is_tested():
    assert cli.main.__module__ == "hedgerow.cli"
    assert SCRIPT.exists()
