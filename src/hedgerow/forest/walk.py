"""A forest over a region of an image: every pixel goes from the root to a leaf of each tree, and the leaves vote."""

from dataclasses import replace

import numpy as np

from hedgerow.forest.arrays import Forest, ForestStack
from hedgerow.forest.level_input import LevelInput
from hedgerow.forest.reads import (
    MAX_PLACES,
    FixedPlaces,
    any_planes,
    fixed_places,
    n_places,
    used_planes,
    walkable,
)
from hedgerow.forest.soft_walk import run_soft_forest
from hedgerow.kernels.cpu import walk as kernels
from hedgerow.threads import map_threads, slice_blocks


def run_level(stack: ForestStack, level: int, level_input: LevelInput) -> np.ndarray:
    """(C,Z,h,w) float32 output of one level of a stack."""
    return run_forest(stack.levels[level], level_input, stack.is_softmax(level), stack.tolerance)


def run_forest(forest: Forest, level_input: LevelInput, is_softmax: bool = False, tolerance: float = 0.0) -> np.ndarray:
    """Class probabilities (C,Z,h,w) float32 in the given region.

    is_softmax: the summed votes go through softmax; else they are normalised
    tolerance:  soft splits: branches reached with at most this probability are left out
    """
    if forest.sharpness is not None:
        return run_soft_forest(forest, level_input, is_softmax, tolerance)
    inner = level_input.region
    pairs, plane = used_planes(forest)
    if n_places(forest, pairs, level_input) >= MAX_PLACES and max(inner.shape) > 1:
        halves, axis = inner.halves()
        parts = [run_forest(forest, replace(level_input, region=half), is_softmax) for half in halves]
        return np.concatenate(parts, axis=1 + axis)
    nodes = walkable(forest)
    out = np.empty((inner.depth, forest.n_classes, inner.height, inner.width), np.float32)
    if _is_single(forest, level_input):
        fixed = fixed_places(forest, level_input, pairs, plane)
        route = _route(nodes, fixed)

        def walk(rows: tuple[int, int, int]) -> None:
            z, first, end = rows
            kernels.walk_single_probe(fixed.values(z), fixed.stride, route, nodes, is_softmax, first, end, out[z])
    else:
        read = any_planes(forest, level_input, pairs, plane)

        def walk(rows: tuple[int, int, int]) -> None:
            z, first, end = rows
            origin = (inner.front + z, inner.top, inner.left)
            kernels.walk_any_probes(*read, nodes, is_softmax, first, end, origin, out[z])

    list(map_threads(walk, slice_blocks(inner.depth, inner.height)))
    return np.moveaxis(out, 0, 1)


def reached_leaves(forest: Forest, level_input: LevelInput) -> np.ndarray:
    """leaf(x) for every tree and pixel of the region: the row of `votes` that hard splits lead to, (T,Z,h,w) int32."""
    inner = level_input.region
    nodes, (pairs, plane) = walkable(forest), used_planes(forest)
    out = np.empty((inner.depth, forest.n_trees, inner.height, inner.width), np.int32)
    if _is_single(forest, level_input) and n_places(forest, pairs, level_input) < MAX_PLACES:
        fixed = fixed_places(forest, level_input, pairs, plane)
        route = _route(nodes, fixed)

        def find(rows: tuple[int, int, int]) -> None:
            z, first, end = rows
            kernels.find_leaves_single(fixed.values(z), fixed.stride, route, nodes, first, end, out[z])
    else:
        read = any_planes(forest, level_input, pairs, plane)

        def find(rows: tuple[int, int, int]) -> None:
            z, first, end = rows
            kernels.find_leaves(*read, nodes, first, end, (inner.front + z, inner.top, inner.left), out[z])

    list(map_threads(find, slice_blocks(inner.depth, inner.height)))
    return np.moveaxis(out, 0, 1)


def _is_single(forest: Forest, level_input: LevelInput) -> bool:
    """Whether every split is one probe of weight 1 at a fixed offset."""
    is_one_probe = forest.weight.shape[1] == 1 and bool((forest.weight[forest.is_split] == 1).all())
    return is_one_probe and level_input.stretch is None and level_input.outside is None


def _route(nodes: kernels.Nodes, fixed: FixedPlaces) -> np.ndarray:
    """`route` of `kernels.walk_single_probe`."""
    return (nodes.child.astype(np.uint64) << np.uint64(32)) | fixed.place[:, 0].astype(np.uint64)
