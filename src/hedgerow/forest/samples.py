"""The choice of the images and pixels that train the trees, and of those that score.

Pixels belong to groups that are held out together, so that the trees that predict a pixel saw nothing like it. With
many images, each image is a group. With few, a group is a block of an image; if the images are painted with strokes, it
is some of the strokes and whatever lies nearest to them, because one block might hold all the paint of a class.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from scipy import ndimage, sparse

from hedgerow.config import SamplingConfig, StackConfig
from hedgerow.errors import InputError
from hedgerow.forest.default_settings import SPARSE_FRACTION, labelled_fraction
from hedgerow.images.altering import augmented_copy
from hedgerow.images.array_checks import UNLABELLED_INDEX, as_volume
from hedgerow.images.labelled import LabelledImage, LabelledSet

MIN_INT64_PIXELS = 2**31  # from this many pixels on, the number of a pixel takes eight bytes
MAX_HELD_OUT_IMAGES = 32  # each image that scores a refinement is predicted at every check
FEW_SUBJECTS = 4  # with fewer, groups are parts of images
BLOCKS_PER_SIDE = 4  # along each side of such an image
GroupsOf = Literal["images", "blocks", "strokes"]
HELD_OUT = {"images": "training images", "blocks": "blocks of the training images", "strokes": "strokes"}  # in words
Painted: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]
"""The painted pixels of an image, in reading order: rows, columns, class indices (n,)"""
NUMBERS_AT_ONCE = 2**20  # random numbers that are drawn at once


def split_reserved(labelled: LabelledSet, part: float, seed: int) -> tuple[list[LabelledImage], list[LabelledImage]]:
    """The images to train on, which keep every class, and those that are reserved to score the model."""
    images, subjects = list(labelled), labelled.subjects
    if part == 0:
        return images, []
    here = [set(np.unique(image.target[image.target != UNLABELLED_INDEX]).tolist()) for image in images]
    trained, reserved = set(range(len(images))), list[int]()
    for number in np.random.default_rng((seed, 8)).permutation(len(subjects)).tolist():
        own = subjects[number]
        others = set().union(*(here[k] for k in trained.difference(own)))
        if set().union(*(here[i] for i in own)) <= others and len(reserved) < max(round(part * len(images)), 1):
            reserved += own
            trained.difference_update(own)
    if not reserved:
        raise InputError(
            "no image can be reserved: every one holds a class that no other image has, or is the only image (or one "
            "of the only group); label more images."
        )
    return [images[i] for i in sorted(trained)], [images[i] for i in sorted(reserved)]


def hold_out(labelled: LabelledSet, part: float, seed: int) -> tuple[list[LabelledImage], list[LabelledImage]]:
    """The images to train on, and at most MAX_HELD_OUT_IMAGES that score; images of few subjects are divided into
    blocks."""
    images, subjects = list(labelled), labelled.subjects
    if part == 0:
        return images, []
    rng = np.random.default_rng((seed, 5))
    if len(subjects) >= FEW_SUBJECTS:
        n = min(max(round(part * len(subjects)), 1), MAX_HELD_OUT_IMAGES, len(subjects) - 1)
        chosen = sorted(i for number in rng.permutation(len(subjects))[:n].tolist() for i in subjects[number])
        step = -(-len(chosen) // MAX_HELD_OUT_IMAGES)
        return [image for i, image in enumerate(images) if i not in chosen], [images[i] for i in chosen[::step]]
    trained, held = dict[int, np.ndarray](), dict[int, np.ndarray]()
    for subject in subjects:
        block = {i: blocks(images[i].size, BLOCKS_PER_SIDE) for i in subject}
        known = np.unique(np.concatenate([block[i][images[i].target != UNLABELLED_INDEX] for i in subject]))
        n = min(max(round(part * len(known)), 1), len(known) - 1)
        held_blocks = rng.permutation(known)[:n]
        for i in subject:
            target, is_held = images[i].target, np.isin(block[i], held_blocks)
            trained[i] = np.where(is_held, UNLABELLED_INDEX, target).astype(np.uint8)
            held[i] = np.where(is_held, target, UNLABELLED_INDEX).astype(np.uint8)
    return _labelled_ones(images, trained), _labelled_ones(images, held)[:: -(-len(held) // MAX_HELD_OUT_IMAGES)]


def _labelled_ones(images: Sequence[LabelledImage], targets: Mapping[int, np.ndarray]) -> list[LabelledImage]:
    """The images with these class indices (H,W), by number, without those in which nothing is labelled."""
    return [
        replace(images[i], target=target) for i, target in sorted(targets.items()) if (target != UNLABELLED_INDEX).any()
    ]


def kind_of_groups(n_subjects: int, part: float) -> GroupsOf:
    """What makes up a group in images of so many subjects, of whose pixels this part is labelled."""
    return "images" if n_subjects >= FEW_SUBJECTS else "strokes" if part < SPARSE_FRACTION else "blocks"


def with_groups(
    labelled: LabelledSet, config: StackConfig, blank: float | None
) -> tuple[GroupsOf, list[LabelledImage]]:
    """The kind of groups; and all images with their groups, followed by their altered copies, which keep the groups."""
    kind = kind_of_groups(len(labelled.subjects), labelled_fraction(labelled))
    side = blocks_per_side(kind)
    subject_of = {i: number for number, subject in enumerate(labelled.subjects) for i in subject}
    originals: list[LabelledImage] = []
    copies: list[LabelledImage] = []
    stroke_of = strokes(labelled, config.n_folds, (config.seed, 9)) if kind == "strokes" else []
    for i, image in enumerate(labelled):
        group = stroke_of[i] if kind == "strokes" else subject_of[i] * side**2 + blocks(image.size, side)
        originals.append(replace(image, group=group))
        rng = np.random.default_rng((config.seed, 1, i))
        copies += [
            augmented_copy(originals[-1], config.augment, rng, blank, labelled.anisotropy)
            for _ in range(config.augment.copies)
        ]
    return kind, originals + copies


def blocks_per_side(kind: GroupsOf) -> int:
    """Blocks along each side of an image; a whole image is one block."""
    return 1 if kind == "images" else BLOCKS_PER_SIDE


def blocks(shape: tuple[int, ...], side: int) -> np.ndarray:
    """(H,W) int32: the number of the block that each pixel lies in, out of side x side blocks; in a volume (Z,H,W) a
    block goes through all slices."""
    height, width = shape[-2:]
    in_plane = block_at((height, width), side, np.arange(height)[:, None], np.arange(width))
    return np.broadcast_to(in_plane, shape)


def block_at(shape: tuple[int, ...], side: int, row: np.ndarray, column: np.ndarray) -> np.ndarray:
    """int32: `blocks` at the given pixels, in the shape of their rows and columns."""
    down, across = (
        (np.asarray(place, np.int64) * side // n).astype(np.int32)
        for place, n in zip((row, column), shape, strict=True)
    )
    return down * side + across


def strokes(labelled: LabelledSet, n_groups: int, seed: tuple[int, ...]) -> list[np.ndarray]:
    """(H,W) int32 groups of each painted image, see `stroke_groups`; each unpainted pixel joins the nearest stroke.

    The slices of a volume are laid upon one another, too.
    """
    is_painted = [image.target != UNLABELLED_INDEX for image in labelled]
    painted = [(*np.nonzero(mask)[-2:], image.target[mask]) for image, mask in zip(labelled, is_painted, strict=True)]
    laid = any(len(as_volume(mask)) > 1 for mask in is_painted)
    sides = (labelled.anisotropy, 1, 1)
    groups = []
    for mask, own in zip(is_painted, stroke_groups(painted, labelled.subjects, n_groups, seed, laid), strict=True):
        group = np.zeros(mask.shape, np.int32)
        group[mask] = own
        nearest = ndimage.distance_transform_edt(
            ~mask, sampling=sides[-mask.ndim :], return_distances=False, return_indices=True
        )
        groups.append(np.ascontiguousarray(group[tuple(nearest)]))
    return groups


def stroke_groups(
    painted: Sequence[Painted],
    subjects: Sequence[Sequence[int]],
    n_groups: int,
    seed: tuple[int, ...],
    laid: bool = False,
) -> list[np.ndarray]:
    """(n,) int32 groups, from 0, of the painted pixels of each image, which come in reading order.

    The images of a subject are laid upon one another, because their strokes at the same place are nearly the same.
    laid: whether the pixels of one image are those of several slices laid upon one another
    """
    groups = dict[int, np.ndarray]()
    for subject in subjects:
        rng = np.random.default_rng((*seed, subject[0]))
        row, column, target = (np.concatenate(field) for field in zip(*(painted[i] for i in subject), strict=True))
        together = _stroke_groups(row, column, target, n_groups, laid or len(subject) > 1, rng)
        ends = np.cumsum([len(painted[i][0]) for i in subject])
        groups.update(zip(subject, np.split(together, ends[:-1]), strict=True))
    return [groups[i] for i in range(len(painted))]


def _stroke_groups(
    row: np.ndarray, column: np.ndarray, target: np.ndarray, n_groups: int, is_divided: bool, rng: np.random.Generator
) -> np.ndarray:
    """(n,) int32 groups of painted pixels: the strokes of each class are dealt out in turn, the longest first.

    is_divided: whether the strokes of a class that has too few of them are divided into blocks
    """
    group, width = np.zeros(len(target), np.int32), int(column.max(initial=0)) + 1
    for value in np.unique(target):
        mine = np.flatnonzero(target == value)
        place, again = np.unique(row[mine].astype(np.int64) * width + column[mine], return_inverse=True)
        piece = _connected_pieces(place // width, place % width, width)
        if is_divided and piece.max() + 1 < n_groups:
            size = int(row.max()) + 1, width
            block = block_at(size, BLOCKS_PER_SIDE, place // width, place % width)
            piece = np.unique(block, return_inverse=True)[1]
        piece = piece[again]
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


def choose_pixels(
    target: np.ndarray, config: SamplingConfig, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Slices, rows and columns (S,) of the labelled pixels of target (Z,H,W) to train on, in reading order.

    "grid": a random `fraction` of every `step`-th row and column of each slice (the paper's zebrafish experiment). Each
    class is topped up to `at_least` pixels from anywhere, so that thin scribbles and small objects are not lost between
    the lines.
    "per_class": `per_class` pixels of each class, or all there are (the paper's Kinect experiment).
    """
    place = np.flatnonzero(target != UNLABELLED_INDEX)
    z, rows, columns = np.unravel_index(
        place[chosen(place, target.ravel()[place], target.shape, config, rng)], target.shape
    )
    return z, rows, columns


def chosen(
    place: np.ndarray, target: np.ndarray, size: tuple[int, ...], config: SamplingConfig, rng: np.random.Generator
) -> np.ndarray:
    """(n,) bool: the labelled pixels that `choose_pixels` chooses of an image or a volume of this size.

    place: (n,) their ascending places in the flattened image; target: (n,) uint8 class indices
    """
    is_chosen = np.zeros(len(place), bool)
    if config.kind == "grid":
        is_chosen = _drawn_from_grid(place, size, config, rng)
    wanted = config.at_least if config.kind == "grid" else config.per_class
    n_chosen = np.bincount(target[is_chosen], minlength=UNLABELLED_INDEX)
    for value in np.flatnonzero(np.bincount(target)):
        missing = wanted - int(n_chosen[value])
        if missing > 0:
            others = np.flatnonzero((target == value) & ~is_chosen)
            is_chosen[rng.choice(others, min(missing, len(others)), replace=False)] = True
    return is_chosen


def _drawn_from_grid(
    place: np.ndarray, size: tuple[int, ...], config: SamplingConfig, rng: np.random.Generator
) -> np.ndarray:
    """(n,) bool: pixels on the grid whose random number is below the fraction; each place on the grid has a number."""
    step, (height, width) = config.step, size[-2:]
    row, column = np.divmod(place, width)
    z, row = np.divmod(row, height)
    on_grid = np.flatnonzero((row % step == 0) & (column % step == 0))
    grid_height, grid_width = -(-height // step), -(-width // step)
    row, column = (z * grid_height + row // step)[on_grid], column[on_grid] // step
    n_rows = math.prod(size[:-2]) * grid_height
    is_drawn, n_at_once = np.zeros(len(place), bool), max(NUMBERS_AT_ONCE // grid_width, 1)
    for top in range(0, n_rows, n_at_once):
        numbers = rng.random((min(n_at_once, n_rows - top), grid_width))
        here = slice(*np.searchsorted(row, [top, top + n_at_once]))
        is_drawn[on_grid[here]] = numbers[row[here] - top, column[here]] < config.fraction
    return is_drawn


def number_type(n_pixels: int) -> np.dtype:
    """The type of pixel numbers: the narrower one where it suffices, since growing reads little else."""
    return np.dtype(np.int32 if n_pixels < MIN_INT64_PIXELS else np.int64)


@dataclass(frozen=True)
class Samples:
    """S training pixels; all arrays are (S,) of `number_type`. z: slice; pixel: number among the pixels of all
    images."""

    z: np.ndarray
    row: np.ndarray
    column: np.ndarray
    image: np.ndarray
    pixel: np.ndarray
    target: np.ndarray
    group: np.ndarray

    def __len__(self) -> int:
        return len(self.row)


def draw_samples(images: Sequence[LabelledImage], config: StackConfig) -> Samples:
    """Training pixels of all images, image by image in reading order."""
    parts, start = [], 0
    for i, image in enumerate(images):
        assert image.group is not None
        target, group = as_volume(image.target), as_volume(image.group)
        z, row, column = choose_pixels(target, config.sampling, np.random.default_rng((config.seed, 2, i)))
        pixel = start + np.ravel_multi_index((z, row, column), target.shape)
        here = z, row, column
        parts.append([*here, np.full_like(row, i), pixel, target[here], group[here]])
        start += target.size
    return limited([np.concatenate(field).astype(number_type(start)) for field in zip(*parts, strict=True)], config)


def limited(fields: list[np.ndarray], config: StackConfig) -> Samples:
    """The samples with these fields, (S,) each, or a random part of them if there are too many."""
    n, most = len(fields[0]), config.sampling.max_samples
    if n > most:
        rng = np.random.default_rng((config.seed, 5))
        is_used = np.zeros(n, bool)
        is_used[rng.choice(n, most, replace=False)] = True
        target = fields[5]
        for value in np.unique(target):  # a rare class must not vanish
            is_used[rng.permutation(np.flatnonzero(target == value))[: config.sampling.at_least]] = True
        fields = [field[is_used] for field in fields]
    return Samples(*fields)
