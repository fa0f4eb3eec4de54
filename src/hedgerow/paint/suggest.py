"""Where next: the place whose label would help most, by what the model knows.

The image is cut into cells. A cell counts if the model is unsure about it, if it looks unlike all that is painted, and
if there is much of it; the middle of the best one is the answer. Looks are mean byte codes of the features, ranks among
the project's pixels, so that no scale counts more than another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import ndimage

CELL = 8  # pixels along each side of a cell
SMOOTH = 1.0  # cells: single unsure ones, as along every edge, count less than areas
NEAR_PAINT = 1  # cells around paint that are not suggested
MOST_PAINTED = 1000  # painted cells that others are compared with
UNSURE, UNLIKE, LARGE = 1.0, 0.5, 0.5  # powers: how much each counts; chosen by benchmarks/bench_where_next.py


@dataclass(frozen=True)
class Place:
    """row, column: of the level that was looked at; score: to compare images"""

    row: int
    column: int
    score: float
    why: str


def suggested(uncertain: np.ndarray, looks: np.ndarray, painted: np.ndarray, known: np.ndarray) -> Place | None:
    """The place to paint next in an image of h x w cells; None: everything is painted.

    uncertain: (h,w) mean uncertainty, 0 to 1
    looks:     (h,w,P) mean codes, 0 to 255
    painted:   (h,w) bool: there is paint in the cell
    known:     (N,P) looks of what is painted, here and elsewhere
    """
    free = ~ndimage.binary_dilation(painted, iterations=NEAR_PAINT)
    if not free.any():
        free = ~painted
    if not free.any():
        return None
    unlike = novelty(looks, known)
    unsure = ndimage.gaussian_filter(uncertain.astype(np.float64), SMOOTH, mode="nearest")
    strange = ndimage.gaussian_filter(unlike, SMOOTH, mode="nearest")
    base = (unsure + 0.02) ** UNSURE * (strange + 0.02) ** UNLIKE
    large = extent(base, free)
    score = np.where(free, base * large**LARGE, -1.0)
    row, column = (int(one) for one in np.unravel_index(int(score.argmax()), score.shape))
    return Place(
        row * CELL + CELL // 2,
        column * CELL + CELL // 2,
        float(score[row, column]),
        _why(unsure, strange, large, row, column),
    )


def novelty(looks: np.ndarray, known: np.ndarray) -> np.ndarray:
    """(h,w) from 0: like something painted, to about 1: the most unlike of the image."""
    flat = looks.reshape(-1, looks.shape[-1]).astype(np.float32)
    if not len(known):
        return np.ones(looks.shape[:2])
    if len(known) > MOST_PAINTED:
        known = known[np.random.default_rng(0).permutation(len(known))[:MOST_PAINTED]]
    distance = np.sqrt(_nearest(flat, known.astype(np.float32)))
    most = max(float(np.quantile(distance, 0.99)), 1e-6)
    return np.minimum(distance / most, 1.5).reshape(looks.shape[:2])


def _nearest(some: np.ndarray, known: np.ndarray) -> np.ndarray:
    """(M,) squared distance of each row of some (M,P) to the nearest row of known (N,P)."""
    lengths = np.einsum("np,np->n", known, known)
    found = []
    for part in np.array_split(some, -(-len(some) // 4096)):
        mixed = lengths[None] - 2 * (part @ known.T)
        found.append(np.einsum("mp,mp->m", part, part) + mixed.min(axis=1))
    return np.maximum(np.concatenate(found), 0)


def extent(base: np.ndarray, free: np.ndarray) -> np.ndarray:
    """(h,w) from 0 to 1: how much of the image is as worth painting as this cell, and connected with it."""
    high = base >= np.quantile(base[free], 0.8)
    areas, n = ndimage.label(high & free)
    if not n:
        return np.ones(base.shape)
    sizes = np.bincount(areas.ravel(), minlength=n + 1).astype(np.float64)
    sizes[0] = 1
    return sizes[areas] / sizes.max()


def cell_means(values: np.ndarray) -> np.ndarray:
    """(h,w[,P]) float32 means of cells of an array (H,W[,P]); cells at the edges may be smaller."""
    height, width = values.shape[:2]
    rows, columns = np.arange(0, height, CELL), np.arange(0, width, CELL)
    sums = np.add.reduceat(np.add.reduceat(values.astype(np.float32), rows, axis=0), columns, axis=1)
    counts = np.diff([*rows, height])[:, None] * np.diff([*columns, width])[None, :]
    return sums / counts.reshape(*counts.shape, *[1] * (values.ndim - 2))


def painted_looks(codes: np.ndarray, row: np.ndarray, column: np.ndarray) -> np.ndarray:
    """(N,P) mean codes of the paint in each cell that has some. codes: (S,P) of painted pixels"""
    if not len(row):
        return np.zeros((0, codes.shape[1]), np.float32)
    cell = (row // CELL) * (1 + int(column.max()) // CELL) + column // CELL
    order = np.argsort(cell, kind="stable")
    first = np.flatnonzero(np.diff(cell[order], prepend=-1))
    sums = np.add.reduceat(codes[order].astype(np.float32), first, axis=0)
    return sums / np.diff([*first, len(order)])[:, None]


def _why(unsure: np.ndarray, strange: np.ndarray, large: np.ndarray, row: int, column: int) -> str:
    """One sentence about a cell, by what sets it apart."""
    said = []
    if unsure[row, column] >= np.quantile(unsure, 0.75):
        said.append("unsure here")
    if strange[row, column] >= np.quantile(strange, 0.75):
        said.append("unlike what is painted")
    if large[row, column] >= 0.5:
        said.append("much of the image is like this")
    return _listed(said) or "less sure here than elsewhere"


def _listed(said: Sequence[str]) -> str:
    return ", and ".join([", ".join(said[:-1]), said[-1]]) if len(said) > 1 else "".join(said)
