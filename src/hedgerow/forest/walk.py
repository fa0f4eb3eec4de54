"""Contextual split features: the planes that probes read, their border rule, and how a forest is run over them.

A probe averages a channel over a box around a place at an offset from the pixel. Boxes are averaged once for the
whole image: what a split reads is then one pixel of a plane, and a plane is a (channel, radius) pair.
Beyond the image a probe finds the nearest edge pixel, or a constant where the features ask for one (depth).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hedgerow.forest.arrays import Forest
from hedgerow.images.regions import Region
from hedgerow.kernels.cpu.boxes import box_averaged
from hedgerow.threads import get_threads, map_threads

MAX_PLACES = 2**32  # a probe's place among the planes is a 32-bit number; larger work is done in halves


def used_planes(forest: Forest) -> tuple[np.ndarray, np.ndarray]:
    """The (channel, radius) pairs that splits read, (P,2), and for every probe its plane, (N,J)."""
    base = int(forest.radius.max()) + 1
    key = forest.channel.astype(np.int64) * base + forest.radius
    key[(forest.weight == 0) | ~forest.is_split[:, None]] = key[0, 0]  # unread: any plane will do
    is_used = np.zeros(forest.n_channels * base, bool)
    is_used[key] = True
    used = np.flatnonzero(is_used)
    plane = (np.cumsum(is_used) - 1)[key].astype(np.int32)
    return np.stack([used // base, used % base], axis=1), plane


def row_blocks(height: int, per_thread: int = 4) -> list[tuple[int, int]]:
    parts = min(height, per_thread * get_threads())
    edges = np.linspace(0, height, parts + 1).astype(int)
    return list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))


def run_forest(
    forest: Forest,
    channels: np.ndarray | Sequence[np.ndarray],
    inner: Region | None = None,
    reach: np.ndarray | None = None,
    outside: np.ndarray | None = None,
    is_softmax: bool = False,
    tolerance: float = 0.0,
) -> np.ndarray:
    """Class probabilities (C,h,w) float32 of the `inner` region (default: all) of the channels, M of (H,W).

    Where `channels` ends, the image is taken to end; a caller that cuts tiles leaves the forest's reach around
    `inner` wherever the image goes on.
    is_softmax: the summed votes go through softmax; else they are normalised
    tolerance:  soft splits: branches that are reached with no more than this probability are left out
    """
    from hedgerow.kernels.cpu import walk as kernels

    height, width = channels[0].shape
    if inner is None:
        inner = Region(0, height, 0, width)
    if forest.sharpness is not None:
        from hedgerow.forest.soft_walk import run_soft_forest

        return run_soft_forest(forest, channels, inner, reach, outside, is_softmax, tolerance)
    pairs, plane = used_planes(forest)
    margin = _margin(forest, channels)
    places = len(pairs) * (inner.height + 2 * margin) * (inner.width + 2 * margin)
    if places >= MAX_PLACES and max(inner.height, inner.width) > 1:
        halves, axis = inner.halves()
        parts = [run_forest(forest, channels, half, reach, outside, is_softmax) for half in halves]
        return np.concatenate(parts, axis=1 + axis)
    child, threshold, leaf = walkable(forest)
    votes = np.pad(forest.votes.astype(np.float32), ((0, 0), (0, -forest.n_classes % 8)))
    root, depth = forest.root.astype(np.uint32), forest.depth
    out = np.empty((forest.n_classes, inner.height, inner.width), np.float32)
    single = forest.weight.shape[1] == 1 and bool((forest.weight[forest.is_split] == 1).all())
    if single and reach is None and outside is None:
        planes, place = fixed_places(forest, channels, pairs, plane, inner)
        route = (child.astype(np.uint64) << np.uint64(32)) | place[:, 0].astype(np.uint64)
        flat, stride = planes.reshape(-1), planes.shape[2]

        def walk(rows: tuple[int, int]) -> None:
            kernels.walk_single_probe(flat, stride, route, threshold, leaf, votes, root, depth, is_softmax, *rows, out)
    else:
        given = any_planes(forest, channels, pairs, plane, reach, outside)

        def walk(rows: tuple[int, int]) -> None:
            kernels.walk_any_probes(
                *given, threshold, child, leaf, votes, root, depth, is_softmax, *rows, (inner.top, inner.left), out
            )

    list(map_threads(walk, row_blocks(inner.height)))
    return out


def _margin(forest: Forest, channels: np.ndarray | Sequence[np.ndarray]) -> int:
    """How far a forest reads; farther than the image is large, every offset ends at its edge."""
    return min(forest.reach, max(channels[0].shape))


def fixed_places(
    forest: Forest,
    channels: np.ndarray | Sequence[np.ndarray],
    pairs: np.ndarray,
    plane: np.ndarray,
    inner: Region,
) -> tuple[np.ndarray, np.ndarray]:
    """Planes (P,h,w) in which no probe for a pixel of `inner` leaves its plane, and the places (N,J) int64, counted
    through all the planes, that the probes read for the first pixel; at a leaf 0."""
    margin = _margin(forest, channels)
    whole = (inner.height, inner.width) == channels[0].shape
    shared = isinstance(channels, np.ndarray) and channels.flags.c_contiguous and channels.size < MAX_PLACES
    if shared and whole and forest.reach == 0:
        planes, plane = np.asarray(channels), forest.channel  # nothing to pad, nothing to copy
    else:
        planes = _padded_planes(channels, pairs, inner, margin)
    stride, size = planes.shape[2], planes.shape[1] * planes.shape[2]
    offset = np.clip(np.floor(forest.offset + np.float32(0.5)).astype(np.int64), -margin, margin)
    place = plane.astype(np.int64) * size + (offset[..., 0] + margin) * stride + offset[..., 1] + margin
    return planes, np.where(forest.is_split[:, None], place, 0)


def reached_leaves(
    forest: Forest,
    channels: np.ndarray | Sequence[np.ndarray],
    inner: Region | None = None,
    reach: np.ndarray | None = None,
    outside: np.ndarray | None = None,
) -> np.ndarray:
    """leaf(x) of every tree and pixel of `inner`: the row of `votes` that hard splits lead to, (T,h,w) int32."""
    from hedgerow.kernels.cpu import walk as kernels

    if inner is None:
        inner = Region(0, channels[0].shape[0], 0, channels[0].shape[1])
    child, threshold, leaf = walkable(forest)
    given = any_planes(forest, channels, *used_planes(forest), reach, outside)
    root, depth = forest.root.astype(np.uint32), forest.depth
    out = np.empty((forest.n_trees, inner.height, inner.width), np.int32)

    def find(rows: tuple[int, int]) -> None:
        kernels.find_leaves(*given, threshold, child, leaf, root, depth, *rows, (inner.top, inner.left), out)

    list(map_threads(find, row_blocks(out.shape[1])))
    return out


def walkable(forest: Forest) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(N,) each: left children, thresholds and rows of votes; a leaf is its own left child."""
    nodes = np.arange(forest.n_nodes, dtype=np.uint32)
    child = np.where(forest.is_split, forest.left_child, nodes).astype(np.uint32)
    # Nothing is >= NaN: whatever a pixel holds, a leaf sends it to its own left child, itself.
    threshold = np.where(forest.is_split, forest.threshold, np.nan).astype(np.float32)
    return child, threshold, np.where(forest.is_split, 0, forest.leaf_index).astype(np.uint32)


def any_planes(
    forest: Forest,
    channels: np.ndarray | Sequence[np.ndarray],
    pairs: np.ndarray,
    plane: np.ndarray,
    reach: np.ndarray | None,
    outside: np.ndarray | None,
) -> tuple:
    """What `walk_any_probes` reads: planes (P,H*W), size, stretch (H*W,), constants (P,), and the probes (N,J)."""
    constants = np.zeros(0, np.float32) if outside is None else outside[pairs[:, 0]]
    planes = np.stack(
        [box_averaged(channels[c], r, None if outside is None else float(outside[c])) for c, r in pairs]
    ).astype(np.float32)
    stretch = np.zeros(0, np.float32) if reach is None else np.ascontiguousarray(reach).ravel()
    probes = (plane, np.ascontiguousarray(forest.offset), np.ascontiguousarray(forest.weight))
    return planes.reshape(len(pairs), -1), channels[0].shape, stretch, constants, *probes


def _padded_planes(
    channels: np.ndarray | Sequence[np.ndarray], pairs: np.ndarray, inner: Region, margin: int
) -> np.ndarray:
    """(P, h+2m, w+2m): the planes around `inner`, continued beyond the image by the nearest edge pixel."""
    height, width = channels[0].shape
    has = inner.grown(margin, height, width)
    top, left = margin - (inner.top - has.top), margin - (inner.left - has.left)
    bottom, right = top + has.height, left + has.width
    planes = np.empty((len(pairs), inner.height + 2 * margin, inner.width + 2 * margin), channels[0].dtype)

    def fill(p: int) -> None:
        channel, radius = pairs[p]
        plane = planes[p]
        plane[top:bottom, left:right] = has.of(box_averaged(channels[channel], int(radius)))
        plane[top:bottom, :left] = plane[top:bottom, left : left + 1]
        plane[top:bottom, right:] = plane[top:bottom, right - 1 : right]
        plane[:top] = plane[top]
        plane[bottom:] = plane[bottom - 1]

    list(map_threads(fill, range(len(pairs))))
    return planes
