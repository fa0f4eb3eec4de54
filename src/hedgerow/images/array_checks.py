"""Images and label maps as checked arrays."""

import os
from collections.abc import Sequence
from typing import Literal

import numpy as np

from hedgerow.errors import InputError, one_line

UNLABELLED_INDEX = 255
MAX_CLASSES = 255
MAX_VALUE = 1e15  # its square, and sums of such squares, still fit in float32
Layout = Literal["picture", "planes"]
"""How a user passes an image: as a picture (H,W) or (H,W,C), or as planes (F,H,W), the user's own channels; a volume
as planes (F,Z,H,W)."""


def to_planes(image: np.ndarray, name: str = "image", layout: Layout = "picture") -> np.ndarray:
    """Check an image and return its planes, (C,H,W) or (C,Z,H,W) float32, contiguous and writable; memory is shared if
    possible."""
    array = _numeric_array(image, name)
    own_channels = layout == "planes"
    if array.ndim not in ((3, 4) if own_channels else (2, 3)):
        expected = "(F,H,W), or (F,Z,H,W) for a volume" if own_channels else "(H,W) or (H,W,C)"
        volume = "" if own_channels else ', or name the axes of a volume, e.g. axes="ZYX"'
        raise InputError(f"{name} has shape {array.shape}, expected {expected}; pass one 2-D image at a time{volume}.")
    if array.ndim == 2:
        array = array[np.newaxis]
    elif not own_channels:
        array = np.moveaxis(array, 2, 0)
    try:
        with np.errstate(over="ignore"):  # what overflows is reported below
            planes = np.require(array, np.float32, ["C", "A", "W"])
        _check_finite(planes, array, name)
    except MemoryError as problem:
        raise too_large(name, problem) from problem
    return planes


def is_volume(image: np.ndarray, layout: Layout) -> bool:
    """Whether an image that is passed in this way is a volume."""
    return layout == "planes" and np.ndim(image) == 4


def as_volume(array: np.ndarray) -> np.ndarray:
    """(Z,H,W): an image (H,W) as a volume of one slice; a volume as it is."""
    return array.reshape(-1, *array.shape[-2:])


def as_volumes(channels: np.ndarray) -> np.ndarray:
    """(C,Z,H,W): the channels of an image (C,H,W) as volumes of one slice; those of a volume as they are."""
    return channels.reshape(len(channels), -1, *channels.shape[-2:])


def refuse_volume(n_slices: int, stretch: np.ndarray | None, outside: np.ndarray | None) -> None:
    """Raise InputError for a volume whose offsets shrink with the depth at each pixel, or end in a constant."""
    if n_slices > 1 and not (stretch is None and outside is None):
        raise InputError(
            f"depth features are for images, and this is a volume of {n_slices} slices; give the slices one by one, or "
            "train with other features."
        )


def too_large(name: str, problem: Exception) -> InputError:
    """The error for an array that does not fit in memory."""
    return InputError(
        f"{name}: it does not fit in memory: {one_line(problem)}; crop or shrink the image, or use a machine with more"
        " memory."
    )


def _numeric_array(values: np.ndarray, name: str) -> np.ndarray:
    """The values as an array; refuse anything but a non-empty array of numbers."""
    _refuse_masked(values, name)
    if isinstance(values, str | os.PathLike):
        raise InputError(
            f"{name} is the name of a file, expected an array; read it first, e.g. by "
            f"hr.read_image({os.fspath(values)!r})."
        )
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as problem:
        raise InputError(f"{name} is not an array of numbers; pass an (H,W) or (H,W,C) array.") from problem
    if array.dtype.kind not in "buif":
        raise InputError(f"{name} has dtype {array.dtype}, expected whole or real numbers; convert it first.")
    if array.size == 0:
        raise InputError(f"{name} has shape {array.shape}, so it has no pixels; leave it out or save it again.")
    return array


def _refuse_masked(values: np.ndarray, name: str) -> None:
    """NumPy drops the mask of an array that is converted, and what lies below it would be taken for real."""
    if np.ma.is_masked(values):
        raise InputError(f"{name} has masked pixels, which cannot be left out; fill them first, e.g. array.filled(0).")


def filled_labels(labels: np.ndarray, unlabelled: int) -> np.ndarray:
    """A label map as it is, but for a masked one, whose masked pixels get the value of those without a label."""
    if not isinstance(labels, np.ma.MaskedArray):
        return labels
    values: np.ndarray = labels.data
    if values.dtype.kind in "bui":
        values = values.astype(np.int64)  # which holds any unlabelled value
    return np.where(np.ma.getmaskarray(labels), unlabelled, values)


def _check_finite(planes: np.ndarray, original: np.ndarray, name: str) -> None:
    """Refuse NaN, infinities, and values too large to compute with; say how many and where the first is."""
    # Without an array as large as the image; as Python numbers, and so that NaN fails.
    if original.dtype.kind != "f" or (planes.min().item() >= -MAX_VALUE and planes.max().item() <= MAX_VALUE):
        return
    bad = ~(np.abs(planes) <= MAX_VALUE)  # NaN is not <= anything
    n_bad = int(np.count_nonzero(bad))
    place = np.unravel_index(np.argmax(bad), bad.shape)
    channel, *in_slice, row, column = (int(i) for i in place)
    value = original[place]
    of_channel = "".join(f"slice {z} of " for z in in_slice) + f"channel {channel}"
    kind = f"too large ({value:g}, a fill value?)" if np.isfinite(value) else "NaN or infinite"
    raise InputError(
        f"{name} has {n_bad} value(s) that cannot be used, the first {kind} at row {row}, column {column} of"
        f" {of_channel}; replace them with finite numbers or rescale the image."
    )


def to_labels(labels: np.ndarray, name: str = "the label map", is_volume: bool = False) -> np.ndarray:
    """Check a label map, (H,W), (H,W,1), (1,H,W) or a grey picture (H,W,3), of whole numbers; returns (H,W) int32,
    contiguous.

    is_volume: the labels are (Z,H,W), and returned as such
    """
    array = _numeric_array(labels, name)
    if is_volume:
        if array.ndim != 3:
            raise InputError(f"{name} has shape {array.shape}, expected (Z,H,W) with one class value per voxel.")
        return _whole_numbers(array, name)
    if array.ndim == 3 and 1 in (array.shape[2], array.shape[0]):
        array = array[..., 0] if array.shape[2] == 1 else array[0]
    if array.ndim == 3 and array.shape[2] in (3, 4):
        if not all(np.array_equal(array[..., 0], array[..., i]) for i in (1, 2)):
            raise InputError(
                f"{name} has shape {array.shape}, so it holds colours, expected (H,W) with one class value per pixel; "
                "map each colour to a class value, as hr.read_labels does with a classes.toml beside the file."
            )
        array = array[..., 0]
    if array.ndim != 2:
        raise InputError(f"{name} has shape {array.shape}, expected (H,W) with one class value per pixel.")
    return _whole_numbers(array, name)


def _whole_numbers(array: np.ndarray, name: str) -> np.ndarray:
    """The class values as int32, contiguous; refuses values that are none."""
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise InputError(
            f"{name} has {int(np.isnan(array).sum()):,} pixel(s) that are NaN, expected whole numbers; if they are "
            "unlabelled, replace NaN by 255, e.g. np.nan_to_num(labels, nan=255)."
        )
    limits = np.iinfo(np.int32)
    # As Python numbers, since float32 rounds the limit up; NaN fails the comparison too.
    low, high = array.min().item(), array.max().item()
    if not (limits.min <= low and high <= limits.max):
        raise InputError(
            f"{name} has values from {low} to {high}, expected class values that fit in 32-bit integers; is it"
            " an image rather than labels?"
        )
    try:
        whole = np.ascontiguousarray(array, dtype=np.int32)
    except MemoryError as problem:
        raise too_large(name, problem) from problem
    if array.dtype.kind == "f" and not np.array_equal(whole, array):
        place = tuple(np.argwhere(whole != array)[0].tolist())
        raise InputError(
            f"{name} has the value {array[place]:g} at row {place[-2]}, column {place[-1]}, expected whole"
            " numbers; is it an image rather than labels?"
        )
    return whole


def check_channels(n_channels: int, n_inputs: int, name: str) -> None:
    """Refuse an image unless it has as many channels as those that a model was trained on."""
    if n_channels != n_inputs:
        raise InputError(
            f"{name} has {n_channels} channel(s) but the model was trained on {n_inputs}; give images of the same kind."
        )


def nothing_labelled(name: str, unlabelled: int) -> InputError:
    """The error for a label map without any label."""
    return InputError(
        f"{name} has no labelled pixel: all have the unlabelled value {unlabelled}; label some pixels, leave the image "
        "out, or set another unlabelled value."
    )


def to_objects(numbers: np.ndarray, name: str = "the map of objects") -> np.ndarray:
    """Check numbered objects, (H,W) or (Z,Y,X) whole numbers from 0, the background; returns them contiguous."""
    array = _numeric_array(numbers, name)
    if array.ndim not in (2, 3):
        raise InputError(
            f"{name} has shape {array.shape}, expected (H,W) or (Z,Y,X) with the number of an object each."
        )
    if array.dtype.kind == "f" and not np.array_equal(array, np.floor(array)):
        raise InputError(f"{name} has numbers that are not whole; is it an image rather than numbered objects?")
    if array.min() < 0 or array.max() >= 2**32:
        raise InputError(
            f"{name} has values from {array.min():g} to {array.max():g}, expected 0 for the background and a positive "
            "number for each object."
        )
    return np.ascontiguousarray(array, np.int64)


def check_pair(planes: np.ndarray, labels: np.ndarray, name: str) -> None:
    """Refuse an image (C,H,W) and labels (H,W), or a volume and its labels, of different size."""
    if planes.ndim == 4 and labels.ndim == 3 and planes.shape[1] != labels.shape[0]:
        raise InputError(
            f"{name}: the volume has {planes.shape[1]} slices and its labels {labels.shape[0]}, expected the same; "
            "check the pairing, and give unpainted slices with the value of pixels without a label."
        )
    if planes.shape[-2:] != labels.shape[-2:]:
        raise sizes_differ(planes.shape[-2:], labels.shape[-2:], name)


def sizes_differ(image: Sequence[int], labels: Sequence[int], name: str) -> InputError:
    """The error for an image and labels of these sizes (H,W)."""
    image_size, label_size = (f"{height} rows x {width} columns" for height, width in (image, labels))
    return InputError(
        f"{name}: the image has {image_size} and its labels {label_size}, expected the same; check the"
        " pairing or export the labels again at full size."
    )


def encode_labels(
    labels: np.ndarray, classes: Sequence[int], unlabelled: int | None = 255, name: str = "the label map"
) -> np.ndarray:
    """Checked class values (H,W) to uint8 indices into `classes`; the unlabelled value becomes UNLABELLED_INDEX."""
    order = np.argsort(classes, kind="stable")
    ordered = np.asarray(classes, dtype=np.int64)[order]
    position = np.minimum(np.searchsorted(ordered, labels), len(ordered) - 1)
    indices = order.astype(np.uint8)[position]
    known = ordered[position] == labels
    if unlabelled is not None:
        without_label = labels == unlabelled
        indices[without_label] = UNLABELLED_INDEX
        known |= without_label
    if not known.all():
        unknown = [str(value) for value in np.unique(labels[~known])[:5]]
        row, column = (int(i) for i in np.argwhere(~known)[0][-2:])
        raise InputError(
            f"{name} has {np.count_nonzero(~known):,} pixel(s) of unknown class, values {', '.join(unknown)},"
            f" the first at row {row}, column {column}; expected {', '.join(str(c) for c in classes)}, or"
            f" {unlabelled} for unlabelled."
        )
    return indices
