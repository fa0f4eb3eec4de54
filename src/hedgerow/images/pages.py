"""Pages: what a file stacks besides its channels (pages of a TIFF, z planes, time points), and which to read."""

import re
import reprlib
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import index

import numpy as np

from hedgerow.errors import ConfigError, InputError
from hedgerow.images.stored import MAX_CHANNELS, UNKNOWN, Page, Pages, Role, Stored

MOST_PAGES = 1_000_000  # that can be asked for by their numbers
_LARGEST = 10**9
_MOST_KINDS = 4  # different pages that are named
_RANGE = re.compile(r"\s*([0-9]{1,9})\s*(?:-\s*([0-9]{1,9})\s*)?")
_NOUNS = {"Z": "z plane", "T": "time point"} | dict.fromkeys(UNKNOWN, "page")


def page_numbers(pages: Pages) -> tuple[int, ...] | None:
    """The pages asked for, from 1; () for all of them, None where nothing was asked. Raises ConfigError."""
    if pages is None:
        return None
    if isinstance(pages, str):
        if pages.strip().lower() == "all":
            return ()
        numbers = _in_text(pages)
    else:
        numbers = _in_sequence(pages)
    if not numbers or min(numbers) < 1 or max(numbers) > _LARGEST:
        raise _no_pages(pages)
    if len(set(numbers)) < len(numbers):
        raise ConfigError(f"pages (--pages) is {_short(pages)}, which names a page twice; name each once")
    return numbers


def _in_text(text: str) -> tuple[int, ...]:
    numbers: list[int] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if not match:
            raise _no_pages(text)
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or len(numbers) + last - first >= MOST_PAGES:
            raise _no_pages(text)
        numbers.extend(range(first, last + 1))
    return tuple(numbers)


def _in_sequence(pages: int | Sequence[int]) -> tuple[int, ...]:
    try:
        each = list(pages) if isinstance(pages, Iterable) else [pages]
        if isinstance(pages, bytes) or any(isinstance(page, bool | np.bool_) for page in each):
            raise TypeError("these are no page numbers")
        return tuple(index(page) for page in each)
    except TypeError as problem:
        raise _no_pages(pages) from problem


def _no_pages(pages: object) -> ConfigError:
    expected = f'"all", or at most {MOST_PAGES:,} numbers from 1, as "3" or "1,3-5"'
    return ConfigError(f"pages (--pages) is {_short(pages)}, expected {expected}")


def _short(pages: object) -> str:
    try:
        return reprlib.repr(pages)
    except ValueError:  # Python does not write numbers of thousands of digits
        return "a number of too many digits"


def chosen_pages(path: str, stored: Stored, pages: Pages, role: Role) -> Sequence[int]:
    """Indices, from 0, of the pages to read; refuses what is not there, what is ambiguous and what does not fit."""
    asked, n_pages = page_numbers(pages), stored.n_pages
    chosen: Sequence[int]
    if asked is None:
        if n_pages > 1 and not stored.is_array:
            raise InputError(f"cannot read {path}: {_ambiguous(stored)}; {_remedy(stored, role)}")
        asked = ()
    beyond = next((number for number in asked if number > n_pages), None)
    if beyond is not None:
        held = f"found {n_pages} pages" if n_pages > 1 else "found one page (channels are no pages)"
        raise InputError(
            f"cannot read {path}: {held}, and page {beyond} was asked for; give other numbers for pages (--pages)"
        )
    # A range tells those who load that it is all of them.
    is_all = not asked or (len(asked) == n_pages and asked == tuple(range(1, n_pages + 1)))
    chosen = range(n_pages) if is_all else [number - 1 for number in asked]
    if len(stored.pages) > 1 and len({_kind(stored.page(i)) for i in chosen}) > 1:
        number = chosen[0] + 1
        raise InputError(
            f"cannot read {path}: the pages to read differ in size or number type ({_kinds(stored, chosen)}), so they"
            f" cannot be channels of one image; give pages of one kind, e.g. pages={number} (--pages {number})"
        )
    n_channels = stored.n_channels(chosen)
    if n_channels > MAX_CHANNELS:
        raise InputError(
            f"cannot read {path}: it has {n_channels:,} channels, expected at most {MAX_CHANNELS:,}; choose some of its"
            " pages (--pages), or save an image with fewer channels"
        )
    return chosen


def words(stored: Stored, chosen: Sequence[int]) -> str:
    """What the chosen pages of a file are read as, "" for a plain picture: "page 3 of 5"."""
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
    """What one page is."""
    letters = [stored.axes[i] for i in stored.stack]
    return _NOUNS.get(letters[0], "page") if len(letters) == 1 else "page"


def _place(stored: Stored, page: int) -> str:
    """Where a page is along several axes."""
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
        return f"found {n_pages} pages of the same size{axes} and no word on what they are"
    counts = " x ".join(_counted(n, stored.axes[i]) for i, n in stored.stack.items())
    return f"found a stack of {counts} ({array}), expected one 2-D image"


def _counted(n: int, axis: str) -> str:
    return f"{n} {_NOUNS[axis]}s" if axis in _NOUNS else f"{n} planes along axis {axis}"


def _remedy(stored: Stored, role: Role) -> str:
    page = min(3, stored.n_pages)
    if role == "labels":
        return f"save the one that holds the labels as a file of its own, or give its number, pages={page} in Python"
    if len(stored.pages) > 1:
        return "give the number of one of them, e.g. pages=1 (--pages 1), or save one image per file"
    return f'give pages="all" (--pages all) to read them as channels, or pages={page} (--pages {page}) for one of them'


def _kind(page: Page) -> tuple[int, int, np.dtype]:
    """What pages must share to be channels of one image."""
    return page.height, page.width, page.dtype


def _kinds(stored: Stored, chosen: Sequence[int]) -> str:
    """Pages that differ, with their sizes: "page 1: 40 x 30 uint8, pages 2-3: 20 x 15 x 3 uint8"."""
    kinds = []
    for page, group in groupby(chosen, stored.page):
        alike = list(group)
        size = " x ".join(map(str, (page.height, page.width, page.n_channels)[: 2 + (page.n_channels > 1)]))
        kinds.append(f"page{'s' * (len(alike) > 1)} {_numbers(alike)}: {size} {page.dtype}")
    more = f" and {len(kinds) - _MOST_KINDS} more" if len(kinds) > _MOST_KINDS else ""
    return ", ".join(kinds[:_MOST_KINDS]) + more


def _numbers(chosen: Sequence[int]) -> str:
    """Indices from 0 as numbers from 1: "1-5", "1, 3-5"."""
    if isinstance(chosen, range):
        return f"1-{len(chosen)}" if len(chosen) > 1 else "1"
    runs: list[list[int]] = []
    for number in (i + 1 for i in chosen):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
