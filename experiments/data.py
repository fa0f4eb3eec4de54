"""Labelled images for experiments: sets drawn by generators, and folders with images/, labels/ and two lists."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from hedgerow import synthetic
from hedgerow.config import AugmentConfig
from hedgerow.errors import InputError
from hedgerow.images.altering import augmented_copy
from hedgerow.images.classes import UNLABELLED
from hedgerow.images.given import labelled_set
from hedgerow.images.label_files import read_labels
from hedgerow.images.labelled import LabelledImage, LabelledSet
from hedgerow.images.pairing import pair_files
from hedgerow.images.reading import read_image

Item = TypeVar("Item")
DRAWN: dict[str, Callable[..., synthetic.ImagesAndLabels]] = {
    "somites": synthetic.somites,
    "siblings": partial(synthetic.somites, variety=0.0),
    "bodies": synthetic.bodies,
}
N_DRAWN = 16
SEEDS = {"train": 0, "test": 1000}


def load_set(data: str, part: str, n: int | None = None, size: tuple[int, int] | None = None) -> LabelledSet:
    """The images of a part, "train" or "test", of a drawn set or a folder.

    n:    number of images, spread evenly over the folder's list; None: all in the list, or the default number
    size: (H,W) of drawn images; None: the generator's default
    """
    if data in DRAWN:
        sized = {} if size is None else {"size": size}
        images, labels = DRAWN[data](n or N_DRAWN, seed=SEEDS[part], **sized)
        return labelled_set(images, measured(images, labels) if data == "bodies" else labels)
    folder, stems = Path(data), _listed(Path(data), part)
    pairs = {pair.stem: pair for pair in pair_files(folder / "images", folder / "labels")}
    missing = [stem for stem in stems if stem not in pairs]
    if missing:
        raise InputError(
            f"{folder / part}.txt lists {missing[0]}, but {folder / 'images'} has no such image; correct the list."
        )
    chosen = [pairs[stem] for stem in spread(stems, n)]
    images, labels = [read_image(pair.image) for pair in chosen], [read_labels(pair.label) for pair in chosen]
    return labelled_set(images, labels, names=[str(pair.image) for pair in chosen])


def measured(depths: Sequence[np.ndarray], labels: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The labels of depth images, without labels of body parts at pixels with missing depth.

    The background has no depth either, so no method can tell whether such pixels belong to a body.
    """
    background = synthetic.BODY_PART_NAMES.index("background")
    return [
        np.where((depth == 0) & (label != background), UNLABELLED, label).astype(label.dtype)
        for depth, label in zip(depths, labels, strict=True)
    ]


def _listed(folder: Path, part: str) -> list[str]:
    """The names in the folder's list of a part."""
    listing = folder / f"{part}.txt"
    try:
        stems = listing.read_text(encoding="utf-8").split()
    except OSError as problem:
        raise InputError(
            f"cannot read {listing}: {problem.strerror}; list the image names in it, one per line."
        ) from None
    if not stems:
        raise InputError(f"{listing} is empty; list the names of the {part} images in it, one per line.")
    return stems


def spread(items: Sequence[Item], n: int | None) -> Sequence[Item]:
    """n of the items, evenly spaced; all of them if n is None or too large."""
    return items if n is None or n >= len(items) else [items[i * len(items) // n] for i in range(n)]


def shrunk(labelled: LabelledSet, times: int, is_depth: bool = False) -> LabelledSet:
    """The images, halved until each side is `times` times smaller, a power of two; `is_depth` as in `halved`."""
    for _ in range(times.bit_length() - 1):
        smaller = [
            replace(image, planes=halved(image.planes, is_depth), target=image.target[::2, ::2]) for image in labelled
        ]
        labelled = replace(labelled, images=smaller, dtype=labelled.dtype if is_depth else "float32")
    return labelled


def halved(planes: np.ndarray, is_depth: bool = False) -> np.ndarray:
    """An image (C,H,W) at half resolution, rounded up: the mean of every 2 x 2 pixels.

    is_depth: the first of every 2 x 2 pixels instead, because a mean with missing depths is wrong; as for labels
    """
    if is_depth:
        return planes[:, ::2, ::2]
    whole = np.pad(planes, [(0, 0), *((0, side % 2) for side in planes.shape[1:])], mode="edge")
    return (whole[:, ::2, ::2] + whole[:, 1::2, ::2] + whole[:, ::2, 1::2] + whole[:, 1::2, 1::2]) / 4


def recounted(labelled: LabelledSet) -> LabelledSet:
    """The same images, with only the classes that still occur in them."""
    planes, names = [image.planes for image in labelled], [image.name for image in labelled]
    labels = [labelled.truth(i) for i in range(len(labelled))]
    again = labelled_set(planes, labels, layout="planes", unlabelled=labelled.unlabelled, names=names)
    return replace(again, dtype=labelled.dtype)


def present(labelled: LabelledSet) -> set[int]:
    """The class values that occur in the images."""
    return {int(value) for i in range(len(labelled)) for value in np.unique(labelled.truth(i))} - {labelled.unlabelled}


def with_copies(train: LabelledSet, augment: AugmentConfig, seed: int) -> LabelledSet:
    """The images, each followed by its altered copies, rounded if the images hold whole numbers."""
    images: list[LabelledImage] = []
    for i, image in enumerate(train):
        images.append(image)
        for number in range(augment.copies):
            copy = augmented_copy(image, augment, np.random.default_rng((seed, i, number)))
            images.append(replace(copy, planes=_rounded(copy.planes, train.dtype), is_copy=False))
    return recounted(replace(train, images=images))


def _rounded(planes: np.ndarray, dtype: str) -> np.ndarray:
    """The planes, rounded if the data type holds only whole numbers."""
    if not np.issubdtype(dtype, np.integer):
        return planes
    limits = np.iinfo(dtype)
    return np.clip(np.rint(planes), limits.min, limits.max)
