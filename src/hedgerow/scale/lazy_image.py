"""`LazyImage`: an image whose regions are read on request."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from hedgerow.errors import ConfigError, InputError
from hedgerow.files import PathLike
from hedgerow.images.array_checks import Layout, to_planes
from hedgerow.images.pixel_size import PixelSize
from hedgerow.images.reading import Pages
from hedgerow.images.regions import Region
from hedgerow.images.stored import CHANNELS, channels_first, stack_axes
from hedgerow.scale.remote import absolute

LARGE_PIXELS = 2**26  # an image with more is read in parts
Read = Callable[[Region], np.ndarray]
"""Reads (C,h,w) in the number type of the file."""


@dataclass(frozen=True)
class Wanted:
    """Which image of a file is wanted; small, so that it can travel to other machines.

    path:   a file or folder, or an address such as s3://bucket/image.ome.zarr
    pages:  as in `read_image`
    level:  of a pyramid, 0 the largest
    sought: micrometres of a pixel: the level that comes nearest is read, in place of a number
    stamp:  of a run: what a worker has opened for one run is not taken for another one
    """

    path: str
    layout: Layout = "picture"
    pages: str | int | tuple[int, ...] | None = None
    level: int = 0
    sought: float | None = None
    stamp: str = ""


def wanted_image(
    image: PathLike,
    layout: Layout,
    pages: Pages = None,
    level: int = 0,
    pixel_size: float | None = None,
    stamp: str = "",
) -> Wanted:
    """`Wanted` with an absolute path, as workers in other folders need it."""
    numbers = pages if pages is None or isinstance(pages, str | int) else tuple(pages)
    return Wanted(absolute(image), layout, numbers, level, pixel_size, stamp)


@dataclass(frozen=True)
class LazyImage:
    """An image (C,H,W) in a file.

    chunk:    (h,w) that are decoded at once, of one of n_stacked blocks that lie over each other
    block:    bytes of that; 0: pixels are read as they lie in the file
    fill:     the value of pixels that are not stored; None: all are
    level:    which of the n_levels of a pyramid it is
    pixel:    how large a pixel is, if known
    identity: identifies the image without reading its pixels
    words:    how a file of several pages or channels was understood, "" for a plain picture
    """

    name: str
    shape: tuple[int, int, int]
    dtype: np.dtype
    read: Read
    chunk: tuple[int, int] = (512, 512)
    block: int = 0
    n_stacked: int = 1
    fill: float | None = None
    level: int = 0
    n_levels: int = 1
    pixel: PixelSize | None = None
    identity: Mapping[str, Any] = field(default_factory=dict)
    words: str = ""

    @property
    def size(self) -> tuple[int, int]:
        """(H, W)"""
        return self.shape[1:]

    @property
    def whole(self) -> Region:
        return Region(0, self.shape[1], 0, self.shape[2])

    def n_blocks(self, region: Region) -> int:
        """How many blocks are decoded to read a region."""
        high, wide = self.chunk
        down = -(-region.bottom // high) - region.top // high
        across = -(-region.right // wide) - region.left // wide
        return down * across * self.n_stacked if self.block else 0

    def planes(self, region: Region) -> np.ndarray:
        """(C,h,w) float32 of a region, checked as every image is."""
        name = f"{self.name}, from row {region.top} and column {region.left} on,"
        return to_planes(self.read(region), name, "planes")


class ImageWindow:
    """A part of an image (C,H,W) in memory, that answers to the image's own coordinates.

    Models take it for the image: they read parts of it by their place, and see where the image ends. What lies outside
    the part is read from the file.
    """

    ndim = 3
    dtype = np.dtype(np.float32)

    def __init__(self, image: LazyImage, part: Region) -> None:
        self.image, self.shape, self.part = image, image.shape, part
        self.values = image.planes(part)

    def __getitem__(self, place: tuple[Any, slice, slice]) -> np.ndarray:
        channels, rows, columns = place if len(place) == 3 else (slice(None), *place)
        asked = Region(*rows.indices(self.shape[1])[:2], *columns.indices(self.shape[2])[:2])
        part = self.part
        inside = part.top <= asked.top and asked.bottom <= part.bottom
        if inside and part.left <= asked.left and asked.right <= part.right:
            found = asked.within(part).of(self.values)
        else:
            found = self.image.planes(asked)
        return found if channels is Ellipsis else found[channels]


def part_of(array: Any, axes: str, chosen: Sequence[int], region: Region) -> np.ndarray:
    """(C,h,w): the chosen pages of an array with these axis letters, side by side, in a region.

    array: anything with a shape that can be indexed; only what is asked for is read
    """
    stack = stack_axes(axes, array.shape)
    lengths = tuple(stack.values())
    slices = {"Y": slice(region.top, region.bottom), "X": slice(region.left, region.right)}
    rest = "".join(axis for i, axis in enumerate(axes) if i not in stack)
    planes = []
    for page in chosen if prod(lengths) > 1 else (0,):
        at = dict(zip(stack, np.unravel_index(page, lengths), strict=True)) if stack else {}
        place = tuple(int(at[i]) if i in at else slices.get(axis, slice(None)) for i, axis in enumerate(axes))
        planes.append(channels_first(np.asarray(array[place]), rest))
    found = planes[0] if len(planes) == 1 else np.concatenate(planes)
    return found.astype(found.dtype.newbyteorder("="), copy=False)


def n_channels(axes: str, shape: Sequence[int], chosen: Sequence[int]) -> int:
    """Of the chosen pages together."""
    own = prod(length for axis, length in zip(axes, shape, strict=True) if axis in CHANNELS)
    return len(chosen) * own if stack_axes(axes, shape) else own


def chosen_level(name: str, wanted: Wanted, pixels: Sequence[PixelSize | None]) -> int:
    """Which level of a pyramid is wanted; pixels: how large a pixel is at each level."""
    if wanted.sought is None:
        if not 0 <= wanted.level < len(pixels):
            raise InputError(
                f"cannot read level {wanted.level} of {name}: it has {len(pixels)}, numbered from 0, the largest; "
                "give another --level."
            )
        return wanted.level
    if not 0 < wanted.sought < np.inf:
        raise ConfigError(f"the pixel size is {wanted.sought:g} micrometres; it must be larger than 0.")
    known = [(i, pixel) for i, pixel in enumerate(pixels) if pixel is not None]
    if not known:
        raise InputError(
            f"{name} does not say how large a pixel is, and a size of {wanted.sought:g} micrometres was asked for; "
            "give the number of a --level instead."
        )
    sought = np.log(wanted.sought)
    return min(known, key=lambda one: abs(np.log(np.sqrt(one[1].area)) - sought))[0]
