"""Groups: pixels that are held out together, so that each is predicted by trees that saw nothing like it.

Of many images a group is one image. Of few images it is a block of one; or, if they are painted with strokes, some of
the strokes with what lies nearest to them: a block might hold all the paint of a class.
"""

from dataclasses import replace
from typing import Literal

import numpy as np
from scipy import ndimage

from hedgerow.config import StackConfig
from hedgerow.forest.default_settings import SPARSE_FRACTION, labelled_fraction
from hedgerow.images.altering import augmented_copy
from hedgerow.images.array_checks import UNLABELLED_INDEX
from hedgerow.images.labelled import LabelledImage, LabelledSet

FEW_IMAGES = 4  # with fewer, groups are parts of images
BLOCKS_PER_SIDE = 4  # along each side of such an image
GroupsOf = Literal["images", "blocks", "strokes"]
HELD_OUT = {"images": "training images", "blocks": "blocks of the training images", "strokes": "strokes"}  # in words


def kind_of_groups(n_images: int, part: float) -> GroupsOf:
    """What a group is in a set of so many images, of which this part of the pixels is labelled."""
    return "images" if n_images >= FEW_IMAGES else "strokes" if part < SPARSE_FRACTION else "blocks"


def with_groups(
    labelled: LabelledSet, config: StackConfig, blank: float | None
) -> tuple[GroupsOf, list[LabelledImage]]:
    """What a group is; and the images, then their altered copies, with their groups, which go along into the copies."""
    kind = kind_of_groups(len(labelled), labelled_fraction(labelled))
    originals: list[LabelledImage] = []
    copies: list[LabelledImage] = []
    first_group = 0
    for i, image in enumerate(labelled):
        if kind == "strokes":
            group = strokes(image.target, config.n_folds, np.random.default_rng((config.seed, 9, i)))
        else:
            group = first_group + blocks(image.size, 1 if kind == "images" else BLOCKS_PER_SIDE)
            first_group = int(group.max()) + 1
        originals.append(replace(image, group=group))
        rng = np.random.default_rng((config.seed, 1, i))
        copies += [augmented_copy(originals[-1], config.augment, rng, blank) for _ in range(config.augment.copies)]
    return kind, originals + copies


def blocks(shape: tuple[int, ...], side: int) -> np.ndarray:
    """(H,W) int32: the number of the block that each pixel lies in, out of side x side blocks."""
    return block_at(shape, side, np.arange(shape[0])[:, None], np.arange(shape[1]))


def block_at(shape: tuple[int, ...], side: int, row: np.ndarray, column: np.ndarray) -> np.ndarray:
    """int32: `blocks` at some pixels, of the shape of their rows and columns."""
    down, across = (
        (np.asarray(place, np.int64) * side // n).astype(np.int32)
        for place, n in zip((row, column), shape, strict=True)
    )
    return down * side + across


def strokes(target: np.ndarray, n_groups: int, rng: np.random.Generator) -> np.ndarray:
    """(H,W) int32 groups from 0 of painted class indices (H,W): the strokes of each class are dealt out to the groups
    in turn, and what is not painted goes with the nearest stroke."""
    group = np.zeros(target.shape, np.int32)
    for value in np.unique(target[target != UNLABELLED_INDEX]):
        pieces, n = ndimage.label(target == value, np.ones((3, 3)))
        here = pieces > 0
        group[here] = dealt_out(pieces[here] - 1, n, n_groups, rng)
    nearest = ndimage.distance_transform_edt(target == UNLABELLED_INDEX, return_distances=False, return_indices=True)
    return np.ascontiguousarray(group[tuple(nearest)])


def dealt_out(piece: np.ndarray, n: int, n_groups: int, rng: np.random.Generator) -> np.ndarray:
    """(S,) int32 groups of pixels whose strokes are numbered from 0 to n - 1, dealt out in turn, the longest first."""
    order = np.argsort(-np.bincount(piece, minlength=n), kind="stable")
    of_piece = np.zeros(n, np.int32)
    of_piece[order] = (rng.integers(n_groups) + np.arange(n)) % n_groups
    return of_piece[piece]
