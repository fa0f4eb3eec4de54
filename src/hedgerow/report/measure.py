"""What the page says of models: measured here in one pass, image by image and tile by tile.

Each model runs once on each image, and what the page shows is added up on the way: no probabilities are kept beyond a
tile, but for the thinned maps of the one image whose inner layers are drawn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from hedgerow.deep.parts import parts_of
from hedgerow.errors import ModelError
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.level_input import LevelPlan, tiles
from hedgerow.images.arrays import UNLABELLED_INDEX
from hedgerow.images.labelled import LabelledImage, LabelledSet
from hedgerow.images.metrics import Scores, confusion, ratio
from hedgerow.images.regions import Region
from hedgerow.io import model_file
from hedgerow.predict.run import region_outputs
from hedgerow.report.layers import KeptLayers, Window
from hedgerow.report.rows import LevelMaps, thinning
from hedgerow.report.same import read_alike

if TYPE_CHECKING:
    from hedgerow.deep.parts import AnyModel

N_BINS = 15  # of confidence, between 0 and 1
MAX_SIDE = 512  # pixels of a label map that are kept to be shown
WARM_UP = 64  # pixels of the side of what is predicted before the clock runs


@dataclass(frozen=True)
class Calibration:
    """Labelled pixels by the probability of their winning class, B bins of equal width between 0 and 1.

    pixels, hits: (B,) int64, all and those whose class is right; confidence: (B,) float64, the sum of the probabilities
    """

    pixels: np.ndarray
    hits: np.ndarray
    confidence: np.ndarray

    @property
    def mean_confidence(self) -> np.ndarray:
        """(B,); NaN in an empty bin"""
        return ratio(self.confidence, self.pixels)

    @property
    def accuracy(self) -> np.ndarray:
        """(B,); NaN in an empty bin"""
        return ratio(self.hits, self.pixels)

    @property
    def expected_error(self) -> float:
        """Expected calibration error: how far confidence and accuracy differ, in the mean over the pixels."""
        return float(np.abs(self.hits - self.confidence).sum() / self.pixels.sum())


@dataclass(frozen=True)
class Measured:
    """One model against all images.

    per_level: K scores, pooled over the images; the last is the model's own
    per_image: scores of each image alone
    found:     of each image the predicted class index, uint8, of every n-th row and column (see `rows.thinning`)
    members:   of a deep stack, the scores of each member of its last level alone
    layers:    of each level what is drawn of it, on one image
    seconds:   median wall time per image
    n_bytes:   of its file
    """

    name: str
    model: AnyModel
    per_level: tuple[Scores, ...]
    per_image: tuple[Scores, ...]
    found: tuple[np.ndarray, ...]
    calibration: Calibration
    seconds: float
    n_bytes: int
    layers: tuple[LevelMaps, ...] = ()
    members: Mapping[str, Scores] = field(default_factory=dict)

    @property
    def scores(self) -> Scores:
        return self.per_level[-1]

    @property
    def stack(self) -> ForestStack:
        """The forests: its own, or those that the network came from."""
        return parts_of(self.model)[0]


@dataclass
class _Sums:
    """What is added up of one model over tiles and images.

    levels: (K,C,C); bins: (3,B) pixels, hits, confidence; members: (C,C) each
    """

    model: AnyModel
    levels: np.ndarray
    layers: KeptLayers | None = None
    bins: np.ndarray = field(default_factory=lambda: np.zeros((3, N_BINS)))
    per_image: list[Scores] = field(default_factory=list)
    found: list[np.ndarray] = field(default_factory=list)
    members: dict[str, np.ndarray] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)

    def begin(self, size: tuple[int, int]) -> None:
        """An image of this size (H,W) follows."""
        self._before, self._labels, self._spent = self.levels[-1].copy(), np.empty(size, np.uint8), 0.0

    def add(self, outputs: Sequence[np.ndarray], target: np.ndarray, region: Region, seconds: float) -> None:
        """The levels' outputs (C,h,w) in a region of the image, whose class indices are `target`, (h,w)."""
        if not np.isfinite(outputs[-1]).all():
            raise ModelError("a model predicts NaN or infinite values; refine it again, in smaller steps.")
        for level, output in enumerate(outputs):
            index = output.argmax(axis=0).astype(np.uint8)
            self.levels[level] += confusion(target, index, self.model.n_classes)
        region.of(self._labels)[...] = index
        self._spent += seconds
        known = target != UNLABELLED_INDEX
        # Votes of Map Back 1 may be negative, and then probabilities leave their range.
        confidence = np.clip(outputs[-1].max(axis=0)[known].astype(np.float64), 0, 1)
        which = np.minimum((confidence * N_BINS).astype(np.int64), N_BINS - 1)
        for row, weights in enumerate((None, (index == target)[known].astype(np.float64), confidence)):
            self.bins[row] += np.bincount(which, weights, N_BINS)

    def add_members(self, said: Mapping[str, np.ndarray], target: np.ndarray) -> None:
        """What the members of a deep stack say alone, (C,h,w) each, where class indices are `target`, (h,w)."""
        for name, proba in said.items():
            table = confusion(target, proba.argmax(axis=0).astype(np.uint8), self.model.n_classes)
            self.members[name] = self.members.get(name, 0) + table

    def end(self) -> None:
        """The image is done."""
        self.per_image.append(Scores(self.model.classes, self.levels[-1] - self._before))
        step = thinning(self._labels.shape, MAX_SIDE)
        self.found.append(self._labels[::step, ::step].copy())
        self.seconds.append(self._spent)

    def measured(self, name: str) -> Measured:
        pixels, hits, confidence = self.bins
        return Measured(
            name,
            self.model,
            tuple(Scores(self.model.classes, one) for one in self.levels),
            tuple(self.per_image),
            tuple(self.found),
            Calibration(pixels.astype(np.int64), hits.astype(np.int64), confidence),
            float(np.median(self.seconds)),
            len(model_file.file_content(self.model)),
            () if self.layers is None else self.layers.levels(),
            {name: Scores(self.model.classes, table) for name, table in self.members.items()},
        )


def measure(
    models: Mapping[str, AnyModel],
    labelled: LabelledSet,
    window: Window | None,
    report: Callable[[int], None],
) -> list[Measured]:
    """Predict each image by each model and compare with its labels; report: is told how many images are done.

    window: what is kept of the inner layers, of which image; None: nothing
    """
    sums = []
    for model in models.values():
        table = np.zeros((model.n_levels, model.n_classes, model.n_classes), np.int64)
        sums.append(_Sums(model, table, None if window is None else KeptLayers(window, model)))
    groups = read_alike([one.model for one in sums])
    for done, image in enumerate(labelled):
        if not done:
            for model in models.values():
                _warm_up(model, image.planes)
        for group in groups:
            _predict([sums[i] for i in group], image, window is not None and window.image == done)
        report(done + 1)
    return [one.measured(name) for name, one in zip(models, sums, strict=True)]


def _predict(group: Sequence[_Sums], image: LabelledImage, is_window: bool) -> None:
    """Run models that read alike on an image: its features are computed once, and count in the time of each."""
    for one in group:
        one.begin(image.size)
    first = group[0].model
    for region in tiles(first, image.size):
        start = time.perf_counter()
        plan = LevelPlan(first, image.planes, region, first.n_levels)
        shared = time.perf_counter() - start
        for one in group:
            start = time.perf_counter()
            outputs, said = _outputs(one.model, image.planes, region, plan)
            spent = time.perf_counter() - start
            one.add_members(said, region.of(image.target))
            one.add(outputs, region.of(image.target), region, shared + spent)
            if is_window and one.layers is not None:
                one.layers.add(outputs, region)
    for one in group:
        one.end()


def _outputs(
    model: AnyModel, planes: np.ndarray, region: Region, plan: LevelPlan
) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    """Class probabilities (C,h,w) after each level in a region of an image (C,H,W), and of a deep stack's members."""
    deep = parts_of(model)[2]
    if deep is None:
        return region_outputs(model, planes, region, plan), {}
    from hedgerow.deep.members import levels_and_members  # needs PyTorch

    return levels_and_members(deep, planes, region, plan)


def _warm_up(model: AnyModel, planes: np.ndarray) -> None:
    """Predict a corner of an image (C,H,W): kernels are compiled or loaded at their first use."""
    corner = np.ascontiguousarray(planes[:, :WARM_UP, :WARM_UP])
    region_outputs(model, corner, Region(0, corner.shape[1], 0, corner.shape[2]))
