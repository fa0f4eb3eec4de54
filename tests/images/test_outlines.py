"""Outlines: filled again, they are the object, whatever its holes and corners; and the files that hold them."""

import json
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import roifile
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

import hedgerow as hr
from hedgerow.errors import InputError
from hedgerow.images import outlines as module
from hedgerow.images.components import components
from hedgerow.images.outlines import outlines, write_coco, write_geojson, write_rois, write_yolo

COLOURS = {value: np.array([10 * value, 200, 7], np.uint8) for value in range(4)}


def filled(rings, shape):
    """(H,W) bool: the pixels whose middle is inside an odd number of closed lines of (row, column) corners."""
    rows, columns = np.mgrid[: shape[0], : shape[1]] + 0.5
    inside = np.zeros(shape, bool)
    for ring in rings:
        for (row, column), (to_row, to_column) in zip(ring, [*ring[1:], ring[0]], strict=True):
            assert (row == to_row) != (column == to_column), "a side goes along a row or a column"
            if column == to_column:
                inside ^= (min(row, to_row) < rows) & (rows < max(row, to_row)) & (columns < column)
    return inside


def area(ring):
    """Enclosed by (row, column) corners; positive where it runs clockwise as one sees it."""
    row, column = np.asarray(ring, float).T
    return 0.5 * (column * np.roll(row, -1) - np.roll(column, -1) * row).sum()


maps = st_numpy.arrays(np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 9)), elements=st.integers(0, 2))
PIERCED = np.array([[1, 1, 1, 1], [1, 0, 1, 1], [1, 1, 0, 1], [1, 1, 1, 0]])
CHAIN = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]])


@pytest.mark.parametrize("connectivity", [4, 8])
@given(labels=maps)
@example(labels=PIERCED)
@example(labels=1 - PIERCED)
@example(labels=CHAIN)
@example(labels=np.zeros((1, 1), int))
def test_filled_again_outlines_are_the_object(connectivity, labels):
    numbers, _ = components(labels, connectivity)
    numbers = numbers + 1
    found = outlines(numbers)
    assert len(found) == numbers.max()
    for number, polygons in enumerate(found, start=1):
        rings = [ring for polygon in polygons for ring in (polygon.outer, *polygon.holes)]
        np.testing.assert_array_equal(filled(rings, labels.shape), numbers == number)
        for polygon in polygons:
            assert area(polygon.outer) > 0
            assert all(area(hole) < 0 for hole in polygon.holes)
        for ring in rings:
            assert len(set(map(tuple, ring.tolist()))) == len(ring), "a line touches itself"
            sides = np.diff(np.vstack([ring, ring[:1]]), axis=0) != 0
            assert (sides[:, 0] != np.roll(sides[:, 0], 1)).all(), "a corner where nothing turns"
        if connectivity == 4:
            assert len(polygons) == 1


def test_pixels_that_are_no_object_have_no_outline():
    assert outlines(np.zeros((3, 4), np.int32)) == []
    ((polygon,),) = outlines(np.array([[0, 1], [0, 0]], np.int32))
    assert polygon.outer.tolist() == [[0, 1], [0, 2], [1, 2], [1, 1]]


LABELS = np.array([[0, 0, 0, 0, 0, 0], [0, 1, 1, 1, 0, 0], [0, 1, 0, 1, 0, 2], [0, 1, 1, 1, 2, 0], [0, 0, 0, 0, 0, 3]])


def test_geojson_is_what_qupath_reads(tmp_path):
    result = hr.measure(LABELS, background=0, legend=hr.Legend({1: "nucleus"}))
    write_geojson(tmp_path / "a.geojson", result, COLOURS, "detection")
    content = json.loads((tmp_path / "a.geojson").read_text())
    assert content["type"] == "FeatureCollection"
    ring, corner, last = content["features"]
    assert ring["type"] == "Feature"
    assert ring["properties"] == {
        "objectType": "detection",
        "name": "nucleus 1",
        "classification": {"name": "nucleus", "color": [10, 200, 7]},
        "measurements": {"area (pixels)": 8},
    }
    outer, hole = ring["geometry"]["coordinates"]
    assert outer == [[1, 1], [4, 1], [4, 4], [1, 4], [1, 1]]
    assert sorted(map(tuple, hole[1:])) == [(2, 2), (2, 3), (3, 2), (3, 3)]
    assert corner["geometry"]["type"] == "MultiPolygon"
    assert last["properties"]["classification"]["name"] == "3"
    for number, feature in enumerate(content["features"], start=1):
        rings = rings_of(feature["geometry"])
        assert all(one[0] == one[-1] for one in rings)
        again = filled([[(y, x) for x, y in one[:-1]] for one in rings], LABELS.shape)
        np.testing.assert_array_equal(again, result.numbers == number)


def rings_of(geometry):
    polygons = [geometry["coordinates"]] if geometry["type"] == "Polygon" else geometry["coordinates"]
    return [ring for polygon in polygons for ring in polygon]


def test_rois_are_what_imagej_reads(tmp_path):
    result = hr.measure(LABELS, background=0, legend=hr.Legend({1: "a/b"}))
    write_rois(tmp_path / "a.zip", result, COLOURS)
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert archive.namelist() == ["0001-a_b.roi", "0002-2.roi", "0003-3.roi"]
    rois = roifile.roiread(tmp_path / "a.zip")
    for number, roi in enumerate(rois, start=1):
        rings = roi.coordinates(multi=True)
        rings = [rings] if isinstance(rings, np.ndarray) else rings
        again = filled([[(y, x) for x, y in without_closing(ring)] for ring in rings], LABELS.shape)
        np.testing.assert_array_equal(again, result.numbers == number)
        box = result.objects[number - 1].box
        assert (roi.top, roi.bottom, roi.left, roi.right) == (box.top, box.bottom, box.left, box.right)
    assert rois[2].roitype == roifile.ROI_TYPE.TRACED
    assert rois[0].composite
    assert rois[0].stroke_color == bytes([255, 10, 200, 7])


def test_coco_holds_each_object_exactly(tmp_path):
    result = hr.measure(LABELS, background=0, legend=hr.Legend({1: "nucleus"}))
    write_coco(tmp_path / "a.json", result, hr.Legend({1: "nucleus"}), (1, 2, 3), "a.png")
    content = json.loads((tmp_path / "a.json").read_text())
    assert content["images"] == [{"id": 1, "file_name": "a.png", "width": 6, "height": 5}]
    assert content["categories"] == [{"id": 1, "name": "nucleus"}, {"id": 2, "name": "2"}, {"id": 3, "name": "3"}]
    ring, corner, last = content["annotations"]
    assert [item["id"] for item in content["annotations"]] == [1, 2, 3]
    assert (ring["category_id"], ring["area"], ring["bbox"], ring["iscrowd"]) == (1, 8, [1, 1, 3, 3], 0)
    assert ring["segmentation"]["size"] == [5, 6]
    runs = ring["segmentation"]["counts"]
    column_by_column = np.repeat(np.arange(len(runs)) % 2, runs).reshape(6, 5).T
    np.testing.assert_array_equal(column_by_column, LABELS == 1)
    for item in (corner, last):
        rings = [np.reshape(polygon, (-1, 2))[:, ::-1].tolist() for polygon in item["segmentation"]]
        np.testing.assert_array_equal(filled(rings, LABELS.shape), result.numbers == item["id"])


def test_yolo_has_a_line_for_each_object_in_fractions_of_the_sides(tmp_path):
    result = hr.measure(LABELS, background=0)
    write_yolo(tmp_path / "a.txt", result, (1, 2, 3))
    lines = [line.split() for line in (tmp_path / "a.txt").read_text().splitlines()]
    assert [line[0] for line in lines] == ["0", "1", "2"]
    corners = np.reshape([float(number) for number in lines[0][1:]], (-1, 2)) * (6, 5)
    assert sorted(map(tuple, corners.round(4).tolist())) == [(1, 1), (1, 4), (4, 1), (4, 4)]


@given(labels=maps)
@example(labels=PIERCED)
@example(labels=np.ones((2, 3), int))
def test_runs_of_coco_are_the_pixels(labels):
    result = hr.measure(labels, background=0)
    with TemporaryDirectory() as folder:
        write_coco(Path(folder) / "a.json", result, hr.Legend(), (1, 2), "a.png")
        content = json.loads((Path(folder) / "a.json").read_text())
    for item in content["annotations"]:
        if isinstance(item["segmentation"], dict):
            runs = item["segmentation"]["counts"]
            inside = np.repeat(np.arange(len(runs)) % 2, runs).reshape(labels.shape[::-1]).T
            np.testing.assert_array_equal(inside, result.numbers == item["id"])


def without_closing(ring):
    points = [tuple(point) for point in np.asarray(ring).tolist()]
    return points[:-1] if points[0] == points[-1] else points


def test_the_same_objects_give_the_same_files(tmp_path):
    found = hr.measure(LABELS)
    for name in "ab":
        write_rois(tmp_path / f"{name}.zip", found, COLOURS)
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_images_too_large_for_imagej_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_IMAGEJ_LARGEST", 5)
    with pytest.raises(InputError, match="GeoJSON"):
        write_rois(tmp_path / "a.zip", hr.measure(LABELS), COLOURS)
    assert list(tmp_path.iterdir()) == []
