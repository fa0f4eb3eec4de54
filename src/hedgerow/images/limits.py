"""Limits on the size of images, checked by what a file declares, before anything is decoded or allocated."""

import math
import os
from collections.abc import Sequence
from contextvars import ContextVar

from hedgerow import memory
from hedgerow.errors import ConfigError, InputError
from hedgerow.images.stored import Stored

VARIABLE = "HEDGEROW_MAX_MEGAPIXELS"
DEFAULT_MEGAPIXELS = 1000.0
CHUNKS = "HEDGEROW_MAX_CHUNKS"
DEFAULT_CHUNKS = 50_000_000
LARGE_PIXELS = 2**26  # an image with more is read and predicted in parts
METADATA_BYTES = 2**26  # the largest file that describes an image
MOST_BYTES: ContextVar[int] = ContextVar("MOST_BYTES", default=METADATA_BYTES)
"""The most bytes that a server may send in answer to the current request."""
_PLANE_BYTES = 4  # every image becomes float32
_BLOCKS_IN_MEMORY = 3  # one as stored, one decoded, and one copied to its place in the image


def max_megapixels() -> float:
    """The most pixels that an image may have, in millions: HEDGEROW_MAX_MEGAPIXELS, or 1,000."""
    return number_from_environment(VARIABLE, DEFAULT_MEGAPIXELS, "2000 for images of up to two thousand million pixels")


def number_from_environment(variable: str, default: float, example: str) -> float:
    """The positive number in an environment variable, or the default if it is empty. Raises ConfigError."""
    text = os.environ.get(variable, "").strip()
    if not text:
        return default
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:  # also true of NaN
        raise ConfigError(f"the environment variable {variable} is {text!r}, expected a number above 0, e.g. {example}")
    return number


def refuse_oversized(path: str, stored: Stored, chosen: Sequence[int]) -> None:
    """Raise InputError if the chosen pages exceed the limit on pixels or the available memory."""
    limit = max_megapixels()
    alike = len(stored.pages) == 1
    pages = [stored.page(i) for i in (chosen[:1] if alike else chosen)]
    for page in pages:
        megapixels = page.height * page.width / 1e6
        if megapixels > limit:
            raise InputError(
                f"cannot read {path}: found {page.height:,} x {page.width:,} pixels, which is"
                f" {megapixels:,.1f} megapixels and more than the limit of {limit:,.10g}; crop or shrink the image, or"
                f" raise the limit by the environment variable {VARIABLE}"
            )
    times = len(chosen) if alike else 1
    decoded = times * sum(page.n_bytes for page in pages)
    planes = times * sum(page.height * page.width * page.n_channels for page in pages) * _PLANE_BYTES
    needed = decoded + max(planes, stored.block)  # the last block is freed before the planes are made
    available = memory.available()
    if available is not None and needed > available:
        raise InputError(
            f"cannot read {path}: it takes {memory.gigabytes(needed)} of memory, but only"
            f" {memory.gigabytes(available)} are available; crop or shrink the image, or use a machine with more memory"
        )


def refuse_many_chunks(name: str, n_chunks: int, chunk: tuple[int, int]) -> None:
    """Raise InputError if this number of chunks, tiles or strips of this size (h,w) exceeds the limit."""
    limit = number_from_environment(CHUNKS, DEFAULT_CHUNKS, "2e8 for images in two hundred million chunks")
    if n_chunks > limit:
        raise InputError(
            f"cannot read {name}: it is stored in {n_chunks:,} chunks of {chunk[0]:,} x {chunk[1]:,} pixels, more than"
            f" the limit of {limit:,.10g}; save it with larger chunks, or raise the limit by the environment variable"
            f" {CHUNKS}"
        )


def refuse_large_blocks(name: str, n_bytes: int) -> None:
    """Raise InputError if a chunk, tile or strip of this size does not fit in memory."""
    available = memory.available()
    if available is not None and _BLOCKS_IN_MEMORY * n_bytes > available:
        raise InputError(
            f"cannot read {name}: it is stored in chunks of {memory.gigabytes(n_bytes)} each, but only"
            f" {memory.gigabytes(available)} of memory are available; save it with smaller chunks, tiles or strips"
        )
