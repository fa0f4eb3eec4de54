"""The model behind the hand: features and byte codes once per block of an image; a stroke costs sampling, growing and
walking.

Strokes are trained without context, so a tree reads nothing but the pixel itself: the painted pixels of all images lie
side by side as if they were an image of one row.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from hedgerow.config import StackConfig
from hedgerow.errors import HedgerowError
from hedgerow.features.bank import KINDS, Bank
from hedgerow.features.registry import fit_features
from hedgerow.forest.codes import fit_edges
from hedgerow.forest.grow import grow_forest
from hedgerow.forest.planes import PlaneForest, TrainingPlanes
from hedgerow.forest.samples import Samples
from hedgerow.images.regions import Region
from hedgerow.paint.image_files import ImageFile
from hedgerow.paint.labels import Labels
from hedgerow.paint.project import Project
from hedgerow.paint.pyramid import Pyramid, level_size, n_levels
from hedgerow.paint.squares import Squares
from hedgerow.paint.store import Store
from hedgerow.threads import map_threads

Advance = Callable[[], None]
Progress = Callable[[str, str, int, int, float], None]  # job, words, done, of how many, since when
LARGE = 2**25  # bytes of an image: to read it takes long enough to say so
BLOCK = 512  # side of what features are computed for at once
N_TREES = 16
MOST = 12_000  # painted pixels that a quick forest is grown on
CROPS, CROP = 8, 256  # images, and the side of the part of each, that statistics and edges are taken from
# Channels from which on fewer scales are used: codes of what is on the screen must fit into the store.
FEWER_SCALES = {1: StackConfig().sigmas, 2: (0.7, 1.6, 3.5, 10.0), 4: (1.0, 3.5, 10.0), 8: (1.6, 5.0)}


def live_config(n_channels: int, n_trees: int = N_TREES) -> StackConfig:
    """The settings for strokes, see `forest.choosing`, with the filter bank alone and few trees."""
    usual = StackConfig()
    sigmas = FEWER_SCALES[max(n for n in FEWER_SCALES if n <= n_channels)]
    return replace(
        usual,
        n_levels=1,
        n_trees=n_trees,
        min_split=2,
        sigmas=sigmas,
        context=replace(usual.context, window=1),
        sampling=replace(usual.sampling, step=1),
    )


def n_codes(n_channels: int) -> int:
    """Bytes for each pixel of an image with so many channels."""
    return n_channels * (1 + len(KINDS) * len(live_config(n_channels).sigmas))


@dataclass(frozen=True)
class Table:
    """Painted pixels of an image at a level. codes: (S,P) uint8; value: (S,) uint8; row, column: (S,)"""

    version: int
    codes: np.ndarray
    value: np.ndarray
    row: np.ndarray
    column: np.ndarray


@dataclass(frozen=True)
class Grown:
    """A forest on codes, and what it was grown on. classes: values; target: (S,) indices; codes: (P,S)"""

    forest: PlaneForest
    classes: tuple[int, ...]
    codes: np.ndarray
    target: np.ndarray
    level: int


class Codes:
    """Byte codes of all features, block by block, computed when asked for."""

    def __init__(self, project: Project, store: Store) -> None:
        self.project, self.store = project, store
        self.config = live_config(project.images[0].n_channels)
        self.progress: Progress = lambda job, text, done, total, began: None
        self._reading = threading.Lock()
        self._fitted: dict[int, tuple[Bank, np.ndarray]] = {}
        self._tables: dict[tuple[int, int], Table] = {}

    def pyramid(self, image: int) -> Pyramid:
        return self.store.get(("pyramid", image), lambda: self._pyramid(self.project.images[image]))

    def known_pyramid(self, image: int) -> Pyramid | None:
        """The levels of an image if they are made already."""
        return self.pyramid(image) if ("pyramid", image) in self.store else None

    def _pyramid(self, image: ImageFile) -> Pyramid:
        """The levels of an image; of a large one with progress, and one after another."""
        if image.n_bytes < LARGE:
            return Pyramid(image)
        with self._reading:
            began, text = time.monotonic(), f"reading {image.name}"
            try:
                return Pyramid(image, lambda done, total: self.progress("pyramid", text, done, total, began))
            finally:
                self.progress("pyramid", text, 1, 1, began)

    def is_known(self, image: int, level: int, place: tuple[int, int]) -> bool:
        return ("codes", image, level, place) in self.store

    def block(self, image: int, level: int, place: tuple[int, int]) -> Squares:
        """The codes of a block."""
        return self.store.get(("codes", image, level, place), lambda: self._computed(image, level, place))

    def table(self, image: int, level: int) -> Table:
        """The painted pixels of an image, at a level."""
        with self.project.lock:
            labels: Labels = self.project.labels[image]
            version = labels.n_changes
            known = self._tables.get((image, level))
            if known is not None and known.version == version:
                return known
            row, column, value = labels.painted(level)
        height, width = level_size(self.project.images[image].size, level)
        row, column = np.minimum(row, height - 1), np.minimum(column, width - 1)
        codes = np.empty((len(row), self.fitted(level)[0].n_features), np.uint8)
        place = (row // BLOCK) * (1 + width // BLOCK) + column // BLOCK
        for one in np.unique(place).tolist():
            at = np.flatnonzero(place == one)
            corner = int(row[at[0]] // BLOCK), int(column[at[0]] // BLOCK)
            block = self.block(image, level, corner)
            codes[at] = block.at(row[at] - corner[0] * BLOCK, column[at] - corner[1] * BLOCK)
        found = self._tables[image, level] = Table(version, codes, value, row, column)
        return found

    def has_table(self, image: int, level: int) -> bool:
        """Whether the painted pixels are known as they are now."""
        known = self._tables.get((image, level))
        return known is not None and known.version == self.project.labels[image].n_changes

    def fitted(self, level: int) -> tuple[Bank, np.ndarray]:
        """The filter bank, and the edges (P,255) of its codes, from parts of some images at a level."""
        if level not in self._fitted:
            images = self.project.images
            chosen = np.unique(np.linspace(0, len(images) - 1, CROPS).round().astype(int)).tolist()
            crops = self._crops(chosen, level)
            features, kept = fit_features(crops, self.config)
            assert isinstance(features, Bank)
            rng = np.random.default_rng(0)
            values = []
            for i in range(len(crops)):
                flat = kept[i].reshape(features.n_features, -1)
                values.append(flat[:, rng.permutation(flat.shape[1])[: 2**16 // len(crops)]])
            together = np.concatenate(values, axis=1)
            edges = np.stack(list(map_threads(fit_edges, list(together))))
            self._fitted[level] = features, edges
        return self._fitted[level]

    def _crops(self, images: list[int], level: int) -> list[np.ndarray]:
        """Parts of images; those that cannot be read are left out, and whoever looks at them is told why."""
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
        """(C,h,w) float32: the middle of an image; of a smaller one at its last level."""
        level = min(level, n_levels(self.project.images[image].size) - 1)
        pyramid = self.pyramid(image)
        height, width = pyramid.size(level)
        top, left = max(height - CROP, 0) // 2, max(width - CROP, 0) // 2
        return pyramid.planes(level, Region(top, min(top + CROP, height), left, min(left + CROP, width)))

    def _computed(self, image: int, level: int, place: tuple[int, int]) -> Squares:
        features, edges = self.fitted(level)
        pyramid = self.pyramid(image)
        height, width = pyramid.size(level)
        top, left = place[0] * BLOCK, place[1] * BLOCK
        region = Region(top, min(top + BLOCK, height), left, min(left + BLOCK, width))
        seen = region.grown(features.halo, Region(0, height, 0, width))
        inner = region.within(seen)
        found = features.standardise(
            np.ascontiguousarray(inner.of(features.raw(pyramid.planes(level, seen))), np.float32)
        )
        return Squares.of(found, edges)


def grown_on(
    codes: Codes, tables: list[Table], level: int, config: StackConfig, most: int, advance: Advance = lambda: None
) -> Grown | None:
    """A forest on the painted pixels of some images; None: fewer than two classes are painted.

    advance: is called after each tree, and may raise to stop
    """
    value = np.concatenate([table.value for table in tables]) if tables else np.zeros(0, np.uint8)
    classes = tuple(np.unique(value).tolist())
    if len(classes) < 2:
        return None
    chosen = some_of(value, most)
    together = np.concatenate([table.codes for table in tables])
    read = np.ascontiguousarray(together[chosen].T)
    target = np.searchsorted(classes, value[chosen]).astype(np.int32)
    forest = grow_on_codes(read, target, codes.fitted(level)[1], len(classes), config, advance)
    return Grown(forest, classes, read, target, level)


def grow_on_codes(
    read: np.ndarray,
    target: np.ndarray,
    edges: np.ndarray,
    n_classes: int,
    config: StackConfig,
    advance: Advance = lambda: None,
) -> PlaneForest:
    """A forest grown on codes (P,S) of pixels with class indices (S,)."""
    n = len(target)
    number, none = np.arange(n, dtype=np.int32), np.zeros(n, np.int32)
    samples = Samples(none, none, number, none, number, target.astype(np.int32), none)
    one, no_values = np.ones(1, np.int32), np.zeros(0, np.float32)
    planes = TrainingPlanes(
        read, np.zeros((0, 0), np.float32), edges, 0 * one, one, one, n * one, no_values, no_values, (0,), "offsets"
    )
    skipped = [np.zeros(0, np.int32)] * config.n_trees
    return grow_forest(planes, samples, skipped, n_classes, config, (config.seed, 3, 0, 0), advance)


def some_of(value: np.ndarray, most: int) -> np.ndarray:
    """Numbers of at most `most` painted pixels: a rare class keeps what it has, as far as its equal share goes."""
    if len(value) <= most:
        return np.arange(len(value))
    rng = np.random.default_rng(0)
    counts = np.bincount(value, minlength=256)
    left, room = counts.copy(), most
    share = np.zeros_like(counts)
    for rank, one in enumerate(order := np.argsort(counts[counts > 0], kind="stable")):
        which = np.flatnonzero(counts > 0)[one]
        share[which] = min(left[which], room // (len(order) - rank))
        room -= share[which]
    chosen = [rng.permutation(np.flatnonzero(value == one))[: share[one]] for one in np.flatnonzero(share)]
    return np.sort(np.concatenate(chosen))
