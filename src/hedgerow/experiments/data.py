"""Labelled images for experiments: drawn sets, and folders with images/, labels/, train.txt and test.txt."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hedgerow import synthetic
from hedgerow.config import AugmentConfig
from hedgerow.errors import InputError
from hedgerow.images.altering import augmented_copy
from hedgerow.images.arrays import UNLABELLED_INDEX, to_planes
from hedgerow.images.labelled import TrainingImage
from hedgerow.images.pairing import pair_files
from hedgerow.images.reading import read_image, read_labels

DRAWN = {"somites": synthetic.somites, "bodies": synthetic.bodies}
N_DRAWN = 16
TRAIN_SEED, TEST_SEED = 0, 1000


@dataclass(frozen=True)
class ImageSet:
    """Images, each (H,W[,C]), and their label maps, each (H,W), in the same order."""

    images: list[np.ndarray]
    labels: list[np.ndarray]


def load_set(data: str, part: str, half: bool = False, depth: bool = False) -> ImageSet:
    """The `part`, "train" or "test", of "somites", "bodies" or a folder; `half` and `depth` as in `halved`."""
    if data in DRAWN:
        found = ImageSet(*DRAWN[data](N_DRAWN, seed=TRAIN_SEED if part == "train" else TEST_SEED))
    else:
        found = _listed_in_folder(Path(data), part)
    return shrunk(found, 2, depth) if half else found


def shrunk(found: ImageSet, times: int, depth: bool = False) -> ImageSet:
    """Halved until they are so many times smaller along each side, a power of two; `depth` as in `halved`."""
    for _ in range(times.bit_length() - 1):
        images = [halved(image, depth) for image in found.images]
        found = ImageSet(images, [label[::2, ::2] for label in found.labels])
    return found


def spread(found: ImageSet, n: int | None) -> ImageSet:
    """n of the images, evenly chosen; all of them if there are no more, or for None."""
    if n is None or n >= len(found.images):
        return found
    chosen = [i * len(found.images) // n for i in range(n)]
    return ImageSet([found.images[i] for i in chosen], [found.labels[i] for i in chosen])


def every_nth(found: ImageSet, n: int) -> ImageSet:
    """Every n-th image with its labels, from the first on."""
    if n < 1:
        raise InputError(f"every {n}-th image was asked for (--every); give 1 or more.")
    return ImageSet(found.images[::n], found.labels[::n])


def _listed_in_folder(folder: Path, part: str) -> ImageSet:
    """Those that `part`.txt of the folder lists by their stems."""
    listing = folder / f"{part}.txt"
    try:
        stems = listing.read_text(encoding="utf-8").split()
    except OSError as problem:
        raise InputError(
            f"cannot read {listing}: {problem.strerror}; list the image names in it, a line each."
        ) from None
    if not stems:
        raise InputError(f"{listing} is empty; list the names of the {part} images in it, a line each.")
    pairs = {pair.stem: pair for pair in pair_files(folder / "images", folder / "labels")}
    missing = [stem for stem in stems if stem not in pairs]
    if missing:
        raise InputError(f"{listing} lists {missing[0]}, but {folder / 'images'} has no such image; correct the list.")
    chosen = [pairs[stem] for stem in stems]
    return ImageSet([read_image(pair.image) for pair in chosen], [read_labels(pair.label) for pair in chosen])


def halved(image: np.ndarray, depth: bool = False) -> np.ndarray:
    """An image (H,W[,C]) at half resolution, rounded up: the mean of every 2 x 2 pixels, float32.

    `depth`: the first of them, since the mean of a depth and a missing one is neither. So are labels to be halved.
    """
    if depth:
        return image[::2, ::2]
    odd = [(0, side % 2) for side in image.shape[:2]] + [(0, 0)] * (image.ndim - 2)
    whole = np.pad(image.astype(np.float32), odd, mode="edge")
    return (whole[::2, ::2] + whole[1::2, ::2] + whole[::2, 1::2] + whole[1::2, 1::2]) / 4


def with_copies(train: ImageSet, augment: AugmentConfig, seed: int, unlabelled: int = 255) -> ImageSet:
    """The images, each followed by its altered copies; what comes in from outside an image is unlabelled."""
    images, labels = [], []
    for i, (image, label) in enumerate(zip(train.images, train.labels, strict=True)):
        images.append(image)
        labels.append(label)
        # The place of each pixel stands in for its label, so that any class values can be altered.
        places = np.arange(label.size, dtype=np.int32).reshape(label.shape)
        whole = TrainingImage(to_planes(image), np.zeros(label.shape, np.uint8), places)
        for number in range(augment.copies):
            copy = augmented_copy(whole, augment, np.random.default_rng((seed, i, number)))
            images.append(_as(copy.planes, image))
            labels.append(np.where(copy.target == UNLABELLED_INDEX, unlabelled, label.ravel()[copy.group]))
    return ImageSet(images, labels)


def _as(planes: np.ndarray, image: np.ndarray) -> np.ndarray:
    """Planes (C,H,W) in the layout and number type of an image (H,W[,C])."""
    values = np.moveaxis(planes, 0, 2) if image.ndim == 3 else planes[0]
    if not np.issubdtype(image.dtype, np.integer):
        return values.astype(image.dtype)
    limits = np.iinfo(image.dtype)
    return np.clip(np.rint(values), limits.min, limits.max).astype(image.dtype)
