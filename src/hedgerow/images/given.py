"""Turns what callers give as images and labels, arrays or files, into sequences that are read on request."""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

import numpy as np

from hedgerow.errors import InputError
from hedgerow.files import PathLike
from hedgerow.images.array_checks import Layout
from hedgerow.images.classes import check_unlabelled_or_ask
from hedgerow.images.file_checks import is_zarr_folder
from hedgerow.images.label_files import read_label_set, read_labels
from hedgerow.images.labelled import LabelledSet, labelled_set
from hedgerow.images.legend import Legend
from hedgerow.images.listed import Images, LazySequence, listed, n_axes_of, named
from hedgerow.images.pairing import FilesSpec, find_files, pair_files
from hedgerow.images.reading import read_input

log = logging.getLogger("hedgerow")


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
    to_learn: bool = False,
) -> Given:
    """Images with labels as the caller gave them; images without a label file are skipped, with a warning in the log.

    what, first: images without names are called `what` and a number from `first` on
    legend:      names and colours of the classes; None: those in the files
    to_learn:    whether unexplained colours in label files become classes of their own
    """
    if _are_files(images) != _are_files(labels):
        raise InputError("images and labels must both be files or both be arrays; read the others with hr.read_image.")
    if _are_files(images) and _are_files(labels):
        pairs = pair_files(images, labels, log.warning)
        pictures = LazySequence(len(pairs), lambda i: read_input(pairs[i].image, layout))
        maps: Sequence[np.ndarray] = LazySequence(len(pairs), lambda i: read_labels(pairs[i].label, legend=legend))
        if to_learn:
            maps, of_files = read_label_set([pair.label for pair in pairs], log.info)
            legend = legend or of_files
        return Given(pictures, maps, named(names or [str(p.image) for p in pairs], len(pairs)), legend or Legend())
    images, labels = listed(images, labels)  # type: ignore[arg-type]  # they are arrays
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


def training_set(
    images: Images,
    labels: Images,
    layout: Layout,
    unlabelled: int | str | None,
    names: Sequence[str] | None,
    legend: Legend | None,
) -> LabelledSet:
    """`labelled_set` of images and labels as the caller gave them."""
    check_unlabelled_or_ask(unlabelled)  # before a file is read
    given = given_pairs(images, labels, layout, names, legend=legend, to_learn=True)
    return labelled_set(
        list(given.images), given.labels, layout=layout, unlabelled=unlabelled, names=given.names, legend=given.legend
    )


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
