"""Measures every model in one pass over the images, image by image and tile by tile.

Each model runs once on each image, and the statistics are summed tile by tile: no probabilities are stored, except
thinned maps of the one image whose inner layers are drawn. Models that read the same features share them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from hedgerow.deep.any_model import AnyModel, parts_of
from hedgerow.errors import ModelError
from hedgerow.features.protocol import FeatureSet
from hedgerow.forest.arrays import Forest, ForestStack
from hedgerow.forest.level_input import Layered, LevelPlan, tiles
from hedgerow.images.array_checks import UNLABELLED_INDEX
from hedgerow.images.labelled import LabelledImage, LabelledSet
from hedgerow.images.metrics import Scores, confusion, ratio
from hedgerow.images.regions import Region
from hedgerow.predict.tiling import region_outputs
from hedgerow.report.layer_maps import LayerCrop, LayerRecorder, LevelMaps, thinning

N_BINS = 15  # of confidence, from 0 to 1
MAX_STORED_SIDE = 512  # of a stored label map, in pixels
WARM_UP = 64  # side of the corner that is predicted before times are measured, in pixels


@dataclass(frozen=True)
class Calibration:
    """Labelled pixels by the probability of their predicted class, in B bins of equal width between 0 and 1.

    pixels, correct: (B,) int64, all pixels, and the correct ones; confidence: (B,) float64, sum of probabilities
    """

    pixels: np.ndarray
    correct: np.ndarray
    confidence: np.ndarray

    @property
    def mean_confidence(self) -> np.ndarray:
        """(B,); NaN in an empty bin"""
        return ratio(self.confidence, self.pixels)

    @property
    def accuracy(self) -> np.ndarray:
        """(B,); NaN in an empty bin"""
        return ratio(self.correct, self.pixels)

    @property
    def expected_error(self) -> float:
        """Expected calibration error: the mean of |accuracy - confidence| of the bins, weighted by their pixels."""
        return float(np.abs(self.correct - self.confidence).sum() / self.pixels.sum())


@dataclass(frozen=True)
class MeasuredModel:
    """One model measured on all images.

    per_level:  K scores, pooled over the images; the last one is the score of the model
    per_image:  scores of each image alone
    label_maps: the predicted class indices of each image, uint8, every n-th row and column (see `thinning`)
    seconds:    median wall time per image
    layers:     the maps of each level, on one image
    members:    scores of each member of a deep stack's last level alone
    n_known:    number of images that the model was trained on, whose scores are too high
    """

    name: str
    model: AnyModel
    per_level: tuple[Scores, ...]
    per_image: tuple[Scores, ...]
    label_maps: tuple[np.ndarray, ...]
    calibration: Calibration
    seconds: float
    layers: tuple[LevelMaps, ...] = ()
    members: Mapping[str, Scores] = field(default_factory=dict)
    n_known: int = 0

    @property
    def scores(self) -> Scores:
        return self.per_level[-1]

    @property
    def stack(self) -> ForestStack:
        """Its forests, or those that the network came from."""
        return parts_of(self.model)[0]


def measure(
    models: Mapping[str, AnyModel],
    images: LabelledSet,
    crop: LayerCrop | None,
    report: Callable[[int], None],
) -> list[MeasuredModel]:
    """Predict each image with each model and compare with its labels.

    crop:   the part of an image whose inner layers are recorded; None: none are
    report: called with the number of finished images
    """
    totals = [_Totals(model, None if crop is None else LayerRecorder(crop, model)) for model in models.values()]
    groups = same_input_groups(list(models.values()))
    for number, image in enumerate(images):
        if not number:
            for model in models.values():
                _warm_up(model, image.planes)
        for group in groups:
            _measure_image([totals[i] for i in group], image, crop is not None and crop.image == number)
        report(number + 1)
    return [total.measured(name) for name, total in zip(models, totals, strict=True)]


class _Totals:
    """The sums over tiles and images for one model.

    levels:  (K,C,C) confusion
    members: (C,C) confusion of each
    bins:    (3,B) pixels, correct, confidence
    """

    def __init__(self, model: AnyModel, recorder: LayerRecorder | None) -> None:
        self.model, self.recorder = model, recorder
        self.levels = np.zeros((model.n_levels, model.n_classes, model.n_classes), np.int64)
        self.bins = np.zeros((3, N_BINS))
        self.members: dict[str, np.ndarray] = {}
        self.per_image: list[Scores] = []
        self.label_maps: list[np.ndarray] = []
        self.seconds: list[float] = []
        self.n_known = 0

    def begin_image(self, image: LabelledImage) -> None:
        self._before, self._labels = self.levels[-1].copy(), np.empty(image.size, np.uint8)
        self.seconds.append(0.0)
        self.n_known += image.mark in self.model.known.seen

    def add_tile(self, outputs: Sequence[np.ndarray], target: np.ndarray, region: Region, seconds: float) -> None:
        """The levels' outputs (C,h,w) in a region of the image, whose class indices are `target`, (h,w)."""
        if not np.isfinite(outputs[-1]).all():
            raise ModelError("a model predicts NaN or infinite values; refine it again, in smaller steps.")
        for level, output in enumerate(outputs):
            labels = output.argmax(axis=0).astype(np.uint8)
            self.levels[level] += confusion(target, labels, self.model.n_classes)
        region.of(self._labels)[...] = labels
        self.seconds[-1] += seconds
        labelled = target != UNLABELLED_INDEX
        # Votes of Map Back 1 may be negative, so that probabilities are outside of 0 to 1.
        confidence = np.clip(outputs[-1].max(axis=0)[labelled].astype(np.float64), 0, 1)
        bins = np.minimum((confidence * N_BINS).astype(np.int64), N_BINS - 1)
        for row, weights in enumerate((None, (labels == target)[labelled].astype(np.float64), confidence)):
            self.bins[row] += np.bincount(bins, weights, N_BINS)

    def add_members(self, outputs: Mapping[str, np.ndarray], target: np.ndarray) -> None:
        """The outputs (C,h,w) of the members of a deep stack where class indices are `target`, (h,w)."""
        for name, output in outputs.items():
            table = confusion(target, output.argmax(axis=0).astype(np.uint8), self.model.n_classes)
            self.members[name] = self.members.get(name, 0) + table

    def end_image(self) -> None:
        self.per_image.append(Scores(self.model.classes, self.levels[-1] - self._before))
        step = thinning(self._labels.shape, MAX_STORED_SIDE)
        self.label_maps.append(self._labels[::step, ::step].copy())

    def measured(self, name: str) -> MeasuredModel:
        pixels, correct, confidence = self.bins
        return MeasuredModel(
            name,
            self.model,
            tuple(Scores(self.model.classes, table) for table in self.levels),
            tuple(self.per_image),
            tuple(self.label_maps),
            Calibration(pixels.astype(np.int64), correct.astype(np.int64), confidence),
            float(np.median(self.seconds)),
            () if self.recorder is None else self.recorder.levels(),
            {name: Scores(self.model.classes, table) for name, table in self.members.items()},
            self.n_known,
        )


def _measure_image(group: Sequence[_Totals], image: LabelledImage, is_recorded: bool) -> None:
    """Run models with the same input: their features are computed once, and their time counts for each model."""
    for totals in group:
        totals.begin_image(image)
    first = group[0].model
    for region in tiles(first, image.size):
        start = time.perf_counter()
        plan = LevelPlan(first, image.planes, region, first.n_levels)
        shared_seconds = time.perf_counter() - start
        target = region.of(image.target)
        for totals in group:
            start = time.perf_counter()
            outputs, of_members = _outputs(totals.model, image.planes, region, plan)
            seconds = shared_seconds + time.perf_counter() - start
            totals.add_tile(outputs, target, region, seconds)
            totals.add_members(of_members, target)
            if is_recorded and totals.recorder is not None:
                totals.recorder.add(outputs, region)
    for totals in group:
        totals.end_image()


def _outputs(
    model: AnyModel, planes: np.ndarray, region: Region, plan: LevelPlan
) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    """Class probabilities (C,h,w) after each level in a region of an image (C,H,W), and of a deep stack's members."""
    deep = parts_of(model)[2]
    if deep is None:
        return region_outputs(model, planes, region, plan), {}
    return deep.levels_and_members(planes, region, plan)


def _warm_up(model: AnyModel, planes: np.ndarray) -> None:
    """Predict a corner of an image (C,H,W), so that kernels are compiled or loaded before times are measured."""
    corner = np.ascontiguousarray(planes[:, :WARM_UP, :WARM_UP])
    region_outputs(model, corner, Region(0, corner.shape[1], 0, corner.shape[2]))


def same_input_groups(models: Sequence[Layered]) -> list[list[int]]:
    """Indices of models, grouped: the levels of a group read the same features in the same surroundings."""
    groups: list[list[int]] = []
    for place, model in enumerate(models):
        for group in groups:
            first = models[group[0]]
            if _surroundings(first) == _surroundings(model) and same_features(first.features, model.features):
                group.append(place)
                break
        else:
            groups.append([place])
    return groups


def _surroundings(model: Layered) -> tuple[int, ...]:
    each = [(model.level_reach(level), model.level_tile(level)) for level in range(model.n_levels)]
    return (model.n_classes, model.receptive_field, *(number for pair in each for number in pair))


def same_features(a: FeatureSet, b: FeatureSet) -> bool:
    return a is b or (type(a) is type(b) and a.settings() == b.settings() and _same_arrays(a.arrays(), b.arrays()))


def same_stack(a: ForestStack, b: ForestStack) -> bool:
    """Whether two stacks predict the same because their arrays are equal."""
    return a is b or (
        (a.classes, a.n_levels, a.tolerance) == (b.classes, b.n_levels, b.tolerance)
        and [a.is_softmax(k) for k in range(a.n_levels)] == [b.is_softmax(k) for k in range(b.n_levels)]
        and same_features(a.features, b.features)
        and all(_same_arrays(_arrays(x), _arrays(y)) for x, y in zip(a.levels, b.levels, strict=True))
    )


def _arrays(forest: Forest) -> dict[str, Any]:
    return {item.name: getattr(forest, item.name) for item in fields(forest)}


def _same_arrays(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)
