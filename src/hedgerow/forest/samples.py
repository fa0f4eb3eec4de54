"""Which images and pixels train the trees, and which score a refinement."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hedgerow.config import SamplingConfig, StackConfig
from hedgerow.errors import InputError
from hedgerow.forest.groups import BLOCKS_PER_SIDE, FEW_IMAGES, blocks
from hedgerow.images.array_checks import UNLABELLED_INDEX, as_volume
from hedgerow.images.labelled import LabelledImage, LabelledSet

MIN_INT64_PIXELS = 2**31  # pixels, from which on their numbers take eight bytes
MAX_HELD_OUT_IMAGES = (
    32  # images that score a refinement, at most: each is predicted at every check, and there may be thousands
)


def split_reserved(labelled: LabelledSet, part: float, seed: int) -> tuple[list[LabelledImage], list[LabelledImage]]:
    """The images to train on, and those that are kept to score the model; no class is lost by it."""
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
            "no image can be kept from training (reserve) without losing a class or all images; label more images."
        )
    return [images[i] for i in sorted(trained)], [images[i] for i in sorted(reserved)]


def hold_out(labelled: LabelledSet, part: float, seed: int) -> tuple[list[LabelledImage], list[LabelledImage]]:
    """The images to train on, and at most MAX_HELD_OUT_IMAGES to score; if there are few, blocks of each."""
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

    "grid": a random `fraction` of every `step`-th row and column of each slice (the paper's zebrafish experiment),
    topped up to `at_least` of each class from anywhere, so that thin scribbles and small objects are not lost between
    the lines.
    "per_class": `per_class` pixels of each class, or all there are (the paper's Kinect experiment).
    """
    chosen = np.zeros(target.shape, bool)
    if config.kind == "grid":
        lattice = target[:, :: config.step, :: config.step]
        on_lattice = (rng.random(lattice.shape) < config.fraction) & (lattice != UNLABELLED_INDEX)
        chosen[:, :: config.step, :: config.step] = on_lattice
        for value in np.unique(target[target != UNLABELLED_INDEX]):
            places = np.flatnonzero((target == value) & ~chosen)
            missing = config.at_least - int(np.count_nonzero(lattice[on_lattice] == value))
            if missing > 0:
                chosen.ravel()[rng.choice(places, min(missing, len(places)), replace=False)] = True
    else:
        for value in np.unique(target[target != UNLABELLED_INDEX]):
            places = np.flatnonzero(target == value)
            chosen.ravel()[rng.choice(places, min(len(places), config.per_class), replace=False)] = True
    z, rows, columns = np.nonzero(chosen)
    return z, rows, columns


def number_type(n_pixels: int) -> np.dtype:
    """Of the numbers of so many pixels: half as wide where that will do, since growing reads little else."""
    return np.dtype(np.int32 if n_pixels < MIN_INT64_PIXELS else np.int64)


@dataclass(frozen=True)
class Samples:
    """S training pixels. z (slice), row, column, image, pixel (among all pixels), target, group: (S,) of
    `number_type`."""

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
        chosen = z, row, column
        parts.append([*chosen, np.full_like(row, i), pixel, target[chosen], group[chosen]])
        start += target.size
    return limited([np.concatenate(field).astype(number_type(start)) for field in zip(*parts, strict=True)], config)


def limited(fields: list[np.ndarray], config: StackConfig) -> Samples:
    """The samples with these fields, (S,) each, or some of them if there are too many."""
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
