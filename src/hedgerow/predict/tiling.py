"""Prediction level by level and in tiles: memory is bounded for any image, and tiles do not change the result."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from hedgerow.errors import InputError
from hedgerow.forest import walk
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.level_input import LevelInput, LevelPlan, dimensions_of, tiles
from hedgerow.images.given_arrays import planes_for_model
from hedgerow.images.instances import Finding, kinds_of
from hedgerow.images.object_search import find_in
from hedgerow.images.regions import Region, Steps
from hedgerow.kernels import buffers
from hedgerow.predict.protocol import Model, class_values
from hedgerow.progress import Report, announce, reporting, silent

Tile = tuple[Region, list[np.ndarray], tuple[int, ...]]
"""A tile's region, the levels' class probabilities (C,h,w) there, and the image's size (H,W); (C,d,h,w) and (Z,H,W) of
a volume."""


def run_level(model: Model, level: int, level_input: LevelInput) -> np.ndarray:
    """(C,Z,h,w) float32 output of one level of a stack or of its network; other models have their own `run_level`."""
    if isinstance(model, ForestStack):
        if model.device == "cpu":
            return walk.run_level(model, level, level_input)
        from hedgerow.predict import gpu_forest  # needs PyTorch

        return gpu_forest.run_level(model, level, level_input)
    from hedgerow.network import soft_levels  # needs PyTorch
    from hedgerow.network.stacknet import StackNet

    return soft_levels.run_level(cast(StackNet, model), level, level_input)


def region_outputs(model: Model, planes: np.ndarray, region: Region, plan: LevelPlan | None = None) -> list[np.ndarray]:
    """Class probabilities (C,h,w) after each level in one region of an image (C,H,W), or (C,d,h,w) of a volume.

    plan: for this region, shared with models that read the same features; None: made here
    """
    plan = plan or LevelPlan(model, planes, region, model.n_levels)
    outputs: list[np.ndarray] = []
    for level in range(model.n_levels):
        outputs.append(model.run_level(level, plan.read(level, outputs[-1] if outputs else None)))
    return [plan.output(level, output) for level, output in enumerate(outputs)]


def predict(model: Model, image: np.ndarray, *, axes: str | None = None, **options: Any) -> np.ndarray:
    """(H,W) class values of an image (H,W[,C]), or (Z,Y,X) of a volume; the first of equally likely classes.

    axes:     of the array, e.g. "ZYX" or "TYX", see `given_arrays`; None: an image, or a volume if that is the only
              reading
    tile:     side of a tile in pixels, or (z, y, x) of a volume; None: the largest that fits in `memory` bytes
    progress: report function; None: a bar on the terminal
    """
    values = class_values(model)
    return _each(
        model,
        image,
        axes,
        options,
        lambda parts: _together(parts, lambda outputs: [values[outputs[-1].argmax(axis=0)]]),
    )[0]


def predict_proba(model: Model, image: np.ndarray, *, axes: str | None = None, **options: Any) -> np.ndarray:
    """(C,H,W) float32 class probabilities of an image (H,W[,C]), or (C,Z,Y,X) of a volume; options as in `predict`."""
    return _each(model, image, axes, options, lambda parts: _together(parts, lambda outputs: outputs[-1:]))[0]


def predict_objects(
    model: Model, image: np.ndarray, *, classes: Sequence[str | int] = (), background: int | None = None,
    diameter: float | None = None, min_size: int = 0, max_size: int = 0, fill_holes: int = 0, **options: Any,
) -> np.ndarray:  # fmt: skip
    """(H,W) int32 numbers of the objects in an image (H,W[,C]), 0 where there is none, or (Z,Y,X) in a volume; see
    `hr.objects`."""
    kinds = kinds_of(model.classes, model.legend, [str(name) for name in classes], background)
    finding = Finding(diameter, min_size, max_size, fill_holes)
    return find_in(predict_proba(model, image, **options), kinds, finding).numbers


def level_outputs(model: Model, image: np.ndarray, *, axes: str | None = None, **options: Any) -> list[np.ndarray]:
    """(C,H,W) float32 class probabilities after each level; options as in `predict`."""
    return _each(model, image, axes, options, lambda parts: _together(parts, lambda outputs: outputs))


def _each(
    model: Model,
    image: np.ndarray,
    axes: str | None,
    options: dict[str, Any],
    joined: Callable[[Iterator[Tile]], list[np.ndarray]],
) -> list[np.ndarray]:
    """Whole arrays of an image or a volume, or of each point in time, (T,...)."""
    axes, images = images_of(model, image, axes)
    by_time = [joined(predict_planes(model, planes, **options)) for planes in images]
    return [np.stack(arrays) for arrays in zip(*by_time, strict=True)] if "T" in axes else by_time[0]


def images_of(model: Model, image: np.ndarray, axes: str | None = None) -> tuple[str, list[np.ndarray]]:
    """The axes of an array, "" for an image; and its planes (C,H,W) or (C,Z,H,W), checked, for each point in time."""
    features, is_volume = model.features, dimensions_of(model) == 3
    axes, images = planes_for_model(image, features.n_inputs, features.layout, is_volume, axes)
    if not is_volume and "Z" in axes:
        announce("the model learned from images, so each slice of the volume is predicted on its own")
    return axes, images


def predict_tiles(
    model: Model, image: np.ndarray, tile: Steps | None = None, memory: int | None = None,
    progress: Report | None = None, axes: str | None = None,
) -> Iterator[Tile]:  # fmt: skip
    """Predict an image (H,W[,C]) or a volume and yield its tiles one after another."""
    axes, images = images_of(model, image, axes)
    if "T" in axes:
        raise InputError("tiles are those of one image; give the points in time one by one.")
    return predict_planes(model, images[0], tile, memory, progress)


def predict_planes(
    model: Model, planes: np.ndarray, tile: Steps | None = None, memory: int | None = None,
    progress: Report | None = None,
) -> Iterator[Tile]:  # fmt: skip
    """Predict an image (C,H,W) or a volume (C,Z,H,W) that has been checked and yield its tiles one after another."""
    with reporting(progress) as report:
        try:
            yield from _predicted(model, planes, tile, memory, report)
        finally:
            buffers.release()  # tiles and levels reuse memory, which should not be held between images


def proba_of(model: Model, planes: np.ndarray) -> np.ndarray:
    """(C,H,W) float32 class probabilities of an image (C,H,W) that has been checked, or (C,Z,H,W) of a volume."""
    return _together(_predicted(model, planes), lambda outputs: outputs[-1:])[0]


def predict_indices(model: Model, planes: np.ndarray) -> np.ndarray:
    """(H,W) uint8 class indices of an image (C,H,W) that has been checked, or (Z,H,W) of a volume."""
    return _together(_predicted(model, planes), lambda outputs: [outputs[-1].argmax(axis=0).astype(np.uint8)])[0]


def _predicted(
    model: Model, planes: np.ndarray, tile: Steps | None = None, memory: int | None = None, report: Report = silent
) -> Iterator[Tile]:
    size = planes.shape[1:]
    if len(size) == 3 and dimensions_of(model) == 2:
        yield from _slice_by_slice(model, planes, tile, memory, report)
        return
    regions = tiles(model, size, tile, memory)
    for done, region in enumerate(regions):
        yield region, region_outputs(model, planes, region), size
        report("predicting", done + 1, len(regions))


def _slice_by_slice(
    model: Model, planes: np.ndarray, tile: Steps | None, memory: int | None, report: Report
) -> Iterator[Tile]:
    """The tiles of all slices of a volume (C,Z,H,W), each predicted as an image."""
    depth, *size = planes.shape[1:]
    regions = tiles(model, tuple(size), tile, memory)
    for z in range(depth):
        image = np.ascontiguousarray(planes[:, z])
        for done, region in enumerate(regions, 1):
            outputs = [output[:, np.newaxis] for output in region_outputs(model, image, region)]
            yield replace(region, front=z, back=z + 1), outputs, planes.shape[1:]
            report("predicting", z * len(regions) + done, depth * len(regions))


def _together(by_tile: Iterable[Tile], made: Callable[[list[np.ndarray]], Sequence[np.ndarray]]) -> list[np.ndarray]:
    """Whole arrays (...,H,W), put together from those that `made` returns for the levels' outputs in each tile; or
    (...,Z,H,W) of a volume."""
    wholes: list[np.ndarray] = []
    for region, outputs, size in by_tile:
        parts = made(outputs)
        wholes = wholes or [np.empty((*part.shape[: -len(size)], *size), part.dtype) for part in parts]
        for whole, part in zip(wholes, parts, strict=True):
            (region.of(whole) if len(size) == 2 else region.of_volume(whole))[...] = part
    return wholes
