"""Folds: every labelled pixel is predicted by models that did not learn from it.

What the convolutional level reads in training, and what its members are weighed by, must be what they will meet on new
images. A fold is some of the images; or of few images, some blocks or strokes of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hedgerow.forest.groups import BLOCKS, blocks, groups_of, strokes
from hedgerow.images.arrays import UNLABELLED_INDEX
from hedgerow.images.labelled import LabelledImage, LabelledSet


@dataclass(frozen=True)
class Folds:
    """What belongs to which fold.

    labelled: the images
    parts:    for each image, (H,W) uint8 number of the fold that a pixel belongs to
    """

    labelled: LabelledSet
    parts: Sequence[np.ndarray]
    n_folds: int

    def training(self, fold: int) -> LabelledSet:
        """The images without the labels of one fold; images without any are left out."""
        left = [self._without(i, fold) for i in range(len(self.labelled))]
        return replace(self.labelled, images=[image for image in left if image is not None])

    def _without(self, i: int, fold: int) -> LabelledImage | None:
        image, is_held = self.labelled.images[i], self.parts[i] == fold
        if not is_held.any():
            return image
        target = np.where(is_held, UNLABELLED_INDEX, image.target).astype(np.uint8)
        return None if (target == UNLABELLED_INDEX).all() else replace(image, target=target)

    def held(self, fold: int) -> list[int]:
        """The numbers of the images that have pixels of the fold."""
        return [i for i, part in enumerate(self.parts) if (part == fold).any()]

    def target(self, i: int, fold: int) -> np.ndarray:
        """(H,W) uint8 class indices of an image, with labels of this fold alone."""
        found = np.where(self.parts[i] == fold, self.labelled.images[i].target, UNLABELLED_INDEX)
        return np.asarray(found, np.uint8)


def folds_of(labelled: LabelledSet, n_folds: int, seed: int) -> Folds:
    """Deal out the images, or, if they are few, parts of them, in random order."""
    rng = np.random.default_rng((seed, 21))
    kind = groups_of(labelled)
    if kind == "images":
        n_folds = min(n_folds, len(labelled))
        fold_of = np.empty(len(labelled), np.uint8)
        fold_of[rng.permutation(len(labelled))] = np.arange(len(labelled)) % n_folds
        parts = [np.full(image.size, fold_of[i], np.uint8) for i, image in enumerate(labelled)]
    elif kind == "strokes":
        parts = [strokes(image.target, n_folds, rng).astype(np.uint8) for image in labelled]
    else:
        parts = [_dealt(image.size, n_folds, rng) for image in labelled]
    return Folds(labelled, parts, n_folds)


def _dealt(size: tuple[int, int], n_folds: int, rng: np.random.Generator) -> np.ndarray:
    """(H,W) uint8: the fold of each pixel, block by block."""
    fold_of = np.empty(BLOCKS * BLOCKS, np.uint8)
    fold_of[rng.permutation(len(fold_of))] = np.arange(len(fold_of)) % n_folds
    return fold_of[blocks(size, BLOCKS)]
