"""Arrays of images and labels as a caller gives them: their number, their names, and their axes.

A letter stands for each axis: T time, Z slices, Y rows, X columns, C channels. A point in time is an image or a volume
of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from hedgerow.errors import ConfigError, InputError, shown
from hedgerow.images.array_checks import Layout, to_planes
from hedgerow.images.axes import checked_axes
from hedgerow.images.legend import Legend
from hedgerow.images.voxel_size import VoxelSize

VoxelSides: TypeAlias = tuple[float, float, float]
"""Lengths of a voxel along (z, y, x), in any unit; only the ratio of z to y matters."""
AXES_IN_ORDER = "TCZYX"  # of planes, as all code after this module reads them
MAX_COLOURS = 4  # a last axis of this length may hold colours


def check_voxel_size(voxel_size: Any) -> VoxelSides:
    """The size of a voxel along (z, y, x) as a caller gave it."""
    try:
        z, y, x = (float(length) for length in voxel_size)
        is_usable = all(0 < length < float("inf") for length in (z, y, x))
    except (TypeError, ValueError):
        is_usable = False
    if not is_usable:
        raise ConfigError(
            f"voxel_size is {shown(voxel_size)}; give three lengths above 0, of a voxel along z, y and x, e.g. "
            "(1.4, 0.4, 0.4)."
        )
    return z, y, x


def labels_axes(axes: str) -> str:
    """The axes of the labels of images with these axes."""
    return axes.replace("C", "")


def frames(array: np.ndarray, axes: str, name: str) -> list[np.ndarray]:
    """Planes (C,Y,X), or (C,Z,Y,X) of volumes, for each point in time; of labels (1,Y,X) or (1,Z,Y,X)."""
    array = np.asanyarray(array)
    if array.ndim != len(axes):
        raise InputError(
            f"{name} has shape {array.shape} but the axes {axes}; name each of its {array.ndim} axes with axes, or "
            "give an array with these axes."
        )
    ordered = array.transpose([axes.index(letter) for letter in AXES_IN_ORDER if letter in axes])
    if "C" not in axes:
        ordered = np.expand_dims(ordered, int("T" in axes))
    return list(ordered) if "T" in axes else [ordered]


def planes_for_model(
    image: np.ndarray, n_inputs: int, layout: Layout, is_volume: bool, axes: str | None, name: str = "the image"
) -> tuple[str, list[np.ndarray]]:
    """The axes of an array, "" for an image; and its planes (C,H,W) or (C,Z,H,W), checked, for each point in time.

    n_inputs: channels that the model reads; is_volume: whether it is a model of volumes
    """
    axes = checked_axes(axes) or axes_for_model(np.shape(image), n_inputs, layout, is_volume) or ""
    if is_volume and "Z" not in axes:
        raise InputError(
            f"the model learned from volumes and reads several slices, so it cannot predict an image of shape "
            f'{np.shape(image)} alone; give a volume, e.g. with axes="ZYX", or train with dimensions=2.'
        )
    if not axes:
        return axes, [to_planes(image, name, layout)]
    return axes, [to_planes(planes, name, "planes") for planes in frames(image, axes, name)]


def one_or_more(arrays: Any, axes: str) -> Sequence[np.ndarray]:
    """Arrays with these axes as a sequence; one of them may come without a list."""
    is_one: bool = getattr(arrays, "ndim", None) == len(axes)
    return [arrays] if is_one else arrays


def by_axes(
    images: Sequence[np.ndarray], labels: Sequence[np.ndarray], names: Sequence[str], axes: str
) -> tuple[list[np.ndarray], list[np.ndarray], list[str]]:
    """Planes (C,Y,X) or (C,Z,Y,X), labels (Y,X) or (Z,Y,X), and names, for each point in time of each array."""
    planes, maps, by_time = list[np.ndarray](), list[np.ndarray](), list[str]()
    for image, target, name in zip(images, labels, names, strict=True):
        of_image, of_labels = frames(image, axes, name), frames(target, labels_axes(axes), f"the label map of {name}")
        if len(of_labels) != len(of_image):
            raise InputError(
                f"{name} has {len(of_image)} points in time and its labels {len(of_labels)}; give as many, and those "
                "that are not labelled with the value of pixels without a label."
            )
        planes += of_image
        maps += [values[0] for values in of_labels]
        by_time += [f"{name}, time {t}" for t in range(len(of_image))] if "T" in axes else [name]
    return planes, maps, by_time


def axes_of_pairs(images: Any, labels: Any, layout: Layout) -> str | None:
    """The axes of volumes that come with labels; None: the images are no volumes.

    Labels decide: three axes beside an image with the same three are those of a volume.
    """
    if n_axes_of(labels) == 3 and n_axes_of(images) is not None:
        return _axes_of_bare(np.shape(images), np.shape(labels), layout)
    is_read = all(isinstance(many, list | tuple | np.ndarray) for many in (images, labels))
    if not is_read or len(images) == 0 or len(images) != len(labels):
        return None
    # One at a time, and images only where it matters, since a caller's list may read them when they are asked for.
    shapes = [np.shape(labels[i]) for i in range(len(labels))]
    kinds = {
        _axes_of_pair(np.shape(images[i]), of_labels, layout) if len(of_labels) == 3 else None
        for i, of_labels in enumerate(shapes)
    }
    if len(kinds) > 1 and None in kinds:
        raise mixed()
    if len(kinds) > 1:
        both = " and others ".join(sorted(map(str, kinds)))
        raise InputError(f"some volumes have the axes {both}; give all of them with the same.")
    return kinds.pop()


def mixed() -> InputError:
    """The error for a set of images and volumes."""
    return InputError("some images are planes and others volumes; give either images or volumes, in separate models.")


def _axes_of_pair(image: tuple[int, ...], labels: tuple[int, ...], layout: Layout) -> str | None:
    """The axes of one image with its labels, of these shapes."""
    if len(image) not in (3, 4):
        return None
    if len(image) == 3:  # a last axis of 1, 3 or 4 is that of a picture of labels
        return "ZYX" if image == labels and labels[2] not in (1, 3, 4) else None
    is_last, is_first = image[:3] == labels, image[1:] == labels
    if is_last and is_first and layout == "picture":
        raise _two_readings(image, "ZYXC", "CZYX")
    return "CZYX" if is_first else "ZYXC" if is_last else None


def _axes_of_bare(image: tuple[int, ...], labels: tuple[int, ...], layout: Layout) -> str | None:
    """The axes of one array with one array of labels (_,_,_): a volume, unless it is a list of images."""
    if labels[2] in (1, 3, 4):  # colours of one label map, or labels of one channel
        return None
    if len(image) == 4 and image[1:] == labels and image[:3] != labels:
        return "CZYX"
    if image == labels or image[:3] == labels:
        channels = "C" * (len(image) - 3)
        raise _two_readings(image, f"ZYX{channels}", f"TYX{channels}")
    return None


def _two_readings(shape: Sequence[int], first: str, second: str) -> InputError:
    words = {
        "ZYX": "a volume",
        "ZYXC": "a volume whose last axis are channels",
        "CZYX": "a volume whose first axis are channels",
        "TYX": f"{shape[0]} images",
        "TYXC": f"{shape[0]} images",
    }
    return InputError(
        f'an array of shape {tuple(shape)} may be {words[first]} or {words[second]}; say which with axes="{first}" or '
        f'axes="{second}".'
    )


def axes_for_model(shape: tuple[int, ...], n_inputs: int, layout: Layout, is_volume: bool) -> str | None:
    """The axes of an array to predict; None: it is an image, as `to_planes` reads it.

    n_inputs: channels that the model reads; is_volume: whether it is a model of volumes
    """
    if len(shape) == 4:
        is_last, is_first = shape[3] == n_inputs, shape[0] == n_inputs
        if is_last and is_first and layout == "picture":
            raise _two_readings(shape, "ZYXC", "CZYX")
        return "ZYXC" if is_last and layout == "picture" else "CZYX"
    if len(shape) != 3 or n_inputs != 1 or (layout == "planes" and not is_volume):
        return None
    # To a model of images, a last axis that is the shortest holds channels.
    return "ZYX" if is_volume or (shape[2] > 1 and shape[2] >= min(shape[:2])) else None


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
    _check_counts(images, labels)
    return images, labels  # type: ignore[return-value]  # an array is a sequence of its parts


def named(names: Sequence[str] | None, n: int, what: str = "image", first: int = 0) -> list[str]:
    """The names given for n images, or numbered names; raises InputError unless there is one per image."""
    names = [f"{what} {i}" for i in range(first, first + n)] if names is None else list(names)
    if len(names) != n:
        raise InputError(f"there are {len(names)} name(s) for {n} image(s); give one for each.")
    return names


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
    """Images (H,W[,C]), or planes (F,H,W), and as many labels (H,W); or volumes, as planes (F,Z,H,W), and labels
    (Z,H,W).

    names:  of the images, for messages
    layout: how images are passed, which is "planes" for volumes
    """

    images: Sequence[np.ndarray]
    labels: Sequence[np.ndarray]
    names: Sequence[str]
    legend: Legend
    layout: Layout = "picture"

    def __len__(self) -> int:
        return len(self.images)


def given_arrays(
    images: Sequence[np.ndarray] | np.ndarray,
    labels: Sequence[np.ndarray] | np.ndarray,
    layout: Layout,
    names: Sequence[str] | None = None,
    what: str = "image",
    first: int = 0,
    legend: Legend | None = None,
    axes: str | None = None,
) -> Given:
    """Images with labels, or volumes with labels; one of each may come without lists.

    axes: of the arrays; None: those of volumes if the labels have three axes, else as `layout` says
    """
    legend, axes = legend or Legend(), checked_axes(axes) or axes_of_pairs(images, labels, layout)
    if axes is None:
        images, labels = listed(images, labels)
        return Given(images, labels, named(names, len(images), what, first), legend, layout)
    images, labels = one_or_more(images, axes), one_or_more(labels, labels_axes(axes))
    _check_counts(images, labels)
    return Given(*by_axes(images, labels, named(names, len(images), what, first), axes), legend, "planes")


def _check_counts(images: Sequence[np.ndarray] | np.ndarray, labels: Sequence[np.ndarray] | np.ndarray) -> None:
    if len(images) == 0 or len(images) != len(labels):
        raise InputError(
            f"there are {len(images)} image(s) and {len(labels)} label map(s); give one label map for each image."
        )


def voxel_of(voxel_size: VoxelSides | None) -> VoxelSize | None:
    """The size of a voxel along (z, y, x) that a caller gave instead of what the files say."""
    if voxel_size is None:
        return None
    z, y, x = check_voxel_size(voxel_size)
    return VoxelSize(y, x, z)
