"""The input of a level for a region of an image, and how much the levels below it must compute for that.

A region is computed with exactly the surroundings that its pixels depend on: each level reads the output of the
previous one within its reach, and features look as far as their halo. Outside the image the rules of the features and
of `walk` apply; the edge of a tile inside the image is never mistaken for the edge of the image.
"""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hedgerow.errors import ConfigError
from hedgerow.features.protocol import FeatureSet
from hedgerow.images.array_checks import as_volumes, refuse_volume
from hedgerow.images.regions import Region, Steps, Tiles

MIN_BLOCK_SIDE = 8  # of a tile of a volume, however little memory there is


@dataclass(frozen=True)
class LevelInput:
    """The input of one level.

    channels: M volumes (Z,H,W); the image ends where they end
    region:   the pixels of the volumes to compute; the volumes hold its surroundings within reach, if the image does
    stretch:  (H,W) float32 factor for the offsets at each pixel of an image, or None, as always for a volume
    outside:  (M,) float32 constants outside the image, or None for the nearest edge pixel
    """

    channels: np.ndarray | Sequence[np.ndarray]
    region: Region
    stretch: np.ndarray | None = None
    outside: np.ndarray | None = None

    def __post_init__(self) -> None:
        refuse_volume(self.size[0], self.stretch, self.outside)

    @property
    def size(self) -> tuple[int, int, int]:
        """(Z,H,W) of the channels"""
        depth, height, width = self.channels[0].shape
        return depth, height, width


def whole_input(
    channels: np.ndarray, stretch: np.ndarray | None = None, outside: np.ndarray | None = None
) -> LevelInput:
    """All pixels of the channels (M,H,W) of an image, or (M,Z,H,W) of a volume."""
    volumes = as_volumes(channels)
    return LevelInput(volumes, Region.whole(volumes.shape[1:]), stretch, outside)


RunLevel = Callable[[int, LevelInput], np.ndarray]
"""Runs one level: (its number, its input) -> its output (C,Z,h,w) in the region."""


class Layered(Protocol):
    """The properties of a model that determine the input of its levels."""

    @property
    def features(self) -> FeatureSet: ...
    @property
    def n_levels(self) -> int: ...
    @property
    def n_classes(self) -> int: ...
    @property
    def receptive_field(self) -> int: ...
    def level_reach(self, level: int) -> int: ...
    def level_reach_z(self, level: int) -> int: ...
    def level_tile(self, level: int) -> int: ...


class LevelPlan:
    """What the first `n_levels` levels must read and compute to give the output of the last one in a region.

    This class turns images (C,H,W) into volumes of one slice, which levels read, and outputs of levels into images;
    volumes (C,Z,H,W) stay volumes.
    """

    def __init__(self, model: Layered, planes: np.ndarray, region: Region, n_levels: int) -> None:
        """planes: the image (C,H,W), or the volume (C,Z,H,W)"""
        computed = _computed(model, planes.shape[1:], region, n_levels)
        self.region, self.reads, self.computed = region, computed[:-1], computed[1:]
        self.is_volume = planes.ndim == 4
        first = self.reads[0]
        self.features = as_volumes(model.features.compute(planes, first))
        self.stretch = None if self.is_volume else model.features.stretch(np.asarray(first.of(planes)))
        self.outside = model.features.outside(model.n_classes)

    def read(self, level: int, before: np.ndarray | None) -> LevelInput:
        """The input of a level; before: (C,Z,h,w) output of the level below, where it was computed"""
        here = self.reads[level].within(self.reads[0])
        features = here.of_volume(self.features)
        channels = features if before is None else [*features, *before]
        return LevelInput(
            channels,
            self.computed[level].within(self.reads[level]),
            None if self.stretch is None else here.of(self.stretch),
            None if self.outside is None else self.outside[: len(channels)],
        )

    def output(self, level: int, proba: np.ndarray) -> np.ndarray:
        """(C,h,w) in the plan's region, or (C,d,h,w) of a volume; proba: (C,Z,h,w) output of a level, where it was
        computed"""
        here = self.region.within(self.computed[level]).of_volume(proba)
        return here if self.is_volume else here[:, 0]


def _computed(model: Layered, size: tuple[int, ...], region: Region, n_levels: int) -> list[Region]:
    """The region that the first level reads of an image of this size, and the region where each level is computed."""
    computed, whole = [region], Region.whole(size)  # from the last level back
    for level in reversed(range(n_levels)):
        tile, reach = model.level_tile(level), model.level_reach(level)
        computed[0] = computed[0].aligned((1, tile, tile), whole)
        computed.insert(0, computed[0].grown((model.level_reach_z(level), reach, reach), whole))
    return computed


def needed(model: Layered, size: tuple[int, ...], region: Region) -> Region:
    """The region of an image of this size, (H,W) or (Z,H,W), on which the prediction of `region` depends."""
    features = model.features
    halo = features.halo_z, features.halo, features.halo
    return _computed(model, size, region, model.n_levels)[0].grown(halo, Region.whole(size))


def dimensions_of(model: Layered) -> int:
    """3 for a model of volumes, which reads several slices; 2 for a model of images."""
    is_deep = any(model.level_reach_z(level) for level in range(model.n_levels))
    return 3 if is_deep or model.features.dimensions == 3 else 2


def level_input(
    model: Layered, run: RunLevel, planes: np.ndarray, region: Region, level: int, before: np.ndarray | None = None
) -> LevelInput:
    """The input of a level for one region of an image (C,H,W) or a volume (C,Z,H,W), once `run` has run the levels
    below it.

    before: (C,Z,H,W) output of the level below, if the region is the whole image; None: it is computed
    """
    plan = LevelPlan(model, planes, region, level + 1)
    if before is None:
        for below in range(level):
            before = run(below, plan.read(below, before))
    return plan.read(level, before)


def tiles(model: Layered, size: tuple[int, ...], tile: Steps | None = None, memory: int | None = None) -> Tiles:
    """The tiles of an image of this size (H,W), row after row, or of a volume (Z,H,W), slice after slice.

    tile: side of a tile in pixels, or its sides along (z, y, x); None: the largest that fits in `memory` bytes
    """
    if tile is None:
        memory = default_memory() if memory is None else memory
        tile = fitting_tile(model, memory) if len(size) == 2 else fitting_block(model, size, memory)
    sides = (tile,) if isinstance(tile, int) else tile
    if min(sides) < 1:
        raise ConfigError(f"the tile size is {' x '.join(map(str, sides))}; it must be at least 1 pixel.")
    return Region.whole(size).tiles(tile)


def default_memory() -> int:
    """Bytes that the work on one tile may take by default: an eighth of the machine's memory, from 1 to 8 GB."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not on every system
        total = 0
    return min(max(total // 8, 1 << 30), 8 << 30)


def fitting_tile(model: Layered, memory: int) -> int:
    """The side of a tile that takes at most about `memory` bytes; smaller if the halo is small."""
    bytes_per_pixel = _bytes_per_pixel(model)
    halo = model.receptive_field
    affordable = int(np.sqrt(memory / bytes_per_pixel)) - 2 * halo
    # At eight times the halo, the halo adds half of the tile's own work; larger tiles gain little. However little
    # memory there is, a tile must not be mostly halo.
    side = max(min(affordable, max(8 * halo, 512)), 2 * halo, 64)
    own = max(model.level_tile(level) for level in range(model.n_levels))
    return max(side // own, 1) * own  # a level's own tile that is cut would be computed twice


def fitting_block(model: Layered, size: tuple[int, ...], memory: int) -> tuple[int, int, int]:
    """The sides (z, y, x) of a tile of a volume of this size (Z,H,W) that takes at most about `memory` bytes.

    The side that is longest relative to its halo is halved until the tile fits, or is mostly halo.
    """
    affordable = memory / _bytes_per_pixel(model)
    depth = model.features.halo_z + sum(model.level_reach_z(level) for level in range(model.n_levels))
    halo = depth, model.receptive_field, model.receptive_field
    sides = list(size)
    while math.prod(min(side + 2 * far, n) for side, far, n in zip(sides, halo, size, strict=True)) > affordable:
        axis = max(range(3), key=lambda a: sides[a] / max(halo[a], MIN_BLOCK_SIDE))
        if sides[axis] <= max(halo[axis], MIN_BLOCK_SIDE):
            break
        sides[axis] = -(-sides[axis] // 2)
    return sides[0], sides[1], sides[2]


def _bytes_per_pixel(model: Layered) -> int:
    """The features, the planes padded from them for one level, and two levels' probabilities."""
    return 4 * (2 * (model.features.n_features + model.n_classes) + 2 * model.n_classes)
