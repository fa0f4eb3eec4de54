"""A forest run over a region of an image: every pixel goes from the root to a leaf of each tree, and the leaves vote.

A probe averages a channel over a box centred at an offset from the pixel, within one slice. Boxes are averaged once
for the whole image: a split then reads one pixel of a plane, and a plane is a (channel, radius) pair of all slices.
Outside the image a probe reads the nearest edge pixel, or a constant if the features require one (depth).
All slices of the region read the same places, of values that begin one slice later for each.

With soft splits every leaf counts: trees are walked node by node with the pixels that reach the node, or all nodes are
computed if most of them count.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from hedgerow.forest.arrays import Forest, ForestStack
from hedgerow.forest.level_input import LevelInput
from hedgerow.images.regions import Region
from hedgerow.kernels.buffers import empty
from hedgerow.kernels.constants import UNUSED
from hedgerow.kernels.cpu import soft_walk as soft_kernels
from hedgerow.kernels.cpu import walk as kernels
from hedgerow.kernels.cpu.level_arguments import Weights
from hedgerow.kernels.cpu.level_work import LevelWork
from hedgerow.kernels.cpu.plane_ops import box_averaged
from hedgerow.kernels.cpu.soft_level import MIN_WALKED_TOLERANCE
from hedgerow.kernels.cpu.walk import Nodes, Probes, ReadPlanes
from hedgerow.kernels.definition.outputs import normalise, softmax
from hedgerow.kernels.wiring import Reads, Wiring, wire
from hedgerow.threads import map_threads, slice_blocks

MAX_PLACES = 2**32  # a probe's place among the planes is a 32-bit number; larger regions are halved


class FixedPlaces(NamedTuple):
    """The planes that probes read, and their places there.

    planes: (P,d,h,w), large enough that no probe for a pixel of the region leaves its plane
    place:  (N,J) int64, counted through all planes: where the probes read for the first pixel; 0 at a leaf
    """

    planes: np.ndarray
    place: np.ndarray

    @property
    def stride(self) -> int:
        """Places from one row of a plane to the next."""
        return int(self.planes.shape[3])

    @property
    def slice_stride(self) -> int:
        return int(self.planes.shape[2] * self.planes.shape[3])

    def values(self, z: int) -> np.ndarray:
        """(V,): the values that slice z of the region reads at the places."""
        return self.planes.reshape(-1)[z * self.slice_stride :]


def run_level(stack: ForestStack, level: int, level_input: LevelInput) -> np.ndarray:
    """(C,Z,h,w) float32 output of one level of a stack."""
    return run_forest(stack.levels[level], level_input, stack.is_softmax(level), stack.tolerance)


def run_forest(forest: Forest, level_input: LevelInput, is_softmax: bool = False, tolerance: float = 0.0) -> np.ndarray:
    """Class probabilities (C,Z,h,w) float32 in the given region.

    is_softmax: whether the summed votes go through softmax; otherwise they are normalised
    tolerance:  soft splits: branches reached with at most this probability are left out
    """
    if forest.sharpness is not None:
        return run_soft_forest(forest, level_input, is_softmax, tolerance)
    inner = level_input.region
    if n_places(forest, level_input) >= MAX_PLACES and max(inner.shape) > 1:
        halves, axis = inner.halves()
        parts = [run_forest(forest, replace(level_input, region=half), is_softmax) for half in halves]
        return np.concatenate(parts, axis=1 + axis)
    nodes = walkable(forest)
    out = np.empty((inner.depth, forest.n_classes, inner.height, inner.width), np.float32)
    if _is_single(forest, level_input):
        fixed = fixed_places(forest, level_input)
        route = _route(nodes, fixed)

        def walk(z: int, first: int, end: int) -> None:
            routes = kernels.Routes(fixed.values(z), fixed.stride, route)
            kernels.walk_forest(routes, None, None, nodes, is_softmax, first, end, (0, 0, 0), out[z])
    else:
        read = any_planes(forest, level_input)

        def walk(z: int, first: int, end: int) -> None:
            origin = (inner.front + z, inner.top, inner.left)
            kernels.walk_forest(None, *read, nodes, is_softmax, first, end, origin, out[z])

    return _filled(out, walk)


def _filled(out: np.ndarray, fill: Callable[[int, int, int], None], per_thread: int = 4) -> np.ndarray:
    """(X,Z,h,w): `out` (Z,X,h,w) once `fill` has written it; `fill` takes a slice, its first row and the end row."""
    depth, _, height, _ = out.shape
    list(map_threads(lambda rows: fill(*rows), slice_blocks(depth, height, per_thread)))
    return np.moveaxis(out, 0, 1)


def reached_leaves(forest: Forest, level_input: LevelInput) -> np.ndarray:
    """(T,Z,h,w) int32 leaf(x) for every tree and pixel of the region: the row of `votes` that hard splits lead to."""
    inner, nodes = level_input.region, walkable(forest)
    out = np.empty((inner.depth, forest.n_trees, inner.height, inner.width), np.int32)
    if _is_single(forest, level_input) and n_places(forest, level_input) < MAX_PLACES:
        fixed = fixed_places(forest, level_input)
        route = _route(nodes, fixed)

        def find(z: int, first: int, end: int) -> None:
            routes = kernels.Routes(fixed.values(z), fixed.stride, route)
            kernels.find_leaves(routes, None, None, nodes, first, end, (0, 0, 0), out[z])
    else:
        read = any_planes(forest, level_input)

        def find(z: int, first: int, end: int) -> None:
            kernels.find_leaves(None, *read, nodes, first, end, (inner.front + z, inner.top, inner.left), out[z])

    return _filled(out, find)


def _is_single(forest: Forest, level_input: LevelInput) -> bool:
    """Whether every split is one probe of weight 1 at a fixed offset."""
    is_one_probe = forest.weight.shape[1] == 1 and bool((forest.weight[forest.is_split] == 1).all())
    return is_one_probe and level_input.stretch is None and level_input.outside is None


def _route(nodes: kernels.Nodes, fixed: FixedPlaces) -> np.ndarray:
    """`route` of `kernels.Routes`."""
    return (nodes.child.astype(np.uint64) << np.uint64(32)) | fixed.place[:, 0].astype(np.uint64)


def run_soft_forest(forest: Forest, level_input: LevelInput, is_softmax: bool, tolerance: float) -> np.ndarray:
    """Class probabilities (C,Z,h,w) float32 of a forest with soft splits; the arguments are those of `run_forest`."""
    inner = level_input.region
    if level_input.stretch is None and level_input.outside is None:
        fixed = fixed_places(forest, level_input)
        if tolerance < MIN_WALKED_TOLERANCE:
            scores = _all_branches(forest, fixed, inner, tolerance)
            return softmax(scores) if is_softmax else normalise(scores)
        probes = Probes(forest.planes_read[1], forest.offset, forest.weight)
        nowhere = np.zeros(0, np.float32)
        reads = [
            soft_kernels.SoftReading(fixed.values(z), fixed.stride, fixed.place, level_input.size[1:], -1, nowhere)
            for z in range(inner.depth)
        ]
    else:
        averaged, probes = any_planes(forest, level_input)
        values = np.concatenate([averaged.values.reshape(-1), averaged.outside])
        beyond = averaged.values.size if len(averaged.outside) else -1
        no_place = np.zeros((0, 0), np.int64)
        reads = [soft_kernels.SoftReading(values, 0, no_place, averaged.size[1:], beyond, averaged.stretch)]
    nodes = walkable(forest)._replace(threshold=forest.threshold)
    limit, finish = np.float32(tolerance), soft_kernels.SOFTMAX if is_softmax else soft_kernels.NORMALISED
    out = np.empty((inner.depth, forest.n_classes, inner.height, inner.width), np.float32)

    def walk(z: int, first: int, end: int) -> None:
        origin = (inner.top, inner.left)
        soft_kernels.walk_soft(reads[z], probes, nodes, forest.sharpness, limit, finish, first, end, origin, out[z])

    # The rows of a block share much work, so there are fewer and larger parts than for hard splits.
    return _filled(out, walk, 2)


def _all_branches(forest: Forest, fixed: FixedPlaces, inner: Region, tolerance: float) -> np.ndarray:
    """Scores (C,Z,h,w) from the network of one level, whose kernels take blocks of pixels through all nodes."""
    wiring = wire(forest.root, forest.left_child)
    splits, weights = wiring.node_split, soft_weights(forest, wiring)
    used = np.where(forest.weight[splits] != 0, fixed.place[splits], UNUSED)
    reads = Reads(inner.shape, used, fixed.stride, fixed.slice_stride, fixed.planes.size)
    work = LevelWork(reads, wiring, "soft", "exp", 1.0, tolerance)
    return work.scores(work.padded(fixed.planes.reshape(-1)), weights)


def soft_weights(forest: Forest, wiring: Wiring) -> Weights:
    """The weights of the network that is equivalent to a forest of soft splits."""
    assert forest.sharpness is not None
    splits = wiring.node_split
    scale = forest.sharpness[splits]
    votes = np.ascontiguousarray(forest.votes[forest.leaf_index[wiring.node_leaf]])
    return Weights(scale[:, None] * forest.weight[splits], -scale * forest.threshold[splits], votes)


def n_places(forest: Forest, level_input: LevelInput) -> int:
    """The total number of pixels in the planes of `fixed_places`."""
    sides = zip(level_input.region.shape, _margin(forest, level_input), strict=True)
    return len(forest.planes_read[0]) * math.prod(side + 2 * margin for side, margin in sides)


def _margin(forest: Forest, level_input: LevelInput) -> tuple[int, int, int]:
    """How far a forest reads along (z, y, x), at most the size of the image: all longer offsets end at its edge."""
    depth, height, width = level_input.size
    reach = min(forest.reach, max(height, width))
    return min(forest.reach_z, depth - 1), reach, reach


def fixed_places(forest: Forest, level_input: LevelInput) -> FixedPlaces:
    """The places that the probes of a forest read for a region if their offsets are the same for all pixels."""
    pairs, plane = forest.planes_read
    margin, inner, channels = _margin(forest, level_input), level_input.region, level_input.channels
    if _can_be_read_in_place(level_input, pairs, margin):
        planes, plane, corner = np.asarray(channels), forest.channel, (inner.front, inner.top, inner.left)
    else:
        planes, corner = _padded_planes(level_input, pairs, margin), margin
    _, depth, height, width = planes.shape
    offset = np.clip(np.floor(forest.offset + np.float32(0.5)).astype(np.int64), np.negative(margin), margin) + corner
    row = (plane.astype(np.int64) * depth + offset[..., 0]) * height + offset[..., 1]
    return FixedPlaces(planes, np.where(forest.is_split[:, None], row * width + offset[..., 2], 0))


def _can_be_read_in_place(level_input: LevelInput, pairs: np.ndarray, margin: tuple[int, int, int]) -> bool:
    """Whether the channels can serve as planes without a copy, because nothing must be padded or averaged."""
    channels, inner = level_input.channels, level_input.region
    if not (isinstance(channels, np.ndarray) and channels.flags.c_contiguous and channels.size < MAX_PLACES):
        return False
    seen = inner.grown(margin, Region.whole(level_input.size))
    is_inside = all(a == b + 2 * m for a, b, m in zip(seen.shape, inner.shape, margin, strict=True))
    return is_inside and not pairs[:, 1].any()


def _padded_planes(level_input: LevelInput, pairs: np.ndarray, margin: tuple[int, int, int]) -> np.ndarray:
    """(P, d+2m, h+2m, w+2m): the planes around the region, continued outside the image with the nearest edge pixel."""
    channels, inner = level_input.channels, level_input.region
    has = inner.grown(margin, Region.whole(level_input.size))
    shape = len(pairs), *(side + 2 * m for side, m in zip(inner.shape, margin, strict=True))
    # The place in the planes of the pixels that the image has.
    corner = Region(inner.top - margin[1], 0, inner.left - margin[2], 0, inner.front - margin[0], 0)
    at = has.within(corner)
    top, bottom, left, right = at.top, at.bottom, at.left, at.right
    planes = empty(shape) if channels[0].dtype == np.float32 else np.empty(shape, channels[0].dtype)

    def fill(p: int, z: int) -> None:
        channel, radius = pairs[p]
        plane, known = planes[p, at.front + z], channels[channel][has.front + z]
        if radius:
            known = box_averaged(known[np.newaxis], int(radius))[0]
        plane[top:bottom, left:right] = has.of(known)
        plane[top:bottom, :left] = plane[top:bottom, left : left + 1]
        plane[top:bottom, right:] = plane[top:bottom, right - 1 : right]
        plane[:top] = plane[top]
        plane[bottom:] = plane[bottom - 1]

    def fill_some(some: tuple[int, int, int]) -> None:
        z, first, end = some
        for p in range(first, end):
            fill(p, z)

    # Several planes per task: for small images, handing out hundreds of tasks takes longer than filling the planes.
    list(map_threads(fill_some, slice_blocks(has.depth, len(pairs))))
    planes[:, : at.front] = planes[:, at.front : at.front + 1]
    planes[:, at.back :] = planes[:, at.back - 1 : at.back]
    return planes


def any_planes(forest: Forest, level_input: LevelInput) -> tuple[ReadPlanes, Probes]:
    """The planes that probes of any kind read, and the probes."""
    pairs, plane = forest.planes_read
    outside, channels = level_input.outside, level_input.channels
    constants = np.zeros(0, np.float32) if outside is None else outside[pairs[:, 0]]
    planes = np.stack(
        [box_averaged(channels[c], r, None if outside is None else float(outside[c])) for c, r in pairs]
    ).astype(np.float32)
    stretch = (
        np.zeros(0, np.float32) if level_input.stretch is None else np.ascontiguousarray(level_input.stretch).ravel()
    )
    probes = Probes(plane, np.ascontiguousarray(forest.offset), np.ascontiguousarray(forest.weight))
    return ReadPlanes(planes.reshape(len(pairs), -1), level_input.size, stretch, constants), probes


def walkable(forest: Forest) -> Nodes:
    """The nodes as kernels walk them: a leaf is its own left child, and votes are padded to a multiple of eight."""
    nodes = np.arange(forest.n_nodes, dtype=np.uint32)
    child = np.where(forest.is_split, forest.left_child, nodes).astype(np.uint32)
    # Nothing is >= NaN: whatever its value, a pixel goes from a leaf to the leaf's left child, which is the leaf.
    threshold = np.where(forest.is_split, forest.threshold, np.nan).astype(np.float32)
    leaf = np.where(forest.is_split, 0, forest.leaf_index).astype(np.uint32)
    votes = np.pad(forest.votes.astype(np.float32), ((0, 0), (0, -forest.n_classes % 8)))
    return Nodes(forest.root.astype(np.uint32), forest.tree_depths, child, threshold, leaf, votes)
