"""The model that follows each stroke: a small forest on the byte codes of the painted pixels.

It is trained without context, so a tree reads nothing but the pixel itself: the painted pixels of all images form one
row, as if they were an image.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hedgerow.config import StackConfig
from hedgerow.features.registry import fit_features
from hedgerow.files import fingerprint
from hedgerow.forest.arrays import Forest, ForestStack
from hedgerow.forest.grow import grow_forest
from hedgerow.forest.history import Known
from hedgerow.forest.planes import TrainingPlanes, fit_edges
from hedgerow.forest.samples import Samples
from hedgerow.images.array_checks import UNLABELLED_INDEX as UNPAINTED
from hedgerow.images.regions import Region
from hedgerow.kernels.cpu.walk_codes import SIDE, SQUARE, walk_squares
from hedgerow.paint.code_cache import CodeCache, EncodedRegion, PaintedPixels, live_config
from hedgerow.paint.overlays import OverlayTile
from hedgerow.paint.project import Project
from hedgerow.paint.raster import covered

Advance = Callable[[], None]
MAX_QUICK_SAMPLES = 12_000  # painted pixels that a quick forest is grown on
MAX_MARKED_PIXELS = 2**26  # of an image that a model remembers to have seen; larger ones are not read whole
WARM_UP_STEPS = 4


@dataclass(frozen=True)
class QuickForest:
    """A forest on codes as the arrays that the kernels read, and the class values of its indices.

    The kernels walk squares of SIDE x SIDE pixels down a tree together: most pixels of a square take the same path, so
    few nodes are visited, and the result is the same as pixel by pixel.
    """

    classes: tuple[int, ...]
    grown: Forest

    root: np.ndarray
    depth: np.ndarray
    channel: np.ndarray
    cut: np.ndarray
    left: np.ndarray
    leaf: np.ndarray
    votes: np.ndarray

    @classmethod
    def of(cls, forest: Forest, classes: Sequence[int]) -> QuickForest:
        is_split = forest.is_split
        return cls(
            classes=tuple(classes),
            grown=forest,
            root=forest.root,
            depth=forest.tree_depths,
            channel=np.where(is_split, forest.channel[:, 0], 0).astype(np.int32),
            cut=np.where(is_split, np.maximum(forest.threshold, 0), 0).astype(np.uint8),
            left=np.where(is_split, forest.left_child, -1).astype(np.int32),
            leaf=np.where(is_split, 0, forest.leaf_index).astype(np.int32),
            votes=np.ascontiguousarray(forest.votes),
        )

    @property
    def n_trees(self) -> int:
        return len(self.root)

    def predict(self, encoded: EncodedRegion, window: Region | None = None) -> OverlayTile:
        """Classes and probabilities of all pixels, or of a window whose corner is a corner of a square."""
        window = window or Region.whole(encoded.size)
        shape = -(-window.height // SIDE), -(-window.width // SIDE)
        classes, proba = self._walk(encoded.codes, (window.top // SIDE, window.left // SIDE), shape)
        return OverlayTile(_without_squares(classes, window), _without_squares(proba, window))

    def predict_classes(self, codes: np.ndarray) -> np.ndarray:
        """(S,) uint8: the classes of single pixels with codes (S,P)."""
        n = -(-len(codes) // SQUARE)
        padded = np.zeros((n * SQUARE, codes.shape[1]), np.uint8)
        padded[: len(codes)] = codes
        squares = np.ascontiguousarray(padded.reshape(1, n, SQUARE, -1).swapaxes(2, 3))
        return self._walk(squares, (0, 0), (1, n))[0].ravel()[: len(codes)]

    def _walk(
        self, codes: np.ndarray, corner: tuple[int, int], shape: tuple[int, int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Classes (n,m,SQUARE) and probabilities (C,n,m,SQUARE) of n x m squares."""
        classes = np.empty((*shape, SQUARE), np.uint8)
        proba = np.empty((self.votes.shape[1], *shape, SQUARE), np.uint8)
        walk_squares(
            codes, *corner, self.root, self.depth, self.channel, self.cut, self.left, self.leaf, self.votes,
            classes, proba,
        )  # fmt: skip
        return classes, proba


def _without_squares(values: np.ndarray, window: Region) -> np.ndarray:
    """(...,h,w) from squares (...,n,m,SQUARE)."""
    *outer, n, m, _ = values.shape
    padded = values.reshape(*outer, n, m, SIDE, SIDE).swapaxes(-3, -2).reshape(*outer, n * SIDE, m * SIDE)
    return np.ascontiguousarray(padded[..., : window.height, : window.width])


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
    return QuickForest.of(forest, classes)


def grow_on_codes(
    codes: np.ndarray,
    target: np.ndarray,
    edges: np.ndarray,
    n_classes: int,
    config: StackConfig,
    advance: Advance = lambda: None,
) -> Forest:
    """A forest grown on codes (P,S) of pixels with class indices (S,)."""
    n = len(target)
    number, zeros = np.arange(n, dtype=np.int32), np.zeros(n, np.int32)
    samples = Samples(zeros, zeros, number, zeros, number, target.astype(np.int32), zeros)
    skipped = [np.zeros(0, np.int32)] * config.n_trees
    planes = _one_row(codes, edges)
    return grow_forest(planes, samples, skipped, n_classes, config, (config.seed, 3, 0, 0), advance)


def _one_row(codes: np.ndarray, edges: np.ndarray) -> TrainingPlanes:
    """Codes (P,S) of single pixels as if they were an image of one row."""
    first, side, width = np.zeros(1, np.int32), np.ones(1, np.int32), np.full(1, codes.shape[1], np.int32)
    values, depths = np.zeros((0, 0), np.float32), np.zeros(0, np.float32)
    return TrainingPlanes(codes, values, edges, first, side, side, width, depths, depths, (0,), "offsets")


def as_stack(forest: QuickForest, codes: CodeCache, project: Project) -> ForestStack:
    """A forest that was grown at full resolution as a model that can be saved: it takes the same decisions on features
    as the forest on their codes."""
    bank, edges = codes.bank_and_edges(0)
    level = _one_row(np.zeros((len(edges), 1), np.uint8), edges).over_channels(forest.grown)
    painted = project.painted_images()
    small = [i for i in painted if math.prod(project.images[i].size) <= MAX_MARKED_PIXELS]
    wholes = (codes.pyramid(i).planes(0, Region.whole(project.images[i].size)) for i in small)
    stack = ForestStack(
        bank, (level,), forest.classes, UNPAINTED, str(project.images[0].dtype),
        settings={
            "config": live_config(project.images[0].n_channels, forest.n_trees).to_dict(), "n_images": len(painted),
            "held_out": [], "held": "strokes",
        },
        legend=project.legend.only((*forest.classes, UNPAINTED)),
        known=Known(tuple(fingerprint(planes)[:16] for planes in wholes)),
    )  # fmt: skip
    stack.validate()
    return stack


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
    chosen = [rng.permutation(np.flatnonzero(value == k))[: share[k]] for k in np.flatnonzero(share)]
    return np.sort(np.concatenate(chosen))


def warm_up(noise: np.ndarray) -> Iterator[int]:
    """Run every kernel that a stroke needs once, so that it is compiled or loaded from the cache of an earlier start.

    noise: (C,h,w) float32. Yields the number of finished steps, from 0 to WARM_UP_STEPS.
    """
    yield 0
    list(covered([[1, 1], [2, 3], [4, 2]], 1, (9, 9), is_polygon=True))  # first: a stroke may be waiting for these
    config = live_config(len(noise), 2)
    bank, features = fit_features([noise], config)
    yield 1
    flat = features[0].reshape(bank.n_features, -1)
    edges = np.stack([fit_edges(values) for values in flat])
    encoded = EncodedRegion.of(np.ascontiguousarray(features[0]), edges)
    yield 2
    target = np.arange(flat.shape[1]) % 2
    codes = np.ascontiguousarray(encoded.image().reshape(-1, len(flat)).T)
    forest = grow_on_codes(codes, target, edges, 2, config)
    yield 3
    QuickForest.of(forest, (0, 1)).predict(encoded)
    yield WARM_UP_STEPS
