"""Labels, predictions and annotations of other programs as paint: label maps, COCO, and GeoJSON of QuPath."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hedgerow.errors import InputError, one_line
from hedgerow.images.array_checks import UNLABELLED_INDEX as UNPAINTED
from hedgerow.images.file_checks import refuse_special
from hedgerow.images.label_files import read_label_set
from hedgerow.images.legend import Legend
from hedgerow.images.pairing import find_files, plain_stem
from hedgerow.images.regions import Region
from hedgerow.paint.messages import MASK_TOOL, MAX_PAINTED_NAME
from hedgerow.paint.project import Project
from hedgerow.paint.raster import MAX_PART_SIDE, Parts, covered

MAX_OUTLINE_BYTES = 2**27  # of a JSON file
MAX_OUTLINE_VALUES = 10**7  # in it: empty lists take 64 bytes each
OUTLINE_ENDINGS = (".json", ".geojson")
Outlines = dict[str, list[tuple[str, list[list[tuple[float, float]]]]]]
"""The stem of an image's name -> names of classes, each with the rings (row, column) of a polygon, holes included."""


def import_labels(project: Project, spec: str) -> list[str]:
    """Paint what files say on the images without paint, one step of undo for each; returns sentences about it.

    spec: a folder, a file or a pattern of label maps; or a file of outlines
    """
    is_outlines = spec.lower().endswith(OUTLINE_ENDINGS)
    painted, already, sentences = 0, 0, list[str]()
    sources = _outlined(project, Path(spec)) if is_outlines else _mapped(project, spec)
    for image, named in sources:
        if project.labels[image].n_painted:
            already += 1
            continue
        parts: Parts = []
        for name, classes in named:
            value = class_called(project, name)
            whole = Region.whole(classes.shape)
            tiles = ((tile, tile.of(classes)) for tile in whole.tiles((1, MAX_PART_SIDE, MAX_PART_SIDE)))
            parts += [(value, tile, mask) for tile, mask in tiles if mask.any()]
        if parts:
            stroke = {"do": "paint", "id": uuid.uuid4().hex, "image": image, "tool": MASK_TOOL, "class": None}
            project.paint(stroke, parts)
            painted += 1
    if painted:
        sentences.append(f"labels of {painted} image(s) were painted; undo takes them back, one image at a time.")
    if already:
        sentences.append(f"{already} image(s) have paint already, so their labels were not painted.")
    if not painted and not already:
        raise InputError(f"nothing in {spec} is for these images; name labels as the images, such as a.png for a.tif.")
    return sentences


def class_called(project: Project, name: str) -> int:
    """The value of the class of this name, or a number among the ids; it is added if there is none."""
    name = "".join(each for each in name.strip() if each.isprintable())[:MAX_PAINTED_NAME] or "unnamed"
    for own in project.classes:
        if own.name.lower() == name.lower() or (name.isdecimal() and own.id == int(name)):
            return own.id
    project.change_class({"id": None, "name": f"class {name}" if name.isdecimal() else name})
    return project.classes[-1].id


def _mapped(project: Project, spec: str) -> Iterator[tuple[int, list[tuple[str, np.ndarray]]]]:
    """Images with the names and pixels of their classes, from label maps."""
    files = {plain_stem(path): path for path in find_files(spec)}
    pairs = [(i, files[stem]) for i, image in enumerate(project.images) if (stem := plain_stem(image.path)) in files]
    maps, legend = read_label_set([path for _, path in pairs]) if pairs else ([], Legend())
    values = set().union(*(np.unique(labels).tolist() for labels in maps))
    is_mask = values == {0, UNPAINTED} and not legend  # black and white: the white is the object
    for (image, path), labels in zip(pairs, maps, strict=True):
        _check_size(project, image, labels.shape, path)
        own = [value for value in np.unique(labels).tolist() if value >= 0 and (is_mask or value != UNPAINTED)]
        yield image, [(str(1 if is_mask and value else legend.name(value)), labels == value) for value in own]


def _check_size(project: Project, image: int, size: tuple[int, ...], path: Path) -> None:
    expected = project.images[image].size
    if tuple(size) != expected:
        raise InputError(
            f"{path} has {' x '.join(map(str, size))} pixels and its image {' x '.join(map(str, expected))}; "
            "resize the labels, without smoothing."
        )


def _outlined(project: Project, path: Path) -> Iterator[tuple[int, list[tuple[str, np.ndarray]]]]:
    """Images with the names and pixels of their classes, from outlines."""
    outlines = read_outlines(path)
    by_stem = {plain_stem(image.path): i for i, image in enumerate(project.images)}
    for stem, polygons in outlines.items():
        image = by_stem.get(stem, 0 if len(by_stem) == len(outlines) == 1 else None)
        if image is None:
            continue
        named: dict[str, np.ndarray] = {}
        for name, rings in polygons:
            classes = named.setdefault(name, np.zeros(project.images[image].size, bool))
            parts = [part for ring in rings for part in covered(ring, 0.0, classes.shape, is_polygon=True)]
            if not parts:
                continue
            box = parts[0][0].hull(*(region for region, _ in parts))
            inside = np.zeros((box.height, box.width), bool)
            for region, mask in parts:  # a hole is cut out of what is around it
                region.within(box).of(inside)[...] ^= mask
            box.of(classes)[...] |= inside
        yield image, list(named.items())


def read_outlines(path: Path) -> Outlines:
    """The outlines of a COCO or GeoJSON file; raises InputError."""
    try:
        refuse_special(path, most=None)
        if path.stat().st_size > MAX_OUTLINE_BYTES:
            raise InputError(f"{path} has more than {MAX_OUTLINE_BYTES:,} bytes; split it.")
        content = path.read_bytes()
        if sum(map(content.count, (b",", b"[", b"{"))) > MAX_OUTLINE_VALUES:
            raise InputError(f"{path} has more than {MAX_OUTLINE_VALUES:,} values; split it.")
        document = json.loads(content)
        return (
            _of_coco(document)
            if isinstance(document, dict) and "annotations" in document
            else _of_geojson(document, path)
        )
    except OSError as problem:
        raise InputError(f"cannot read {path}: {one_line(problem)}; check its name and permissions.") from problem
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as problem:
        raise InputError(f"{path} is neither a COCO file nor GeoJSON with polygons; export it again.") from problem


def _of_coco(document: Any) -> Outlines:
    names = {each["id"]: str(each["name"]) for each in document.get("categories", [])}
    stems = {each["id"]: plain_stem(str(each["file_name"])) for each in document["images"]}
    outlines: Outlines = {}
    for each in document["annotations"]:
        if not isinstance(each.get("segmentation"), list):  # run lengths of crowds
            continue
        name = names.get(each["category_id"], str(each["category_id"]))
        for flat in each["segmentation"]:
            ring = _ring(list(zip(flat[::2], flat[1::2], strict=True)))
            outlines.setdefault(stems[each["image_id"]], []).append((name, [ring]))
    return outlines


def _of_geojson(document: Any, path: Path) -> Outlines:
    features = document["features"] if isinstance(document, dict) else document
    polygons = []
    for feature in features:
        properties, geometry = feature.get("properties") or {}, feature["geometry"]
        kind = properties.get("classification") or properties
        name = str(kind.get("name") or "object") if isinstance(kind, dict) else str(kind)
        rings = {"Polygon": [geometry["coordinates"]], "MultiPolygon": geometry["coordinates"]}.get(
            geometry["type"], []
        )
        polygons += [(name, [_ring(ring) for ring in polygon]) for polygon in rings]
    return {plain_stem(path.with_suffix(".png")): polygons}


def _ring(points: Any) -> list[tuple[float, float]]:
    """Rows and columns of pixel centres, in eighths, from x and y of corners between pixels."""
    ring = [(round((float(y) - 0.5) * 8) / 8, round((float(x) - 0.5) * 8) / 8) for x, y, *_ in points]
    if len(ring) < 3 or max(map(max, ring)) > 1e6 or min(map(min, ring)) < -1e6:
        raise ValueError("a polygon has fewer than three corners, or is far outside of any image")
    return ring
