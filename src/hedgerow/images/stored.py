"""Which image of a file to open, and the content of the file as its reader describes it before reading pixels.

The pages of a file may be those of a TIFF, z planes, time points, or whatever else it stacks beside channels.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, islice
from math import prod
from numbers import Integral
from operator import index
from typing import Any, Literal

import numpy as np

from hedgerow.errors import ConfigError, InputError, first_few, shown
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
    """

    path: str
    layout: Role = "picture"
    pages: Pages = None
    level: int = 0
    pixel_size: float | None = None
    stamp: str = ""

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
            " (H,W,C) or (C,H,W); save one image per file."
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
    planes = []
    for page in chosen:
        for i, position in zip(stack, np.unravel_index(page, lengths), strict=True):
            place[i] = int(position)
        planes.append(channels_first(np.asarray(array[tuple(place)]), rest))
    return planes[0] if len(planes) == 1 else np.concatenate(planes)


def channels_first(array: np.ndarray, axes: str) -> np.ndarray:
    """(C,H,W) from an array with these axis letters: the channels of one page after another."""
    ranks = {"Y": 2, "X": 3} | dict.fromkeys(CHANNELS, 1)
    order = sorted(range(len(axes)), key=lambda i: ranks.get(axes[i], 0))
    moved = array.transpose(order)
    return moved.reshape(-1, *moved.shape[-2:])


def as_picture(planes: np.ndarray) -> np.ndarray:
    """(H,W) or (H,W,C) from (C,H,W)."""
    return planes[0] if len(planes) == 1 else np.moveaxis(planes, 0, -1)


MOST_PAGES = 1_000_000  # numbers that can be given
_LARGEST = 10**9
_MOST_KINDS = 4  # kinds of pages that a message lists
_RANGE = re.compile(r"\s*([0-9]{1,9})\s*(?:-\s*([0-9]{1,9})\s*)?")
_NOUNS = {"Z": "z plane", "T": "time point"} | dict.fromkeys(UNKNOWN, "page")


def page_numbers(pages: Pages) -> tuple[int, ...] | None:
    """The page numbers that were given, from 1; () for all pages; None if no choice was given. Raises ConfigError."""
    if pages is None:
        return None
    if isinstance(pages, str) and pages.strip().lower() == "all":
        return ()
    try:
        numbers = tuple(islice(_each_number(pages), MOST_PAGES + 1))
    except (TypeError, ValueError) as problem:
        raise _no_pages(pages) from problem
    if not 0 < len(numbers) <= MOST_PAGES or min(numbers) < 1 or max(numbers) > _LARGEST:
        raise _no_pages(pages)
    if len(set(numbers)) < len(numbers):
        raise ConfigError(f"pages (--pages) is {shown(pages)}, which names a page twice; name each once.")
    return numbers


def _each_number(pages: str | int | Sequence[int]) -> Iterable[int]:
    """The numbers in a text or a sequence, as they are; raises TypeError or ValueError if they are not page numbers."""
    if isinstance(pages, str):
        matches = [_RANGE.fullmatch(part) for part in pages.split(",")]
        ranges = [range(int(match[1]), int(match[2] or match[1]) + 1) for match in matches if match]
        if len(ranges) < len(matches) or not all(ranges):  # a range that runs backwards is empty
            raise ValueError("this is not a list of pages")
        return chain.from_iterable(ranges)
    each = list(pages) if isinstance(pages, Iterable) else [pages]
    if isinstance(pages, bytes) or any(isinstance(page, bool | np.bool_) for page in each):
        raise TypeError("these are not page numbers")
    return map(index, each)


def _no_pages(pages: object) -> ConfigError:
    expected = f'"all", or at most {MOST_PAGES:,} numbers from 1, as "3" or "1,3-5"'
    return ConfigError(f"pages (--pages) is {shown(pages)}, expected {expected}.")


def chosen_pages(path: str, stored: Stored, pages: Pages, role: Role) -> Sequence[int]:
    """Indices, from 0, of the pages to read; refuses missing pages, ambiguous files, and pages that differ."""
    asked, n_pages = page_numbers(pages), stored.n_pages
    chosen: Sequence[int]
    if asked is None:
        if n_pages > 1 and not stored.is_array:
            raise InputError(f"cannot read {path}: {_ambiguous(stored)}; {_remedy(stored, role)}.")
        asked = ()
    beyond = next((number for number in asked if number > n_pages), None)
    if beyond is not None:
        held = f"{n_pages} pages" if n_pages > 1 else "one page (channels are not pages)"
        raise InputError(
            f"cannot read {path}: it has {held}, so there is no page {beyond}; give other numbers for pages (--pages)."
        )
    # A range shows loaders that it is all pages.
    is_all = not asked or (len(asked) == n_pages and asked == tuple(range(1, n_pages + 1)))
    chosen = range(n_pages) if is_all else [number - 1 for number in asked]
    if len(stored.pages) > 1 and len({_kind(stored.page(i)) for i in chosen}) > 1:
        number = chosen[0] + 1
        raise InputError(
            f"cannot read {path}: the pages differ in size or number type ({_kinds(stored, chosen)}), so they"
            f" cannot be channels of one image; give pages of one kind, e.g. pages={number} (--pages {number})."
        )
    n_channels = stored.n_channels(chosen)
    if n_channels > MAX_CHANNELS:
        raise InputError(
            f"cannot read {path}: it has {n_channels:,} channels, expected at most {MAX_CHANNELS:,}; choose some of its"
            " pages (--pages), or save an image with fewer channels."
        )
    return chosen


def words(stored: Stored, chosen: Sequence[int]) -> str:
    """How the chosen pages of a file are read, such as "page 3 of 5"; "" for a plain picture."""
    n_channels = stored.n_channels(chosen)
    if stored.is_array and len(chosen) == stored.n_pages > 1:
        first = stored.page(0)
        return f"an array of shape {stored.shape} read as {n_channels} channels of {first.height} x {first.width}"
    channels = "" if n_channels == 1 or stored.page(chosen[0]).is_colour else f"{n_channels} channels"
    if stored.n_pages == 1:
        return channels
    noun, n_pages = _noun(stored), stored.n_pages
    if len(chosen) == 1:
        where = f"{noun} {chosen[0] + 1} of {n_pages}{_place(stored, chosen[0])}"
        return f"{channels}; {where}" if channels else where
    of = "" if len(chosen) == n_pages else f" of {n_pages}"
    return f"{noun}s {_numbers(chosen)}{of} read as {n_channels} channels"


def _noun(stored: Stored) -> str:
    """The word for one page of a file."""
    letters = [stored.axes[i] for i in stored.stack]
    return _NOUNS.get(letters[0], "page") if len(letters) == 1 else "page"


def _place(stored: Stored, page: int) -> str:
    """The position of a page along several axes."""
    stack = stored.stack
    if len(stack) < 2:
        return ""
    places = np.unravel_index(page, tuple(stack.values()))
    positions = [f"{stored.axes[i]} {int(at) + 1} of {n}" for (i, n), at in zip(stack.items(), places, strict=True)]
    return f" ({', '.join(positions)})"


def _ambiguous(stored: Stored) -> str:
    n_pages = stored.n_pages
    if len(stored.pages) > 1:
        return f"found {n_pages} pages that differ ({_kinds(stored, range(n_pages))}), expected one image"
    letters, array = {stored.axes[i] for i in stored.stack}, f"axes {stored.axes} of shape {stored.shape}"
    if letters <= set(UNKNOWN):
        axes = f" ({array})" if len(stored.stack) > 1 else ""
        return f"found {n_pages} pages of the same size{axes}, and the file does not say what they are"
    counts = " x ".join(_counted(n, stored.axes[i]) for i, n in stored.stack.items())
    return f"found a stack of {counts} ({array}), expected one 2-D image"


def _counted(n: int, axis: str) -> str:
    return f"{n} {_NOUNS[axis]}s" if axis in _NOUNS else f"{n} planes along axis {axis}"


def _remedy(stored: Stored, role: Role) -> str:
    page = min(3, stored.n_pages)
    if role == "labels":
        return f"save the page with the labels as a separate file, or give its number, pages={page} in Python"
    if len(stored.pages) > 1:
        return "give the number of one of them, e.g. pages=1 (--pages 1), or save one image per file"
    return f'give pages="all" (--pages all) to read them as channels, or pages={page} (--pages {page}) to read one'


def _kind(page: Page) -> tuple[int, int, np.dtype]:
    """Pages can be channels of one image if these are the same."""
    return page.height, page.width, page.dtype


def _kinds(stored: Stored, chosen: Sequence[int]) -> str:
    """The kinds of pages, such as "page 1: 40 x 30 uint8, pages 2-3: 20 x 15 x 3 uint8"."""
    kinds = []
    for page, group in groupby(chosen, stored.page):
        alike = list(group)
        size = " x ".join(map(str, (page.height, page.width, page.n_channels)[: 2 + (page.n_channels > 1)]))
        kinds.append(f"page{'s' * (len(alike) > 1)} {_numbers(alike)}: {size} {page.dtype}")
    return first_few(kinds, _MOST_KINDS)


def _numbers(chosen: Sequence[int]) -> str:
    """Indices from 0 as numbers from 1, such as "1-5" or "1, 3-5"."""
    if isinstance(chosen, range):
        return f"1-{len(chosen)}" if len(chosen) > 1 else "1"
    runs: list[list[int]] = []
    for number in (i + 1 for i in chosen):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
