"""Axes and voxel sizes as users give them; the volumes and time points of a file."""

from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from hedgerow.errors import ConfigError, InputError, shown
from hedgerow.images.stored import Stored
from hedgerow.images.voxel_size import VoxelSize
from hedgerow.progress import Say

MOST_ANISOTROPY_RATIO = 1.05  # between the volumes of a set
AXES = "TZCYX"  # letters of axes: time, planes, channels, rows and columns


def checked_axes(axes: str | None) -> str:
    """Letters of axes as users give them, in capitals; "" for None. Raises ConfigError."""
    letters = "" if axes is None else str(axes).strip().upper()
    if axes is None or (len(set(letters)) == len(letters) and {*"YX"} <= set(letters) <= set(AXES)):
        return letters
    raise ConfigError(
        f"the axes (--axes) are {shown(axes)}, expected Y and X and any of T (time), Z and C (channels), each once and "
        "in their order in the file, e.g. ZYX, ZYXC or TYX."
    )


def given_voxel_size(text: str | None) -> tuple[float, float, float] | None:
    """The size of a voxel along (z, y, x) that a user gives as in "1.4,0.4,0.4"."""
    if text is None:
        return None
    with suppress(ValueError, TypeError):
        depth, height, width = (float(part) for part in text.split(","))
        if all(0 < side < np.inf for side in (depth, height, width)):
            return depth, height, width
    raise ConfigError(
        f"the voxel size (--voxel-size) is {text!r}, expected three lengths along z, y and x, e.g. 1.4,0.4,0.4."
    )


def frames_of(stored: Stored, is_given: bool = False) -> tuple[list[Sequence[int]], bool] | None:
    """The pages of each time point of a file, and whether these are the planes of a volume; None for a file without z
    planes and time points, or with pages of another kind.

    is_given: the axes were given, so that a single plane is a volume, and a single time point is a series
    """
    stack = {stored.axes[i]: length for i, length in stored.stack.items()}
    is_volume, is_series = (axis in stack or (is_given and axis in stored.axes) for axis in "ZT")
    if len(stored.pages) > 1 or not set(stack) <= {*"ZT"} or not (is_volume or is_series):
        return None
    if len(stack) == 2:
        numbers = np.arange(stored.n_pages).reshape(tuple(stack.values()))
        return [own.tolist() for own in (numbers if list(stack) == ["T", "Z"] else numbers.T)], is_volume
    pages = range(stored.n_pages)
    return ([[page] for page in pages] if "T" in stack else [pages]), is_volume


def words_of_frames(shape: Sequence[int], n_frames: int, voxel: VoxelSize | None) -> str:
    """How a volume (C,Z,H,W) or a series of n_frames images is read, such as "a volume of 12 z planes"."""
    n_channels, *depth = shape[:-2]
    parts = [f"a volume of {_plural(depth[0], 'z plane')}"] if depth else []
    if n_frames:
        parts = [
            f"{_plural(n_frames, 'time point')}" + (f", each {parts[0]}" if parts else ", read as separate images")
        ]
    if n_channels > 1:
        parts.append(f"{n_channels} channels")
    if depth:
        parts.append("voxels of unknown size" if voxel is None or voxel.depth is None else str(voxel))
    return ", ".join(parts)


def _plural(n: int, noun: str) -> str:
    return f"{n} {noun}{'s' * (n != 1)}"


def anisotropy_of_files(
    planes: Sequence[np.ndarray], sizes: Sequence[VoxelSize | None], names: Sequence[str], say: Say
) -> float:
    """The distance between the slices of volumes in pixels, from the voxel sizes in their files; 1 for images."""
    known = {
        name: size.anisotropy
        for image, size, name in zip(planes, sizes, names, strict=True)
        if image.ndim == 4 and size is not None and size.anisotropy is not None
    }
    if not known:
        if any(len(image[0]) > 1 for image in planes if image.ndim == 4):
            say(
                "note: the files do not say how far apart their z planes are, so they are taken to be as far apart as "
                "pixels; if they are not, add --voxel-size Z,Y,X (in Python voxel_size=(z, y, x))"
            )
        return 1.0
    low, high = (choose(known, key=known.__getitem__) for choose in (min, max))
    if known[high] > MOST_ANISOTROPY_RATIO * known[low]:
        raise InputError(
            f"in {low} z planes are {known[low]:.3g} pixels apart and in {high} {known[high]:.3g}, expected the same;"
            " give volumes of one kind, or the voxel size of all of them with --voxel-size Z,Y,X."
        )
    return float(np.median(list(known.values())))
