"""Images and labels as callers give them, arrays or files: to learn from, checked and in memory; or to predict and to
score, read on request."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from hedgerow.errors import InputError, QuestionError
from hedgerow.files import PathLike
from hedgerow.images.array_checks import (
    MAX_CLASSES,
    Layout,
    check_pair,
    encode_labels,
    filled_labels,
    to_labels,
    to_planes,
)
from hedgerow.images.classes import (
    UNLABELLED,
    check_n_classes,
    check_unlabelled_or_ask,
    count_classes,
    count_values,
    look_numbered,
    unlabelled_value,
)
from hedgerow.images.file_checks import is_zarr_folder
from hedgerow.images.instances import OBJECT_LEGEND, UNLABELLED_OBJECTS, LabelKind, classes_of_objects
from hedgerow.images.label_files import read_label_set, read_labels
from hedgerow.images.labelled import MAX_LABEL_VALUES, Images, LabelledImage, LabelledSet, LazySequence, refuse_swapped
from hedgerow.images.legend import Legend, check_names_differ
from hedgerow.images.pairing import FilesSpec, Pair, find_files, in_words, pair_files
from hedgerow.images.reading import open_image, read_input
from hedgerow.images.regions import Region
from hedgerow.images.stored import MAX_CHANNELS, Pages
from hedgerow.progress import Say, quiet

log = logging.getLogger("hedgerow")
MAX_KINDS = 3  # kinds of images that are printed: combinations of size and number type


def training_set(
    images: Images,
    labels: Images,
    layout: Layout,
    unlabelled: int | str | None,
    names: Sequence[str] | None,
    legend: Legend | None,
    label_kind: LabelKind = "classes",
) -> LabelledSet:
    """`labelled_set` of images and labels as the caller gave them: arrays or files."""
    unlabelled = check_unlabelled_or_ask(unlabelled)  # before a file is read
    if _are_files(images) and _are_files(labels):
        pairs = pair_files(images, labels, log.warning)
        return read_labelled_set(
            pairs, in_words(labels), layout, unlabelled, names=names, legend=legend, label_kind=label_kind,
            say=log.info, warn=log.warning,
        )  # fmt: skip
    return labelled_set(
        *_arrays(images, labels), layout=layout, unlabelled=unlabelled, names=names, legend=legend,
        label_kind=label_kind,
    )  # fmt: skip


def labelled_set(
    images: Sequence[np.ndarray] | np.ndarray,
    labels: Sequence[np.ndarray] | np.ndarray,
    *,
    layout: Layout = "picture",
    unlabelled: int | str | None = UNLABELLED,
    names: Sequence[str] | None = None,
    legend: Legend | None = None,
    label_kind: LabelKind = "classes",
) -> LabelledSet:
    """Images and labels (H,W) to learn from; the classes are those found in the labels.

    label_kind: "objects": the labels number objects, from which the classes background, object and boundary are made
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
        if label_kind == "objects":
            maps, legend, unlabelled = *from_objects(maps, unlabelled), UNLABELLED
        _refuse_pictures(images, maps)
    except InputError:
        refuse_swapped(images, labels)
        raise
    planes = [to_planes(image, name, layout) for image, name in zip(images, names, strict=True)]
    return checked_set(planes, maps, names, unlabelled, str(np.asarray(images[0]).dtype), legend, log.warning)


def read_labelled_set(
    pairs: Sequence[Pair],
    place: str,
    layout: Layout,
    unlabelled: int | str | None,
    *,
    pages: Pages = None,
    max_classes: int = MAX_CLASSES,
    names: Sequence[str] | None = None,
    legend: Legend | None = None,
    label_kind: LabelKind = "classes",
    say: Say = quiet,
    warn: Say = quiet,
) -> LabelledSet:
    """`labelled_set` of files.

    place:  where the labels are, for errors that concern all of them
    legend: names and colours of the classes; None: those of the files
    say, warn: receive a summary of what was read, and notes
    """
    names = named(names or [str(pair.image) for pair in pairs], len(pairs))
    planes, kinds, words = [], [], []
    for pair, name in zip(pairs, names, strict=True):
        with open_image(pair.image, layout, pages) as source:
            picture = source.array()
            planes.append(to_planes(picture, name, layout))
            kinds.append((" x ".join(map(str, picture.shape)), str(picture.dtype)))
            words.append(source.words)
    maps, of_files = read_label_set([pair.label for pair in pairs], say)
    if label_kind == "objects":
        maps, of_files = from_objects(maps, check_unlabelled_or_ask(unlabelled))
        unlabelled, legend = UNLABELLED, None
    try:
        check_names_differ(legend or of_files)
        _refuse_pictures(LazySequence(len(pairs), lambda i: read_input(pairs[i].image, layout, pages)), maps)
        labelled = checked_set(planes, maps, names, unlabelled, kinds[0][1], legend or of_files, warn)
    except QuestionError:
        raise
    except InputError as error:
        if any(name in str(error) for name in names):
            raise
        raise InputError(f"{place}: {error}") from error
    check_n_classes(labelled.n_classes, max_classes, f"the labels in {place}")
    _say_kinds(kinds, say)
    say_what_was_read(names, words, say)
    if len({dtype for _, dtype in kinds}) > 1:
        warn("note: the images have different number types; the same value must mean the same in all of them")
    assert labelled.table is not None  # because the classes come from these labels
    say(labelled.table.text(labelled.legend.names))
    return labelled


def from_objects(maps: Sequence[np.ndarray], unlabelled: int | str | None) -> tuple[list[np.ndarray], Legend]:
    """Maps (H,W) of the classes of numbered objects, see `images.instances`; only a value that the caller names means
    "no label", or -1."""
    value = unlabelled if isinstance(unlabelled, int) else UNLABELLED_OBJECTS
    return [classes_of_objects(numbers, value) for numbers in maps], OBJECT_LEGEND


def _say_kinds(kinds: Sequence[tuple[str, str]], say: Say) -> None:
    """Print the number of images, and their sizes and number types."""
    different = list(dict.fromkeys(map(" ".join, kinds)))
    n_more = len(different) - MAX_KINDS
    more = f" and {n_more} more kind{'s' * (n_more > 1)}" if n_more > 0 else ""
    say(f"{len(kinds)} image(s): {', '.join(different[:MAX_KINDS])}{more}")


def say_what_was_read(names: Sequence[str], words: Sequence[str], say: Say) -> None:
    """Print how files with several pages or channels are read (`ImageSource.words`), one line per kind of file."""
    for text in filter(None, dict.fromkeys(words)):
        alike = [name for name, own in zip(names, words, strict=True) if own == text]
        more = f" and {len(alike) - 1} more" if len(alike) > 1 else ""
        say(f"{alike[0]}{more}: {text}")


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
    if len(planes[0]) > MAX_CHANNELS:
        raise InputError(f"{names[0]} has {len(planes[0]):,} channels; give images with at most {MAX_CHANNELS:,}.")
    ignored = unlabelled_value(maps, [partial(Region.of, array=image) for image in planes], unlabelled, say)
    table = count_classes(maps, ignored, [f"the label map of {name}" for name in names])
    if not legend.names and look_numbered(maps, ignored):  # whoever names classes means classes
        say(
            f"note: the {len(table.values)} label values look like numbered objects, but each is learned as a class of "
            "its own; to find separate objects, add --labels objects (in Python label_kind='objects' for hr.fit); for "
            "one class, give all of them the same value, e.g. labels > 0"
        )
    checked = [
        LabelledImage(planes[i], encode_labels(maps[i], table.values, ignored), name) for i, name in enumerate(names)
    ]
    # The colour of what is unlabelled is kept, so that such label maps can score the model.
    return LabelledSet(checked, table.values, ignored, dtype, table, legend.only((*table.values, ignored)))


def listed(
    images: Sequence[np.ndarray] | np.ndarray, labels: Sequence[np.ndarray] | np.ndarray
) -> tuple[Sequence[np.ndarray], Sequence[np.ndarray]]:
    """Images and labels as sequences of equal length; one image (H,W[,C]), or planes (F,H,W), and its labels may come
    without lists.

    The labels decide, because a three-dimensional array of images may be one image or many.
    """
    if _is_one_map(images, labels):
        is_list = n_axes_of(images) is None and len(images) == 1  # one image, already in a list
        images, labels = (images if is_list else [np.asanyarray(images)]), [np.asanyarray(labels)]
    elif n_axes_of(images) == 2:
        images = [np.asanyarray(images)]
    if len(images) == 0 or len(images) != len(labels):
        raise InputError(
            f"there are {len(images)} image(s) and {len(labels)} label map(s); give one label map for each image."
        )
    return images, labels  # type: ignore[return-value]  # an array is a sequence of its parts


def named(names: Sequence[str] | None, n: int, what: str = "image", first: int = 0) -> list[str]:
    """The names given for n images, or numbered names; raises InputError unless there is one per image."""
    names = [f"{what} {i}" for i in range(first, first + n)] if names is None else list(names)
    if len(names) != n:
        raise InputError(f"there are {len(names)} name(s) for {n} image(s); give one for each.")
    return names


def _refuse_pictures(images: Sequence[np.ndarray], maps: Sequence[np.ndarray]) -> None:
    """`refuse_swapped`, if the label maps (H,W) have so many values that they may be pictures."""
    if len(set().union(*map(count_values, maps))) > MAX_LABEL_VALUES:
        refuse_swapped(images, maps)


def _is_one_map(images: Sequence[np.ndarray] | np.ndarray, labels: Sequence[np.ndarray] | np.ndarray) -> bool:
    """Whether the labels are a single map: (H,W), or (H,W,1) or colours (H,W,3) with the size of the image."""
    if n_axes_of(labels) != 3 or np.shape(labels)[2] not in (1, 3, 4):
        return n_axes_of(labels) == 2
    size = np.shape(labels)[:2]
    return n_axes_of(images) in (2, 3) and size in (np.shape(images)[:2], np.shape(images)[-2:])


def n_axes_of(images: object) -> int | None:
    """The number of axes of an array; None: a list or another sequence of arrays."""
    return getattr(images, "ndim", None)


@dataclass(frozen=True)
class Given:
    """Images (H,W[,C]), or planes (F,H,W), and as many labels (H,W); names: of the images, for messages"""

    images: Sequence[np.ndarray]
    labels: Sequence[np.ndarray]
    names: Sequence[str]
    legend: Legend

    def __len__(self) -> int:
        return len(self.images)


def given_pairs(
    images: Images,
    labels: Images,
    layout: Layout = "picture",
    names: Sequence[str] | None = None,
    *,
    what: str = "image",
    first: int = 0,
    legend: Legend | None = None,
) -> Given:
    """Images with labels as the caller gave them; images without a label file are skipped, with a warning in the log.

    what, first: images without names are called `what` and a number from `first` on
    legend:      names and colours of the classes; None: those in the files
    """
    if _are_files(images) and _are_files(labels):
        pairs = pair_files(images, labels, log.warning)
        pictures = LazySequence(len(pairs), lambda i: read_input(pairs[i].image, layout))
        maps = LazySequence(len(pairs), lambda i: read_labels(pairs[i].label, legend=legend))
        return Given(pictures, maps, named(names or [str(p.image) for p in pairs], len(pairs)), legend or Legend())
    images, labels = listed(*_arrays(images, labels))
    return Given(images, labels, named(names, len(images), what, first), legend or Legend())


def given_images(images: Images, n_inputs: int, layout: Layout) -> tuple[Sequence[np.ndarray], bool]:
    """Images without labels as a sequence, and whether the caller gave one image instead of a list.

    For a model that reads several channels or planes, an image has three axes; for one channel, two, or a third of
    length 1.
    """
    if _are_files(images):
        files, is_one = find_files(images), isinstance(images, str | os.PathLike) and _is_file(images)
        return LazySequence(len(files), lambda i: read_input(files[i], layout)), is_one
    n_axes = n_axes_of(images)
    is_one = n_axes == 2 or (n_axes == 3 and (layout == "planes" or n_inputs > 1 or np.shape(images)[2] == 1))  # type: ignore[arg-type]
    return ([np.asanyarray(images)] if is_one else images), is_one  # type: ignore[return-value]  # not files


def _arrays(images: Images, labels: Images) -> tuple[Any, Any]:
    """Images and labels, neither of which may be files."""
    if _are_files(images) or _are_files(labels):
        raise InputError("images and labels must both be files or both be arrays; read the others with hr.read_image.")
    return images, labels


def _are_files(images: Images) -> TypeGuard[FilesSpec]:
    """Whether the images are given as names of files."""
    if not isinstance(images, list | tuple):
        return isinstance(images, str | os.PathLike)
    # A sequence of arrays must not be read here, so only its first item is looked at.
    is_first = len(images) > 0 and isinstance(images[0], str | os.PathLike)
    return is_first and all(isinstance(image, str | os.PathLike) for image in images)


def _is_file(path: PathLike) -> bool:
    """Whether a path is a file rather than a folder or a pattern."""
    return Path(path).is_file() or is_zarr_folder(Path(path))
