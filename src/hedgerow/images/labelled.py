"""`LabelledSet`, the one container for images with labels: checked once, wherever they come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar, overload

import numpy as np

from hedgerow.errors import InputError
from hedgerow.files import fingerprint
from hedgerow.images.array_checks import (
    UNLABELLED_INDEX,
    Layout,
    check_pair,
    encode_labels,
    filled_labels,
    to_labels,
    to_planes,
)
from hedgerow.images.classes import ClassTable, check_unlabelled, count_classes
from hedgerow.images.legend import Legend, check_names_differ
from hedgerow.images.metrics import Scores, confusion
from hedgerow.images.stored import MAX_CHANNELS

Item = TypeVar("Item")
MAX_INPUTS = MAX_CHANNELS


@dataclass(frozen=True)
class LabelledImage:
    """One image with labels.

    planes:  (C,H,W) float32
    target:  (H,W) uint8 class index, UNLABELLED_INDEX where there is no label
    name:    for messages
    group:   (H,W) int32: pixels of one group are held out together; None: not needed
    is_copy: whether this is an altered copy of another image
    """

    planes: np.ndarray
    target: np.ndarray
    name: str = "an image"
    group: np.ndarray | None = None
    is_copy: bool = False

    @cached_property
    def mark(self) -> str:
        """16 digits that tell this image from any other, whatever its labels: models remember what they have seen."""
        return fingerprint(self.planes)[:16]

    @property
    def size(self) -> tuple[int, int]:
        """(H, W)"""
        return self.target.shape[0], self.target.shape[1]


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


@dataclass(frozen=True)
class LabelledSet:
    """Images with labels, all with the same channels and classes.

    images:     in memory, or made on request
    classes:    (C,) class values as given in the labels; `target` holds indices into them
    unlabelled: the label value that means "no label"
    dtype:      of the first image as it was given
    table:      the number of pixels of each class, if the classes were taken from these labels
    legend:     names and colours of the classes
    """

    images: Sequence[LabelledImage]
    classes: tuple[int, ...]
    unlabelled: int = 255
    dtype: str = ""
    table: ClassTable | None = None
    legend: Legend = Legend()

    def __post_init__(self) -> None:
        object.__setattr__(self, "unlabelled", check_unlabelled(self.unlabelled))

    def __len__(self) -> int:
        return len(self.images)

    def __iter__(self) -> Iterator[LabelledImage]:
        return iter(self.images)

    @property
    def n_classes(self) -> int:
        return len(self.classes)

    def truth(self, i: int) -> np.ndarray:
        """(H,W) class values of image i, or the unlabelled value."""
        return self.values(self.images[i].target)

    def values(self, target: np.ndarray) -> np.ndarray:
        """Class values of class indices (H,W); UNLABELLED_INDEX becomes the unlabelled value."""
        table = np.full(UNLABELLED_INDEX + 1, self.unlabelled, np.int32)
        table[: self.n_classes] = self.classes
        return table[target]

    def pictures(self) -> list[np.ndarray]:
        """(H,W,C) views of the images, as public functions take them."""
        return [np.moveaxis(image.planes, 0, 2) for image in self]

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


def named(names: Sequence[str] | None, n: int, what: str = "image") -> list[str]:
    """The names given for n images, or numbered ones; raises InputError unless there is one for each."""
    names = [f"{what} {i}" for i in range(n)] if names is None else list(names)
    if len(names) != n:
        raise InputError(f"there are {len(names)} name(s) for {n} image(s); give one for each.")
    return names


Images = Any  # Sequence[np.ndarray] | np.ndarray, of which an array can be the former, too
"""What public functions take for images or labels: a sequence of them, or one as it is."""


def listed(images: Images, labels: Images) -> tuple[Sequence[np.ndarray], Sequence[np.ndarray]]:
    """Images and labels as sequences: one image (H,W[,C]), or planes (F,H,W), may come with labels (H,W) as it is.

    The labels decide, since a three-dimensional array of images may be one or many.
    """
    if _n_axes(labels) == 2:
        is_list = _n_axes(images) is None and len(images) == 1  # one image, already in a list
        return (images if is_list else [np.asanyarray(images)]), [np.asanyarray(labels)]
    return ([np.asanyarray(images)] if _n_axes(images) == 2 else images), labels


def listed_for(images: Images, n_inputs: int, layout: Layout) -> tuple[Sequence[np.ndarray], bool]:
    """Images without labels as a sequence, and whether one was given as it is.

    An image of a model that reads several channels, or planes, has three axes; of one channel, two, or a third of 1.
    """
    n_axes = _n_axes(images)
    is_one = n_axes == 2 or (n_axes == 3 and (layout == "planes" or n_inputs > 1 or np.shape(images)[2] == 1))
    return ([np.asanyarray(images)] if is_one else images), is_one


def _n_axes(images: Images) -> int | None:
    """The axes of an array; None: it is a list of arrays, or another sequence of them."""
    return getattr(images, "ndim", None)


def check_count(images: Sequence[Any], labels: Sequence[Any]) -> None:
    """Refuse a set that is empty, or in which images and labels do not pair up."""
    if len(images) == 0 or len(images) != len(labels):
        raise InputError(
            f"there are {len(images)} image(s) and {len(labels)} label map(s); give one label map for each image."
        )


def labelled_set(
    images: Images,
    labels: Images,
    *,
    layout: Layout = "picture",
    unlabelled: int = 255,
    names: Sequence[str] | None = None,
    legend: Legend | None = None,
) -> LabelledSet:
    """Images and labels (H,W) to learn from; the classes are those found in the labels."""
    unlabelled = check_unlabelled(unlabelled)  # before the pixels are touched
    images, labels = listed(images, labels)
    check_count(images, labels)
    names = named(names, len(images))
    legend = legend or Legend()
    check_names_differ(legend)
    maps = [
        to_labels(filled_labels(values, unlabelled), f"the label map of {name}")
        for values, name in zip(labels, names, strict=True)
    ]
    planes = [to_planes(image, name, layout) for image, name in zip(images, names, strict=True)]
    return checked_set(planes, maps, names, unlabelled, str(np.asarray(images[0]).dtype), legend)


def checked_set(
    planes: Sequence[np.ndarray], maps: Sequence[np.ndarray], names: Sequence[str], unlabelled: int, dtype: str,
    legend: Legend,
) -> LabelledSet:  # fmt: skip
    """The set of images (C,H,W), as `to_planes` checks each of them, and labels (H,W), as `to_labels` does."""
    for i, name in enumerate(names):
        check_pair(planes[i], maps[i], name)
        if len(planes[i]) != len(planes[0]):
            raise InputError(
                f"{name} has {len(planes[i])} channel(s) but {names[0]} has {len(planes[0])}; "
                "all images of a set need the same channels."
            )
    if len(planes[0]) > MAX_INPUTS:
        raise InputError(f"{names[0]} has {len(planes[0]):,} channels; give images with at most {MAX_INPUTS:,}.")
    table = count_classes(maps, unlabelled, [f"the label map of {name}" for name in names])
    checked = [
        LabelledImage(planes[i], encode_labels(maps[i], table.values, unlabelled), name) for i, name in enumerate(names)
    ]
    return LabelledSet(checked, table.values, unlabelled, dtype, table, legend.only(table.values))


def labelled_image(
    image: np.ndarray, labels: np.ndarray, classes: Sequence[int], unlabelled: int, n_inputs: int, layout: Layout,
    name: str,
) -> LabelledImage:  # fmt: skip
    """An image and labels for a model with known classes and channels; errors name the image."""
    checked = to_labels(filled_labels(labels, unlabelled), f"the label map of {name}")
    planes = to_planes(image, name, layout)
    check_pair(planes, checked, name)
    if len(planes) != n_inputs:
        raise InputError(
            f"{name} has {len(planes)} channel(s) but the model was trained on {n_inputs}; "
            "give images of the same kind."
        )
    target = encode_labels(checked, classes, unlabelled, f"the label map of {name}")
    if (target == UNLABELLED_INDEX).all():
        raise InputError(
            f"the labels of {name} have no labelled pixel: all have the unlabelled value {unlabelled}; "
            "label some pixels, or leave the image out."
        )
    return LabelledImage(planes, target, name)
