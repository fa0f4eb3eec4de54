"""The model that follows each stroke: features become byte codes once per tile of an image, so that a stroke costs only
sampling the painted pixels, growing a small forest and walking it.

The forest is trained without context, so a tree reads nothing but the pixel itself: the painted pixels of all images
are laid side by side as if they were an image of one row.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from hedgerow.config import StackConfig
from hedgerow.errors import HedgerowError
from hedgerow.features.bank import FILTERS, Bank
from hedgerow.features.registry import fit_features
from hedgerow.forest.codes import fit_edges
from hedgerow.forest.grow import grow_forest
from hedgerow.forest.planes import PlaneForest, TrainingPlanes
from hedgerow.forest.samples import Samples
from hedgerow.images.regions import Region
from hedgerow.paint.image_files import ImageFile
from hedgerow.paint.memory_cache import MemoryCache
from hedgerow.paint.overlays import TilePlace
from hedgerow.paint.packed_forest import EncodedRegion, PackedForest
from hedgerow.paint.project import Project
from hedgerow.paint.pyramid import Pyramid, level_size, n_levels
from hedgerow.paint.raster import covered
from hedgerow.threads import map_threads

Advance = Callable[[], None]
Progress = Callable[[str, str, int, int, float], None]  # job, text, done, total, when it began
SLOW_READING_BYTES = 2**25  # images with more bytes report progress while they are read
CODE_TILE = 512  # side of a tile of codes, in pixels
QUICK_TREES = 16
MAX_QUICK_SAMPLES = 12_000  # painted pixels that a quick forest is grown on
N_CROPS, CROP_SIDE = 8, 256  # parts of images from which feature statistics and code edges are estimated
# From this number of channels on, these scales: the codes of the part on the screen must fit into the cache.
SIGMAS_BY_CHANNELS = {1: StackConfig().sigmas, 2: (0.7, 1.6, 3.5, 10.0), 4: (1.0, 3.5, 10.0), 8: (1.6, 5.0)}
WARM_UP_STEPS = 4


def live_config(n_channels: int, n_trees: int = QUICK_TREES) -> StackConfig:
    """The settings for strokes (see `forest.default_settings`): the filter bank alone, no context, few trees."""
    default = StackConfig()
    sigmas = SIGMAS_BY_CHANNELS[max(n for n in SIGMAS_BY_CHANNELS if n <= n_channels)]
    return replace(
        default,
        n_levels=1,
        n_trees=n_trees,
        min_split=2,
        sigmas=sigmas,
        context=replace(default.context, window=1),
        sampling=replace(default.sampling, step=1),
    )


def n_codes(n_channels: int) -> int:
    """Bytes of codes per pixel, for an image with this number of channels."""
    return n_channels * (1 + len(FILTERS) * len(live_config(n_channels).sigmas))


@dataclass(frozen=True)
class PaintedPixels:
    """The painted pixels of an image at a level. codes: (S,P) uint8; value: (S,) uint8; row, column: (S,)

    version: `Labels.n_changes` when they were read
    """

    version: int
    codes: np.ndarray
    value: np.ndarray
    row: np.ndarray
    column: np.ndarray


@dataclass(frozen=True)
class QuickForest:
    """A forest on codes, and its training samples. classes: values; target: (S,) indices; codes: (P,S)"""

    forest: PlaneForest
    classes: tuple[int, ...]
    codes: np.ndarray
    target: np.ndarray
    level: int


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
        return self.cache.get(("pyramid", image), lambda: self._make_pyramid(self.project.images[image]))

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
        pixels = self._painted_pixels[image, level] = PaintedPixels(version, codes, value, row, column)
        return pixels

    def has_painted_pixels(self, image: int, level: int) -> bool:
        """Whether the painted pixels are cached in their present state."""
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
        """The centres of images. Images that cannot be read are skipped here; viewing them shows the error."""
        crops: list[np.ndarray] = []
        problems: list[HedgerowError] = []
        for image in images:
            try:
                crops.append(self._crop(image, level))
            except HedgerowError as problem:
                problems.append(problem)
        if not crops:
            raise problems[0]
        return crops

    def _crop(self, image: int, level: int) -> np.ndarray:
        """(C,h,w) float32: the centre of an image at a level, or at its last level if it has fewer."""
        level = min(level, n_levels(self.project.images[image].size) - 1)
        pyramid = self.pyramid(image)
        height, width = pyramid.size(level)
        top, left = max(height - CROP_SIDE, 0) // 2, max(width - CROP_SIDE, 0) // 2
        return pyramid.planes(level, Region(top, min(top + CROP_SIDE, height), left, min(left + CROP_SIDE, width)))

    def _encode_tile(self, image: int, level: int, place: TilePlace) -> EncodedRegion:
        bank, edges = self.bank_and_edges(level)
        pyramid = self.pyramid(image)
        height, width = pyramid.size(level)
        top, left = place[0] * CODE_TILE, place[1] * CODE_TILE
        region = Region(top, min(top + CODE_TILE, height), left, min(left + CODE_TILE, width))
        with_halo = region.grown(bank.halo, Region(0, height, 0, width))
        raw = region.within(with_halo).of(bank.raw(pyramid.planes(level, with_halo)))
        return EncodedRegion.of(bank.standardise(np.ascontiguousarray(raw, np.float32)), edges)


def grow_quick_forest(
    codes: CodeCache,
    painted: list[PaintedPixels],
    level: int,
    config: StackConfig,
    max_samples: int,
    advance: Advance = lambda: None,
) -> QuickForest | None:
    """A forest grown on the painted pixels of some images; None: fewer than two classes are painted.

    advance: called after each tree; may raise an exception to stop
    """
    value = np.concatenate([pixels.value for pixels in painted]) if painted else np.zeros(0, np.uint8)
    classes = tuple(np.unique(value).tolist())
    if len(classes) < 2:
        return None
    sample = balanced_sample(value, max_samples)
    sample_codes = np.ascontiguousarray(np.concatenate([pixels.codes for pixels in painted])[sample].T)
    target = np.searchsorted(classes, value[sample]).astype(np.int32)
    forest = grow_on_codes(sample_codes, target, codes.bank_and_edges(level)[1], len(classes), config, advance)
    return QuickForest(forest, classes, sample_codes, target, level)


def grow_on_codes(
    codes: np.ndarray,
    target: np.ndarray,
    edges: np.ndarray,
    n_classes: int,
    config: StackConfig,
    advance: Advance = lambda: None,
) -> PlaneForest:
    """A forest grown on codes (P,S) of pixels with class indices (S,)."""
    n = len(target)
    number, zeros = np.arange(n, dtype=np.int32), np.zeros(n, np.int32)
    samples = Samples(zeros, zeros, number, zeros, number, target.astype(np.int32), zeros)
    one, no_values = np.ones(1, np.int32), np.zeros(0, np.float32)
    planes = TrainingPlanes(
        codes, np.zeros((0, 0), np.float32), edges, 0 * one, one, one, n * one, no_values, no_values, (0,), "offsets"
    )
    skipped = [np.zeros(0, np.int32)] * config.n_trees
    return grow_forest(planes, samples, skipped, n_classes, config, (config.seed, 3, 0, 0), advance)


def balanced_sample(value: np.ndarray, max_samples: int) -> np.ndarray:
    """Indices of at most `max_samples` painted pixels: each class gets an equal share, or all its pixels if fewer."""
    if len(value) <= max_samples:
        return np.arange(len(value))
    rng = np.random.default_rng(0)
    counts = np.bincount(value, minlength=256)
    present = np.flatnonzero(counts)
    room, share = max_samples, np.zeros_like(counts)
    for n_before, k in enumerate(np.argsort(counts[present], kind="stable")):  # rare classes first
        share[present[k]] = min(counts[present[k]], room // (len(present) - n_before))
        room -= share[present[k]]
    chosen = [rng.permutation(np.flatnonzero(value == one))[: share[one]] for one in np.flatnonzero(share)]
    return np.sort(np.concatenate(chosen))


def warm_up(noise: np.ndarray, step: Callable[[int], None]) -> None:
    """Run every kernel that a stroke needs once, so that it is compiled or loaded from the cache of an earlier start.

    noise: (C,h,w) float32; step: called with the number of finished steps, of WARM_UP_STEPS
    """
    list(covered([[1, 1], [2, 3], [4, 2]], 1, (9, 9), is_polygon=True))  # first: a stroke may be waiting for these
    config = live_config(len(noise), 2)
    bank, features = fit_features([noise], config)
    step(1)
    flat = features[0].reshape(bank.n_features, -1)
    edges = np.stack([fit_edges(values) for values in flat])
    encoded = EncodedRegion.of(np.ascontiguousarray(features[0]), edges)
    step(2)
    target = np.arange(flat.shape[1]) % 2
    codes = np.ascontiguousarray(encoded.image().reshape(-1, len(flat)).T)
    forest = grow_on_codes(codes, target, edges, 2, config)
    step(3)
    PackedForest.of(forest).predict(encoded)
    step(WARM_UP_STEPS)
