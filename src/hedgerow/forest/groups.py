"""Groups: pixels that are held out together, so that the trees that predict a pixel saw nothing like it.

With many images, each image is a group. With few, a group is a block of an image; if the images are painted with
strokes, it is some of the strokes and whatever lies nearest to them, because one block might hold all the paint of a
class.
"""

from dataclasses import replace
from typing import Literal

import numpy as np
from scipy import ndimage, sparse

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
    """What makes up a group in a set of `n_images`, of whose pixels this part is labelled."""
    return "images" if n_images >= FEW_IMAGES else "strokes" if part < SPARSE_FRACTION else "blocks"


def with_groups(
    labelled: LabelledSet, config: StackConfig, blank: float | None
) -> tuple[GroupsOf, list[LabelledImage]]:
    """The kind of groups; and all images with their groups, followed by their altered copies, which keep the groups."""
    kind = kind_of_groups(len(labelled), labelled_fraction(labelled))
    originals: list[LabelledImage] = []
    copies: list[LabelledImage] = []
    first_group = 0
    for i, image in enumerate(labelled):
        if kind == "strokes":
            group = strokes(image.target, config.n_folds, np.random.default_rng((config.seed, 9, i)))
        else:
            group = first_group + blocks(image.size, blocks_per_side(kind))
            first_group = int(group.max()) + 1
        originals.append(replace(image, group=group))
        rng = np.random.default_rng((config.seed, 1, i))
        copies += [augmented_copy(originals[-1], config.augment, rng, blank) for _ in range(config.augment.copies)]
    return kind, originals + copies


def blocks_per_side(kind: GroupsOf) -> int:
    """Blocks along each side of an image; a whole image is one block."""
    return 1 if kind == "images" else BLOCKS_PER_SIDE


def blocks(shape: tuple[int, ...], side: int) -> np.ndarray:
    """(H,W) int32: the number of the block that each pixel lies in, out of side x side blocks."""
    return block_at(shape, side, np.arange(shape[0])[:, None], np.arange(shape[1]))


def block_at(shape: tuple[int, ...], side: int, row: np.ndarray, column: np.ndarray) -> np.ndarray:
    """int32: `blocks` at the given pixels, in the shape of their rows and columns."""
    down, across = (
        (np.asarray(place, np.int64) * side // n).astype(np.int32)
        for place, n in zip((row, column), shape, strict=True)
    )
    return down * side + across


def strokes(target: np.ndarray, n_groups: int, rng: np.random.Generator) -> np.ndarray:
    """(H,W) int32 groups of painted class indices (H,W), see `stroke_groups`; each unpainted pixel joins the nearest
    stroke."""
    is_painted = target != UNLABELLED_INDEX
    row, column = np.nonzero(is_painted)
    group = np.zeros(target.shape, np.int32)
    group[is_painted] = stroke_groups(row, column, target[is_painted], target.shape[1], n_groups, rng)
    nearest = ndimage.distance_transform_edt(~is_painted, return_distances=False, return_indices=True)
    return np.ascontiguousarray(group[tuple(nearest)])


def stroke_groups(
    row: np.ndarray, column: np.ndarray, target: np.ndarray, width: int, n_groups: int, rng: np.random.Generator
) -> np.ndarray:
    """(n,) int32 groups, from 0, of the painted pixels of an image, which come in reading order.

    The strokes of each class are dealt out to the groups in turn, the longest first.
    """
    group = np.zeros(len(target), np.int32)
    for value in np.unique(target):
        mine = np.flatnonzero(target == value)
        piece = _connected_pieces(row[mine], column[mine], width)
        order = np.argsort(-np.bincount(piece), kind="stable")
        group_of_piece = np.zeros(len(order), np.int32)
        group_of_piece[order] = (rng.integers(n_groups) + np.arange(len(order))) % n_groups
        group[mine] = group_of_piece[piece]
    return group


def _connected_pieces(row: np.ndarray, column: np.ndarray, width: int) -> np.ndarray:
    """(n,) the number of each pixel's connected piece, in reading order; pixels that touch at corners are connected."""
    key = row.astype(np.int64) * (width + 2) + column + 1  # so that the ends of neighbouring rows are not neighbours
    links = []
    for step in (1, width + 1, width + 2, width + 3):
        other = np.searchsorted(key, key + step)
        has = np.flatnonzero((other < len(key)) & (key[np.minimum(other, len(key) - 1)] == key + step))
        links.append((has, other[has]))
    first, second = (np.concatenate(ends) for ends in zip(*links, strict=True))
    graph = sparse.coo_matrix((np.ones(len(first), np.int8), (first, second)), shape=(len(key), len(key)))
    return np.asarray(sparse.csgraph.connected_components(graph, directed=False)[1])
