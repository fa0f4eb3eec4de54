"""Outlines of objects along the edges of pixels, also written as GeoJSON for QuPath, ROIs for ImageJ, and annotations
of COCO and YOLO.

Filling an outline gives exactly the pixels of the object. Only YOLO, which has no holes, loses them.
"""

import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hedgerow.errors import InputError
from hedgerow.files import PathLike, atomic_path, write_text
from hedgerow.images.components import components
from hedgerow.images.file_checks import naming_missing_package
from hedgerow.images.legend import Legend
from hedgerow.images.objects import Measured, MeasuredObject
from hedgerow.images.regions import Region

# A step along an edge of a pixel, with the object on its right: east, south, west, north.
_ROW_STEP, _COLUMN_STEP = np.array([0, 1, 0, -1]), np.array([1, 0, -1, 0])
# The pixels ahead on the left and on the right of the corner at which a step ends. A pixel is named by its upper left
# corner, and the map has a margin of one pixel.
_LEFT_ROW, _LEFT_COLUMN = np.array([0, 1, 1, 0]), np.array([1, 1, 0, 0])
_RIGHT_ROW, _RIGHT_COLUMN = np.array([1, 1, 0, 0]), np.array([1, 0, 0, 1])
ObjectType = Literal["annotation", "detection"]
"""QuPath object type: a region that somebody drew, or one of many objects that a program found."""
_IMAGEJ_LARGEST = 2**15 - 1  # row or column of an ROI
_TIME = (1980, 1, 1, 0, 0, 0)  # a fixed time, so that the same content gives the same file
_MOVE, _LINE, _CLOSE = 0.0, 1.0, 4.0  # the steps of ImageJ's composite paths

Colours = Mapping[int, np.ndarray]


@dataclass(frozen=True, eq=False)
class Polygon:
    """An area without its holes: closed lines of corners (row, column), (n,2) int32, the first corner not repeated.

    Corners count from the upper left of the first pixel. No line touches itself; two lines may meet at a corner.
    """

    outer: np.ndarray
    holes: tuple[np.ndarray, ...] = ()


def outlines(numbers: np.ndarray) -> list[list[Polygon]]:
    """The outlines of objects (H,W), which are numbered from 1 (0: no object), in the order of their numbers.

    An object whose parts are connected only at corners has a polygon for each part: a single line would touch itself,
    which many programs refuse.
    """
    parts, of_object = components(numbers, 4)
    n_objects = int(numbers.max(initial=0))
    rings, of_ring, is_outer = _rings(np.where(numbers > 0, parts, -1))
    outer: dict[int, np.ndarray] = {}
    holes: dict[int, list[np.ndarray]] = {}
    for ring, part, is_outside in zip(rings, of_ring.tolist(), is_outer.tolist(), strict=True):
        if is_outside:
            outer[part] = ring
        else:
            holes.setdefault(part, []).append(ring)
    polygons: list[list[Polygon]] = [[] for _ in range(n_objects)]
    for part in sorted(outer):
        polygons[int(of_object[part]) - 1].append(Polygon(outer[part], tuple(holes.get(part, ()))))
    return polygons


def _rings(parts: np.ndarray) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Closed lines of corners around the parts (H,W), which are numbered from 0 (-1: no part); the part (R,) of each
    line, and whether (R,) the part is inside the line."""
    padded = np.pad(parts, 1, constant_values=-1)
    runs = np.concatenate([_runs(padded, way) for way in range(4)], axis=1)
    row, column, way, end_row, end_column, next_way, part = runs
    n_columns = parts.shape[1] + 1
    starts = (row * n_columns + column) * 4 + way
    ends = (end_row * n_columns + end_column) * 4 + next_way
    order = np.argsort(starts)
    following = order[np.searchsorted(starts[order], ends)].tolist()
    sequence: list[int] = []
    begins: list[int] = []
    seen = bytearray(len(following))  # follow each line until it closes, so that each run occurs once
    for first in range(len(following)):
        if seen[first]:
            continue
        begins.append(len(sequence))
        run = first
        while not seen[run]:
            seen[run] = 1
            sequence.append(run)
            run = following[run]
    chosen = np.array(sequence, np.int64)
    corners = runs[:2, chosen].T.astype(np.int32)
    if not begins:
        return [], np.zeros(0, np.int64), np.zeros(0, bool)
    # The area inside a line, from its upright sides alone: positive if those on the right go down.
    area = np.add.reduceat((column * (end_row - row))[chosen], begins)
    return np.split(corners, begins[1:]), part[chosen[begins]], area > 0


def _runs(padded: np.ndarray, way: int) -> np.ndarray:
    """(7,K) int64: straight lines in one direction along the edges of pixels, with the part on their right.

    The rows are: row and column of the corner at which each begins; its direction, 0 to 3 for east, south, west and
    north; row and column of the corner at which it ends; the direction from there; and the part.
    """
    inner = padded[1:-1, 1:-1]
    height, width = inner.shape
    # The pixels to the left of the step: those above a step to the east, those to the right of a step to the south ...
    top, left_most = 1 + _ROW_STEP[way - 1], 1 + _COLUMN_STEP[way - 1]
    is_edge = (inner >= 0) & (padded[top : top + height, left_most : left_most + width] != inner)
    if way % 2 == 0:
        row, column = np.nonzero(is_edge)
    else:
        column, row = np.nonzero(is_edge.T)  # in order along the line
    if way in (2, 3):
        row, column = row[::-1], column[::-1]
    part = inner[row, column]
    row_begin, column_begin = row + (way in (2, 3)), column + (way in (1, 2))
    row_end, column_end = row_begin + _ROW_STEP[way], column_begin + _COLUMN_STEP[way]
    left = padded[row_end + _LEFT_ROW[way], column_end + _LEFT_COLUMN[way]] == part
    right = padded[row_end + _RIGHT_ROW[way], column_end + _RIGHT_COLUMN[way]] == part
    # Where two pixels of a part meet only at a corner, the line turns: they are connected elsewhere, around a hole that
    # closes here.
    next_way = np.where(left, (way - 1) % 4, (way + 1) % 4)
    is_last = left | ~right
    is_first = np.ones(len(is_last), bool)
    is_first[1:] = is_last[:-1]
    begins = row_begin[is_first], column_begin[is_first], np.full(int(is_first.sum()), way)
    return np.stack([*begins, row_end[is_last], column_end[is_last], next_way[is_last], part[is_first]]).astype(
        np.int64
    )


def write_geojson(path: PathLike, measured: Measured, colours: Colours, kind: ObjectType = "annotation") -> None:
    """Write the outlines of measured objects as GeoJSON, in pixels (x, y) from the upper left corner of the image."""
    features = [
        _feature(item, polygons, colours, kind)
        for item, polygons in zip(measured.objects, outlines(measured.numbers), strict=True)
    ]
    # One line per object: editors choke on a single long line.
    lines = ",\n".join(json.dumps(feature, separators=(",", ":"), allow_nan=False) for feature in features)
    write_text(path, '{"type":"FeatureCollection","features":[\n' + lines + "\n]}")


def _feature(item: MeasuredObject, polygons: Sequence[Polygon], colours: Colours, kind: ObjectType) -> dict[str, Any]:
    rings = [[_closed(ring) for ring in (polygon.outer, *polygon.holes)] for polygon in polygons]
    geometry = {"type": "Polygon", "coordinates": rings[0]}
    if len(rings) > 1:
        geometry = {"type": "MultiPolygon", "coordinates": rings}
    numbers = {"area (pixels)": item.area, "area (um^2)": item.area_um2, "confidence": item.confidence}
    colour = [int(part) for part in colours[item.value]]
    return {
        "type": "Feature",
        "geometry": geometry,
        "properties": {
            "objectType": kind,
            "name": f"{item.name} {item.number}",
            "classification": {"name": item.name, "color": colour},
            "measurements": {name: value for name, value in numbers.items() if value is not None},
        },
    }


def _closed(ring: np.ndarray) -> list[list[int]]:
    """The corners (x, y), with the first repeated at the end."""
    points: list[list[int]] = ring[:, ::-1].tolist()
    return [*points, points[0]]


def write_coco(path: PathLike, measured: Measured, legend: Legend, classes: Sequence[int], image: str) -> None:
    """Write measured objects as a COCO file of one image.

    An object is a list of polygons, or, if it has holes, the lengths of the runs of its pixels (RLE), column by column.

    classes: values of the categories, each with its name in the legend; image: name of its file
    """
    height, width = measured.numbers.shape
    annotations = []
    for item, polygons in zip(measured.objects, outlines(measured.numbers), strict=True):
        box = item.box
        segmentation: Any = [polygon.outer[:, ::-1].ravel().tolist() for polygon in polygons]
        if any(polygon.holes for polygon in polygons):
            mask = box.of(measured.numbers) == item.number
            segmentation = {"size": [height, width], "counts": _run_lengths(mask, box, height, width)}
        annotations.append(
            {
                "id": item.number,
                "image_id": 1,
                "category_id": item.value,
                "segmentation": segmentation,
                "area": item.area,
                "bbox": [box.left, box.top, box.right - box.left, box.bottom - box.top],
                "iscrowd": 0,
            }
            | ({} if item.confidence is None else {"score": item.confidence})
        )
    content = {
        "images": [{"id": 1, "file_name": image, "width": width, "height": height}],
        "categories": [{"id": int(value), "name": legend.name(value)} for value in classes],
        "annotations": annotations,
    }
    write_text(path, json.dumps(content, separators=(",", ":"), allow_nan=False))


def _run_lengths(mask: np.ndarray, box: Region, height: int, width: int) -> list[int]:
    """Lengths of the runs of pixels outside and inside by turns, column by column, of a mask that fills a box of an
    image; the first run is outside."""
    inside = np.zeros((box.right - box.left, height), bool)
    inside[:, box.top : box.bottom] = mask.T
    changes = np.flatnonzero(np.diff(inside.ravel(), prepend=False, append=False)) + box.left * height
    return np.diff([0, *changes.tolist(), height * width]).tolist()


def write_yolo(path: PathLike, measured: Measured, classes: Sequence[int]) -> None:
    """Write the outlines of measured objects as YOLO's lines of text: the number of the class, from 0 in the order of
    `classes`, and the corners (x, y) as fractions of the image's sides. Of several parts, the largest; without holes.
    """
    height, width = measured.numbers.shape
    numbers = {int(value): number for number, value in enumerate(classes)}
    lines = []
    for item, polygons in zip(measured.objects, outlines(measured.numbers), strict=True):
        largest = max(polygons, key=lambda polygon: _area(polygon.outer))
        corners = (largest.outer[:, ::-1] / (width, height)).ravel()
        lines.append(" ".join([str(numbers[item.value]), *(f"{place:.6g}" for place in corners)]))
    write_text(path, "\n".join(lines))


def _area(ring: np.ndarray) -> float:
    """The area inside a line of corners (row, column)."""
    row, column = ring.astype(np.float64).T
    return abs(float(row @ np.roll(column, 1) - column @ np.roll(row, 1))) / 2


def write_rois(path: PathLike, measured: Measured, colours: Colours) -> None:
    """Write the outlines of measured objects as a ZIP of ImageJ's ROIs."""
    if max(measured.numbers.shape) > _IMAGEJ_LARGEST:
        height, width = measured.numbers.shape
        raise InputError(
            f"cannot write {path}: the image has {height:,} x {width:,} pixels, and ImageJ's ROIs allow at most "
            f"{_IMAGEJ_LARGEST:,} along each side; write GeoJSON instead."
        )
    digits = max(len(str(len(measured.objects))), 4)
    with (
        naming_missing_package(Path(path)),
        atomic_path(path) as temporary,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for item, polygons in zip(measured.objects, outlines(measured.numbers), strict=True):
            name = f"{item.number:0{digits}d}-{_plain(item.name)}"
            entry = zipfile.ZipInfo(f"{name}.roi", _TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, _roi(polygons, name, colours[item.value]))


def _roi(polygons: Sequence[Polygon], name: str, colour: np.ndarray) -> bytes:
    """One ROI: a traced line, or a composite if there are holes or several polygons."""
    from roifile import ROI_TYPE, ImagejRoi

    rings = [ring[:, ::-1] for polygon in polygons for ring in (polygon.outer, *polygon.holes)]
    corners = np.concatenate(rings)
    low, high = corners.min(axis=0), corners.max(axis=0)
    roi = ImagejRoi()
    roi.name = name
    roi.left, roi.top, roi.right, roi.bottom = (int(v) for v in (*low, *high))
    roi.stroke_color = bytes([255, *(int(part) for part in colour)])
    if len(rings) == 1:
        roi.roitype = ROI_TYPE.TRACED
        roi.integer_coordinates = (rings[0] - low).astype(np.int32)
        roi.n_coordinates = len(rings[0])
    else:
        roi.roitype = ROI_TYPE.RECT
        roi.multi_coordinates = np.concatenate([_steps(ring) for ring in rings])
        roi.shape_roi_size = len(roi.multi_coordinates)
    return roi.tobytes()


def _steps(ring: np.ndarray) -> np.ndarray:
    """A closed line (x, y) in the form of ImageJ's paths: move, lines, close."""
    steps = np.empty((len(ring), 3), np.float32)
    steps[:, 0] = _LINE
    steps[0, 0] = _MOVE
    steps[:, 1:] = ring
    return np.append(steps.ravel(), np.float32(_CLOSE))


def _plain(name: str) -> str:
    """The name of a class, for use in the name of a file."""
    return "".join(c if c.isalnum() or c in " -_.()" else "_" for c in name)
