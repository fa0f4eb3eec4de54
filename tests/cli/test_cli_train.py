"""`hedgerow train`: the model it writes, the settings and outputs it refuses, and what an interruption leaves."""

import dataclasses
import os
import re
import sys
import time

import numpy as np
import pytest
from PIL import Image

import hedgerow as hr
from conftest import CLASSES, draw
from hedgerow import extras
from hedgerow.config import StackConfig
from hedgerow.encoders import catalogue
from hedgerow.files import write_text
from hedgerow.forest import autocontext
from hedgerow.images.writing import write_labels
from hedgerow.jobs import training
from hedgerow.scale import sparse_growth
from hedgerow.threads import get_threads, threads
from helpers.files import listing, unchanged, write
from helpers.refusals import assert_refused


def test_train_prints_the_classes_with_their_pixels_and_writes_the_model(train, place, example):
    finished = train()
    assert finished.code == 0, finished.err
    assert "2 image(s): 24 x 32 uint8" in finished.out
    for value in CLASSES:
        pixels = sum(int((labels == value).sum()) for labels in example.labels)
        assert re.search(rf"^ *{value} +{pixels:,} ", finished.out, re.MULTILINE)
    assert finished.out.count("mean Dice") == 2
    model = hr.load(place / "model.hedge")
    assert model.classes == CLASSES
    assert model.image_dtype == "uint8"
    assert set(os.listdir(place)) == {"images", "labels", "settings.toml", "model.hedge"}


@pytest.mark.parametrize(
    ("options", "extra"), [(["--features", "encoder"], "pretrained"), (["--effort", "good"], "net")]
)
def test_without_pytorch_one_message_says_all_that_is_missing_before_anything_is_read(
    train, place, monkeypatch, options, extra
):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr("hedgerow.encoders.store.place_of", lambda encoder: None)
    catalogue._published.cache_clear()
    finished = train(*options)
    assert_refused(finished, "torch", f"pip install '.[{extra}]'")
    assert finished.out == ""


def test_the_command_line_and_the_library_grow_the_same_model(train, place, example, tiny_config):
    train("--seed", 5, "--trees", 2, "--levels", 1)
    result = hr.load(place / "model.hedge")
    config = StackConfig.from_dict({**tiny_config.to_dict(), "seed": 5, "n_trees": 2, "n_levels": 1})
    expected = hr.fit_stack(example.images, example.labels, config)
    assert result.settings["config"] == config.to_dict()
    for image in example.images:
        np.testing.assert_array_equal(result.predict_proba(image), expected.predict_proba(image))


def test_the_number_of_threads_does_not_change_the_model(hedgerow, place):
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


def test_the_settings_file_is_used(train, place, tiny_config):
    config = dataclasses.replace(tiny_config, n_trees=2, held_out="none", criterion="entropy")
    config.write(place / "other.json")
    finished = train("--config", place / "other.json")
    assert finished.code == 0, finished.err
    assert "did not see" not in finished.out  # nothing was held out
    assert StackConfig.from_dict(hr.load(place / "model.hedge").settings["config"]) == config


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--config", "none.toml"), ["none.toml"]),
        (("--levels", "0"), ["n_levels", "0"]),
        (("--trees", "100000"), ["n_trees", "100000"]),
        (("--seed", "-1"), ["seed", "-1"]),
        (("--features", "colour"), ["'colour'", "bank, channels, depth"]),
        (("--features", "bank+colour"), ["'colour'", "bank, channels, depth"]),
        (("--features", "bank+"), ["''", "bank, channels, depth"]),
        (("--features", "bank+bank"), ["different kinds"]),
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
    monkeypatch.setattr(training, "grow_stack", lambda *_, **__: pytest.fail("the work was begun"))
    before = listing(place)
    target = place / output
    settings = ("--config", place / "settings.toml")
    finished = hedgerow("train", place / "images", place / "labels", "-o", target, *settings)
    assert_refused(finished, target)
    assert listing(place) == before


def test_interrupted_training_leaves_the_old_model(train, place, monkeypatch):
    write_text(place / "model.hedge", "old")
    grow = autocontext.grow_tree
    grown = []

    def interrupt(*arguments):
        if grown:
            raise KeyboardInterrupt
        grown.append(True)
        return grow(*arguments)

    monkeypatch.setattr(autocontext, "grow_tree", interrupt)
    finished = train()
    assert finished.code == 130
    assert (place / "model.hedge").read_bytes() == b"old\n"
    assert set(os.listdir(place)) == {"images", "labels", "settings.toml", "model.hedge"}


def test_labels_that_look_like_pictures_are_refused(hedgerow, place):
    rng = np.random.default_rng(0)
    (place / "pictures").mkdir()
    for name in os.listdir(place / "labels"):
        picture = rng.integers(0, 200, (24, 32)).astype(np.uint8)
        write_labels(place / "pictures" / name, picture)
    given = ("train", place / "images", place / "pictures", "-o", place / "model.hedge")
    assert_refused(hedgerow(*given), "swapped", "--max-classes", place / "pictures")
    assert not (place / "model.hedge").exists()


def test_threads_may_follow_the_command(hedgerow, place):
    with threads(get_threads()):
        finished = hedgerow(
            *("train", place / "images", place / "labels", "-o", place / "model.hedge"),
            *("--threads", 1, "--config", place / "settings.toml"),
        )
    assert finished.code == 0, finished.err


def test_different_number_types_in_one_set_are_pointed_out(train, place):
    names = sorted(os.listdir(place / "images"))
    image = hr.read_image(place / "images" / names[0])
    write_labels(place / "images" / names[0], image.astype(np.int64) * 256)
    finished = train()
    assert finished.code == 0, finished.err
    assert "different number types" in finished.out


# What was not painted


@pytest.fixture
def scribbles(place):
    """`place`, its images larger and its labels strokes on 0."""
    for number in range(2):
        image, labels = draw(number, classes=(1, 2, 3), size=(120, 160))
        strokes = np.zeros_like(labels)
        strokes[30:33, 20:150], strokes[90:93, 10:150] = labels[30:33, 20:150], labels[90:93, 10:150]
        write(place / "images" / f"a{number}.png", image)
        write(place / "labels" / f"a{number}.png", strokes.astype(np.uint8))
    return place


def test_a_forgotten_unlabelled_value_is_asked_for_with_both_commands(train, scribbles):
    before = listing(scribbles)
    finished = train()
    assert_refused(finished, "0 at 95", "painted by hand", "was nothing painted there?")
    for value in (0, 255):
        command = (
            f"hedgerow train {scribbles / 'images'} {scribbles / 'labels'} -o {scribbles / 'model.hedge'} --config"
        )
        assert re.search(rf"run {re.escape(command)} \S+ --unlabelled {value}\b", finished.err), finished.err
    unchanged(scribbles, before)


@pytest.mark.parametrize(("value", "classes"), [("0", (1, 2, 3)), ("255", (0, 1, 2, 3)), ("auto", (1, 2, 3))])
def test_the_answer_decides(train, scribbles, value, classes):
    finished = train("--unlabelled", value)
    assert finished.code == 0, finished.err
    assert hr.load(scribbles / "model.hedge").classes == classes
    assert ("0 is taken for unlabelled" in finished.out) == (value == "auto")


@pytest.fixture
def dabs(place):
    """`place`, its images larger and its labels a round dab for each of two classes, on 0."""
    rows, columns = np.mgrid[:120, :160]
    for number in range(2):
        image, labels = draw(number, classes=(1, 2, 3), size=(120, 160))
        near = ((rows - 30) ** 2 + (columns - 25) ** 2 < 50) | ((rows - 90) ** 2 + (columns - 130) ** 2 < 50)
        write(place / "images" / f"a{number}.png", image)
        write(place / "labels" / f"a{number}.png", np.where(near, labels, 0).astype(np.uint8))
    return place


def test_compact_dabs_are_asked_about_too(train, dabs):
    assert_refused(train(), "0 at 98.4%", "painted by hand", "--unlabelled 0", "--unlabelled 255")
    finished = train("--unlabelled", "auto")
    assert finished.code == 0, finished.err
    assert "0 is taken for unlabelled: it has 98.4% of all pixels" in finished.out
    assert hr.load(dabs / "model.hedge").classes == (1, 3)


def test_a_set_too_large_for_memory_is_asked_about_alike(train, dabs, monkeypatch):
    monkeypatch.setattr(sparse_growth, "LARGE_SET_PIXELS", 1000)
    assert_refused(train(), "0 at 98.4%", "painted by hand")
    for number in range(2):  # the same labels, of objects that end there
        labels = hr.read_labels(dabs / "labels" / f"a{number}.png")
        noise = np.random.default_rng(number).integers(0, 9, labels.shape)
        write(dabs / "images" / f"a{number}.png", (90 * (labels > 0) + noise).astype(np.uint8))
    finished = train()
    assert finished.code == 0, finished.err
    assert "98.4% of all pixels have the label 0" in finished.out  # a note


def test_minus_one_is_asked_about(train, place, example):
    for number, labels in enumerate(example.labels):
        values = np.where(labels == CLASSES[0], -1, np.where(labels == CLASSES[1], 1, 2))
        values[0, 0] = 0
        (place / "labels" / f"a{number}.png").unlink()
        write(place / "labels" / f"a{number}.tif", values.astype(np.int32))
    assert_refused(train(), "value -1", "does it mean unlabelled?", "--unlabelled -1")
    assert train("--unlabelled=-1").code == 0
    assert hr.load(place / "model.hedge").classes == (0, 1, 2)


def test_numbered_objects_get_a_note(train, place):
    numbers = np.zeros((24, 32), np.uint8)
    numbers[2:22:4, 2:30:4] = np.arange(1, 36).reshape(5, 7)
    for number in range(2):
        write(place / "labels" / f"a{number}.png", np.where(numbers > 30 - 15 * number, 0, numbers))
    finished = train("--unlabelled", 255)
    assert finished.code == 0, finished.err
    assert "31 label values look like numbered objects" in finished.out
    assert "--labels objects" in finished.out
    assert "labels > 0" in finished.out


# What is skipped, and what is replaced


def test_an_image_without_labels_is_skipped_with_a_note(train, hedgerow, place):
    write(place / "images" / "b.png", draw(7)[0])
    data = place / "model.hedge", place / "images", place / "labels"
    runs = [train(), hedgerow("evaluate", *data)]
    if extras.is_there("jinja2"):
        runs.append(hedgerow("report", *data, "-o", place / "report.html"))
    for finished in runs:
        assert finished.code == 0, finished.err
        assert "note: 1 image(s) without a label with the same name are skipped" in finished.out
        assert "b.png" in finished.out
    assert hr.load(place / "model.hedge").settings["n_images"] == 2


def test_training_is_refused_if_nothing_is_left(train, place):
    for number in range(2):
        (place / "labels" / f"a{number}.png").rename(place / "labels" / f"c{number}.png")
    assert_refused(train(), "2 image(s) have no label with the same name", "a0.png among the labels")


def test_a_replaced_model_is_named_with_its_age(train, hedgerow, place):
    assert "replaced " not in train().out
    model = place / "model.hedge"
    for age, words in ((20, "less than a minute"), (301, "5 minutes"), (3700, "1 hour"), (3 * 86_400, "3 days")):
        os.utime(model, (time.time() - age,) * 2)
        assert f"replaced {model} (trained {words} ago)" in train("--trees", 1, "--overwrite").out
    (place / "foreign.hedge").write_text("mine")
    finished = hedgerow(
        *("train", place / "images", place / "labels", "-o", place / "foreign.hedge"),
        *("--config", place / "settings.toml", "--overwrite"),
    )
    assert f"replaced {place / 'foreign.hedge'} (written less than a minute ago)" in finished.out


def test_auto_leaves_full_labels_as_they_are(train, place):
    assert train("--unlabelled", "auto").code == 0
    assert hr.load(place / "model.hedge").unlabelled == 255


def test_an_unlabelled_value_that_is_no_number_is_refused(train):
    assert_refused(train("--unlabelled", "none"), "--unlabelled", "'none'", "auto")


# Names and colours


def test_names_colours_and_overlays_go_from_labels_to_predictions(train, hedgerow, place):
    (place / "labels" / "classes.toml").write_text(
        "[[class]]\nvalue = 3\nname = 'sky'\ncolour = '#80c0ff'\n[[class]]\nvalue = 77\nname = 'wall'\n"
    )
    finished = train()
    assert finished.code == 0, finished.err
    assert "3 sky" in finished.out
    scored = hedgerow("evaluate", place / "model.hedge", place / "images", place / "labels")
    assert "77 wall" in scored.out
    predicted = hedgerow("predict", place / "model.hedge", place / "images", "-o", place / "out", "--overlay")
    assert predicted.code == 0, predicted.err
    model = hr.load(place / "model.hedge")
    labels = hr.read_labels(place / "out" / "a0.png")
    with Image.open(place / "out" / "a0.png") as image:
        assert image.mode == "P"
        np.testing.assert_array_equal(np.array(image), labels)
        shown = np.array(image.convert("RGB"))
    assert (shown[labels == 3] == (0x80, 0xC0, 0xFF)).all()
    assert (shown.max(axis=2) > 60).all(), "no class looks black"
    over, picture = hr.read_image(place / "out" / "a0_overlay.png"), hr.read_image(place / "images" / "a0.png")
    over, key = over[: picture.shape[0], : picture.shape[1]], over[picture.shape[0] :]
    assert over.shape == (*picture.shape, 3)
    for value, colour in model.legend.palette(model.classes).items():
        assert ((key == colour).all(axis=2).sum() > 80) == (value in labels)
    inside = np.zeros(labels.shape, bool)
    inside[2:-2, 2:-2] = labels[2:-2, 2:-2] == 3
    assert (over[inside][:, 2] > over[inside][:, 0]).mean() > 0.9, "the sky is tinted blue"


def test_labels_may_be_colours(train, hedgerow, place, example):
    for number, labels in enumerate(example.labels):
        colours = np.zeros((*labels.shape, 3), np.uint8)
        colours[labels == 77], colours[labels == 200] = (255, 0, 0), (0, 0, 255)
        write(place / "labels" / f"a{number}.png", colours)
    finished = train()
    assert finished.code == 0, finished.err
    assert "label colours: #000000 is class 0, #ff0000 is class 1, #0000ff is class 2" in finished.out
    model = hr.load(place / "model.hedge")
    assert model.legend.colours == {0: (0, 0, 0), 1: (255, 0, 0), 2: (0, 0, 255)}
    scored = hedgerow("evaluate", place / "model.hedge", place / "images", place / "labels")
    assert scored.code == 0, scored.err
    assert re.search(r"mean Dice (0\.9|1)", scored.out), scored.out


@pytest.mark.parametrize("option", [("--minutes", "3"), ("--restart",), ("--device", "cuda")])
def test_what_only_more_effort_uses_is_refused_without_it(train, place, option):
    assert_refused(train(*option), "--effort good or best")
    assert not (place / "model.hedge").exists()


def test_a_model_of_painted_colours_is_scored_on_the_same_colours(train, hedgerow, place):
    """Black means unlabelled, to the model's scores too."""
    colours = np.array([[0, 0, 0], [230, 30, 30], [30, 200, 60]], np.uint8)
    for number in range(2):
        strokes = np.zeros((24, 32), np.uint8)
        strokes[4:8, 2 + number : 14], strokes[14:18, 8 : 20 + number] = 1, 2
        write(place / "labels" / f"a{number}.png", colours[strokes])
    assert train("--unlabelled", 0).code == 0
    finished = hedgerow("evaluate", place / "model.hedge", place / "images", place / "labels")
    assert finished.code == 0, finished.err
    assert hr.load(place / "model.hedge").classes == (1, 2)
