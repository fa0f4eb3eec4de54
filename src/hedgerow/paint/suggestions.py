"""Where to paint next: the place whose label would help the model most.

The image is divided into cells. A cell scores high if the model is unsure about it, if it looks unlike all painted
cells, and if much of the image looks like it; the centre of the best cell is suggested. The look of a cell is the mean
of its byte codes: codes are ranks among the project's pixels, so no feature outweighs another by its scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from scipy import ndimage

from hedgerow.images.regions import Region
from hedgerow.paint.code_cache import CODE_TILE, CodeCache
from hedgerow.paint.labels import TILE
from hedgerow.paint.overlays import uncertainty
from hedgerow.paint.quick_forest import QuickForest

CELL_SIDE = 8  # pixels
SMOOTHING_CELLS = 1.0  # standard deviation: single unsure cells, as along every edge, count less than areas
PAINT_MARGIN_CELLS = 1  # cells this close to paint are not suggested
SKIPPED_REACH = 24  # pixels around a place that was suggested before
MAX_PAINTED_CELLS = 1000  # painted cells that others are compared with
# How much each part of the score counts, as powers; chosen by benchmarks/bench_where_next.py.
UNCERTAINTY_POWER, NOVELTY_POWER, EXTENT_POWER = 1.0, 0.5, 0.5

assert CODE_TILE % CELL_SIDE == 0 and CODE_TILE % TILE == 0  # noqa: PT018 (cells do not cross tiles of codes)


@dataclass(frozen=True)
class Place:
    """row, column: at the level that was searched; score: comparable between images; why: for the user

    likely: the class that the model considers most probable there
    """

    row: int
    column: int
    score: float
    why: str
    likely: int = 0


def best_place(
    codes: CodeCache,
    forest: QuickForest,
    trained_on: Sequence[int],
    image: int,
    level: int,
    skip: Sequence[tuple[int, int]] = (),
) -> Place | None:
    """The best place in an image at a level; None: everything is painted.

    trained_on: the forest's images
    skip:       places (row, column) at this level that are not suggested again, nor what lies near them
    """
    whole = Region.whole(codes.pyramid(image).size(level))
    n_cells = tuple(map(len, whole.tile_places(CELL_SIDE)))
    n_features = codes.bank_and_edges(level)[0].n_features
    unsure, looks = np.zeros(n_cells, np.float32), np.zeros((*n_cells, n_features), np.float32)
    likely = np.zeros((*n_cells, len(forest.classes)), np.float32)
    for tile in product(*whole.tile_places(CODE_TILE)):
        encoded = codes.tile(image, level, tile)
        cells = Region.tile_at(tile, CODE_TILE // CELL_SIDE)
        proba = forest.predict(encoded).proba
        cells.of(unsure)[...] = cell_means(uncertainty(proba)) / 255
        likely[cells.top : cells.bottom, cells.left : cells.right] = cell_means(np.moveaxis(proba, 0, -1))
        looks[cells.top : cells.bottom, cells.left : cells.right] = cell_means(encoded.image())
    painted = np.zeros(n_cells, bool)
    known = []
    for i in trained_on:
        pixels = codes.painted_pixels(i, level)
        known.append(painted_looks(pixels.codes, pixels.row, pixels.column))
        if i == image:
            painted[pixels.row // CELL_SIDE, pixels.column // CELL_SIDE] = True
    for row, column in skip:
        near = Region(row, row + 1, column, column + 1).grown(SKIPPED_REACH, whole)
        cells = Region(*(side // CELL_SIDE for side in (near.top, near.bottom, near.left, near.right)))
        painted[cells.top : cells.bottom + 1, cells.left : cells.right + 1] = True
    place = suggest_place(unsure, looks, painted, np.concatenate(known))
    if place is None:
        return None
    here = likely[place.row // CELL_SIDE, place.column // CELL_SIDE]
    return replace(place, likely=forest.classes[int(here.argmax())])


def suggest_place(unsure: np.ndarray, looks: np.ndarray, painted: np.ndarray, known: np.ndarray) -> Place | None:
    """The place to paint next in an image of h x w cells; None: everything is painted.

    unsure:  (h,w) mean uncertainty, 0 to 1
    looks:   (h,w,P) mean codes, 0 to 255
    painted: (h,w) bool: the cell has paint
    known:   (N,P) looks of painted cells, of this image and others
    """
    free = ~ndimage.binary_dilation(painted, iterations=PAINT_MARGIN_CELLS)
    if not free.any():
        free = ~painted
    if not free.any():
        return None
    unlike = ndimage.gaussian_filter(novelty(looks, known), SMOOTHING_CELLS, mode="nearest")
    unsure = ndimage.gaussian_filter(unsure.astype(np.float64), SMOOTHING_CELLS, mode="nearest")
    base = (unsure + 0.02) ** UNCERTAINTY_POWER * (unlike + 0.02) ** NOVELTY_POWER
    large = extent(base, free)
    score = np.where(free, base * large**EXTENT_POWER, -1.0)
    row, column = (int(i) for i in np.unravel_index(int(score.argmax()), score.shape))
    return Place(
        row * CELL_SIDE + CELL_SIDE // 2,
        column * CELL_SIDE + CELL_SIDE // 2,
        float(score[row, column]),
        _reason(unsure, unlike, large, row, column),
    )


def novelty(looks: np.ndarray, known: np.ndarray) -> np.ndarray:
    """(h,w) from 0, like a painted cell, to about 1, the most unlike cells of the image."""
    flat = looks.reshape(-1, looks.shape[-1]).astype(np.float32)
    if not len(known):
        return np.ones(looks.shape[:2])
    if len(known) > MAX_PAINTED_CELLS:
        known = known[np.random.default_rng(0).permutation(len(known))[:MAX_PAINTED_CELLS]]
    distance = np.sqrt(_squared_distance(flat, known.astype(np.float32)))
    farthest = max(float(np.quantile(distance, 0.99)), 1e-6)
    return np.minimum(distance / farthest, 1.5).reshape(looks.shape[:2])


def _squared_distance(rows: np.ndarray, known: np.ndarray) -> np.ndarray:
    """(M,) squared distance of each of `rows` (M,P) to the nearest of `known` (N,P)."""
    lengths = np.einsum("np,np->n", known, known)
    distances = []
    for part in np.array_split(rows, -(-len(rows) // 4096)):
        mixed = lengths[None] - 2 * (part @ known.T)
        distances.append(np.einsum("mp,mp->m", part, part) + mixed.min(axis=1))
    return np.maximum(np.concatenate(distances), 0)


def extent(base: np.ndarray, free: np.ndarray) -> np.ndarray:
    """(h,w) from 0 to 1: the relative size of the connected area of high scores that a cell belongs to."""
    high = base >= np.quantile(base[free], 0.8)
    areas, n = ndimage.label(high & free)
    if not n:
        return np.ones(base.shape)
    sizes = np.bincount(areas.ravel(), minlength=n + 1).astype(np.float64)
    sizes[0] = 1
    return sizes[areas] / sizes.max()


def cell_means(values: np.ndarray) -> np.ndarray:
    """(h,w[,P]) float32: means over the cells of an array (H,W[,P]); cells at the edges may be smaller."""
    height, width = values.shape[:2]
    rows, columns = np.arange(0, height, CELL_SIDE), np.arange(0, width, CELL_SIDE)
    sums = np.add.reduceat(np.add.reduceat(values.astype(np.float32), rows, axis=0), columns, axis=1)
    counts = np.diff([*rows, height])[:, None] * np.diff([*columns, width])[None, :]
    return sums / counts.reshape(*counts.shape, *[1] * (values.ndim - 2))


def painted_looks(codes: np.ndarray, row: np.ndarray, column: np.ndarray) -> np.ndarray:
    """(N,P): mean codes of the paint in each cell that has paint. codes: (S,P) of the painted pixels"""
    if not len(row):
        return np.zeros((0, codes.shape[1]), np.float32)
    cell = (row // CELL_SIDE) * (1 + int(column.max()) // CELL_SIDE) + column // CELL_SIDE
    order = np.argsort(cell, kind="stable")
    first = np.flatnonzero(np.diff(cell[order], prepend=-1))
    sums = np.add.reduceat(codes[order].astype(np.float32), first, axis=0)
    return sums / np.diff([*first, len(order)])[:, None]


def _reason(unsure: np.ndarray, unlike: np.ndarray, large: np.ndarray, row: int, column: int) -> str:
    """The reasons why a cell is suggested, in words."""
    reasons = []
    if unsure[row, column] >= np.quantile(unsure, 0.75):
        reasons.append("unsure here")
    if unlike[row, column] >= np.quantile(unlike, 0.75):
        reasons.append("unlike what is painted")
    if large[row, column] >= 0.5:
        reasons.append("much of the image is like this")
    reasons[-2:] = [", and ".join(reasons[-2:])]
    return ", ".join(reasons) or "less sure here than elsewhere"
