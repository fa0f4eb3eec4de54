"""Volume, surface and centroid of the objects of a volume."""

import csv

import numpy as np
import pytest

from hedgerow.images.legend import Legend
from hedgerow.images.objects import Objects
from hedgerow.images.volume_objects import connected_objects, measured_volume, surfaces, write_volume_table
from hedgerow.images.voxel_size import VoxelSize

SIDES = (2.0, 0.5, 0.5)


def ball(radius, sides, size):
    """A ball around the centre of a volume (Z,H,W); radius in the unit of the sides."""
    places = [(np.arange(n) - (n - 1) / 2) * side for n, side in zip(size, sides, strict=True)]
    z, y, x = np.meshgrid(*places, indexing="ij")
    return (z**2 + y**2 + x**2 < radius**2).astype(np.int32)


@pytest.mark.parametrize(
    ("radius", "sides", "size"),
    [(12, (1.0, 1.0, 1.0), (28, 28, 28)), (12, SIDES, (16, 56, 56)), (3, (1.0, 1.0, 1.0), (9, 9, 9))],
)
def test_the_surface_of_a_ball(radius, sides, size):
    (area,) = surfaces(ball(radius, sides, size), 1, sides)
    assert area == pytest.approx(4 * np.pi * radius**2, rel=0.05 if radius > 10 else 0.15)


def test_surfaces_of_boxes_at_the_edge_and_apart():
    numbers = np.zeros((20, 24, 40), np.int32)
    numbers[:, :, :20] = 1
    numbers[5:15, 5:15, 25:35] = 2
    areas = surfaces(numbers, 2, (1.0, 1.0, 1.0))
    assert areas == pytest.approx([2 * (20 * 24 + 20 * 20 + 24 * 20), 600], rel=0.15)


def test_measurements_in_micrometres(tmp_path):
    labels = np.zeros((6, 10, 12), np.uint8)
    labels[1:3, 2:6, 3:8] = 1
    labels[4:, 7:, 9:] = 1
    labels[5, 0, 0] = 2
    objects = connected_objects(labels, 0)
    assert objects.values.tolist() == [1, 1, 2]
    planes, proba = np.stack([labels, labels * 3]).astype(np.float32), np.full(labels.shape, 0.75, np.float32)
    first, second, third = measured_volume(objects, Legend({1: "cell"}), VoxelSize(0.5, 0.25, 2.0), planes, proba)
    assert (first.name, first.voxels, first.at_edge, second.at_edge) == ("cell", 40, False, True)
    assert first.volume_um3 == pytest.approx(40 * 0.25)
    assert first.centroid == pytest.approx((1.5, 3.5, 5.0))
    assert first.centroid_um == pytest.approx((3.0, 1.75, 1.25))
    assert first.intensity == pytest.approx((1, 3))
    assert (third.value, third.confidence) == (2, 0.75)
    write_volume_table(tmp_path / "a.csv", [("a.tif", first)])
    (row,) = csv.DictReader((tmp_path / "a.csv").read_text().splitlines())
    assert (row["volume_um3"], row["centroid_z_um"], row["mean_intensity_2"]) == ("10", "3", "3")


def test_without_the_size_of_a_voxel_only_voxels_are_counted():
    objects = Objects(ball(3, (1, 1, 1), (9, 9, 9)), np.array([1]))
    for size in (None, VoxelSize(1, 1)):
        (item,) = measured_volume(objects, Legend(), size, np.zeros((1, 9, 9, 9)), np.zeros((9, 9, 9)))
        assert (item.volume_um3, item.surface_um2, item.centroid_um) == (None, None, None)
        assert item.voxels == objects.numbers.sum()


def test_a_volume_without_objects():
    objects = connected_objects(np.zeros((2, 3, 4), np.uint8), 0)
    assert measured_volume(objects, Legend(), None, np.zeros((1, 2, 3, 4)), np.zeros((2, 3, 4))) == []
