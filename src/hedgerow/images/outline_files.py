"""Writes outlines of objects as GeoJSON for QuPath, and as ROIs for ImageJ."""

import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hedgerow.errors import InputError
from hedgerow.files import PathLike, atomic_path, write_text
from hedgerow.images.file_checks import naming_missing_package
from hedgerow.images.objects import Measured, MeasuredObject
from hedgerow.images.outlines import Polygon, outlines

ObjectType = Literal["annotation", "detection"]
"""QuPath object type: a region that somebody drew, or one of many objects that a program found."""
_IMAGEJ_LARGEST = 2**15 - 1  # row or column of an ROI
_TIME = (1980, 1, 1, 0, 0, 0)  # a fixed time, so that the same content gives the same file
_MOVE, _LINE, _CLOSE = 0.0, 1.0, 4.0  # the steps of ImageJ's composite paths

Colours = Mapping[int, np.ndarray]


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
