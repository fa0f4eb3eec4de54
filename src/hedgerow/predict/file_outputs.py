"""The files written for one predicted image: label map, maps of probabilities, pictures, and outlines of objects; and
for a stack, a volume or a series of images, whose results are files with the same axes."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from hedgerow.errors import InputError, one_line
from hedgerow.forest.level_input import dimensions_of
from hedgerow.images.array_checks import Layout, to_planes
from hedgerow.images.classes import count_values
from hedgerow.images.instances import Finding, Kinds, kinds_of
from hedgerow.images.object_search import find_in
from hedgerow.images.objects import Measured, Objects, Rules, measured
from hedgerow.images.outlines import ObjectType, write_coco, write_geojson, write_rois, write_yolo
from hedgerow.images.pictures import grey_picture, overlay, write_picture
from hedgerow.images.reading import ImageSource
from hedgerow.images.volume_objects import VolumeObject, connected_objects, measured_volume
from hedgerow.images.voxel_size import VoxelSize
from hedgerow.images.writing import scaled, write_labels, write_objects, write_scaled
from hedgerow.predict.protocol import MAPS, Model, class_values
from hedgerow.predict.tiling import predict_planes, predict_tiles
from hedgerow.progress import Report
from hedgerow.temporary import temporary_file

SAME_ANISOTROPY = 0.05  # relative difference of the distance of planes that needs no note
OUTLINES = {"geojson": ".geojson", "roi": "_rois.zip", "coco": "_coco.json", "yolo": ".txt"}  # endings


@dataclass(frozen=True)
class Outputs:
    """The files to write for each image.

    labels, maps: file endings; dtype: of all maps except the label map
    is_default:   nobody chose these endings
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
    is_default: bool = False

    @property
    def finds_objects(self) -> bool:
        return self.measure or bool(self.outlines) or self.objects is not None

    def object_values(self, model: Model) -> Sequence[int]:
        """The classes that have objects."""
        if self.objects is None:
            return [value for value in model.classes if value != self.rules.background]
        return self.kinds(model).values

    def numbered(self, model: Model, proba: np.ndarray) -> Objects | None:
        """The objects in probabilities (C,H,W), if they are to be found there."""
        return None if self.objects is None else find_in(proba, self.kinds(model), self.finding)

    def kinds(self, model: Model) -> Kinds:
        return kinds_of(model.classes, model.legend, self.objects or (), self.rules.background)

    def paths(self, folder: Path, stem: str, stack: str = "") -> dict[str, Path]:
        """The files to write for one image, by their content. stack: the default ending for a stack; "": an image"""
        if stack:
            labels, maps = (stack if self.is_default else ending for ending in (self.labels, self.maps))
            return replace(self, labels=labels, maps=maps, is_default=False).paths(folder, stem)
        paths = {"labels": folder / f"{stem}.{self.labels}"}
        paths |= {name: folder / f"{stem}_{name}.{self.maps}" for name in MAPS if getattr(self, name)}
        paths |= {name: folder / f"{stem}{OUTLINES[name]}" for name in self.outlines}
        if self.objects is not None:
            paths["objects"] = folder / f"{stem}_objects.{self.maps}"
        return paths | ({"overlay": folder / f"{stem}_overlay.png"} if self.overlay else {})


@dataclass(frozen=True)
class MeasuredImage:
    """The measurements of an image, or of the objects of a volume; name: of the image in tables"""

    name: str
    image: Measured | None = None
    volume: Sequence[VolumeObject] = ()


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
    """(H,W) probability of each pixel's class value, `labels` (H,W), from all probabilities (C,H,W); or of a volume."""
    own = np.zeros(labels.shape, np.float32)
    for plane, value in zip(proba, classes, strict=True):
        at = labels == value
        own[at] = plane[at]
    return own


def checked_planes(model: Model, image: np.ndarray, layout: Layout, name: str) -> np.ndarray:
    """The planes (C,H,W) of an image or (C,Z,H,W) of a volume; refuses an image for a model of volumes."""
    planes = to_planes(image, name, layout)
    refuse_plane(model, planes.ndim == 4, name)
    return planes


def refuse_plane(model: Model, is_volume: bool, name: str) -> None:
    if dimensions_of(model) == 3 and not is_volume:
        raise InputError(
            f"{name} is a single plane, but the model learned from volumes; give z stacks, or add --axes ZYX if this is"
            " one and does not say so."
        )


def spacing_of(model: Model, voxel: VoxelSize | None) -> tuple[float, float, float]:
    """How far neighbours along z, y and x are apart, in pixels along x: in the image, or as the model learned."""
    if voxel is not None and voxel.depth is not None:
        return voxel.depth / voxel.width, voxel.height / voxel.width, 1.0
    return float(model.settings.get("anisotropy", 1.0)), 1.0, 1.0


def note_on_stack(model: Model, source: ImageSource) -> str:
    """A note about a stack that is predicted plane by plane, or whose planes are not as far apart as the model learned;
    or ""."""
    if not source.is_volume:
        return ""
    if dimensions_of(model) == 2:
        return f"note: the model learned from images, so {source.name} is predicted plane by plane"
    learned = model.settings.get("anisotropy")
    own = None if source.voxel_size is None else source.voxel_size.anisotropy
    if learned and own and abs(own / learned - 1) > SAME_ANISOTROPY:
        return (
            f"note: in {source.name} z planes are {own:.3g} pixels apart, but the model learned from planes that are"
            f" {learned:.3g} apart; expect errors, or scale the stack"
        )
    return ""


def refuse_for_stacks(outputs: Outputs, name: str) -> None:
    """Raise InputError if something is requested that only images can have."""
    wanted = {
        "--overlay": outputs.overlay, "--outlines": outputs.outlines, "--split": outputs.rules.split,
        "--min-size and --fill-holes without --objects": outputs.rules.cleans and outputs.objects is None,
        "--connectivity 4": outputs.rules.connectivity == 4,
    }  # fmt: skip
    for option in (option for option, is_wanted in wanted.items() if is_wanted):
        raise InputError(
            f"cannot predict {name}: {option} are for images, and this is a stack; leave it out, or predict a plane"
            " with --pages."
            if option.startswith("--min")
            else f"cannot predict {name}: {option} is for images, and this is a stack; leave it out, or predict a plane"
            " with --pages."
        )


def write_stack(
    model: Model, source: ImageSource, outputs: Outputs, paths: Mapping[str, Path], tile: int | None, progress: Report
) -> list[MeasuredImage]:
    """Predict all time points of a stack and write the outputs to their paths; returns the measurements, if requested.

    Memory holds the image at one time point; results larger than `outputs.memory` are kept in temporary files.
    """
    refuse_plane(model, source.is_volume, source.name)
    refuse_for_stacks(outputs, source.name)
    frames, values, measurements = list(source.each_frame()), class_values(model), list[MeasuredImage]()
    series = (len(frames),) if source.frames else ()
    plain = "T" * len(series) + "ZYX"[-len(source.size) :]
    in_stack = plain.replace("T", "TC") if series else f"C{plain}"
    folder, arrays = next(iter(paths.values())).parent, dict[str, np.ndarray]()
    with ExitStack() as rooms:

        def room(kind: str, part: np.ndarray) -> np.ndarray:
            if kind not in arrays:
                shape = (*series, *part.shape[: -len(source.size)], *source.size)
                arrays[kind] = rooms.enter_context(array_room(folder, shape, part.dtype, outputs.memory))
            return arrays[kind]

        for t, frame in enumerate(frames):
            planes = to_planes(frame.read(), source.name, "planes")
            proba = np.empty((len(values), *source.size), np.float32) if outputs.finds_objects else None
            for region, levels, _ in predict_planes(model, planes, tile, progress=progress):
                of_tile = levels[-1]
                place = region.of_volume if source.is_volume else region.of
                parts = {"labels": values[of_tile.argmax(axis=0)]}
                parts |= {kind: scaled(MAPS[kind](of_tile), outputs.dtype) for kind in MAPS if kind in paths}
                for kind, part in parts.items():
                    whole = room(kind, part)
                    place(whole[t] if series else whole)[...] = part
                if proba is not None:
                    place(proba)[...] = of_tile
            if proba is not None:
                labels = arrays["labels"][t] if series else arrays["labels"]
                name = Path(source.name).name + (f", time {t}" if series else "")
                of_frame, numbers = _objects_in(model, outputs, planes, proba, labels, source.voxel_size, name)
                measurements.append(of_frame)
                if "objects" in paths:
                    whole = room("objects", numbers)
                    (whole[t] if series else whole)[...] = numbers
        pixel, like, palette = source.voxel_size, Path(source.path), model.legend.palette(model.classes)
        for kind in MAPS:
            if kind in paths:
                class_names = [model.legend.spoken(value) for value in model.classes] if kind == "proba" else None
                write_scaled(paths[kind], arrays[kind], class_names, pixel, in_stack if class_names else plain, like)
        if "objects" in paths:
            write_objects(paths["objects"], arrays["objects"], pixel, plain, like)
        # Written last: if the label map exists, so do all other files.
        if "labels" in paths:
            write_labels(paths["labels"], arrays["labels"], palette, pixel, plain, like)
    return measurements


def _objects_in(
    model: Model, outputs: Outputs, planes: np.ndarray, proba: np.ndarray, labels: np.ndarray,
    voxel: VoxelSize | None, name: str,
) -> tuple[MeasuredImage, np.ndarray]:  # fmt: skip
    """The measurements of the objects at one time point, and their numbers."""
    kinds = outputs.kinds(model) if outputs.objects is not None else None
    sure = _of_classes(proba, labels, model.classes)
    if planes.ndim == 3:
        objects = None if kinds is None else find_in(proba, kinds, outputs.finding)
        of_image = measured(labels, outputs.rules, planes, sure[None], model.legend, voxel, numbered=objects)
        return MeasuredImage(name, of_image), of_image.numbers
    if kinds is None:
        objects = connected_objects(labels, outputs.rules.background)
    else:
        objects = find_in(proba, kinds, replace(outputs.finding, spacing=spacing_of(model, voxel)))
    return MeasuredImage(name, volume=measured_volume(objects, model.legend, voxel, planes, sure)), objects.numbers
