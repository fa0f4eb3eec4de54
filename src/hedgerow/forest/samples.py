"""The choice of the images and pixels that train the trees, and of the images that score a refinement."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hedgerow.config import SamplingConfig, StackConfig
from hedgerow.errors import InputError
from hedgerow.forest.groups import BLOCKS_PER_SIDE, FEW_IMAGES, blocks
from hedgerow.images.array_checks import UNLABELLED_INDEX, as_volume
from hedgerow.images.labelled import LabelledImage, LabelledSet

MIN_INT64_PIXELS = 2**31  # from this many pixels on, the number of a pixel takes eight bytes
MAX_HELD_OUT_IMAGES = 32  # each image that scores a refinement is predicted at every check
_BAND = 2**20  # random numbers that are drawn at once


def split_reserved(labelled: LabelledSet, part: float, seed: int) -> tuple[list[LabelledImage], list[LabelledImage]]:
    """The images to train on, which keep every class, and those that are reserved to score the model."""
    images = list(labelled)
    if part == 0:
        return images, []
    here = [set(np.unique(image.target[image.target != UNLABELLED_INDEX]).tolist()) for image in images]
    trained, reserved = set(range(len(images))), list[int]()
    for i in np.random.default_rng((seed, 8)).permutation(len(images)).tolist():
        others = set().union(*(here[k] for k in trained if k != i))
        if here[i] <= others and len(reserved) < max(round(part * len(images)), 1):
            reserved.append(i)
            trained.remove(i)
    if not reserved:
        raise InputError(
            "no image can be reserved: every one holds a class that no other image has, or is the only image; label "
            "more images."
        )
    return [images[i] for i in sorted(trained)], [images[i] for i in sorted(reserved)]


def hold_out(labelled: LabelledSet, part: float, seed: int) -> tuple[list[LabelledImage], list[LabelledImage]]:
    """The images to train on, and at most MAX_HELD_OUT_IMAGES that score; few images are divided into blocks."""
    images = list(labelled)
    if part == 0:
        return images, []
    rng = np.random.default_rng((seed, 5))
    if len(images) >= FEW_IMAGES:
        n = min(max(round(part * len(images)), 1), MAX_HELD_OUT_IMAGES, len(images) - 1)
        chosen = set(rng.permutation(len(images))[:n].tolist())
        return [image for i, image in enumerate(images) if i not in chosen], [images[i] for i in sorted(chosen)]
    trained, held = [], []
    for image in images:
        block = blocks(image.size, BLOCKS_PER_SIDE)
        known = np.unique(block[image.target != UNLABELLED_INDEX])
        n = min(max(round(part * len(known)), 1), len(known) - 1)
        is_held = np.isin(block, rng.permutation(known)[:n])
        trained.append(replace(image, target=np.where(is_held, UNLABELLED_INDEX, image.target).astype(np.uint8)))
        if n:
            held.append(replace(image, target=np.where(is_held, image.target, UNLABELLED_INDEX).astype(np.uint8)))
    return trained, held


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
    is_drawn, band = np.zeros(len(place), bool), max(_BAND // grid_width, 1)
    for top in range(0, n_rows, band):
        numbers = rng.random((min(band, n_rows - top), grid_width))
        here = slice(*np.searchsorted(row, [top, top + band]))
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
