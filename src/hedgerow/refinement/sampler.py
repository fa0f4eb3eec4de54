"""The images that score a refinement, and its training samples: augmented images, their features and training pixels.

Only images that nothing was trained on give a meaningful score.
While a GPU computes, threads prepare the next samples: features of a pretrained network take longer than the rest of a
step.
"""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import torch

from hedgerow.config import RefineConfig
from hedgerow.forest.history import Known
from hedgerow.forest.samples import MAX_HELD_OUT_IMAGES, hold_out
from hedgerow.images.altering import altered, labelled_corner
from hedgerow.images.array_checks import UNLABELLED_INDEX, as_volume
from hedgerow.images.labelled import LabelledImage, LabelledSet
from hedgerow.images.metrics import Scores, confusion
from hedgerow.network.layout import Grid, Source, lattice
from hedgerow.network.stacknet import StackNet
from hedgerow.refinement.tuning import TunedNet
from hedgerow.threads import get_threads

MAX_SAMPLES_AHEAD = 8
MAX_BYTES_AHEAD = 2**31  # of their features
MAX_STEP_SLICES = 4  # of a volume that one step trains on


@dataclass(frozen=True)
class ValidationSplit:
    """The images to train on, the images that score, and whether the forests were not trained on the latter."""

    train: list[LabelledImage]
    held: LabelledSet
    is_honest: bool


def scoring_images(
    known: Known, labelled: LabelledSet, validation: LabelledSet | None, config: RefineConfig
) -> ValidationSplit:
    """Choose the scoring images: those for validation, else those reserved in training with others of their subjects,
    else some new to the forests.

    If there are none, all images are trained on and there is no score. Images that the forests were trained on are held
    out only if the score decides which network to keep or when to stop, and that score is not shown.
    """
    images, none = list(labelled), replace(labelled, images=[])
    decides = config.keep == "best" or config.patience is not None
    if validation is not None:
        held = list(validation)
        is_honest = not any(image.mark in known.seen for image in held)
        return ValidationSplit(images, replace(labelled, images=held) if is_honest or decides else none, is_honest)
    marks = [image.mark for image in images]
    of_subjects = [own for own in labelled.subjects if any(marks[i] in known.reserved for i in own)]
    chosen = {i for own in of_subjects for i in own if marks[i] not in known.seen}
    if not chosen and known.seen and config.held_out:
        new = [own for own in labelled.subjects if not any(marks[i] in known.seen for i in own)]
        n = min(
            round(config.held_out * len(labelled.subjects)), MAX_HELD_OUT_IMAGES, len(new), len(labelled.subjects) - 1
        )
        order = np.random.default_rng((config.seed, 5)).permutation(len(new))
        chosen = {i for number in order[:n].tolist() for i in new[number]}
    if chosen and len(chosen) < len(images):
        train = [image for i, image in enumerate(images) if i not in chosen]
        return ValidationSplit(train, replace(labelled, images=[images[i] for i in sorted(chosen)]), True)
    if decides:
        train, held = hold_out(labelled, config.held_out, config.seed)
        return ValidationSplit(train, replace(labelled, images=held), False)
    return ValidationSplit(images, none, False)


@dataclass(frozen=True)
class Sample:
    """The input of the first level for an image, the grid of pixels to train on, and their labels (Z,h,w)."""

    source: Source
    grid: Grid
    target: np.ndarray


Scorer = Callable[[StackNet, LabelledSet, RefineConfig], float | None]
"""Scores a network in training on held-out images; None if no label was used."""


def lattice_dice(net: StackNet, held: LabelledSet, config: RefineConfig) -> float | None:
    """Mean Dice on a lattice of held-out images; None if no label is on it."""
    table = np.zeros((net.n_classes,) * 2, np.int64)
    for image in held:
        target = as_volume(image.target)
        depth, height, width = target.shape
        grid = lattice(height, width, stride_of(config, height, width), depth=depth)
        with torch.no_grad():
            scores = net(net.source(image.planes), [grid] * net.n_levels)[-1]
        target, predicted = grid.of(target), scores.argmax(0).cpu().numpy().astype(np.uint8)
        table += confusion(np.ascontiguousarray(target), predicted.reshape(target.shape), net.n_classes)
    dice = float(Scores(net.classes, table).mean_dice)
    return None if math.isnan(dice) else dice


class Sampler:
    """The samples of step 0, 1, ...; each image is used once before one is used again."""

    def __init__(
        self, net: StackNet, images: Sequence[LabelledImage], config: RefineConfig, end: int, n_ahead: int
    ) -> None:
        """end: the number of samples; n_ahead: how many are prepared ahead, see `how_many_ahead`"""
        self.net, self.images, self.config, self.end = net, images, config, end
        self._coming: dict[int, Future[Sample]] = {}
        self._pool = ThreadPoolExecutor(n_ahead) if n_ahead else None
        self.n_ahead = n_ahead

    def __enter__(self) -> "Sampler":
        return self

    def __exit__(self, *problem: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def at(self, step: int, every: int = 1) -> Sample:
        """The sample of a step; every: the number of steps from each requested sample to the next"""
        if self._pool is None:
            return self._made(step)
        for each in range(step, min(step + (self.n_ahead + 1) * every, self.end), every):
            if each not in self._coming:
                self._coming[each] = self._pool.submit(self._made, each)
        for left_out in [each for each in self._coming if each < step]:  # because the run is late
            del self._coming[left_out]
        return self._coming.pop(step).result()

    def _made(self, step: int) -> Sample:
        image, grid = self._drawn(step)
        return Sample(
            self.net.source(image.planes), grid, np.ascontiguousarray(grid.of_volume(as_volume(image.target)))
        )

    def _drawn(self, step: int) -> tuple[LabelledImage, Grid]:
        """The augmented image of a step and its pixels to train on."""
        config, n = self.config, len(self.images)
        order = np.random.default_rng((config.seed, 6, step // n)).permutation(n)
        rng = np.random.default_rng((config.seed, 7, step))
        image, front, depth = self._slab(self.images[order[step % n]], rng)
        image = altered(image, config.augment, rng, self.net.features.blank)
        # The slices to train on, seen from above: in each of them the same rows and columns are used.
        labelled = as_volume(image.target)[front : front + depth]
        seen = labelled[0] if depth == 1 else labelled.min(axis=0)  # UNLABELLED_INDEX is the highest
        height, width = seen.shape
        top, left = 0, 0
        if config.crop is not None:
            top, left = labelled_corner(seen, config.crop, rng)
            height, width = min(config.crop, height), min(config.crop, width)
        step_size = stride_of(config, depth * height, width)
        shift = rng.integers(0, min(step_size, height, width), 2)
        inner = seen[top : top + height, left : left + width]
        if (inner[shift[0] :: step_size, shift[1] :: step_size] == UNLABELLED_INDEX).all():
            shift = np.argwhere(inner != UNLABELLED_INDEX)[0] % step_size  # no label is on the lattice
        grid = lattice(height, width, step_size, int(shift[0]), int(shift[1]))
        return image, Grid(grid.top + top, grid.left + left, grid.height, grid.width, step_size, front, depth)

    def _slab(self, image: LabelledImage, rng: np.random.Generator) -> tuple[LabelledImage, int, int]:
        """Of a volume, the slices that a random run of at most MAX_STEP_SLICES depends on, the number of the run's
        first slice among them, and its length; an image as it is."""
        if not image.is_volume:
            return image, 0, 1
        net, n_slices = self.net, image.size[0]
        depth = min(n_slices, MAX_STEP_SLICES)
        labelled = np.flatnonzero((image.target != UNLABELLED_INDEX).any(axis=(1, 2)))
        middle = int(labelled[rng.integers(len(labelled))])
        first = int(np.clip(middle - rng.integers(depth), 0, n_slices - depth))
        reach = net.features.halo_z + sum(net.level_reach_z(level) for level in range(net.n_levels))
        low, high = max(first - reach, 0), min(first + depth + reach, n_slices)
        slices = slice(low, high)
        cut = replace(image, planes=np.ascontiguousarray(image.planes[:, slices]), target=image.target[slices])
        return cut, first - low, depth


def stride_of(config: RefineConfig, height: int, width: int) -> int:
    """The step of the lattice of training pixels in an image of this size."""
    if config.stride is not None:
        return config.stride
    assert config.pixels is not None  # `refine_labelled` sets it
    return max(1, round(math.sqrt(height * width / config.pixels)))


def how_many_ahead(net: StackNet, images: Sequence[LabelledImage]) -> int:
    """How many samples to prepare ahead: 0 on a CPU, which has nothing else to do, or if features change every step."""
    if net.device.type == "cpu" or isinstance(net, TunedNet):
        return 0
    most = max(4 * net.features.n_features * image.target.size for image in images)
    return min(MAX_SAMPLES_AHEAD, get_threads(), MAX_BYTES_AHEAD // most)
