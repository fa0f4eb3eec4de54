"""Prediction level by level and in tiles: memory is bounded for any image, and tiles do not change the result."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast

import numpy as np

from hedgerow.forest import walk
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.level_input import LevelInput, LevelPlan, tiles
from hedgerow.images.array_checks import to_planes
from hedgerow.images.instances import Finding, kinds_of
from hedgerow.images.object_search import find_in
from hedgerow.images.regions import Region
from hedgerow.kernels import buffers
from hedgerow.predict.protocol import Model, class_values
from hedgerow.progress import Report, reporting, silent

Tile = tuple[Region, list[np.ndarray], tuple[int, int]]
"""A tile's region, the levels' class probabilities (C,h,w) there, and the image's size (H,W)."""


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
    """Class probabilities (C,h,w) after each level in one region of an image (C,H,W).

    plan: for this region, shared with models that read the same features; None: made here
    """
    plan = plan or LevelPlan(model, planes, region, model.n_levels)
    outputs: list[np.ndarray] = []
    for level in range(model.n_levels):
        outputs.append(model.run_level(level, plan.read(level, outputs[-1] if outputs else None)))
    return [plan.output(level, output) for level, output in enumerate(outputs)]


def predict(model: Model, image: np.ndarray, **options: int | Report | None) -> np.ndarray:
    """(H,W) class values of an image (H,W[,C]); the first of equally likely classes.

    tile:     side of a tile in pixels; None: the largest that fits in `memory` bytes
    progress: report function; None: a bar on the terminal
    """
    values = class_values(model)
    parts = predict_tiles(model, image, **options)  # type: ignore[arg-type]
    return _together(parts, lambda outputs: [values[outputs[-1].argmax(axis=0)]])[0]


def predict_proba(model: Model, image: np.ndarray, **options: int | Report | None) -> np.ndarray:
    """(C,H,W) float32 class probabilities of an image (H,W[,C]); options as in `predict`."""
    return _together(predict_tiles(model, image, **options), lambda outputs: outputs[-1:])[0]  # type: ignore[arg-type]


def predict_objects(
    model: Model, image: np.ndarray, *, classes: Sequence[str | int] = (), background: int | None = None,
    diameter: float | None = None, min_size: int = 0, max_size: int = 0, fill_holes: int = 0, **options: Any,
) -> np.ndarray:  # fmt: skip
    """(H,W) int32 numbers of the objects in an image (H,W[,C]), 0 where there is none; see `hr.objects`."""
    kinds = kinds_of(model.classes, model.legend, [str(name) for name in classes], background)
    finding = Finding(diameter, min_size, max_size, fill_holes)
    return find_in(predict_proba(model, image, **options), kinds, finding).numbers


def level_outputs(model: Model, image: np.ndarray, **options: int | Report | None) -> list[np.ndarray]:
    """(C,H,W) float32 class probabilities after each level; options as in `predict`."""
    return _together(predict_tiles(model, image, **options), lambda outputs: outputs)  # type: ignore[arg-type]


def predict_tiles(
    model: Model, image: np.ndarray, tile: int | None = None, memory: int | None = None, progress: Report | None = None
) -> Iterator[Tile]:
    """Predict an image (H,W[,C]) and yield its tiles one after another."""
    planes = to_planes(image, layout=model.features.layout)
    with reporting(progress) as report:
        try:
            yield from _predicted(model, planes, tile, memory, report)
        finally:
            buffers.release()  # tiles and levels reuse memory, which should not be held between images


def proba_of(model: Model, planes: np.ndarray) -> np.ndarray:
    """(C,H,W) float32 class probabilities of an image (C,H,W) that has been checked."""
    return _together(_predicted(model, planes), lambda outputs: outputs[-1:])[0]


def predict_indices(model: Model, planes: np.ndarray) -> np.ndarray:
    """(H,W) uint8 class indices of an image (C,H,W) that has been checked."""
    return _together(_predicted(model, planes), lambda outputs: [outputs[-1].argmax(axis=0).astype(np.uint8)])[0]


def _predicted(
    model: Model, planes: np.ndarray, tile: int | None = None, memory: int | None = None, report: Report = silent
) -> Iterator[Tile]:
    _, height, width = planes.shape
    regions = tiles(model, (height, width), tile, memory)
    for done, region in enumerate(regions):
        yield region, region_outputs(model, planes, region), (height, width)
        report("predicting", done + 1, len(regions))


def _together(by_tile: Iterable[Tile], made: Callable[[list[np.ndarray]], Sequence[np.ndarray]]) -> list[np.ndarray]:
    """Whole arrays (...,H,W), put together from those that `made` returns for the levels' outputs in each tile."""
    wholes: list[np.ndarray] = []
    for region, outputs, size in by_tile:
        parts = made(outputs)
        wholes = wholes or [np.empty((*part.shape[:-2], *size), part.dtype) for part in parts]
        for whole, part in zip(wholes, parts, strict=True):
            region.of(whole)[...] = part
    return wholes
