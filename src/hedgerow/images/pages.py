"""Which pages of a file are read, and how to say so."""

import re
from collections.abc import Iterable, Sequence
from itertools import chain, groupby, islice
from operator import index

import numpy as np

from hedgerow.errors import ConfigError, InputError, first_few, shown
from hedgerow.images.stored import MAX_CHANNELS, UNKNOWN, Page, Pages, Role, Stored

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
