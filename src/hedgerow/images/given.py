"""Images and labels as callers give them, arrays or files: to learn from, checked and in memory; or to predict and to
score, read on request."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from hedgerow.errors import InputError, QuestionError
from hedgerow.files import PathLike
from hedgerow.images.array_checks import (
    MAX_CLASSES,
    Layout,
    as_volume,
    as_volumes,
    check_pair,
    encode_labels,
    filled_labels,
    is_volume,
    to_labels,
    to_planes,
)
from hedgerow.images.axes import anisotropy_of_files, checked_axes
from hedgerow.images.classes import (
    UNLABELLED,
    are_solid,
    check_n_classes,
    check_unlabelled_or_ask,
    count_classes,
    count_values,
    look_numbered,
    unlabelled_value,
)
from hedgerow.images.file_checks import is_zarr_folder
from hedgerow.images.given_arrays import (
    Given,
    VoxelSides,
    check_voxel_size,
    given_arrays,
    mixed,
    n_axes_of,
    named,
    planes_for_model,
    voxel_of,
)
from hedgerow.images.instances import OBJECT_LEGEND, UNLABELLED_OBJECTS, LabelKind, classes_of_objects
from hedgerow.images.label_files import read_frame_labels, read_label_set
from hedgerow.images.labelled import MAX_LABEL_VALUES, Images, LabelledImage, LabelledSet, LazySequence, refuse_swapped
from hedgerow.images.legend import Legend, check_names_differ
from hedgerow.images.pairing import (
    FilesSpec,
    LabelledFile,
    Pair,
    find_files,
    in_words,
    labelled_files,
    pair_files,
)
from hedgerow.images.reading import open_image, read_frame, read_input
from hedgerow.images.regions import Region
from hedgerow.images.stored import MAX_CHANNELS, ImageSpec
from hedgerow.progress import Say, announce, quiet

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
    axes: str | None = None,
    voxel_size: VoxelSides | None = None,
) -> LabelledSet:
    """`labelled_set` of images and labels as the caller gave them: arrays or files."""
    unlabelled = check_unlabelled_or_ask(unlabelled)  # before a file is read
    if _are_files(images) and _are_files(labels):
        pairs = pair_files(images, labels, log.warning)
        how = ImageSpec("", layout, axes=checked_axes(axes), voxel=voxel_of(voxel_size))
        return read_labelled_set(
            pairs, in_words(labels), how, unlabelled, names=names, legend=legend, label_kind=label_kind,
            say=log.info, warn=log.warning,
        )  # fmt: skip
    return labelled_set(
        *_arrays(images, labels), layout=layout, unlabelled=unlabelled, names=names, legend=legend,
        label_kind=label_kind, axes=axes, voxel_size=voxel_size,
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
    axes: str | None = None,
    voxel_size: VoxelSides | None = None,
) -> LabelledSet:
    """Images and labels (H,W), or volumes and labels (Z,H,W), to learn from; the classes are those found in the labels.

    axes:       of the arrays, e.g. "ZYX"; None: labels of three axes belong to volumes
    voxel_size: of all volumes along (z, y, x), in any unit
    label_kind: "objects": the labels number objects, from which the classes background, object and boundary are made
    unlabelled: the label value that means "no label"; None: 255, but if another value looks like it, a QuestionError
                asks; "auto": that other value, if there is one
    """
    unlabelled = check_unlabelled_or_ask(unlabelled)  # before the pixels are touched
    given, legend = given_arrays(images, labels, layout, names, axes=axes), legend or Legend()
    images, labels, names, layout = given.images, given.labels, given.names, given.layout
    check_names_differ(legend)
    filled = UNLABELLED if unlabelled is None or isinstance(unlabelled, str) else unlabelled
    try:
        maps = [
            to_labels(filled_labels(values, filled), f"the label map of {name}", is_volume(image, layout))
            for image, values, name in zip(images, labels, names, strict=True)
        ]
        if label_kind == "objects":
            if maps[0].ndim == 3:
                raise no_objects_in_volumes()
            maps, legend, unlabelled = *from_objects(maps, unlabelled), UNLABELLED
        _refuse_pictures(images, maps)
    except InputError:
        refuse_swapped(images, labels)
        raise
    planes = [to_planes(image, name, layout) for image, name in zip(images, names, strict=True)]
    dtype = str(np.asarray(images[0]).dtype)
    return checked_set(planes, maps, names, unlabelled, dtype, legend, log.warning, anisotropy_of(planes, voxel_size))


def read_labelled_set(
    pairs: Sequence[Pair],
    place: str,
    how: ImageSpec,
    unlabelled: int | str | None,
    *,
    max_classes: int = MAX_CLASSES,
    names: Sequence[str] | None = None,
    legend: Legend | None = None,
    label_kind: LabelKind = "classes",
    say: Say = quiet,
    warn: Say = quiet,
) -> LabelledSet:
    """`labelled_set` of files.

    place:  where the labels are, for errors that concern all of them
    how:    to read the images, whatever their path
    legend: names and colours of the classes; None: those of the files
    say, warn: receive a summary of what was read, and notes
    """
    names = named(names or [str(pair.image) for pair in pairs], len(pairs))
    planes, kinds, words, sizes = [], [], [], []
    files = labelled_files(pairs, names, how)
    names = [file.name for file in files]
    for file in files:
        with open_image(**vars(file.image)) as source:
            frame = list(source.each_frame())[file.frame]
            picture = frame.read() if frame.is_volume else frame.array()
            given: Any = "planes" if frame.is_volume else how.layout
            planes.append(to_planes(picture, file.name, given))
            shape = picture.shape[picture.shape[0] == 1 :] if frame.is_volume else picture.shape
            kinds.append((" x ".join(map(str, shape)), str(picture.dtype)))
            words.append(source.words)
            sizes.append(source.voxel_size)
    maps, of_files = read_label_set([file.labels for file in files if file.frame == 0], say)
    if label_kind == "objects":
        if maps[0].ndim == 3:
            raise no_objects_in_volumes()
        maps, of_files = from_objects(maps, check_unlabelled_or_ask(unlabelled))
        unlabelled, legend = UNLABELLED, None
    try:
        check_names_differ(legend or of_files)
        _refuse_pictures(LazySequence(len(files), lambda i: read_frame(files[i].image, files[i].frame)), maps)
        anisotropy = anisotropy_of_files(planes, sizes, names, warn)
        labelled = checked_set(planes, maps, names, unlabelled, kinds[0][1], legend or of_files, warn, anisotropy)
    except QuestionError:
        raise
    except InputError as error:
        if any(name in str(error) for name in names):
            raise
        raise InputError(f"{place}: {error}") from error
    check_n_classes(labelled.n_classes, max_classes, f"the labels in {place}")
    _say_kinds(kinds, say, labelled.is_volume)
    say_what_was_read(names, words, say)
    if len({dtype for _, dtype in kinds}) > 1:
        warn("note: the images have different number types; the same value must mean the same in all of them")
    assert labelled.table is not None  # because the classes come from these labels
    say(labelled.table.text(labelled.legend.names))
    return labelled


def no_objects_in_volumes() -> InputError:
    """The error for volumes whose labels number objects."""
    return InputError(
        "numbered objects in volumes cannot be learned yet; give classes as labels, e.g. labels > 0, and find objects "
        "in the prediction with hr.objects."
    )


def from_objects(maps: Sequence[np.ndarray], unlabelled: int | str | None) -> tuple[list[np.ndarray], Legend]:
    """Maps (H,W) of the classes of numbered objects, see `images.instances`; only a value that the caller names means
    "no label", or -1."""
    value = unlabelled if isinstance(unlabelled, int) else UNLABELLED_OBJECTS
    return [classes_of_objects(numbers, value) for numbers in maps], OBJECT_LEGEND


def _say_kinds(kinds: Sequence[tuple[str, str]], say: Say, is_volume: bool) -> None:
    """Print the number of images, and their sizes and number types."""
    different = list(dict.fromkeys(map(" ".join, kinds)))
    n_more = len(different) - MAX_KINDS
    more = f" and {n_more} more kind{'s' * (n_more > 1)}" if n_more > 0 else ""
    noun = "volume" if is_volume else "image"
    say(f"{len(kinds)} {noun}(s): {', '.join(different[:MAX_KINDS])}{more}")


def say_what_was_read(names: Sequence[str], words: Sequence[str], say: Say) -> None:
    """Print how files with several pages or channels are read (`ImageSource.words`), one line per kind of file."""
    for text in filter(None, dict.fromkeys(words)):
        alike = [name for name, own in zip(names, words, strict=True) if own == text]
        more = f" and {len(alike) - 1} more" if len(alike) > 1 else ""
        say(f"{alike[0]}{more}: {text}")


def anisotropy_of(planes: Sequence[np.ndarray], voxel_size: VoxelSides | None) -> float:
    """The distance between the slices of volumes in pixels, for voxels of this size along (z, y, x); 1 for images."""
    if voxel_size is not None:
        z, y, _ = check_voxel_size(voxel_size)
        if planes[0].ndim == 3:
            raise InputError("voxel_size is for volumes, and these are images; leave it out.")
        return z / y
    if any(len(image[0]) > 1 for image in planes if image.ndim == 4):
        announce(
            "note: the voxel size of the volumes is unknown, so slices are taken to be as far apart as pixels; if they "
            "are not, give it, e.g. voxel_size=(1.4, 0.4, 0.4) along z, y and x"
        )
    return 1.0


def checked_set(
    planes: Sequence[np.ndarray], maps: Sequence[np.ndarray], names: Sequence[str], unlabelled: int | str | None,
    dtype: str, legend: Legend, say: Say, anisotropy: float = 1.0,
) -> LabelledSet:  # fmt: skip
    """The set of images (C,H,W), as `to_planes` checks each of them, and labels (H,W), as `to_labels` does; or of
    volumes (C,Z,H,W) and labels (Z,H,W)."""
    for i, name in enumerate(names):
        if planes[i].ndim != planes[0].ndim or planes[i].ndim != maps[i].ndim + 1:
            raise mixed()
        check_pair(planes[i], maps[i], name)
        if len(planes[i]) != len(planes[0]):
            raise InputError(
                f"{name} has {len(planes[i])} channel(s) but {names[0]} has {len(planes[0])}; "
                "all images of a set need the same channels."
            )
    if len(planes[0]) > MAX_CHANNELS:
        raise InputError(f"{names[0]} has {len(planes[0]):,} channels; give images with at most {MAX_CHANNELS:,}.")
    asked = UNLABELLED if not isinstance(unlabelled, int) and are_solid(maps) else unlabelled
    ignored = unlabelled_value(*_slices(maps, planes), asked, say)
    table = count_classes(maps, ignored, [f"the label map of {name}" for name in names])
    if not legend.names and look_numbered(_slices(maps, planes)[0], ignored):  # whoever names classes means classes
        say(
            f"note: the {len(table.values)} label values look like numbered objects, but each is learned as a class of "
            "its own; to find separate objects, add --labels objects (in Python label_kind='objects' for hr.fit); for "
            "one class, give all of them the same value, e.g. labels > 0"
        )
    checked = [
        LabelledImage(planes[i], encode_labels(maps[i], table.values, ignored), name) for i, name in enumerate(names)
    ]
    # The colour of what is unlabelled is kept, so that such label maps can score the model.
    own_legend = legend.only((*table.values, ignored))
    return LabelledSet(checked, table.values, ignored, dtype, table, own_legend, anisotropy)


def _slices(
    maps: Sequence[np.ndarray], planes: Sequence[np.ndarray]
) -> tuple[list[np.ndarray], list[Callable[[Region], np.ndarray]]]:
    """The label maps (H,W) of all images, or of all slices of volumes, and what reads their images."""
    flat = [values for labels in maps for values in as_volume(labels)]
    images = [image for volume in planes for image in as_volumes(volume).swapaxes(0, 1)]
    return flat, [partial(Region.of, array=image) for image in images]


def _refuse_pictures(images: Sequence[np.ndarray], maps: Sequence[np.ndarray]) -> None:
    """`refuse_swapped`, if the label maps (H,W) have so many values that they may be pictures."""
    if len(set().union(*map(count_values, maps))) > MAX_LABEL_VALUES:
        refuse_swapped(images, maps)


def given_pairs(
    images: Images,
    labels: Images,
    layout: Layout = "picture",
    names: Sequence[str] | None = None,
    *,
    what: str = "image",
    first: int = 0,
    legend: Legend | None = None,
    axes: str | None = None,
) -> Given:
    """Images with labels as the caller gave them; images without a label file are skipped, with a warning in the log.

    what, first: images without names are called `what` and a number from `first` on
    legend:      names and colours of the classes; None: those in the files
    """
    if _are_files(images) and _are_files(labels):
        pairs = pair_files(images, labels, log.warning)
        names = named(names or [str(p.image) for p in pairs], len(pairs))
        return given_files(labelled_files(pairs, names, ImageSpec("", layout, axes=checked_axes(axes))), legend)
    return given_arrays(*_arrays(images, labels), layout, names, what, first, legend, axes)


def given_files(files: Sequence[LabelledFile], legend: Legend | None) -> Given:
    """Images with labels, or volumes with labels, each read when it is used."""
    is_volume = [file.is_volume for file in files]
    if any(is_volume) and not all(is_volume):
        raise mixed()
    pictures = LazySequence(len(files), lambda i: read_frame(files[i].image, files[i].frame))
    maps = LazySequence(len(files), lambda i: read_frame_labels(files[i].labels, files[i].frame, legend))
    layout: Any = "planes" if any(is_volume) else files[0].image.layout
    return Given(pictures, maps, [file.name for file in files], legend or Legend(), layout)


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


def given_planes(
    images: Images, n_inputs: int, layout: Layout, is_volume: bool, axes: str | None
) -> Sequence[np.ndarray]:
    """Images without labels as a sequence, as `given_images` returns it; volumes, and images with named axes, as planes
    (C,Z,H,W) or (C,H,W), one for each point in time.

    is_volume: whether the model that reads them is one of volumes
    """
    if _are_files(images) or (axes is None and not is_volume):
        return given_images(images, n_inputs, layout)[0]
    is_one = n_axes_of(images) == (3 + (n_inputs > 1) if axes is None else len(axes))
    arrays = [images] if is_one else images
    own = n_inputs, layout, is_volume, axes
    by_array = [planes_for_model(array, *own, f"image {i}")[1] for i, array in enumerate(arrays)]  # type: ignore[arg-type]
    return [planes for of_array in by_array for planes in of_array]


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
