"""What an image file says that it holds, before its pixels are read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hedgerow.errors import InputError
from hedgerow.images.pixel_size import PixelSize

Role = Literal["picture", "planes", "labels"]
"""What a file is read as: a picture, a user's own channels, or a label map."""

CHANNELS = "CS"  # letters of axes that are channels: channels, and samples of a colour
UNKNOWN = "IQ"  # letters of axes of which a file says nothing: pages, and axes of an array
MOST_VALUES = 2**63 - 1  # of an array, which Python and NumPy can count
MAX_CHANNELS = 100_000  # of an image
COLOURS = (3, 4)  # samples of a pixel in colour


@dataclass(frozen=True)
class Page:
    """One page as it will be read: (H,W), or (H,W,C) for several channels.

    is_colour: the channels are the colours of a picture
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


def unsized() -> PixelSize | None:
    """Of a file that does not say how large a pixel is."""
    return None


@dataclass(frozen=True)
class Stored:
    """An image in an open file.

    pages:    each of them if they differ, else one that stands for all
    load:     reads the pages of the given indices, from 0, side by side as channels: (H,W) or (H,W,C)
    axes:     a letter for each axis of an array, of which Y and X are rows and columns, CHANNELS are channels and the
              others count the pages; "I" for pages of which nothing is said
    shape:    of that array
    is_array: its axes have no names, so that it is a guess which one holds channels, and whether it does
    block:    bytes that are decoded at once, beside the image
    pixel:    reads how large a pixel is, if the file says so
    lazy:     gives the array, of which only what is indexed is read, even once the file is closed; None: it cannot
    """

    pages: tuple[Page, ...]
    load: Load
    axes: str = "YX"
    shape: tuple[int, ...] = ()
    is_array: bool = False
    block: int = 0
    pixel: Callable[[], PixelSize | None] = unsized
    lazy: Callable[[], Any] | None = None

    @property
    def stack(self) -> dict[int, int]:
        """Position -> length of the axes that count pages."""
        return stack_axes(self.axes, self.shape)

    @property
    def n_pages(self) -> int:
        return len(self.pages) if len(self.pages) > 1 else prod(self.stack.values())

    def page(self, i: int) -> Page:
        return self.pages[i if len(self.pages) > 1 else 0]

    def n_channels(self, chosen: Sequence[int]) -> int:
        """Of the chosen pages together."""
        if len(self.pages) == 1:
            return len(chosen) * self.pages[0].n_channels
        return sum(self.pages[i].n_channels for i in chosen)


def stack_axes(axes: str, shape: Sequence[int]) -> dict[int, int]:
    """Position -> length of the axes that are longer than 1 and neither rows, columns nor channels."""
    named = enumerate(zip(axes, shape, strict=False))
    return {i: length for i, (axis, length) in named if axis not in "YX" + CHANNELS and length > 1}


def unnamed_axes(shape: Sequence[int]) -> str:
    """Axis letters of an unnamed 2-D or 3-D array: channels are the smaller of the first and last axes."""
    if len(shape) == 2:
        return "YX"
    return "YXC" if shape[2] <= shape[0] else "CYX"


def array_axes(shape: Sequence[int]) -> str:
    """Axis letters of an array whose axes have no names, in which channels are of unknown meaning; "" if it cannot be
    an image."""
    return unnamed_axes(shape).replace("C", "Q") if len(shape) in (2, 3) else ""


def shape_text(shape: Sequence[int]) -> str:
    """A shape as part of a sentence: a false one may have thousands of digits."""
    text = str(tuple(shape))
    return text if len(text) <= 200 else f"{text[:197]}..."


def refuse_shape(path: Path, shape: Sequence[int], axes: str) -> None:
    """Raise InputError unless an array with these axis letters can hold an image."""
    lengths = shape_text(shape)
    if not all(isinstance(length, Integral) for length in shape) or prod(shape) > MOST_VALUES:
        raise InputError(
            f"cannot read {path}: it declares an array of shape {lengths}, which no file can hold; save it again"
        )
    if len(axes) != len(shape) or axes.count("Y") != 1 or axes.count("X") != 1:
        raise InputError(
            f"cannot read {path}: found an array of shape {lengths}, expected one 2-D image, (H,W),"
            " (H,W,C) or (C,H,W); save one image per file"
        )
    if min(shape) < 1:
        raise InputError(
            f"cannot read {path}: found an array of shape {lengths}, so it has no pixels; leave it out or save it again"
        )


def page_of(axes: str, shape: Sequence[int], dtype: np.dtype) -> Page:
    """One page of an array with these axis letters."""
    lengths = dict(zip(axes, shape, strict=True))
    n_channels = prod(length for axis, length in zip(axes, shape, strict=True) if axis in CHANNELS)
    is_colour = lengths.get("S") in COLOURS and n_channels == lengths["S"]
    return Page(lengths["Y"], lengths["X"], n_channels, dtype, is_colour)


def stored_array(
    path: Path,
    shape: tuple[int, ...],
    dtype: np.dtype,
    axes: str,
    read: Callable[[], Any],
    *,
    is_array: bool = False,
    block: int = 0,
    lazy: Callable[[], Any] | None = None,
) -> Stored:
    """An array in a file, with its axis letters; `read` gives it, or something that can be indexed like it."""
    refuse_shape(path, shape, axes)

    def load(chosen: Sequence[int]) -> np.ndarray:
        return pages_of(read(), axes, chosen)

    return Stored((page_of(axes, shape, dtype),), load, axes, shape, is_array, block, lazy=lazy)


def pages_of(array: Any, axes: str, chosen: Sequence[int]) -> np.ndarray:
    """(H,W) or (H,W,C): the chosen pages of an array with the given axis letters, side by side as channels.

    array: anything with a shape that can be indexed; only what is chosen is read
    """
    stack = stack_axes(axes, array.shape)
    lengths = tuple(stack.values())
    if chosen == range(prod(lengths)):
        return side_by_side([channels_first(np.asarray(array[...]), axes)])
    rest = "".join(axis for i, axis in enumerate(axes) if i not in stack)
    planes = []
    for page in chosen:
        place = dict(zip(stack, np.unravel_index(page, lengths), strict=True))
        part = array[tuple(int(place[i]) if i in place else slice(None) for i in range(len(axes)))]
        planes.append(channels_first(np.asarray(part), rest))
    return side_by_side(planes)


def channels_first(array: np.ndarray, axes: str) -> np.ndarray:
    """(C,H,W) from an array with the given axis letters: page after page, and of each its channels."""
    ranks = {"Y": 2, "X": 3} | dict.fromkeys(CHANNELS, 1)
    order = sorted(range(len(axes)), key=lambda i: ranks.get(axes[i], 0))
    moved = array.transpose(order)
    return moved.reshape(-1, *moved.shape[-2:])


def side_by_side(planes: Sequence[np.ndarray]) -> np.ndarray:
    """(H,W) or (H,W,C) from arrays (c,H,W)."""
    joined = planes[0] if len(planes) == 1 else np.concatenate(planes)
    return joined[0] if len(joined) == 1 else np.moveaxis(joined, 0, -1)
