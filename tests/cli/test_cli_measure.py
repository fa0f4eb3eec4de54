"""`hedgerow measure`, and what `predict` and `evaluate` write for those who open the results next."""

import csv
import dataclasses
import json
import os

import numpy as np
import pytest
import tifffile

import hedgerow as hr
from conftest import CLASSES
from hedgerow.images import object_tables
from hedgerow.images.label_files import read_labels
from hedgerow.images.metrics import MEANS, Scores
from hedgerow.images.reading import read_image, read_voxel_size
from hedgerow.io import model_file as model_files
from hedgerow.predict import batch
from helpers.files import listing, write
from helpers.refusals import assert_refused

LABELS = np.zeros((24, 32), np.uint8)
LABELS[2:6, 3:9] = 1
LABELS[10:20, 10:20] = 2
LABELS[14, 14] = 0
LABELS[22, 30] = 1


@pytest.fixture
def maps(place):
    """The folder of `place`, and maps/ with two label maps and names for their classes."""
    write(place / "maps" / "a0.png", LABELS)
    write(place / "maps" / "a1.png", np.zeros_like(LABELS))
    (place / "maps" / "classes.toml").write_text('[[class]]\nvalue = 2\nname = "block"\n')
    return place


def table(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_many_specks_hint_at_a_minimum_size(hedgerow, maps, model_file):
    specks = np.zeros((24, 32), np.uint8)
    specks[::2, ::2] = 1
    specks[15:, 15:] = 2
    write(maps / "maps" / "a0.png", specks)
    to_table = ("measure", maps / "maps", "-o", maps / "t.csv")
    n_specks, n_objects = (specks == 1).sum(), (specks == 1).sum() + 3  # and the block, and twice what lies around
    finished = hedgerow(*to_table)
    assert f"{n_objects} object(s)" in finished.out
    assert f"hint: {n_specks / n_objects:.0%} of the objects have fewer than 20 pixels" in finished.out
    assert "add --min-size 20" in finished.out
    assert "hint: " not in hedgerow(*to_table, "--min-size", 20).out
    write(maps / "maps" / "a0.png", LABELS)
    assert "hint: " not in hedgerow(*to_table).out


def test_prediction_hints_alike(hedgerow, maps, model_file, monkeypatch):
    to_folder = ("predict", model_file, maps / "images", "-o", maps / "out", "--measure")
    assert "hint: " not in hedgerow(*to_folder).out
    monkeypatch.setattr(object_tables, "MIN_SPECKS", 1)
    monkeypatch.setattr(batch, "SPECK_PIXELS", 10_000)  # all objects are smaller
    assert "hint: 100% of the objects" in hedgerow(*to_folder).out


def test_measure_writes_tables(hedgerow, maps, example):
    finished = hedgerow("measure", maps / "maps", "-o", maps / "t.csv", "--images", maps / "images", "--background", 0)
    assert finished.code == 0, finished.err
    assert "3 object(s) of 2 label map(s)" in finished.out
    assert "t_totals.csv" in finished.out
    rows = table(maps / "t.csv")
    result = hr.measure(LABELS, example.images[0], background=0)
    assert [(row["image"], int(row["object"]), int(row["class"])) for row in rows] == [
        ("a0.png", item.number, item.value) for item in result.objects
    ]
    assert [row["class_name"] for row in rows] == ["1", "block", "1"]
    assert [float(row["mean_intensity"]) for row in rows] == pytest.approx(
        [item.intensity[0] for item in result.objects]
    )
    assert {name: rows[1][name] for name in ("area_pixels", "top", "left", "bottom", "right", "area_um2")} == {
        "area_pixels": "99", "top": "10", "left": "10", "bottom": "20", "right": "20", "area_um2": ""
    }  # fmt: skip
    totals = table(maps / "t_totals.csv")
    assert [(row["image"], row["class"], row["objects"], row["area_pixels"]) for row in totals] == [
        ("a0.png", "1", "2", "25"), ("a0.png", "2", "1", "99"), ("a1.png", "1", "0", "0"), ("a1.png", "2", "0", "0")
    ]  # fmt: skip


def test_measure_cleans_and_changes_no_label_map(hedgerow, maps):
    before = listing(maps / "maps")
    options = ("--background", 0, "--min-size", 5, "--fill-holes", 1, "--totals", maps / "sums.csv")
    assert hedgerow("measure", maps / "maps", "-o", maps / "t.csv", *options).code == 0
    assert [row["area_pixels"] for row in table(maps / "t.csv")] == ["24", "100"]
    assert [row["area_pixels"] for row in table(maps / "sums.csv")][:2] == ["24", "100"]
    assert listing(maps / "maps") == before


@pytest.mark.parametrize("proba_type", ["float32", "uint8", "uint16"])
def test_measure_knows_what_predict_writes_beside_label_maps(hedgerow, place, model_file, stack, example, proba_type):
    options = ("--confidence", "--proba", "--overlay", "--proba-type", proba_type)
    hedgerow("predict", model_file, place / "images", "-o", place / "out", *options)
    finished = hedgerow("measure", place / "out", "-o", place / "t.csv", "--confidence", place / "out")
    assert finished.code == 0, finished.err
    rows = table(place / "t.csv")
    assert {row["image"] for row in rows} == {"a0.png", "a1.png"}
    confidence = stack.predict_proba(example.images[0]).max(axis=0)
    found = hr.measure(stack.predict(example.images[0]), confidence=confidence).objects
    known = [float(row["mean_confidence"]) for row in rows if row["image"] == "a0.png"]
    assert known == pytest.approx([one.confidence for one in found], abs=0.5 / 255 if proba_type == "uint8" else 1e-5)


def test_names_come_from_the_model_if_asked(hedgerow, maps, stack):
    named = dataclasses.replace(stack, legend=hr.Legend({3: "three"}))
    model_files.save(named, maps / "named.hedge")
    write(maps / "other" / "a0.png", np.full((3, 3), 3, np.uint8))
    assert hedgerow("measure", maps / "other", "-o", maps / "t.csv", "--classes", maps / "named.hedge").code == 0
    assert table(maps / "t.csv")[0]["class_name"] == "three"


def test_measure_refuses(hedgerow, maps):
    arguments = ("measure", maps / "maps", "-o", maps / "t.csv")
    assert_refused(hedgerow(*arguments, "--split", "proba"), "--confidence")
    assert_refused(hedgerow(*arguments, "--images", maps / "images" / "a0.png"), "a1.png", "no image of the same name")
    assert_refused(hedgerow(*arguments, "--confidence", maps / "maps"), "no confidence map of the same name")
    assert_refused(hedgerow(*arguments, "--totals", maps / "t.csv"), "give two different files")
    assert_refused(hedgerow("measure", maps / "maps", "-o", maps / "maps" / "a0.png"), "one of the files to read")
    for name in ("a0", "a1"):
        write(maps / "wrong" / f"{name}.npy", np.full(LABELS.shape, 3.5))
    assert_refused(hedgerow(*arguments, "--confidence", maps / "wrong"), "a0.npy", "3.5", "from 0 to 1")
    write(maps / "images" / "a0.png", np.zeros((5, 5), np.uint8))
    assert_refused(hedgerow(*arguments, "--images", maps / "images"), "a0.png", "5 rows x 5 columns")
    (maps / "t.csv").write_text("precious")
    assert_refused(hedgerow(*arguments), "t.csv", "--overwrite")
    assert (maps / "t.csv").read_text() == "precious"
    assert hedgerow(*arguments, "--overwrite").code == 0


def test_predict_measures_with_the_probability_of_the_class(hedgerow, place, model_file, stack, example):
    finished = hedgerow("predict", model_file, place / "images", "-o", place / "out", "--measure", "--background", 3)
    assert finished.code == 0, finished.err
    assert "object(s) measured" in finished.out
    assert sorted(os.listdir(place / "out")) == ["a0.png", "a1.png", "objects.csv", "objects_totals.csv"]
    rows = [row for row in table(place / "out" / "objects.csv") if row["image"] == "a1.png"]
    proba = stack.predict_proba(example.images[1])
    result = hr.measure(stack.predict(example.images[1]), example.images[1], confidence=proba.max(axis=0), background=3)
    assert [int(row["area_pixels"]) for row in rows] == [item.area for item in result.objects]
    for column, values in (
        ("mean_confidence", [item.confidence for item in result.objects]),
        ("mean_intensity", [item.intensity[0] for item in result.objects]),
    ):
        assert [float(row[column]) for row in rows] == pytest.approx(values)
    assert {row["class"] for row in table(place / "out" / "objects_totals.csv")} == {"77", "200"}


@pytest.mark.parametrize("tile", [7, 1000])
def test_predict_cleans_what_it_writes(hedgerow, place, model_file, stack, example, tile):
    noise = np.random.default_rng(5).integers(0, 255, (24, 32)).astype(np.uint8)
    image = np.where(np.random.default_rng(6).random((24, 32)) < 0.2, noise, example.images[0])
    write(place / "noisy" / "n.png", image)
    plain = stack.predict(image)
    assert min(item.area for item in hr.measure(plain).objects) < 12
    options = ("--min-size", 12, "--measure", "--outlines", "geojson", "--tile", tile)
    finished = hedgerow("predict", model_file, place / "noisy", "-o", place / "out", *options)
    assert finished.code == 0, finished.err
    result = hr.measure(plain, min_size=12)
    np.testing.assert_array_equal(read_labels(place / "out" / "n.png"), result.labels)
    rows = table(place / "out" / "objects.csv")
    assert [int(row["area_pixels"]) for row in rows] == [item.area for item in result.objects]
    # Where the class was changed, the probability is that of the new class.
    proba = stack.predict_proba(image)
    of_class = sum(np.where(result.labels == value, plane, 0) for plane, value in zip(proba, CLASSES, strict=True))
    expected = [float(of_class[result.numbers == item.number].mean()) for item in result.objects]
    assert [float(row["mean_confidence"]) for row in rows] == pytest.approx(expected, rel=1e-5)
    features = json.loads((place / "out" / "n.geojson").read_text())["features"]
    assert [item["properties"]["measurements"]["area (pixels)"] for item in features] == [
        item.area for item in result.objects
    ]


def test_predict_writes_outlines(hedgerow, place, model_file):
    options = ("--outlines", "geojson", "--outlines", "roi", "--object-type", "detection", "--split", "distance")
    finished = hedgerow("predict", model_file, place / "images", "-o", place / "out", *options)
    assert finished.code == 0, finished.err
    names = {f"a{n}{ending}" for n in range(2) for ending in (".png", ".geojson", "_rois.zip")}
    assert set(os.listdir(place / "out")) == names
    features = json.loads((place / "out" / "a0.geojson").read_text())["features"]
    assert {one["properties"]["objectType"] for one in features} == {"detection"}
    assert {one["properties"]["classification"]["name"] for one in features} == {str(value) for value in CLASSES}


def test_splitting_does_not_change_label_maps_and_help_says_so(hedgerow, place, model_file):
    rows, columns = np.mgrid[:60, :96]
    discs = sum((rows - 30) ** 2 + (columns - middle) ** 2 < 300 for middle in (32, 64))  # they touch
    arguments = ("predict", model_file, write(place / "discs.png", (40 + 80 * discs).astype(np.uint8)), "--measure")
    hedgerow(*arguments, "-o", place / "whole")
    hedgerow(*arguments, "-o", place / "split", "--split", "distance")
    assert len(table(place / "split" / "objects.csv")) > len(table(place / "whole" / "objects.csv"))
    assert (place / "split" / "discs.png").read_bytes() == (place / "whole" / "discs.png").read_bytes()
    assert "Changes tables and outlines only." in " ".join(hedgerow("predict", "--help").out.split())


def test_predict_refuses_what_makes_no_sense(hedgerow, place, model_file):
    arguments = ("predict", model_file, place / "images", "-o", place / "out")
    assert_refused(hedgerow(*arguments, "--split", "distance"), "--measure")
    assert_refused(hedgerow(*arguments, "--background", 4), "4", "3, 77, 200")
    assert_refused(hedgerow(*arguments, "--outlines", "svg"), "svg", "choose geojson, roi, coco, yolo")
    assert not (place / "out").exists()
    write(place / "out" / "objects.npy", LABELS)
    (place / "out" / "objects.csv").write_text("precious")
    assert_refused(hedgerow(*arguments, "--measure"), "objects.csv", "--overwrite")


@pytest.mark.parametrize("format", ["tif", "ome.tif", "png", "zarr"])
def test_the_size_of_pixels_goes_from_the_image_to_the_results(hedgerow, place, model_file, stack, example, format):
    (place / "sized").mkdir()
    tifffile.imwrite(
        place / "sized" / "a.tif", example.images[0], imagej=True, resolution=(4, 2), metadata={"unit": "um"}
    )
    options = ("--format", format, "--confidence", "--measure")
    finished = hedgerow("predict", model_file, place / "sized", "-o", place / "out", *options)
    assert finished.code == 0, finished.err
    for path in (place / "out" / f"a.{format}", place / "out" / f"a_confidence.{'tif' if format == 'png' else format}"):
        found = read_voxel_size(path)
        assert (found.height, found.width) == pytest.approx((0.5, 0.25))
    np.testing.assert_array_equal(read_labels(place / "out" / f"a.{format}"), stack.predict(example.images[0]))
    assert read_image(place / "out" / f"a_confidence.{'tif' if format == 'png' else format}").shape == (24, 32)
    row = table(place / "out" / "objects.csv")[0]
    assert float(row["area_um2"]) == pytest.approx(int(row["area_pixels"]) / 8)
    assert hedgerow("measure", place / "out" / f"a.{format}", "-o", place / "again.csv").code == 0
    assert table(place / "again.csv")[0]["area_um2"] == row["area_um2"]


def test_a_measure_is_a_property_and_a_line(hedgerow, place, stack, monkeypatch):
    """Whatever prints, writes or shows measures takes them from the table."""
    monkeypatch.setattr(Scores, "worst_dice", property(lambda scores: float(np.nanmin(scores.dice))), raising=False)
    monkeypatch.setitem(MEANS, "worst_dice", "worst Dice")
    arguments = (place / "model.hedge", place / "images", place / "labels")
    model_files.save(stack, place / "model.hedge")
    finished = hedgerow("evaluate", *arguments, "--csv", place / "each.csv", "--json", place / "all.json")
    assert finished.code == 0, finished.err
    worst = json.loads((place / "all.json").read_text())["worst_dice"]
    assert f"worst Dice {worst:.4f}" in finished.out
    assert min(float(row["worst_dice"]) for row in table(place / "each.csv")) <= worst
    pytest.importorskip("matplotlib")
    assert hedgerow("report", *arguments, "-o", place / "report.html").code == 0
    page = (place / "report.html").read_text(encoding="utf-8")
    assert "worst Dice" in page
    assert f"<td>{worst:.3f}</td>" in page


def test_evaluate_writes_the_scores_of_each_image(hedgerow, place, stack, example):
    named = dataclasses.replace(stack, legend=hr.Legend({3: "left", 77: "twin", 200: "twin"}))
    model_files.save(named, place / "named.hedge")
    one_class = np.where(example.labels[1] == 3, 3, 255).astype(np.uint8)
    write(place / "labels" / "a1.png", one_class)
    arguments = ("evaluate", place / "named.hedge", place / "images", place / "labels")
    finished = hedgerow(*arguments, "--csv", place / "each.csv", "--json", place / "all.json")
    assert finished.code == 0, finished.err
    first, second = table(place / "each.csv")
    scores = hr.evaluate(stack, example.images[:1], example.labels[:1])
    assert list(first) == [
        "image",
        "pixels",
        "mean_dice",
        "mean_iou",
        "accuracy",
        "balanced_accuracy",
        "dice_left",
        "dice_twin_77",
        "dice_twin_200",
    ]
    assert (first["image"], int(first["pixels"])) == ("a0.png", 24 * 32)
    assert {name: float(first[name]) for name in scores.means} == pytest.approx(scores.means)
    assert [float(first[name]) for name in list(first)[6:]] == pytest.approx(list(scores.dice))
    assert int(second["pixels"]) == (one_class == 3).sum()
    whole = json.loads((place / "all.json").read_text())
    assert sum(map(sum, whole["confusion"])) == int(first["pixels"]) + int(second["pixels"])
    assert_refused(hedgerow(*arguments, "--csv", place / "labels" / "a0.png"), "a0.png")
    assert_refused(hedgerow(*arguments, "--csv", place / "x", "--json", place / "x"), "give two different files")
