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
from hedgerow.images.array_checks import UNLABELLED_INDEX, as_volume
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
    """Divide the subjects into folds at random, or parts of the images if there are few subjects.

    Every fold has labels, and so have the other folds together; if little is labelled, there are fewer folds.
    """
    rng = np.random.default_rng((seed, 21))
    subjects, parts = labelled.subjects, [np.zeros(image.size, np.uint8) for image in labelled]
    kind = kind_of_groups(len(subjects), labelled_fraction(labelled))
    if kind == "images":
        n_folds = min(n_folds, len(subjects))
        for place, number in enumerate(rng.permutation(len(subjects)).tolist()):
            for i in subjects[number]:
                parts[i][:] = place % n_folds
    elif kind == "strokes":
        parts = [group.astype(np.uint8) for group in strokes(labelled, n_folds, (seed, 21))]
        if not _leaves_every_class(labelled, parts):
            kind = "blocks"  # blocks divide strokes
    if kind == "blocks":
        for subject in subjects:
            dealt = _dealt([labelled.images[i].target for i in subject], n_folds, rng)
            parts = [dealt.pop(0) if i in subject else part for i, part in enumerate(parts)]
    return _without_empty(labelled, parts)


def search_folds(labelled: LabelledSet, seed: int) -> Folds:
    """The folds of a search for settings, which holds out the first and scores on it."""
    return folds_of(labelled, SEARCH_FOLDS, seed)


def _dealt(targets: Sequence[np.ndarray], n_folds: int, rng: np.random.Generator) -> list[np.ndarray]:
    """(H,W) uint8 for each image of a subject: the fold of each pixel.

    The labelled parts of the images are divided into blocks; blocks at the same place have the same fold in all images.
    """
    divided = [_labelled_blocks(target) for target in targets]
    pairs = zip(divided, targets, strict=True)
    has_labels = np.unique(np.concatenate([block[target != UNLABELLED_INDEX] for block, target in pairs]))
    fold_of = np.zeros(BLOCKS_PER_SIDE * BLOCKS_PER_SIDE, np.uint8)
    fold_of[has_labels[rng.permutation(len(has_labels))]] = np.arange(len(has_labels)) % n_folds
    return [fold_of[block] for block in divided]


def _labelled_blocks(target: np.ndarray) -> np.ndarray:
    """(H,W) the block of each pixel, of the labelled part of the image; those outside belong to the nearest block."""
    seen = as_volume(target != UNLABELLED_INDEX).any(axis=0)  # a block goes through all slices of a volume
    rows, columns = ndimage.find_objects(seen.astype(np.uint8))[0]
    block = blocks((rows.stop - rows.start, columns.stop - columns.start), BLOCKS_PER_SIDE)
    beyond = [(of.start, side - of.stop) for of, side in zip((rows, columns), seen.shape, strict=True)]
    return np.broadcast_to(np.pad(block, beyond, mode="edge"), target.shape)


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
