"""Measures the objects of a volume: volume, surface and centroid, in voxels and in micrometres; and their table."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import ndimage

from hedgerow.files import PathLike, write_text
from hedgerow.images.components import neighbours, pairs
from hedgerow.images.legend import Legend
from hedgerow.images.object_tables import csv_text
from hedgerow.images.objects import Objects
from hedgerow.images.voxel_size import VoxelSize

_N_DIRECTIONS = 20_000  # at which the nearest step to a neighbour is sought


@dataclass(frozen=True)
class VolumeObject:
    """The measurements of an object of a volume.

    number:     counts from 1
    value, name: its class
    voxels:     its size; volume_um3: in cubic micrometres, if the size of a voxel is known
    surface_um2: area of its surface in square micrometres, if the size of a voxel is known
    centroid:   mean position (z, y, x) in voxels; centroid_um: in micrometres; the centre of the first voxel is 0
    at_edge:    whether it touches the edge of the volume, beyond which it may go on
    intensity:  mean of each channel
    confidence: mean probability of its class
    """

    number: int
    value: int
    name: str
    voxels: int
    volume_um3: float | None
    surface_um2: float | None
    centroid: tuple[float, ...]
    centroid_um: tuple[float, ...] | None
    at_edge: bool
    intensity: tuple[float, ...] = ()
    confidence: float | None = None


def connected_objects(labels: np.ndarray, background: int | None) -> Objects:
    """The connected regions of equal value in a label map (Z,H,W), of all classes but the background; voxels that share
    a corner are connected."""
    numbers, values = np.zeros(labels.shape, np.int32), list[int]()
    for value in np.unique(labels).tolist():
        if value != background:
            parts, n = ndimage.label(labels == value, np.ones((3, 3, 3)))
            numbers[parts > 0] = parts[parts > 0] + len(values)
            values += [value] * n
    return Objects(numbers, np.array(values, np.int64))


def measured_volume(
    objects: Objects, legend: Legend, voxel: VoxelSize | None, planes: np.ndarray, proba: np.ndarray
) -> list[VolumeObject]:
    """The measurements of objects in a volume (C,Z,H,W). proba: (Z,H,W), of each voxel's class"""
    numbers, n = objects.numbers, len(objects.values)
    if not n:
        return []
    index, volume = np.arange(1, n + 1), _sums(numbers, n)
    sides = None
    if voxel is not None and voxel.depth is not None:
        sides = voxel.depth, voxel.height, voxel.width
    places = [
        _sums(numbers, n, np.broadcast_to(np.expand_dims(np.arange(length), others), numbers.shape))
        for length, others in zip(numbers.shape, ((1, 2), (0, 2), (0, 1)), strict=True)
    ]
    at = np.stack(places, axis=1) / volume[:, np.newaxis]
    intensity = [_sums(numbers, n, channel) / volume for channel in planes]
    confidence = _sums(numbers, n, proba) / volume
    surface_um2 = None if sides is None else surfaces(numbers, n, sides)
    edges = set[int]()
    for axis in range(3):
        if numbers.shape[axis] > 1:
            edges.update(np.unique(numbers.take([0, -1], axis)).tolist())
    return [
        VolumeObject(
            number,
            int(objects.values[i]),
            legend.name(int(objects.values[i])),
            int(volume[i]),
            None if sides is None else float(volume[i] * np.prod(sides)),
            None if surface_um2 is None else float(surface_um2[i]),
            tuple(at[i].tolist()),
            None if sides is None else tuple((at[i] * sides).tolist()),
            number in edges,
            tuple(float(channel[i]) for channel in intensity),
            float(confidence[i]),
        )
        for i, number in enumerate(index.tolist())
    ]


def surfaces(numbers: np.ndarray, n: int, sides: tuple[float, float, float]) -> np.ndarray:
    """(n,) area of the surface of each object, numbered from 1 (Z,H,W), by the formula of Cauchy and Crofton: from the
    number of times that lines in 13 directions enter or leave it. Counting faces would give half too much.

    sides: of a voxel along (z, y, x)
    """
    padded, areas = np.pad(numbers, 1), np.zeros(n + 1)
    for step, weight in _weights(sides):
        here, there = pairs(padded, step)
        differ = here != there
        crossings = sum(np.bincount(part[differ], minlength=n + 1) for part in (here, there))
        areas += 2 * weight * crossings * np.prod(sides) / np.linalg.norm(np.multiply(step, sides))
    return areas[1:]


@cache
def _weights(sides: tuple[float, float, float]) -> list[tuple[tuple[int, ...], float]]:
    """The steps to 13 neighbours, each with the fraction of all directions that are nearest to it."""
    steps = neighbours(8, 3)
    lines = np.array([np.multiply(step, sides) for step in steps])
    lines /= np.linalg.norm(lines, axis=1, keepdims=True)
    i = np.arange(_N_DIRECTIONS) + 0.5  # evenly on a sphere, along a spiral
    height, angle = 1 - 2 * i / _N_DIRECTIONS, np.pi * (1 + 5**0.5) * i
    around = np.sqrt(1 - height**2)
    directions = np.stack([height, around * np.cos(angle), around * np.sin(angle)], axis=1)
    nearest = np.abs(directions @ lines.T).argmax(axis=1)
    counts = np.bincount(nearest, minlength=len(steps)) / _N_DIRECTIONS
    return list(zip(steps, counts.tolist(), strict=True))


def _sums(numbers: np.ndarray, n: int, values: np.ndarray | None = None) -> np.ndarray:
    """(n,) sum of the values (Z,H,W) over each object, or its number of voxels; plane by plane."""
    total = np.zeros(n + 1)
    for z, plane in enumerate(numbers):
        total += np.bincount(plane.ravel(), None if values is None else values[z].ravel(), minlength=n + 1)
    return total[1:]


def write_volume_table(path: PathLike, rows: Sequence[tuple[str, VolumeObject]]) -> None:
    """Write a row for each object, with the name of its file."""
    n_channels = max((len(item.intensity) for _, item in rows), default=0)
    places = ["centroid_plane", "centroid_row", "centroid_column"]
    head: list[object] = [
        "image",
        "object",
        "class",
        "class_name",
        "volume_voxels",
        "volume_um3",
        "surface_um2",
        *places,
    ]
    head += ["centroid_z_um", "centroid_y_um", "centroid_x_um", "at_edge"]
    head += ["mean_intensity"] if n_channels == 1 else [f"mean_intensity_{k + 1}" for k in range(n_channels)]
    table: list[list[object]] = [[*head, "mean_confidence"]]
    for image, item in rows:
        in_um = item.centroid_um or (None, None, None)
        sizes = item.voxels, item.volume_um3, item.surface_um2
        means = [*item.intensity, *[None] * (n_channels - len(item.intensity)), item.confidence]
        table.append([
            image, item.number, item.value, item.name, *sizes, *item.centroid, *in_um, int(item.at_edge), *means
        ])  # fmt: skip
    write_text(path, csv_text(table))
