"""The maps of a model's inner layers to be drawn: some classes in a thinned crop of one image, and their scales."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from hedgerow.errors import ModelError
from hedgerow.images.array_checks import UNLABELLED_INDEX
from hedgerow.images.labelled import LabelledImage
from hedgerow.images.regions import Region
from hedgerow.predict.protocol import Model

MAX_CLASSES_DRAWN = 8  # shown unless the user names the classes
MAX_MAP_SIDE = 1024  # of a map in `look`, in pixels; a panel cannot show more
MAX_CROP = 768  # side of the crop whose inner layers the page shows, in pixels
MAX_CROP_DRAWN = 384  # side of that crop after thinning; a panel of the page cannot show more
NEGATIVE = -1e-3  # a smaller value is an activation, not a probability with rounding errors
SCALE_PERCENTILE = 99.8  # the end of a colour scale


@dataclass(frozen=True)
class LevelMaps:
    """One level's output. maps: (S,h,w) float32 of the S shown classes; labels: (h,w) the most likely class values."""

    maps: np.ndarray
    labels: np.ndarray


def thinning(size: Sequence[int], max_side: int) -> int:
    """The smallest n so that every n-th row and column of a picture (H,W,...) has sides of at most `max_side`."""
    return -(-max(size[:2]) // max_side)


def most_frequent(counts: np.ndarray, classes: Sequence[int]) -> list[int]:
    """At most MAX_CLASSES_DRAWN class values, in the order of `classes`: those with the highest counts (C,)."""
    return [classes[k] for k in sorted(np.argsort(-counts, kind="stable")[:MAX_CLASSES_DRAWN])]


def level_maps(output: np.ndarray, classes: Sequence[int], shown: Sequence[int]) -> LevelMaps:
    """The maps of the shown classes and the labels of a level's output (C,H,W), thinned."""
    step = thinning(output.shape[1:], MAX_MAP_SIDE)
    thin = output[:, ::step, ::step]
    return LevelMaps(thin[[classes.index(value) for value in shown]], np.array(classes)[thin.argmax(axis=0)])


@dataclass(frozen=True)
class LayerCrop:
    """The crop of an image whose inner layers are drawn: every `step`-th row and column of a region.

    image: its number; classes: values of the shown ones
    """

    image: int
    region: Region
    step: int
    classes: tuple[int, ...]

    def thinned(self, values: np.ndarray) -> np.ndarray:
        """(...,h,w) of (...,H,W)"""
        return np.asarray(self.region.of(values))[..., :: self.step, :: self.step]


def choose_crop(images: Iterable[LabelledImage], classes: Sequence[int]) -> LayerCrop:
    """The middle of the first image with the most classes in its labels, and the crop's most frequent classes."""
    best: tuple[int, LayerCrop] | None = None
    for number, image in enumerate(images):
        n_present = int((_class_counts(image.target, len(classes)) > 0).sum())
        if best is None or n_present > best[0]:
            region = Region(*_middle(image.size[0]), *_middle(image.size[1]))
            shown = most_frequent(_class_counts(region.of(image.target), len(classes)), classes)
            step = thinning((region.height, region.width), MAX_CROP_DRAWN)
            best = n_present, LayerCrop(number, region, step, tuple(shown))
    assert best is not None
    return best[1]


def _class_counts(target: np.ndarray, n_classes: int) -> np.ndarray:
    return np.bincount(target[target != UNLABELLED_INDEX], minlength=n_classes)


def _middle(side: int) -> tuple[int, int]:
    start = max((side - MAX_CROP) // 2, 0)
    return start, min(start + MAX_CROP, side)


class LayerRecorder:
    """The level maps of a crop, filled tile by tile."""

    def __init__(self, crop: LayerCrop, model: Model) -> None:
        self._classes = np.array(model.classes)
        self._shown = [model.classes.index(value) for value in crop.classes]
        self._rows = np.arange(crop.region.top, crop.region.bottom, crop.step)
        self._columns = np.arange(crop.region.left, crop.region.right, crop.step)
        size = len(self._rows), len(self._columns)
        self._maps = np.zeros((model.n_levels, len(crop.classes), *size), np.float32)
        self._labels = np.zeros((model.n_levels, *size), np.int64)

    def add(self, outputs: Sequence[np.ndarray], tile: Region) -> None:
        """The levels' outputs (C,h,w) in a tile of the image."""
        rows = slice(*np.searchsorted(self._rows, (tile.top, tile.bottom)))
        columns = slice(*np.searchsorted(self._columns, (tile.left, tile.right)))
        tile_rows, tile_columns = np.ix_(self._rows[rows] - tile.top, self._columns[columns] - tile.left)
        for level, output in enumerate(outputs):
            part = output[:, tile_rows, tile_columns]
            if part.size:
                self._maps[level][:, rows, columns] = part[self._shown]
                self._labels[level][rows, columns] = self._classes[part.argmax(axis=0)]

    def levels(self) -> tuple[LevelMaps, ...]:
        return tuple(LevelMaps(maps, labels) for maps, labels in zip(self._maps, self._labels, strict=True))


@dataclass(frozen=True)
class Scale:
    """The range of a colour map: from 0 to high or, if it is signed, from -high to high."""

    high: float
    signed: bool = False

    @property
    def low(self) -> float:
        return -self.high if self.signed else 0.0


@dataclass(frozen=True)
class Row:
    """A level to be drawn. name: lines of text; scales: one per shown class"""

    name: tuple[str, ...]
    level: LevelMaps
    scales: tuple[Scale, ...]

    @property
    def is_signed(self) -> bool:
        return self.scales[0].signed


def plan_rows(forests: Sequence[LevelMaps], above: Sequence[LevelMaps] = ()) -> list[Row]:
    """Rows of the figure: forest and network in turn, or forests alone; a convolutional level comes last.

    above: the levels of the network, and a convolutional one if there is one more

    A class has one scale in all rows of probabilities, so that forest and network can be compared, and another in the
    rows of activations, which can have any range.
    """
    named, nets = [], above[: len(forests)]
    for number, (forest, net) in enumerate(zip_longest(forests, nets), 1):
        named.append((("forest", "DF", f"level {number}"), forest))
        if net is not None:
            named.append((("network", "ConvNet", "output" if number == len(nets) else f"H{3 * number}"), net))
    for convolutional in above[len(forests) :]:
        named.append((("convolutional", "Deep", f"level {len(nets) + 1}"), convolutional))
    for name, level in named:
        if not np.isfinite(level.maps).all():
            raise ModelError(
                f"{' '.join(name)} has NaN or infinite values; refine the network again, in smaller steps."
            )
    signed = [bool(level.maps.min() < NEGATIVE) for _, level in named]
    scales = {
        kind: class_scales([level.maps for (_, level), own in zip(named, signed, strict=True) if own is kind], kind)
        for kind in set(signed)
    }
    return [Row(name, level, scales[kind]) for (name, level), kind in zip(named, signed, strict=True)]


def class_scales(rows: Sequence[np.ndarray], signed: bool) -> tuple[Scale, ...]:
    """The scale of each class over rows of maps (S,h,w): up to the largest value of any row, without a few outliers."""
    sizes = [np.abs(maps).reshape(len(maps), -1) for maps in rows]
    largest = np.max([size.max(axis=1) for size in sizes], axis=0)
    usual = np.max([np.percentile(size, SCALE_PERCENTILE, axis=1) for size in sizes], axis=0)
    # A class so rare that the percentile would hide it keeps its largest value; a class that is absent has no range.
    ends = np.where(usual > largest / 20, usual, largest)
    return tuple(Scale(float(end) if end > 1e-6 else 1.0, signed) for end in ends)


def has_outliers(rows: Sequence[Row]) -> bool:
    """Whether some values lie visibly beyond the scale that they are drawn on."""
    pairs = (pair for row in rows for pair in zip(row.level.maps, row.scales, strict=True))
    return any(bool(np.abs(panel).max() > 1.02 * scale.high) for panel, scale in pairs)
