"""`LabelledSet`, the one container for images with labels: checked once, wherever they come from."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias, TypeVar, overload

import numpy as np

from hedgerow.errors import InputError
from hedgerow.files import fingerprint
from hedgerow.images.array_checks import (
    UNLABELLED_INDEX,
    Layout,
    check_channels,
    check_pair,
    encode_labels,
    filled_labels,
    is_volume,
    nothing_labelled,
    to_labels,
    to_planes,
)
from hedgerow.images.classes import ClassTable, check_unlabelled
from hedgerow.images.legend import Legend
from hedgerow.images.metrics import Scores, confusion

Item = TypeVar("Item")
Images: TypeAlias = Sequence[np.ndarray] | np.ndarray | str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""What public functions accept as images or labels: an array, a sequence of arrays, or files: a folder, a file, a glob,
or a sequence of these."""
MAX_LABEL_VALUES = 64  # an image with more values is not a label map


class LazySequence(Sequence[Item]):
    """n items, each made on request, so that only one at a time is in memory."""

    def __init__(self, n: int, make: Callable[[int], Item]) -> None:
        self._n, self._make = n, make

    def __len__(self) -> int:
        return self._n

    @overload
    def __getitem__(self, i: int) -> Item: ...
    @overload
    def __getitem__(self, i: slice) -> Sequence[Item]: ...
    def __getitem__(self, i: int | slice) -> Item | Sequence[Item]:
        if isinstance(i, slice):
            places = range(self._n)[i]
            return LazySequence(len(places), lambda k: self._make(places[k]))
        return self._make(range(self._n)[i])


def image_mark(planes: np.ndarray) -> str:
    """16 digits that tell an image (C,H,W) from any other."""
    return fingerprint(planes)[:16]


@dataclass(frozen=True)
class LabelledImage:
    """One image with labels, or one volume.

    planes:  (C,H,W) float32; of a volume (C,Z,H,W), and the arrays below are (Z,H,W)
    target:  (H,W) uint8 class index, UNLABELLED_INDEX where there is no label
    name:    for messages
    subject: the patient, slide or stack that it comes from, whose images are held out together; "": it is on its own
    group:   (H,W) int32: pixels of one group are held out together; None: not needed
    is_copy: whether this is an altered copy of another image
    """

    planes: np.ndarray
    target: np.ndarray
    name: str = "an image"
    subject: str = ""
    group: np.ndarray | None = None
    is_copy: bool = False

    @cached_property
    def mark(self) -> str:
        """16 digits that tell this image from any other, whatever its labels: models remember what they have seen."""
        return image_mark(self.planes)

    @property
    def size(self) -> tuple[int, ...]:
        """(H,W), or (Z,H,W) of a volume"""
        return self.target.shape

    @property
    def is_volume(self) -> bool:
        return self.planes.ndim == 4


@dataclass(frozen=True)
class LabelledSet:
    """Images with labels, or volumes with labels, all with the same channels and classes.

    images:     in memory, or made on request
    classes:    (C,) class values as given in the labels; `target` holds indices into them
    unlabelled: the label value that means "no label"
    dtype:      of the first image as it was given
    table:      the number of pixels of each class, if the classes were taken from these labels
    legend:     names and colours of the classes
    anisotropy: distance between the slices of volumes, in pixels
    """

    images: Sequence[LabelledImage]
    classes: tuple[int, ...]
    unlabelled: int = 255
    dtype: str = ""
    table: ClassTable | None = None
    legend: Legend = Legend()
    anisotropy: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "unlabelled", check_unlabelled(self.unlabelled))

    def __len__(self) -> int:
        return len(self.images)

    def __iter__(self) -> Iterator[LabelledImage]:
        return iter(self.images)

    @property
    def n_classes(self) -> int:
        return len(self.classes)

    @cached_property
    def is_volume(self) -> bool:
        """Whether these are volumes; a set has either images or volumes."""
        return len(self) > 0 and self.images[0].is_volume

    @cached_property
    def subjects(self) -> list[list[int]]:
        """The numbers of the images of each subject, in the order of their first images."""
        return subjects_of([image.subject for image in self])

    def truth(self, i: int) -> np.ndarray:
        """(H,W) class values of image i, or the unlabelled value."""
        return self.values(self.images[i].target)

    def values(self, target: np.ndarray) -> np.ndarray:
        """Class values of class indices (H,W); UNLABELLED_INDEX becomes the unlabelled value."""
        table = np.full(UNLABELLED_INDEX + 1, self.unlabelled, np.int32)
        table[: self.n_classes] = self.classes
        return table[target]

    def pictures(self) -> list[np.ndarray]:
        """(H,W,C) views of the images, as public functions take them; (Z,H,W,C) of volumes."""
        return [np.moveaxis(image.planes, 0, -1) for image in self]

    def score(self, predicted: Sequence[np.ndarray]) -> Scores:
        """Scores of class indices (H,W), one map for each image."""
        tables = [confusion(image.target, index, self.n_classes) for image, index in zip(self, predicted, strict=True)]
        return Scores(self.classes, np.sum(tables, axis=0))

    def with_classes_of(self, train: LabelledSet) -> LabelledSet:
        """The same images with the classes of the training images, which must have all of them, and their channels."""
        same = replace(self, unlabelled=train.unlabelled)  # `target` says where it is
        n_inputs, known = len(train.images[0].planes), (train.classes, train.unlabelled)
        images = [
            labelled_image(image.planes, same.truth(i), *known, n_inputs, "planes", image.name)
            for i, image in enumerate(self)
        ]
        return replace(same, images=images, classes=train.classes)


def subjects_of(names: Iterable[str]) -> list[list[int]]:
    """The numbers of the images of each subject, given the subject of each image; an image of subject "" is on its
    own."""
    numbers: dict[str | int, list[int]] = {}
    for i, name in enumerate(names):
        numbers.setdefault(name or i, []).append(i)
    return list(numbers.values())


def refuse_swapped(images: Sequence[np.ndarray], labels: Sequence[np.ndarray]) -> None:
    """Raise InputError if all images could be label maps, (H,W) with few whole numbers, and no label map could."""
    if all(map(_is_like_labels, images)) and all(map(_is_like_picture, labels)):
        raise InputError("images and labels look swapped; give the images first, then their labels.")


def _is_like_labels(image: np.ndarray) -> bool:
    array = np.asarray(image)
    return array.ndim == 2 and array.dtype.kind in "bui" and 2 <= len(np.unique(array)) <= MAX_LABEL_VALUES


def _is_like_picture(labels: np.ndarray) -> bool:
    array = np.asarray(labels)
    return array.ndim == 3 or len(np.unique(array)) > MAX_LABEL_VALUES


def labelled_image(
    image: np.ndarray, labels: np.ndarray, classes: Sequence[int], unlabelled: int, n_inputs: int, layout: Layout,
    name: str,
) -> LabelledImage:  # fmt: skip
    """An image and labels for a model with known classes and channels; errors name the image."""
    try:
        return _labelled_image(image, labels, classes, unlabelled, n_inputs, layout, name)
    except InputError:
        refuse_swapped([image], [labels])
        raise


def _labelled_image(
    image: np.ndarray, labels: np.ndarray, classes: Sequence[int], unlabelled: int, n_inputs: int, layout: Layout,
    name: str,
) -> LabelledImage:  # fmt: skip
    checked = to_labels(filled_labels(labels, unlabelled), f"the label map of {name}", is_volume(image, layout))
    planes = to_planes(image, name, layout)
    check_pair(planes, checked, name)
    check_channels(len(planes), n_inputs, name)
    target = encode_labels(checked, classes, unlabelled, f"the label map of {name}")
    if (target == UNLABELLED_INDEX).all():
        raise nothing_labelled(f"the label map of {name}", unlabelled)
    return LabelledImage(planes, target, name)
