"""What the page says of a model: measured here, image by image and tile by tile, in one pass."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hedgerow.errors import ModelError
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.level_input import tiles
from hedgerow.images.arrays import UNLABELLED_INDEX
from hedgerow.images.labelled import LabelledImage, LabelledSet
from hedgerow.images.metrics import Scores, confusion, ratio
from hedgerow.images.regions import Region
from hedgerow.io import model_file
from hedgerow.predict.run import region_outputs
from hedgerow.report.figures import thinning

if TYPE_CHECKING:
    from hedgerow.network.stacknet import StackNet

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
    found:     of each image the predicted class index, uint8, of every n-th row and column (see `figures.thinning`)
    seconds:   median wall time per image
    n_bytes:   of its file
    """

    name: str
    model: ForestStack | StackNet
    per_level: tuple[Scores, ...]
    per_image: tuple[Scores, ...]
    found: tuple[np.ndarray, ...]
    calibration: Calibration
    seconds: float
    n_bytes: int

    @property
    def scores(self) -> Scores:
        return self.per_level[-1]

    @property
    def stack(self) -> ForestStack:
        """The forests: its own, or those that the network came from."""
        return self.model if isinstance(self.model, ForestStack) else self.model.stack


@dataclass
class _Sums:
    """What is added up over tiles and images. levels: (K,C,C); bins: (3,B) pixels, hits, confidence"""

    levels: np.ndarray
    bins: np.ndarray = field(default_factory=lambda: np.zeros((3, N_BINS)))


def measure(
    name: str,
    model: ForestStack | StackNet,
    labelled: LabelledSet,
    report: Callable[[int], None],
) -> Measured:
    """Predict each image and compare with its labels; report: is told how many images are done."""
    n_classes = model.n_classes
    sums = _Sums(np.zeros((model.n_levels, n_classes, n_classes), np.int64))
    per_image, found, seconds = [], [], []
    for done, image in enumerate(labelled):
        if not done:
            _warm_up(model, image.planes)
        before = sums.levels[-1].copy()
        labels, spent = _predict(model, image, sums)
        per_image.append(Scores(model.classes, sums.levels[-1] - before))
        step = thinning(labels.shape, MAX_SIDE)
        found.append(labels[::step, ::step].copy())
        seconds.append(spent)
        report(done + 1)
    pixels, hits, confidence = sums.bins
    return Measured(
        name,
        model,
        tuple(Scores(model.classes, one) for one in sums.levels),
        tuple(per_image),
        tuple(found),
        Calibration(pixels.astype(np.int64), hits.astype(np.int64), confidence),
        float(np.median(seconds)),
        file_size(model),
    )


def _predict(model: ForestStack | StackNet, image: LabelledImage, sums: _Sums) -> tuple[np.ndarray, float]:
    """(H,W) uint8 class indices and the seconds of prediction alone; what else is asked goes into `sums`."""
    labels = np.empty(image.size, np.uint8)
    spent = 0.0
    for region in tiles(model, image.size):
        start = time.perf_counter()
        outputs = region_outputs(model, image.planes, region)
        spent += time.perf_counter() - start
        if not np.isfinite(outputs[-1]).all():
            raise ModelError("a model predicts NaN or infinite values; refine it again, in smaller steps.")
        here = region.of(image.target)
        for level, output in enumerate(outputs):
            index = output.argmax(axis=0).astype(np.uint8)
            sums.levels[level] += confusion(here, index, model.n_classes)
        region.of(labels)[...] = index
        known = here != UNLABELLED_INDEX
        # Votes of Map Back 1 may be negative, and then probabilities leave their range.
        confidence = np.clip(outputs[-1].max(axis=0)[known].astype(np.float64), 0, 1)
        which = np.minimum((confidence * N_BINS).astype(np.int64), N_BINS - 1)
        for row, weights in enumerate((None, (index == here)[known].astype(np.float64), confidence)):
            sums.bins[row] += np.bincount(which, weights, N_BINS)
    return labels, spent


def _warm_up(model: ForestStack | StackNet, planes: np.ndarray) -> None:
    """Predict a corner of an image (C,H,W): kernels are compiled or loaded at their first use."""
    corner = np.ascontiguousarray(planes[:, :WARM_UP, :WARM_UP])
    region_outputs(model, corner, Region(0, corner.shape[1], 0, corner.shape[2]))


def file_size(model: ForestStack | StackNet) -> int:
    """Bytes of the model's file."""
    with tempfile.TemporaryDirectory() as folder:
        return model_file.save(model, Path(folder) / "model.hedge")
