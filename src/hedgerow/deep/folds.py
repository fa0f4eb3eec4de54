"""Folds: every labelled pixel is predicted by models that did not learn from it.

Predictions that train the convolutional level or weight its members must resemble predictions for new images. A fold
consists of some of the images, or of some blocks or strokes if there are few images.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import ndimage

from hedgerow.errors import InputError
from hedgerow.forest.default_settings import labelled_fraction
from hedgerow.forest.samples import BLOCKS_PER_SIDE, blocks, kind_of_groups, strokes
from hedgerow.images.array_checks import UNLABELLED_INDEX
from hedgerow.images.labelled import LabelledSet

SEARCH_FOLDS = 4  # a search for settings holds out one of so many folds, and scores on it


@dataclass(frozen=True)
class Folds:
    """Labelled images whose pixels are divided into folds.

    parts: for each image, (H,W) uint8 number of each pixel's fold
    """

    labelled: LabelledSet
    parts: Sequence[np.ndarray]
    n_folds: int

    def training(self, fold: int) -> LabelledSet:
        """The images without the labels of one fold; images without other labels are left out."""
        images = [
            replace(image, target=target)
            for i, image in enumerate(self.labelled)
            if (target := self.training_target(i, fold)) is not None
        ]
        return replace(self.labelled, images=images)

    def training_target(self, i: int, fold: int | None) -> np.ndarray | None:
        """(H,W) uint8 class indices of an image without the labels of a fold; None: there are no other labels."""
        target = self.labelled.images[i].target
        if fold is not None:
            target = np.where(self.parts[i] == fold, UNLABELLED_INDEX, target).astype(np.uint8)
        return None if (target == UNLABELLED_INDEX).all() else target

    def held(self, fold: int) -> list[int]:
        """The numbers of the images with pixels in the fold."""
        return [i for i, part in enumerate(self.parts) if (part == fold).any()]

    def target(self, i: int, fold: int) -> np.ndarray:
        """(H,W) uint8 class indices of an image, with the labels of this fold only."""
        target = np.where(self.parts[i] == fold, self.labelled.images[i].target, UNLABELLED_INDEX)
        return np.asarray(target, np.uint8)


def folds_of(labelled: LabelledSet, n_folds: int, seed: int) -> Folds:
    """Divide the images into folds at random, or parts of the images if there are few.

    Every fold has labels, and so have the other folds together; if little is labelled, there are fewer folds.
    """
    rng = np.random.default_rng((seed, 21))
    kind = kind_of_groups(len(labelled), labelled_fraction(labelled))
    if kind == "images":
        n_folds = min(n_folds, len(labelled))
        fold_of = np.empty(len(labelled), np.uint8)
        fold_of[rng.permutation(len(labelled))] = np.arange(len(labelled)) % n_folds
        parts = [np.full(image.size, fold_of[i], np.uint8) for i, image in enumerate(labelled)]
    elif kind == "strokes":
        parts = [strokes(image.target, n_folds, rng).astype(np.uint8) for image in labelled]
        if not _leaves_every_class(labelled, parts):
            kind = "blocks"  # blocks divide strokes
    if kind == "blocks":
        parts = [_dealt(image.target, n_folds, rng) for image in labelled]
    return _without_empty(labelled, parts)


def search_folds(labelled: LabelledSet, seed: int) -> Folds:
    """The folds of a search for settings, which holds out the first and scores on it."""
    return folds_of(labelled, SEARCH_FOLDS, seed)


def _dealt(target: np.ndarray, n_folds: int, rng: np.random.Generator) -> np.ndarray:
    """(H,W) uint8: the fold of each pixel; the labelled part of the image is divided into blocks."""
    is_labelled = target != UNLABELLED_INDEX
    rows, columns = ndimage.find_objects(is_labelled.astype(np.uint8))[0]
    block = blocks((rows.stop - rows.start, columns.stop - columns.start), BLOCKS_PER_SIDE)
    # Pixels outside the labelled part belong to the nearest block.
    beyond = [(of.start, side - of.stop) for of, side in zip((rows, columns), target.shape, strict=True)]
    block = np.pad(block, beyond, mode="edge")
    has_labels = np.unique(block[is_labelled])
    fold_of = np.zeros(BLOCKS_PER_SIDE * BLOCKS_PER_SIDE, np.uint8)
    fold_of[has_labels[rng.permutation(len(has_labels))]] = np.arange(len(has_labels)) % n_folds
    return fold_of[block]


def _leaves_every_class(labelled: LabelledSet, parts: Sequence[np.ndarray]) -> bool:
    """Whether each class is in at least two folds, so that training sees it whichever fold is held out."""
    pairs: set[tuple[int, int]] = set()
    for image, part in zip(labelled, parts, strict=True):
        is_labelled = image.target != UNLABELLED_INDEX
        pairs |= set(zip(image.target[is_labelled].tolist(), part[is_labelled].tolist(), strict=True))
    return min(Counter(index for index, _ in pairs).values(), default=0) > 1


def _without_empty(labelled: LabelledSet, parts: Sequence[np.ndarray]) -> Folds:
    """The folds with labels, renumbered; pixels of folds without labels are moved to the first."""
    pairs = zip(labelled, parts, strict=True)
    known = np.unique(np.concatenate([np.unique(part[image.target != UNLABELLED_INDEX]) for image, part in pairs]))
    if len(known) < 2:
        raise InputError("too few labels to hold any out; label more, or choose effort fast.")
    number = np.zeros(256, np.uint8)
    number[known] = np.arange(len(known))
    return Folds(labelled, [number[part] for part in parts], len(known))
