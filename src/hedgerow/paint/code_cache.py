"""Features of images as byte codes, computed tile by tile when they are first needed, and cached: after a stroke, only
the painted pixels are sampled and a small forest is grown and walked."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from hedgerow.config import StackConfig
from hedgerow.errors import HedgerowError
from hedgerow.features.bank import FILTERS, Bank
from hedgerow.features.registry import fit_features
from hedgerow.forest.default_settings import QUICK_TREES, stroke_settings
from hedgerow.forest.planes import fit_edges
from hedgerow.images.regions import Region
from hedgerow.kernels.cpu.walk_codes import SIDE, SQUARE, encode_squares
from hedgerow.paint.overlays import TilePlace
from hedgerow.paint.project import Project
from hedgerow.paint.project_file import ImageFile
from hedgerow.paint.pyramid import Pyramid, level_size
from hedgerow.progress import Report
from hedgerow.threads import map_threads, row_blocks

Progress = Callable[[str, str, int, int, float], None]  # job, text, done, total, start time
DEFAULT_CACHE_BYTES = 320 * 2**20  # with the libraries and one open image, the process stays below 1 GB
SLOW_READING_BYTES = 2**25  # images with more bytes report progress while they are read
CODE_TILE = 512  # side of a tile of codes, in pixels
N_CROPS, CROP_SIDE = 8, 256  # parts of images from which feature statistics and code edges are estimated
Item = TypeVar("Item")
# Fewer scales for images of more channels: the codes of the part on the screen must fit into the cache.
SIGMAS_BY_CHANNELS = {1: StackConfig().sigmas, 2: (0.7, 1.6, 3.5, 10.0), 4: (1.0, 3.5, 10.0), 8: (1.6, 5.0)}


def live_config(n_channels: int, n_trees: int = QUICK_TREES) -> StackConfig:
    """The settings for strokes (see `forest.default_settings`): the filter bank alone, no context, few trees."""
    sigmas = SIGMAS_BY_CHANNELS[max(n for n in SIGMAS_BY_CHANNELS if n <= n_channels)]
    return stroke_settings(StackConfig(sigmas=sigmas), n_trees)


def n_codes(n_channels: int) -> int:
    """Bytes of codes per pixel, for an image with this number of channels."""
    return n_channels * (1 + len(FILTERS) * len(live_config(n_channels).sigmas))


@dataclass(frozen=True)
class EncodedRegion:
    """Codes of P features. codes: (n,m,P,SQUARE) uint8, padded at the edges; size: (h,w)"""

    codes: np.ndarray
    size: tuple[int, int]

    @classmethod
    def of(cls, values: np.ndarray, edges: np.ndarray) -> EncodedRegion:
        """The codes of values (P,h,w) float32 among edges (P,255)."""
        n_features, height, width = values.shape
        codes = np.empty((-(-height // SIDE), -(-width // SIDE), n_features, SQUARE), np.uint8)

        def encode(rows: tuple[int, int]) -> None:
            encode_squares(values, edges, *rows, codes)

        list(map_threads(encode, row_blocks(len(codes))))
        return cls(codes, (height, width))

    @property
    def nbytes(self) -> int:
        return int(self.codes.nbytes)

    def at(self, row: np.ndarray, column: np.ndarray) -> np.ndarray:
        """(S,P): the codes of single pixels."""
        return self.codes[row // SIDE, column // SIDE, :, row % SIDE * SIDE + column % SIDE]

    def image(self) -> np.ndarray:
        """(h,w,P)"""
        n, m, n_features, _ = self.codes.shape
        padded = self.codes.reshape(n, m, n_features, SIDE, SIDE).transpose(0, 3, 1, 4, 2)
        return padded.reshape(n * SIDE, m * SIDE, n_features)[: self.size[0], : self.size[1]]


@dataclass(frozen=True)
class PaintedPixels:
    """The painted pixels of an image at a level. codes: (S,P) uint8; value: (S,) uint8; row, column: (S,)

    image:   its number
    version: `Labels.n_changes` when they were read
    """

    image: int
    version: int
    codes: np.ndarray
    value: np.ndarray
    row: np.ndarray
    column: np.ndarray


class MemoryCache:
    """Items by key, whose `nbytes` together are at most `max_bytes`; the least recently used are evicted first;
    whoever uses an evicted item may keep it."""

    def __init__(self, max_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        self.max_bytes = max_bytes
        self._items: OrderedDict[Hashable, Any] = OrderedDict()
        self._key_locks: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        with self._lock:
            return sum(item.nbytes for item in self._items.values())

    def __contains__(self, key: Hashable) -> bool:
        with self._lock:
            return key in self._items

    def get(self, key: Hashable, make: Callable[[], Item]) -> Item:
        """The item of this key. The first caller makes it; other callers wait until it is made."""
        with self._lock:
            key_lock = self._key_locks.setdefault(key, threading.Lock())
        with key_lock:
            with self._lock:
                if key in self._items:
                    self._items.move_to_end(key)
                    return self._items[key]
            item = make()
            with self._lock:
                self._items[key] = item
                self._key_locks.pop(key, None)
                self._evict(key)
            return item

    def remove(self, key: Hashable) -> None:
        with self._lock:
            self._items.pop(key, None)

    def _evict(self, newest: Hashable) -> None:
        total = sum(item.nbytes for item in self._items.values())
        while total > self.max_bytes and len(self._items) > 1:
            oldest = next(iter(self._items))
            if oldest == newest:
                break
            total -= self._items.pop(oldest).nbytes


class CodeCache:
    """Byte codes of all features, computed tile by tile when they are first needed."""

    def __init__(self, project: Project, cache: MemoryCache, slow_reading_bytes: int = SLOW_READING_BYTES) -> None:
        self.project, self.cache = project, cache
        self.config = live_config(project.images[0].n_channels)
        self.progress: Progress = lambda job, text, done, total, began: None
        self._slow_reading_bytes = slow_reading_bytes
        self._reading = threading.Lock()
        self._bank_and_edges: dict[int, tuple[Bank, np.ndarray]] = {}
        self._painted_pixels: dict[tuple[int, int], PaintedPixels] = {}

    def pyramid(self, image: int) -> Pyramid:
        """The pyramid of an image; the project notes whether it can be read."""
        try:
            pyramid = self.cache.get(("pyramid", image), lambda: self._make_pyramid(self.project.images[image]))
        except HedgerowError as problem:
            self.project.note_problem(image, str(problem))
            raise
        self.project.note_problem(image, "")
        return pyramid

    def read_again(self, report: Report) -> bool:
        """Read all painted images anew, as after an error; returns whether some of them cannot be read any more."""
        painted = self.project.painted_images()
        for n, image in enumerate(painted):
            report("checking the images", n, len(painted))
            self.cache.remove(("pyramid", image))
            with suppress(HedgerowError):
                self.pyramid(image)
        return self.project.painted_images() != painted

    def cached_pyramid(self, image: int) -> Pyramid | None:
        """The pyramid of an image if it is in the cache."""
        return self.pyramid(image) if ("pyramid", image) in self.cache else None

    def _make_pyramid(self, image: ImageFile) -> Pyramid:
        """The pyramid of an image; large images are read one after another and report progress."""
        if image.n_bytes < self._slow_reading_bytes:
            return Pyramid(image)
        with self._reading:
            began, text = time.monotonic(), f"reading {image.name}"
            try:
                return Pyramid(image, lambda done, total: self.progress("pyramid", text, done, total, began))
            finally:
                self.progress("pyramid", text, 1, 1, began)

    def has_tile(self, image: int, level: int, place: TilePlace) -> bool:
        return ("codes", image, level, place) in self.cache

    def tile(self, image: int, level: int, place: TilePlace) -> EncodedRegion:
        """The codes of a tile of CODE_TILE x CODE_TILE pixels, smaller at the edges."""
        return self.cache.get(("codes", image, level, place), lambda: self._encode_tile(image, level, place))

    def painted_pixels(self, image: int, level: int) -> PaintedPixels:
        """The painted pixels of an image at a level."""
        with self.project.lock:
            labels = self.project.labels[image]
            version = labels.n_changes
            cached = self._painted_pixels.get((image, level))
            if cached is not None and cached.version == version:
                return cached
            row, column, value = labels.painted(level)
        height, width = level_size(self.project.images[image].size, level)
        row, column = np.minimum(row, height - 1), np.minimum(column, width - 1)
        codes = np.empty((len(row), self.bank_and_edges(level)[0].n_features), np.uint8)
        tile_number = (row // CODE_TILE) * (1 + width // CODE_TILE) + column // CODE_TILE
        for number in np.unique(tile_number).tolist():
            at = np.flatnonzero(tile_number == number)
            place = int(row[at[0]] // CODE_TILE), int(column[at[0]] // CODE_TILE)
            tile = self.tile(image, level, place)
            codes[at] = tile.at(row[at] - place[0] * CODE_TILE, column[at] - place[1] * CODE_TILE)
        pixels = self._painted_pixels[image, level] = PaintedPixels(image, version, codes, value, row, column)
        return pixels

    def has_painted_pixels(self, image: int, level: int) -> bool:
        """Whether the painted pixels are cached in their current state."""
        cached = self._painted_pixels.get((image, level))
        return cached is not None and cached.version == self.project.labels[image].n_changes

    def bank_and_edges(self, level: int) -> tuple[Bank, np.ndarray]:
        """The filter bank and the edges (P,255) of its codes, estimated on parts of some images at a level."""
        if level not in self._bank_and_edges:
            images = self.project.images
            chosen = np.unique(np.linspace(0, len(images) - 1, N_CROPS).round().astype(int)).tolist()
            crops = self._crops(chosen, level)
            bank, features = fit_features(crops, self.config)
            assert isinstance(bank, Bank)
            rng = np.random.default_rng(0)
            samples = []
            for i in range(len(crops)):
                flat = features[i].reshape(bank.n_features, -1)
                samples.append(flat[:, rng.permutation(flat.shape[1])[: 2**16 // len(crops)]])
            edges = np.stack(list(map_threads(fit_edges, list(np.concatenate(samples, axis=1)))))
            self._bank_and_edges[level] = bank, edges
        return self._bank_and_edges[level]

    def _crops(self, images: list[int], level: int) -> list[np.ndarray]:
        """(C,h,w) float32 each: the centres of images at a level, or at their last level if they have fewer.

        Images that cannot be read are skipped here; viewing them shows the error.
        """
        crops: list[np.ndarray] = []
        problems: list[HedgerowError] = []
        for image in images:
            try:
                pyramid = self.pyramid(image)
                own_level = min(level, pyramid.n_levels - 1)
                whole = Region.whole(pyramid.size(own_level))
                top, left = (max(side - CROP_SIDE, 0) // 2 for side in (whole.height, whole.width))
                crop = Region(top, top + CROP_SIDE, left, left + CROP_SIDE).clipped(whole)
                crops.append(pyramid.planes(own_level, crop))
            except HedgerowError as problem:
                problems.append(problem)
        if not crops:
            raise problems[0]
        return crops

    def _encode_tile(self, image: int, level: int, place: TilePlace) -> EncodedRegion:
        bank, edges = self.bank_and_edges(level)
        pyramid = self.pyramid(image)
        whole = Region.whole(pyramid.size(level))
        region = Region.tile_at(place, CODE_TILE).clipped(whole)
        with_halo = region.grown(bank.halo, whole)
        raw = bank.own_raw(pyramid.planes(level, with_halo), region.within(with_halo))
        return EncodedRegion.of(bank.standardise(raw), edges)
