"""Which image of a file to open, and the content of the file as its reader describes it before reading pixels.

The pages of a file may be those of a TIFF, z planes, time points, or whatever else it stacks beside channels.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from numbers import Integral
from typing import Any, Literal

import numpy as np

from hedgerow.errors import ConfigError, InputError, shown
from hedgerow.images.regions import Region
from hedgerow.images.voxel_size import VoxelSize

Role = Literal["picture", "planes", "labels"]
"""How a file is read: as a picture, as a user's own channels, or as a label map."""

Pages = str | int | Sequence[int] | None
"""Which pages to read: None for a file with only one; "all"; or numbers from 1, as 3, "3", "1,3-5" or [1, 3]."""

CHANNELS = "CS"  # letters of axes that are channels: channels, and samples of a colour
UNKNOWN = "IQ"  # letters of axes without a known meaning: pages, and axes of an array
MOST_VALUES = 2**63 - 1  # of an array; Python and NumPy can count no more
MAX_CHANNELS = 100_000  # of an image
COLOUR_SAMPLES = (3, 4)  # number of samples of a colour pixel


@dataclass(frozen=True)
class ImageSpec:
    """Which image of a file to open, and how to read it; small, so that it can be sent to other machines.

    path:       a file or folder, or an address such as s3://bucket/image.ome.zarr
    pages:      as in `read_image`
    level:      of a pyramid; 0 is the largest
    pixel_size: in micrometres; selects the level that comes nearest, instead of `level`
    stamp:      identifies a run, so that a worker does not reuse a file that it opened for another run
    volumes:    read z planes as a volume and time points as a series of images; False: they are pages
    axes:       letters for the axes of the array, from T, Z, C, Y and X; "": those that the file names
    assumed:    such letters for a file that names none
    voxel:      the size of a voxel, instead of what the file says
    """

    path: str
    layout: Role = "picture"
    pages: Pages = None
    level: int = 0
    pixel_size: float | None = None
    stamp: str = ""
    volumes: bool = False
    axes: str = ""
    assumed: str = ""
    voxel: VoxelSize | None = None

    def axes_for(self, shape: Sequence[int], own: str) -> str:
        """Letters for the axes of an array of this shape, for which the file has letters of its own, or "".

        Labels have no channels.
        """
        if self.axes:
            given = self.axes
            if self.layout == "labels" and len(given) > len(shape):
                given = given.replace("C", "")
            if len(given) != len(shape):
                raise InputError(
                    f"cannot read {self.path}: found an array of shape {shown(tuple(shape), 200)}, but its axes are "
                    f'given as {self.axes}; give one letter for each axis, e.g. --axes ZYX (in Python axes="ZYX").'
                )
            return given
        if self.assumed and own.startswith("I"):
            return own.replace("I", "Z")
        is_unknown = not own or bool(set(own) & set(UNKNOWN))
        return self.assumed if self.assumed and is_unknown and len(self.assumed) == len(shape) else own

    def level_of(self, sizes: Sequence[VoxelSize | None]) -> int:
        """Which level of a pyramid to read; sizes: the voxel size of each level."""
        if self.pixel_size is None:
            if not 0 <= self.level < len(sizes):
                raise InputError(
                    f"cannot read level {self.level} of {self.path}: its {len(sizes)} level(s) are numbered from 0, "
                    "the largest; give another --level."
                )
            return self.level
        if not 0 < self.pixel_size < np.inf:
            raise ConfigError(f"the pixel size is {self.pixel_size:g} micrometres; it must be larger than 0.")
        known = {i: size.area for i, size in enumerate(sizes) if size is not None}
        if not known:
            raise InputError(
                f"{self.path} does not say how large its pixels are, so no level can be chosen for pixels of "
                f"{self.pixel_size:g} micrometres; give the number of a --level instead."
            )
        sought = 2 * np.log(self.pixel_size)
        return min(known, key=lambda i: abs(np.log(known[i]) - sought))


@dataclass(frozen=True)
class Page:
    """One page as it will be read: (H,W), or (H,W,C) for several channels.

    is_colour: whether the channels are the colours of a picture
    """

    height: int
    width: int
    n_channels: int
    dtype: np.dtype
    is_colour: bool = False

    @property
    def n_bytes(self) -> int:
        return self.height * self.width * self.n_channels * self.dtype.itemsize


Load = Callable[[Sequence[int]], np.ndarray]
"""Reads the pages with these indices, from 0, and joins them as channels: (C,H,W)."""


@dataclass(frozen=True)
class Stored:
    """The content of an open file, as a reader describes it.

    pages:    all pages if they differ, else one that stands for all
    load:     reads whole pages
    axes:     a letter for each axis of the array: Y and X are rows and columns, CHANNELS are channels, and the others
              count pages; "I" stands for pages without a known meaning
    shape:    of that array
    is_array: its axes have no names, so that which axis holds channels, if any, is a guess
    array:    can be indexed like that array, and reads only what is indexed; None: the file can only be read whole
    chunks:   shape of the part of the array that is decoded at once; (): pixels are stored as they are in memory
    block:    bytes that are decoded at once, in addition to the image, when all of it is read
    fill:     the value of pixels that are not stored; None: all pixels are stored
    level:    which of the n_levels of a pyramid this is
    voxel:    reads the size of a voxel; None if the file does not say it
    palette:  index -> colour of a label map with a palette; empty for a ramp of greys, which nobody chose
    identity: values that change with the content, in addition to the size and date of a file
    """

    pages: tuple[Page, ...]
    load: Load
    axes: str = "YX"
    shape: tuple[int, ...] = ()
    is_array: bool = False
    array: Any = None
    chunks: tuple[int, ...] = ()
    block: int = 0
    fill: float | None = None
    level: int = 0
    n_levels: int = 1
    voxel: Callable[[], VoxelSize | None] = lambda: None
    palette: Mapping[int, tuple[int, int, int]] = field(default_factory=dict)
    identity: Mapping[str, Any] = field(default_factory=dict)

    @property
    def stack(self) -> dict[int, int]:
        """Position -> length of each axis that counts pages."""
        return stack_axes(self.axes, self.shape)

    @property
    def n_pages(self) -> int:
        return len(self.pages) if len(self.pages) > 1 else prod(self.stack.values())

    @property
    def is_unknown(self) -> bool:
        """Whether the file does not say what its axes are."""
        return self.is_array or bool(set(self.axes) & set(UNKNOWN))

    def page(self, i: int) -> Page:
        return self.pages[i if len(self.pages) > 1 else 0]

    def n_channels(self, chosen: Sequence[int]) -> int:
        """The number of channels of the chosen pages together."""
        if len(self.pages) == 1:
            return len(chosen) * self.pages[0].n_channels
        return sum(self.pages[i].n_channels for i in chosen)


def stack_axes(axes: str, shape: Sequence[int]) -> dict[int, int]:
    """Position -> length of each axis that is longer than 1 and not rows, columns or channels."""
    named = enumerate(zip(axes, shape, strict=False))
    return {i: length for i, (axis, length) in named if axis not in "YX" + CHANNELS and length > 1}


def array_axes(shape: Sequence[int]) -> str:
    """Axis letters of an array whose axes have no names; "" if it cannot be an image.

    Of three axes, the shorter one of the first and last may hold channels: Q.
    """
    if len(shape) == 3:
        return "YXQ" if shape[2] <= shape[0] else "QYX"
    return "YX" if len(shape) == 2 else ""


def refuse_shape(path: str, shape: Sequence[int], axes: str) -> None:
    """Raise InputError unless an array with these axis letters can hold an image."""
    lengths = shown(tuple(shape), 200)  # a false length may have thousands of digits
    if not all(isinstance(length, Integral) for length in shape) or prod(shape) > MOST_VALUES:
        raise InputError(
            f"cannot read {path}: it declares an array of shape {lengths}, which no file can hold; save it again."
        )
    if len(axes) != len(shape) or axes.count("Y") != 1 or axes.count("X") != 1:
        raise InputError(
            f"cannot read {path}: found an array of shape {lengths}, expected one 2-D image, (H,W),"
            " (H,W,C) or (C,H,W); save one image per file, or name the axes of a stack, e.g. --axes ZYX (in Python"
            ' axes="ZYX").'
        )
    if min(shape) < 1:
        raise InputError(
            f"cannot read {path}: found an array of shape {lengths}, without any pixel; leave it out or save it again."
        )


def page_of(axes: str, shape: Sequence[int], dtype: np.dtype) -> Page:
    """One page of an array with these axis letters."""
    lengths = dict(zip(axes, shape, strict=True))
    n_channels = prod(length for axis, length in zip(axes, shape, strict=True) if axis in CHANNELS)
    is_colour = lengths.get("S") in COLOUR_SAMPLES and n_channels == lengths["S"]
    return Page(lengths["Y"], lengths["X"], n_channels, dtype, is_colour)


def array_in_file(path: str, array: Any, axes: str, load: Load | None = None, **more: Any) -> Stored:
    """The content of a file that holds one array with these axis letters; more: fields of `Stored`.

    array: can be indexed, and reads only what is indexed
    load:  reads whole pages, if there is a better way than indexing
    """
    refuse_shape(path, array.shape, axes)
    load = load or (lambda chosen: pages_of(array, axes, chosen))
    return Stored((page_of(axes, array.shape, array.dtype),), load, axes, tuple(array.shape), array=array, **more)


def pages_of(array: Any, axes: str, chosen: Sequence[int], region: Region | None = None) -> np.ndarray:
    """(C,h,w): the chosen pages of an array with these axis letters, joined as channels; all or a region of them.

    array: can be indexed and has a shape; only the chosen pages are read
    """
    spans = {} if region is None else {"Y": slice(region.top, region.bottom), "X": slice(region.left, region.right)}
    place: list[Any] = [spans.get(axis, slice(None)) for axis in axes]
    stack = stack_axes(axes, array.shape)
    lengths = tuple(stack.values())
    if chosen == range(prod(lengths)):
        return channels_first(np.asarray(array[tuple(place)]), axes)
    rest = "".join(axis for i, axis in enumerate(axes) if i not in stack)
    run = _run(chosen, lengths)
    if run is not None:
        for i, span in zip(stack, run, strict=True):
            place[i] = span
        return channels_first(np.asarray(array[tuple(place)]), axes)
    planes = []
    for page in chosen:
        for i, position in zip(stack, np.unravel_index(page, lengths), strict=True):
            place[i] = int(position)
        planes.append(channels_first(np.asarray(array[tuple(place)]), rest))
    return planes[0] if len(planes) == 1 else np.concatenate(planes)


def _run(chosen: Sequence[int], lengths: Sequence[int]) -> list[slice] | None:
    """One slice for each axis that counts pages, if the chosen pages follow each other along a single axis."""
    if len(chosen) < 2:
        return None
    places = np.array(np.unravel_index(np.asarray(chosen), tuple(lengths)))
    moving = np.flatnonzero((places != places[:, :1]).any(axis=1))
    if len(moving) != 1 or not (np.diff(places[moving[0]]) == 1).all():
        return None
    return [slice(int(at[0]), int(at[-1]) + 1) for at in places]


def channels_first(array: np.ndarray, axes: str) -> np.ndarray:
    """(C,H,W) from an array with these axis letters: the channels of one page after another."""
    ranks = {"Y": 2, "X": 3} | dict.fromkeys(CHANNELS, 1)
    order = sorted(range(len(axes)), key=lambda i: ranks.get(axes[i], 0))
    moved = array.transpose(order)
    return moved.reshape(-1, *moved.shape[-2:])


def as_picture(planes: np.ndarray) -> np.ndarray:
    """(H,W) or (H,W,C) from (C,H,W)."""
    return planes[0] if len(planes) == 1 else np.moveaxis(planes, 0, -1)
