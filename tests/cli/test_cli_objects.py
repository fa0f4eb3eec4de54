"""From labelled objects to numbered ones on the command line: train, predict, objects, evaluate."""

import csv
import json
import os

import numpy as np
import pytest

import hedgerow as hr
from hedgerow.images.reading import read_image
from hedgerow.images.writing import write_objects
from helpers.blobs import QUICK, cells
from helpers.files import write
from helpers.refusals import assert_refused

IMAGES, OBJECTS = cells(3)


@pytest.fixture(scope="module")
def model():
    return hr.fit(IMAGES[:2], OBJECTS[:2], config=QUICK, label_kind="objects")


@pytest.fixture
def folder(tmp_path, model):
    """images/ and objects/ with a0 and a1, new/ with a2, and a model of the first two."""
    for number, (image, numbers) in enumerate(zip(IMAGES, OBJECTS, strict=True)):
        write(tmp_path / ("images" if number < 2 else "new") / f"a{number}.tif", image)
        write(tmp_path / ("objects" if number < 2 else "truth") / f"a{number}.tif", numbers.astype(np.uint16))
    hr.save(model, tmp_path / "model.hedge")
    return tmp_path


def rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_command_learns_objects_like_python(hedgerow, folder, model):
    QUICK.write(folder / "settings.toml")
    finished = hedgerow(
        "train", folder / "images", folder / "objects", "-o", folder / "own.hedge",
        "--labels", "objects", "--config", folder / "settings.toml",
    )  # fmt: skip
    assert finished.code == 0, finished.err
    assert "2 boundary" in finished.out
    own = hr.load(folder / "own.hedge")
    np.testing.assert_array_equal(own.predict_proba(IMAGES[2]), model.predict_proba(IMAGES[2]))


def test_255_is_an_object_and_minus_1_is_unlabelled():
    numbers = np.where(OBJECTS[0] == 1, 255, OBJECTS[0])
    numbers[:, :5] = -1
    model = hr.fit([IMAGES[0]], [numbers], config=QUICK, label_kind="objects")
    assert model.classes == (0, 1, 2)


def test_predict_writes_objects_and_a_table(hedgerow, folder, model):
    finished = hedgerow("predict", folder / "model.hedge", folder / "new", "-o", folder / "out", "--objects")
    assert finished.code == 0, finished.err
    numbers = read_image(folder / "out" / "a2_objects.tif")
    assert numbers.dtype == np.uint32
    np.testing.assert_array_equal(numbers, model.predict_objects(IMAGES[2]))
    assert sorted(os.listdir(folder / "out")) == ["a2.png", "a2_objects.tif", "objects.csv", "objects_totals.csv"]
    table = rows(folder / "out" / "objects.csv")
    sizes = np.bincount(numbers.ravel())[1:]
    assert [int(row["area_pixels"]) for row in table] == sizes.tolist()
    assert {row["class_name"] for row in table} == {"object"}
    edge = np.unique(np.concatenate([numbers[0], numbers[-1], numbers[:, 0], numbers[:, -1]]))
    assert [int(row["object"]) for row in table if row["at_edge"] == "1"] == edge[edge > 0].tolist()
    assert [row["class_name"] for row in rows(folder / "out" / "objects_totals.csv")] == ["object"]


def test_options_of_objects(hedgerow, folder, model):
    finished = hedgerow(
        "predict", folder / "model.hedge", folder / "new", "-o", folder / "out", "--objects", "object",
        "--diameter", "12", "--min-size", "30", "--max-size", "240", "--fill-holes", "--outlines", "geojson",
    )  # fmt: skip
    assert finished.code == 0, finished.err
    expected = model.predict_objects(
        IMAGES[2], classes=["object"], diameter=12, min_size=30, max_size=240, fill_holes=10**9
    )
    np.testing.assert_array_equal(read_image(folder / "out" / "a2_objects.tif"), expected)
    outlines = json.loads((folder / "out" / "a2.geojson").read_text())
    assert len(outlines["features"]) == expected.max()


def test_options_that_need_objects_or_contradict_them_are_refused(hedgerow, folder):
    predict = ("predict", folder / "model.hedge", folder / "new", "-o")
    assert_refused(hedgerow(*predict, folder / "out", "--diameter", "9"), "add --objects")
    assert_refused(hedgerow(*predict, folder / "out", "--split", "distance", "--objects"), "leave out --split")
    assert_refused(hedgerow(*predict, folder / "out", "--objects", "cell"), "there is no class 'cell'")
    assert not (folder / "out").exists()


def test_objects_are_evaluated(hedgerow, folder, model):
    finished = hedgerow(
        "evaluate", folder / "model.hedge", folder / "new", folder / "truth", "--objects", "--csv", folder / "s.csv",
        "--json", folder / "s.json",
    )  # fmt: skip
    assert finished.code == 0, finished.err
    scores = hr.object_scores([OBJECTS[2]], [model.predict_objects(IMAGES[2])])
    assert str(scores) in finished.out
    assert json.loads((folder / "s.json").read_text()) == {**scores.to_dict(), "n_known": 0}
    assert float(rows(folder / "s.csv")[0]["average_precision_0.5"]) == pytest.approx(scores.average_precision[0.5])
    known = hedgerow("evaluate", folder / "model.hedge", folder / "images", folder / "objects", "--objects")
    assert "the model was trained on 2 of these images" in known.out


def test_objects_of_anybodys_probabilities(hedgerow, folder, model):
    proba = model.predict_proba(IMAGES[2])
    write(folder / "p.tif", np.rint(proba * 255).astype(np.uint8), metadata={"axes": "CYX"})
    expected = model.predict_objects(IMAGES[2])
    for options in (("--classes", folder / "model.hedge"), ("--boundary", 3)):
        finished = hedgerow("objects", folder / "p.tif", "-o", folder / "o.tif", *options, "--table", folder / "t.csv")
        assert finished.code == 0, finished.err
        numbers = read_image(folder / "o.tif")
        assert numbers.max() == expected.max() == len(rows(folder / "t.csv"))
        assert hr.object_scores([expected], [numbers]).average_precision[0.9] == 1
    write(folder / "one.tif", proba[1])
    finished = hedgerow("objects", folder / "one.tif", "-o", folder / "o.npy", "--diameter", 16)
    assert finished.code == 0, finished.err
    np.testing.assert_array_equal(np.load(folder / "o.npy"), hr.objects(proba[1], diameter=16))


def test_objects_of_a_folder_of_probabilities(hedgerow, folder):
    predicted = hedgerow("predict", folder / "model.hedge", folder / "images", "-o", folder / "out", "--proba")
    assert predicted.code == 0, predicted.err
    finished = hedgerow(
        "objects", folder / "out" / "*_proba.tif", "-o", folder / "found", "--classes", folder / "model.hedge"
    )
    assert finished.code == 0, finished.err
    assert sorted(os.listdir(folder / "found")) == ["a0_objects.tif", "a1_objects.tif"]


def test_files_that_are_no_probabilities_are_refused(hedgerow, folder):
    objects = ("objects", folder / "new", "-o", folder / "o.tif")
    assert_refused(hedgerow(*objects), "expected probabilities from 0 to 1")
    write(folder / "p.tif", np.zeros((3, 8, 9), np.float32), metadata={"axes": "CYX"})
    objects = ("objects", folder / "p.tif", "-o", folder / "o.tif")
    assert_refused(hedgerow(*objects, "--boundary", 4), "has no channel 4 for the boundary; it has 3")
    assert_refused(hedgerow(*objects, "--objects", "5"), "there is no class '5'")
    assert_refused(hedgerow("objects", folder / "images", "-o", folder / "o.tif"), "2 images do not fit into")
    assert_refused(hedgerow("objects", folder / "p.tif", "-o", folder / "p.tif"), "p.tif")


def test_objects_of_large_images_are_found_in_their_probabilities(hedgerow, folder, model):
    large, image = folder / "large.ome.zarr", folder / "new" / "a2.tif"
    refused = hedgerow("predict", folder / "model.hedge", image, "-o", large, "--objects")
    assert_refused(refused, "--objects cannot be given", "predict with --proba")
    assert hedgerow("predict", folder / "model.hedge", image, "-o", large, "--proba").code == 0
    output = folder / "large_objects.ome.zarr"
    finished = hedgerow("objects", folder / "large_proba.ome.zarr", "-o", output, "--classes", folder / "model.hedge")
    assert finished.code == 0, finished.err
    np.testing.assert_array_equal(hr.read_image(output), model.predict_objects(IMAGES[2]))


def test_objects_in_a_zarr_are_labels_to_other_programs(tmp_path):
    models = pytest.importorskip("ome_zarr_models.v05.image_label")
    zarr = pytest.importorskip("zarr")
    write_objects(tmp_path / "a.zarr", OBJECTS[0])
    label = models.ImageLabel.from_zarr(zarr.open_group(tmp_path / "a.zarr", mode="r"))
    assert label.ome_attributes.image_label is not None
