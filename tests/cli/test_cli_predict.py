"""`hedgerow predict`: what it writes, what it never replaces, and how it goes on past bad images."""

import dataclasses
import os

import numpy as np
import pytest

from conftest import CLASSES
from hedgerow import files
from hedgerow.images.label_files import read_labels
from hedgerow.images.reading import read_image
from hedgerow.io import model_file as model_files
from hedgerow.predict.protocol import relative_entropy
from helpers.files import listing, write
from helpers.refusals import assert_refused


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
        "entropy": relative_entropy(proba),
    }
    for what, expected in wanted.items():
        result = read_image(place / "out" / f"a0_{what}.{maps}")
        assert result.dtype == proba_type
        assert result.shape == expected.shape
        # Rounding to whole steps, no more.
        assert np.abs(result / scale - expected.astype(np.float64)).max() <= (0 if scale == 1 else 0.5001 / scale)
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


def test_png_is_refused_at_once_where_it_cannot_hold_the_classes(hedgerow, stack, place):
    model_files.save(dataclasses.replace(stack, classes=(-1, 0, 1)), place / "model.hedge")
    finished = hedgerow("predict", place / "model.hedge", place / "images", "-o", place / "out", "--format", "png")
    assert_refused(finished, place / "model.hedge", "PNG", "--format")
    assert not (place / "out").exists()


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


def test_another_dtype_is_noted(hedgerow, place, model_file, example):
    path = write(place / "other" / "a0.npy", example.images[0].astype(np.float32))
    finished = hedgerow("predict", model_file, path, "-o", place / "out")
    assert finished.code == 0
    assert f"note: {path} is float32 but the model learned from uint8" in finished.out


def test_a_batch_goes_on_past_bad_images_and_names_them_at_the_end(hedgerow, place, model_file, stack, example):
    bad = [
        place / "images" / "a1.png",
        write(place / "images" / "b_nan.npy", np.full((24, 32), np.nan, np.float32)),
        write(place / "images" / "c_colour.png", np.zeros((24, 32, 3), np.uint8)),
        write(place / "images" / "d_none.npy", np.zeros((0, 32), np.uint8)),
    ]
    bad[0].write_bytes(b"\x89PNG\r\n\x1a\n and nothing else")
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
    ("images", "output"),
    [("images", "images"), ("images", "images/../images"), ("images/a1.png", "images"), ("images", "link")],
)
def test_results_never_replace_inputs(hedgerow, place, model_file, images, output):
    (place / "link").symlink_to(place / "images", target_is_directory=True)
    before = listing(place)
    assert_refused(hedgerow("predict", model_file, place / images, "-o", place / output), "holds the images themselves")
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


@pytest.mark.parametrize("output", ["images/a0.png", "images/a0.png/deeper"])
def test_a_result_folder_that_cannot_be_made_is_refused(hedgerow, place, model_file, output):
    assert_refused(hedgerow("predict", model_file, place / "images", "-o", place / output), place / output)


@pytest.mark.parametrize("images", ["none", "none/*.png", "images/*.gif", "settings.toml"])
def test_no_images_to_predict(hedgerow, place, model_file, images):
    assert_refused(hedgerow("predict", model_file, place / images, "-o", place / "out"), place / images)
    assert not (place / "out").exists()


@pytest.mark.parametrize("kind", [".tif", ".npy", ".png", ".zarr"])
def test_an_interrupted_write_leaves_no_part_under_the_final_name(hedgerow, place, model_file, monkeypatch, kind):
    """The interruption comes while the second image is written; the first stays."""
    format = kind[1:]
    finished = hedgerow("predict", model_file, place / "images", "-o", place / "old", "--format", format)
    assert finished.code == 0
    started = []
    move = files._move_into_place

    def interrupt(temporary, final):
        started.append(final.name)
        assert temporary.exists()
        if len(started) == 2:
            raise KeyboardInterrupt
        move(temporary, final)

    monkeypatch.setattr(files, "_move_into_place", interrupt)
    finished = hedgerow("predict", model_file, place / "images", "-o", place / "new", "--format", format)
    assert finished.code == 130
    assert finished.err.strip() == "hedgerow: interrupted; nothing was left half-written."
    assert started == [f"a0{kind}", f"a1{kind}"]
    assert os.listdir(place / "new") == [f"a0{kind}"]
    assert listing(place / "new") == {p: c for p, c in listing(place / "old").items() if p.startswith("a0.")}
