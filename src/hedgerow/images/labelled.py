"""`LabelledSet`, the one container for images with labels: checked once, wherever they come from."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

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
from hedgerow.images.classes import (
    ClassTable,
    check_unlabelled,
    check_unlabelled_or_ask,
    count_classes,
    count_values,
)
from hedgerow.images.legend import Legend, check_names_differ
from hedgerow.images.listed import MAX_LABEL_VALUES, listed, named, refuse_swapped
from hedgerow.images.listed import LazySequence as LazySequence  # also imported from here
from hedgerow.images.metrics import Scores, confusion
from hedgerow.images.numbered import look_numbered
from hedgerow.images.regions import Region
from hedgerow.images.stored import MAX_CHANNELS
from hedgerow.images.unlabelled import UNLABELLED, unlabelled_value
from hedgerow.progress import Say

log = logging.getLogger("hedgerow")
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


def labelled_set(
    images: Sequence[np.ndarray] | np.ndarray,
    labels: Sequence[np.ndarray] | np.ndarray,
    *,
    layout: Layout = "picture",
    unlabelled: int | str | None = UNLABELLED,
    names: Sequence[str] | None = None,
    legend: Legend | None = None,
) -> LabelledSet:
    """Images and labels (H,W) to learn from; the classes are those found in the labels.

    unlabelled: the label value that means "no label"; None: 255, but if another value looks like it, a QuestionError
                asks; "auto": that other value, if there is one
    """
    unlabelled = check_unlabelled_or_ask(unlabelled)  # before the pixels are touched
    images, labels = listed(images, labels)
    names, legend = named(names, len(images)), legend or Legend()
    check_names_differ(legend)
    filled = UNLABELLED if unlabelled is None or isinstance(unlabelled, str) else unlabelled
    try:
        maps = [
            to_labels(filled_labels(values, filled), f"the label map of {name}")
            for values, name in zip(labels, names, strict=True)
        ]
        if len(set().union(*map(count_values, maps))) > MAX_LABEL_VALUES:
            refuse_swapped(images, labels)
    except InputError:
        refuse_swapped(images, labels)
        raise
    planes = [to_planes(image, name, layout) for image, name in zip(images, names, strict=True)]
    return checked_set(planes, maps, names, unlabelled, str(np.asarray(images[0]).dtype), legend, log.warning)


def checked_set(
    planes: Sequence[np.ndarray], maps: Sequence[np.ndarray], names: Sequence[str], unlabelled: int | str | None,
    dtype: str, legend: Legend, say: Say,
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
    ignored = unlabelled_value(maps, [partial(Region.of, array=image) for image in planes], unlabelled, say)
    table = count_classes(maps, ignored, [f"the label map of {name}" for name in names])
    if not legend.names and look_numbered(maps, ignored):  # whoever names classes means classes
        say(
            f"note: the {len(table.values)} label values look like numbered objects, but each is learned as a class of "
            "its own; to learn one class of objects, give all of them the same value, e.g. labels > 0"
        )
    checked = [
        LabelledImage(planes[i], encode_labels(maps[i], table.values, ignored), name) for i, name in enumerate(names)
    ]
    # The colour of what is unlabelled is kept, so that such label maps can score the model.
    return LabelledSet(checked, table.values, ignored, dtype, table, legend.only((*table.values, ignored)))


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
