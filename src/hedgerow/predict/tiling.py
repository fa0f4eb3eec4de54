"""Prediction in tiles: memory stays bounded whatever the image, and the result equals the untiled one bit for bit.

A tile is computed with exactly the surroundings its pixels depend on: each level reads the level before within its
reach, and the first reads features that look as far as the filters' support. Beyond the image's own border the rules
of `filters` and `context` hold; an edge of a tile that is not the image's edge is never mistaken for one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import numpy as np

from hedgerow.errors import ConfigError
from hedgerow.images.arrays import to_planes
from hedgerow.images.regions import Region
from hedgerow.predict.protocol import Model
from hedgerow.progress import Report, reporting

# What `Model.run_level` takes: channels, the region to compute, factors for the offsets, constants beyond the image.
LevelInput = tuple[np.ndarray | Sequence[np.ndarray], Region, np.ndarray | None, np.ndarray | None]


def default_memory() -> int:
    """Bytes that the work on one tile may take, unless told: an eighth of the machine's, 1 to 8 GB."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not on every system
        total = 0
    return min(max(total // 8, 1 << 30), 8 << 30)


def predict(model: Model, image: np.ndarray, **options: int | Report | None) -> np.ndarray:
    """(H,W) class values of an image (H,W[,C]); the first of equally likely classes.

    tile:     side of a tile in pixels; None: as large as fits in `memory` bytes
    progress: report function; None: a bar on the terminal
    """
    result: np.ndarray | None = None
    for region, outputs, size in predict_tiles(model, image, **options):  # type: ignore[arg-type]
        if result is None:
            values = np.array(model.classes)
            result = np.empty(size, np.min_scalar_type(values.max()) if values.min() >= 0 else values.dtype)
        region.of(result)[...] = values[outputs[-1].argmax(axis=0)]
    assert result is not None
    return result


def predict_proba(model: Model, image: np.ndarray, **options: int | Report | None) -> np.ndarray:
    """(C,H,W) float32 class probabilities of an image (H,W[,C]); options as in `predict`."""
    result: np.ndarray | None = None
    for region, outputs, size in predict_tiles(model, image, **options):  # type: ignore[arg-type]
        if result is None:
            result = np.empty((model.n_classes, *size), np.float32)
        region.of(result)[...] = outputs[-1]
    assert result is not None
    return result


def level_outputs(model: Model, image: np.ndarray, **options: int | Report | None) -> list[np.ndarray]:
    """(C,H,W) float32 class probabilities after each level; options as in `predict`."""
    results: list[np.ndarray] = []
    for region, outputs, size in predict_tiles(model, image, **options):  # type: ignore[arg-type]
        if not results:
            results = [np.empty((model.n_classes, *size), np.float32) for _ in outputs]
        for result, output in zip(results, outputs, strict=True):
            region.of(result)[...] = output
    return results


def predict_tiles(
    model: Model,
    image: np.ndarray,
    tile: int | None = None,
    memory: int | None = None,
    progress: Report | None = None,
) -> Iterator[tuple[Region, list[np.ndarray], tuple[int, int]]]:
    """Tile by tile: its region, the levels' class probabilities (C,h,w) there, and the image's size (H,W)."""
    planes = to_planes(image, features=model.features.kind)
    height, width = planes.shape[1:]
    regions = tiles(model, (height, width), tile, memory)
    with reporting(progress) as report:
        for done, region in enumerate(regions):
            yield region, region_outputs(model, planes, region), (height, width)
            report("predicting", done + 1, len(regions))


def tiles(model: Model, size: tuple[int, int], tile: int | None = None, memory: int | None = None) -> list[Region]:
    """The tiles of an image of this size (H,W), row after row; `tile` and `memory` as in `predict`."""
    if tile is None:
        tile = fitting_tile(model, default_memory() if memory is None else memory)
    if tile < 1:
        raise ConfigError(f"the tile size is {tile}; it must be at least 1 pixel.")
    height, width = size
    return [
        Region(top, min(top + tile, height), left, min(left + tile, width))
        for top in range(0, height, tile)
        for left in range(0, width, tile)
    ]


def fitting_tile(model: Model, memory: int) -> int:
    """The side of a tile whose work takes about `memory` bytes at most, or less where the halo is small anyway."""
    channels = model.features.n_features + model.n_classes
    # The features, the planes padded from them for one level, and two levels' probabilities.
    bytes_per_pixel = 4 * (2 * channels + 2 * model.n_classes)
    halo = model.receptive_field
    affordable = int(np.sqrt(memory / bytes_per_pixel)) - 2 * halo
    # With eight times the halo a tile does half as much again as its own pixels need; larger ones gain little.
    # However little memory there is, a tile must not be mostly halo.
    return max(min(affordable, max(8 * halo, 512)), 2 * halo, 64)


def region_outputs(model: Model, planes: np.ndarray, region: Region) -> list[np.ndarray]:
    """Class probabilities (C,h,w) after each level in one region of an image (C,H,W)."""
    plan = _Plan(model, planes, region, model.n_levels)
    outputs: list[np.ndarray] = []
    for level in range(model.n_levels):
        outputs.append(model.run_level(level, *plan.read(level, outputs[-1] if outputs else None)))
    return [region.within(where).of(output) for where, output in zip(plan.computed, outputs, strict=True)]


def level_input(
    model: Model, planes: np.ndarray, region: Region, level: int, before: np.ndarray | None = None
) -> LevelInput:
    """What a level reads for one region of an image (C,H,W), after the levels below it have run.

    before: (C,H,W) output of the level below in the whole image, for a region that is all of it; None: it is computed
    """
    plan = _Plan(model, planes, region, level + 1)
    if before is None:
        for below in range(level):
            before = model.run_level(below, *plan.read(below, before))
    return plan.read(level, before)


class _Plan:
    """What the first levels must compute, and read, so that the last of them is known in a region."""

    def __init__(self, model: Model, planes: np.ndarray, region: Region, n_levels: int) -> None:
        size = planes.shape[1:]
        computed = [region]  # what each level must be computed on, last level first
        for level in reversed(range(n_levels)):
            computed.insert(0, computed[0].grown(model.level_reach(level), *size))
        self.reads, self.computed = computed[:-1], computed[1:]
        first = self.reads[0]
        seen = first.grown(model.features.support, *size)
        self.features = first.within(seen).of(model.features.compute(seen.of(planes)))
        self.reach = model.features.reach(first.of(planes))
        self.outside = model.features.outside(model.n_classes)

    def read(self, level: int, before: np.ndarray | None) -> LevelInput:
        """before: (C,h,w) output of the level below, where it was computed"""
        here = self.reads[level].within(self.reads[0])
        channels = here.of(self.features) if before is None else [*here.of(self.features), *before]
        return (
            channels,
            self.computed[level].within(self.reads[level]),
            None if self.reach is None else here.of(self.reach),
            None if self.outside is None else self.outside[: len(channels)],
        )
