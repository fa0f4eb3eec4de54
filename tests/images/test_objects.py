"""Measuring objects: numbers that can be counted by hand, and what is refused."""

import csv
import io
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

import hedgerow as hr
from hedgerow.errors import ConfigError, InputError
from hedgerow.images import objects as objects_module
from hedgerow.images.object_tables import ObjectTables, csv_text, totals_beside
from hedgerow.images.regions import Region
from hedgerow.images.voxel_size import VoxelSize
from helpers.blobs import discs

LABELS = np.array(
    [
        [0, 0, 0, 0, 0, 0],
        [0, 3, 3, 0, 0, 7],
        [0, 3, 0, 0, 7, 0],
        [0, 0, 0, 0, 0, 3],
    ]
)


def test_objects_are_measured():
    image = np.stack([np.arange(24).reshape(4, 6), 100 - np.arange(24).reshape(4, 6)], axis=-1)
    confidence = np.full((4, 6), 0.5, np.float32)
    confidence[1, 5] = 1
    legend = hr.Legend({3: "cell"})
    result = hr.measure(
        LABELS, image, confidence=confidence, background=0, legend=legend, pixel_size=VoxelSize(2.0, 0.5)
    )
    cell, seven, lone = result.objects
    assert (cell.number, cell.value, cell.name, cell.area, cell.area_um2) == (1, 3, "cell", 3, 3.0)
    assert cell.box == Region(1, 3, 1, 3)
    assert (cell.row, cell.column) == pytest.approx((4 / 3, 4 / 3))
    assert cell.intensity == pytest.approx(((7 + 8 + 13) / 3, 100 - (7 + 8 + 13) / 3))
    assert cell.confidence == 0.5
    assert (seven.value, seven.name, seven.area, seven.confidence) == (7, "7", 2, 0.75)
    assert (seven.row, seven.column) == (1.5, 4.5)
    assert (lone.number, lone.value, lone.area, lone.box) == (3, 3, 1, Region(3, 4, 5, 6))
    np.testing.assert_array_equal(
        result.numbers, np.where(LABELS == 7, 2, np.where(LABELS == 3, 1, 0)) + 2 * (image[..., 0] == 23)
    )

    of_three, of_seven = result.totals
    assert (of_three.value, of_three.name, of_three.n_objects, of_three.area, of_three.area_um2) == (
        3,
        "cell",
        2,
        4,
        4.0,
    )
    assert of_three.fraction == 4 / 24
    assert of_three.intensity[0] == pytest.approx((7 + 8 + 13 + 23) / 4)
    assert (of_seven.n_objects, of_seven.confidence) == (1, 0.75)


def test_every_class_has_objects_unless_one_is_the_background():
    assert [one.value for one in hr.measure(LABELS).objects] == [0, 3, 7, 3]
    assert hr.measure(np.zeros((3, 3), int), background=0).objects == ()
    assert hr.measure(np.zeros((3, 3), int), background=0, split="distance").totals == ()


def test_corners_connect_unless_they_must_not():
    assert [one.area for one in hr.measure(LABELS, background=0, connectivity=4).objects] == [3, 1, 1, 1]


def test_what_is_too_small_is_not_measured():
    found = hr.measure(LABELS, background=0, min_size=2)
    assert [one.value for one in found.objects] == [3, 7]
    assert found.labels[3, 5] == 0
    ring = np.ones((5, 5), int)
    ring[2, 2] = 0
    assert hr.measure(np.pad(ring, 1), background=0, fill_holes=1).objects[0].area == 25


def test_touching_objects_of_a_class_are_split():
    labels = np.where(discs((40, 70), [(20, 20, 12), (20, 42, 11)]), 5, 0)
    assert [one.value for one in hr.measure(labels, background=0, split="distance").objects] == [5, 5]
    valley = np.full(labels.shape, 0.9, np.float32)
    valley[18:22] = 0.2  # along the discs, not between them
    halves = hr.measure(labels, confidence=valley, background=0, split="proba").objects
    assert len(halves) == 2
    assert halves[0].box.bottom < halves[1].box.top + 6
    with pytest.raises(InputError, match="give the confidence"):
        hr.measure(labels, split="proba")


def test_ellipses_are_those_of_scikit_image():
    labels = np.zeros((80, 90), int)
    labels[5:20, 5:60], labels[75, 10:30], labels[60:65, 5:20], labels[61:63, 8:10], labels[70, 70] = 1, 2, 3, 0, 4
    for row in range(30, 60):
        labels[row, row - 10 : row + 5] = 5
    result = hr.measure(labels, background=0)
    peers = pytest.importorskip("skimage.measure").regionprops(result.numbers)
    for item, peer in zip(result.objects, peers, strict=True):
        assert item.major == pytest.approx(peer.axis_major_length, abs=1e-6)
        assert item.minor == pytest.approx(peer.axis_minor_length, abs=1e-6)
        assert item.eccentricity == pytest.approx(peer.eccentricity, abs=1e-6)
        assert item.equivalent_diameter == pytest.approx(peer.equivalent_diameter_area)
        if item.area > 1:
            assert np.tan(item.orientation) == pytest.approx(np.tan(peer.orientation), rel=1e-6)


@given(st_numpy.arrays(np.uint8, (7, 9), elements=st.integers(0, 3)))
def test_sums_by_blocks_are_sums(labels):
    image = np.random.default_rng(0).random((7, 9))
    whole = hr.measure(labels, image)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(objects_module, "_BLOCK_PIXELS", 20)
        parts = hr.measure(labels, image)
    for item, other in zip(whole.objects, parts.objects, strict=True):
        assert (item.row, item.column, *item.intensity) == pytest.approx((other.row, other.column, *other.intensity))
        at = whole.numbers == item.number
        assert (item.row, item.column) == pytest.approx(tuple(np.argwhere(at).mean(axis=0)))
        assert item.intensity[0] == pytest.approx(image.astype(np.float32)[at].mean())


@pytest.mark.parametrize(
    ("options", "words"),
    [({"min_size": -1}, "min_size is -1"), ({"split": "knife"}, "knife"), ({"connectivity": 6}, "choose 4 or 8")],
)
def test_impossible_rules_are_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        hr.measure(LABELS, **options)


@pytest.mark.parametrize("what", ["image", "confidence"])
def test_another_size_is_refused(what):
    with pytest.raises(InputError, match="4 rows x 6 columns"):
        hr.measure(LABELS, **{what: np.zeros((4, 5), np.float32)})


def test_tables_have_a_row_for_every_class_and_empty_cells_for_what_is_not_known(tmp_path):
    tables = ObjectTables()
    tables.expect({9: "none such"})
    legend = hr.Legend({3: 'a, "b"'})
    tables.add("one.png", hr.measure(LABELS, np.ones((4, 6, 2)), background=0, legend=legend))
    tables.add("two.png", hr.measure(np.full((2, 2), 7), np.ones((2, 2)), pixel_size=VoxelSize(2, 2)))
    tables.write(tmp_path / "t.csv", totals_beside(tmp_path / "t.csv"))
    lines = (tmp_path / "t.csv").read_text().splitlines()
    assert lines[0] == (
        "image,object,class,class_name,area_pixels,area_um2,centroid_row,centroid_column,top,left,bottom,right,"
        "at_edge,equivalent_diameter_area,axis_major_length,axis_minor_length,eccentricity,orientation,"
        "mean_intensity_1,mean_intensity_2"
    )
    assert lines[1] == (
        'one.png,1,3,"a, ""b""",3,,1.333333,1.333333,1,1,3,3,0,1.95441,2.309401,1.333333,0.8164966,-0.7853982,1,1'
    )
    assert lines[4] == "two.png,1,7,7,4,16,0.5,0.5,0,0,2,2,1,2.256758,2,2,0,0,1,"
    assert (tmp_path / "t_totals.csv").read_text().splitlines() == [
        "image,class,class_name,objects,area_pixels,area_um2,fraction,mean_intensity_1,mean_intensity_2",
        'one.png,3,"a, ""b""",2,4,,0.1666667,1,1',
        "one.png,7,7,1,2,,0.08333333,1,1",
        "one.png,9,none such,0,0,,0,,",
        'two.png,3,"a, ""b""",0,0,,0,,',
        "two.png,7,7,1,4,16,1,1,",
        "two.png,9,none such,0,0,,0,,",
    ]


def test_a_name_that_is_no_text_can_be_written():
    assert csv_text([["a\udcff.png", float("nan"), None, 1]]) == "a\\xff.png,,,1"


FORMULAS = {
    **{name: f"'{name}" for name in ("=1+1", "+1+1", "-1+1", "@SUM(A1)", "  =1", "＝1+1")},
    **{"a;=1": "a;'=1", "=1; -2;b": "'=1;' -2;b"},  # where a semicolon parts the cells
    **{"\t=1": "\\t=1", "\r=1": "\\r=1", "a\r=1": "a\\r=1", "a\n=1": "a\\n=1"},
}


@pytest.mark.parametrize(("name", "written"), FORMULAS.items())
def test_no_name_of_an_image_or_a_class_is_a_formula_to_a_spreadsheet(tmp_path, name, written):
    assert list(csv.reader(io.StringIO(csv_text([[name, "plain-name", "a=b"]])))) == [[written, "plain-name", "a=b"]]
    tables = ObjectTables()
    measured = hr.measure(np.full((2, 2), 7))
    tables.add(name, replace(measured, totals=tuple(replace(total, name=name) for total in measured.totals)))
    tables.write(tmp_path / "t.csv", totals_beside(tmp_path / "t.csv"))
    for table in ("t.csv", "t_totals.csv"):
        with open(tmp_path / table, newline="", encoding="utf-8") as opened:
            _, first = csv.reader(opened)
        assert first[0] == written
    assert first[2] == written


def test_numbers_stay_numbers_in_a_table():
    assert csv_text([[-1.5, -3, "-3", "+2.5e-3", np.float32(-0.5)]]) == "-1.5,-3,-3,+2.5e-3,-0.5"
