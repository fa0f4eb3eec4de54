"""The files written for one predicted image: label map, maps of probabilities, pictures, and outlines of objects."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from hedgerow.errors import InputError, one_line
from hedgerow.images.array_checks import to_planes
from hedgerow.images.classes import count_values
from hedgerow.images.instances import Finding, Kinds, kinds_of
from hedgerow.images.object_search import find_in
from hedgerow.images.objects import Measured, Objects, Rules, measured
from hedgerow.images.outlines import ObjectType, write_coco, write_geojson, write_rois, write_yolo
from hedgerow.images.pictures import grey_picture, overlay, write_picture
from hedgerow.images.voxel_size import VoxelSize
from hedgerow.images.writing import scaled, write_labels, write_objects, write_scaled
from hedgerow.predict.protocol import MAPS, Model, class_values
from hedgerow.predict.tiling import predict_tiles
from hedgerow.progress import Report
from hedgerow.temporary import temporary_file

OUTLINES = {"geojson": ".geojson", "roi": "_rois.zip", "coco": "_coco.json", "yolo": ".txt"}  # endings


@dataclass(frozen=True)
class Outputs:
    """The files to write for each image.

    labels, maps: file endings; dtype: of all maps except the label map
    objects:      classes to find and write objects of; empty: of all; None: write no objects
    finding:      how they are found
    measure:      whether to measure objects, for tables of all images
    outlines:     any of OUTLINES; object_type: the kind of object in QuPath
    rules:        what counts as an object; smaller ones are removed from the label map, too
    memory:       bytes; larger results are kept in temporary files until they are written
    """

    labels: str = "png"
    maps: str = "tif"
    proba: bool = False
    confidence: bool = False
    entropy: bool = False
    overlay: bool = False
    dtype: str = "float32"
    objects: tuple[str, ...] | None = None
    finding: Finding = field(default_factory=Finding)
    measure: bool = False
    outlines: tuple[str, ...] = ()
    object_type: ObjectType = "annotation"
    rules: Rules = field(default_factory=Rules)
    memory: int = 2**26

    @property
    def finds_objects(self) -> bool:
        return self.measure or bool(self.outlines) or self.objects is not None

    def object_values(self, model: Model) -> Sequence[int]:
        """The classes that have objects."""
        if self.objects is None:
            return [value for value in model.classes if value != self.rules.background]
        return self._kinds(model).values

    def numbered(self, model: Model, proba: np.ndarray) -> Objects | None:
        """The objects in probabilities (C,H,W), if they are to be found there."""
        return None if self.objects is None else find_in(proba, self._kinds(model), self.finding)

    def _kinds(self, model: Model) -> Kinds:
        return kinds_of(model.classes, model.legend, self.objects or (), self.rules.background)

    def paths(self, folder: Path, stem: str) -> dict[str, Path]:
        """The files to write for one image, by their content."""
        paths = {"labels": folder / f"{stem}.{self.labels}"}
        paths |= {name: folder / f"{stem}_{name}.{self.maps}" for name in MAPS if getattr(self, name)}
        paths |= {name: folder / f"{stem}{OUTLINES[name]}" for name in self.outlines}
        if self.objects is not None:
            paths["objects"] = folder / f"{stem}_objects.{self.maps}"
        return paths | ({"overlay": folder / f"{stem}_overlay.png"} if self.overlay else {})


def write_outputs(
    model: Model,
    image: np.ndarray,
    outputs: Outputs,
    paths: dict[str, Path],
    tile: int | None,
    progress: Report,
    pixel: VoxelSize | None = None,
    *,
    name: str = "",
) -> Measured | None:
    """Predict an image (H,W[,C]), or planes (F,H,W), tile by tile, and write the outputs to their paths.

    In addition to the outputs, memory holds only the probabilities of one tile. Returns the measurements of objects, if
    requested.

    pixel: the size of a pixel, if known; name: the file of the image
    """
    values = class_values(model)
    # The probability of each pixel's final class; if cleaning may change the class, all probabilities are needed.
    needs_all = outputs.rules.cleans or outputs.objects is not None
    sureness = "proba" if needs_all else "confidence"
    folder, arrays = paths["labels"].parent, dict[str, np.ndarray]()
    with ExitStack() as rooms:
        for region, levels, size in predict_tiles(model, image, tile=tile, progress=progress):
            proba = levels[-1]
            parts = {"labels": values[proba.argmax(axis=0)]}
            parts |= {kind: scaled(MAPS[kind](proba), outputs.dtype) for kind in MAPS if kind in paths}
            if outputs.finds_objects:
                parts["sureness"] = MAPS[sureness](proba)
            for kind, part in parts.items():
                if kind not in arrays:
                    room = array_room(folder, (*part.shape[:-2], *size), part.dtype, outputs.memory)
                    arrays[kind] = rooms.enter_context(room)
                region.of(arrays[kind])[...] = part
        for kind in MAPS:
            if kind in paths:
                class_names = [model.legend.spoken(value) for value in model.classes] if kind == "proba" else None
                write_scaled(paths[kind], arrays[kind], class_names, pixel)
        labels = outputs.rules.clean(arrays["labels"])
        palette = model.legend.palette(model.classes)
        if "overlay" in paths:
            picture = grey_picture(to_planes(image, layout=model.features.layout))
            present = count_values(labels)
            key = [(model.legend.spoken(v), tuple(map(int, palette[v]))) for v in model.classes if v in present]
            write_picture(paths["overlay"], overlay(picture, labels, palette), key)
        objects = None
        if outputs.finds_objects:
            sure = arrays["sureness"]
            numbered = outputs.numbered(model, sure)
            if numbered is not None:
                write_objects(paths["objects"], numbered.numbers, pixel)
            if needs_all:
                sure = _of_classes(sure, labels, model.classes)
            planes = to_planes(image, layout=model.features.layout)
            objects = measured(labels, outputs.rules, planes, sure[None], model.legend, pixel, numbered=numbered)
            if "geojson" in paths:
                write_geojson(paths["geojson"], objects, palette, outputs.object_type)
            if "roi" in paths:
                write_rois(paths["roi"], objects, palette)
            if "coco" in paths:
                write_coco(paths["coco"], objects, model.legend, outputs.object_values(model), name)
            if "yolo" in paths:
                write_yolo(paths["yolo"], objects, outputs.object_values(model))
        # Written last: if the label map exists, so do all other files.
        write_labels(paths["labels"], labels, palette, pixel)
        return objects


@contextmanager
def array_room(folder: Path, shape: tuple[int, ...], dtype: DTypeLike, memory: int) -> Iterator[np.ndarray]:
    """An array to fill within the block; if larger than `memory` bytes, in a temporary file of the folder."""
    n_bytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    if n_bytes <= memory:
        yield np.empty(shape, dtype)
        return
    try:
        with temporary_file(folder, n_bytes) as temporary:
            yield np.memmap(temporary, dtype, "r+", shape=shape)
    except OSError as problem:
        raise InputError(
            f"cannot write in {folder}: {one_line(problem)}; the result needs {n_bytes / 1e9:.1f} GB there while it is "
            "computed."
        ) from problem


def _of_classes(proba: np.ndarray, labels: np.ndarray, classes: Sequence[int]) -> np.ndarray:
    """(H,W) probability of each pixel's class value, `labels` (H,W), from all probabilities (C,H,W)."""
    own = np.zeros(labels.shape, np.float32)
    for plane, value in zip(proba, classes, strict=True):
        at = labels == value
        own[at] = plane[at]
    return own
