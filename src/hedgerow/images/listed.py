"""Images and labels as callers give them: one array, or a sequence of arrays."""

import os
from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar, overload

import numpy as np

from hedgerow.errors import InputError

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


def _is_one_map(images: Sequence[np.ndarray] | np.ndarray, labels: Sequence[np.ndarray] | np.ndarray) -> bool:
    """Whether the labels are a single map: (H,W), or (H,W,1) or colours (H,W,3) with the size of the image."""
    if n_axes_of(labels) != 3 or np.shape(labels)[2] not in (1, 3, 4):
        return n_axes_of(labels) == 2
    size = np.shape(labels)[:2]
    return n_axes_of(images) in (2, 3) and size in (np.shape(images)[:2], np.shape(images)[-2:])


def n_axes_of(images: object) -> int | None:
    """The number of axes of an array; None: a list or another sequence of arrays."""
    return getattr(images, "ndim", None)
