"""Walking a forest over an image: all pixels of a block descend a tree together, one generation at a time.

A leaf is its own left child and its threshold is NaN, which no value reaches. So all pixels of a block take the same
number of steps, and the loop has no branch. Votes are added in the order of the trees, so sums do not depend on blocks
or tiles.
Callers guarantee that every read is in range; nothing is checked here.
"""

from typing import NamedTuple

import numpy as np

from hedgerow.kernels.compiling import kernel, kernel_part
from hedgerow.kernels.definition.outputs import CANCELLED, SMALLEST_SUM

BLOCK = 512  # pixels of a row


class Nodes(NamedTuple):
    """N nodes of T trees; a leaf is its own left child, and its threshold is NaN if splits are hard.

    root: (T,) uint32; depth: (T,) int64; child, leaf: (N,) uint32, left child and row of the votes
    threshold: (N,) float32; votes: (L, >=C) float32, padded with zeros to a multiple of eight columns
    """

    root: np.ndarray
    depth: np.ndarray
    child: np.ndarray
    threshold: np.ndarray
    leaf: np.ndarray
    votes: np.ndarray


class Probes(NamedTuple):
    """The probes of N nodes: plane (N,J) int32; offset (N,J,3) float32; weight (N,J) float32, 0 if unused."""

    plane: np.ndarray
    offset: np.ndarray
    weight: np.ndarray


class Routes(NamedTuple):
    """What splits of one probe, of weight 1 and at a fixed offset, read and where they lead.

    values: flat planes; stride: from one row to the next
    route:  (N,) uint64, the left child in the upper half, in the lower half the index of the probe for pixel (0, 0), so
            that one read gives both
    """

    values: np.ndarray
    stride: int
    route: np.ndarray


class ReadPlanes(NamedTuple):
    """Planes of one image or volume, for any probes.

    values: (P,Z*H*W) float32; size: (Z,H,W)
    stretch: (H*W,) float32 factor for the offsets at each pixel of an image, or empty
    outside: (P,) float32 constants beyond the border, or empty for the nearest edge pixel
    """

    values: np.ndarray
    size: tuple[int, int, int]
    stretch: np.ndarray
    outside: np.ndarray


@kernel
def _add_votes(node, n_pixels, leaf, votes, total):
    for i in range(n_pixels):
        ballot = votes[leaf[node[i]]]
        box = total[i]
        for c in range(ballot.shape[0]):
            box[c] += ballot[c]


@kernel_part
def store(total, n_pixels, n_classes, is_softmax, out, row, column):
    """Store total (BLOCK, >=C) in out (C,H,W) at a run of pixels of one row, after softmax or `outputs.normalise`."""
    for i in range(n_pixels):
        box = total[i]
        if is_softmax:
            highest, whole = box[0], np.float32(0)
            for c in range(1, n_classes):
                highest = max(highest, box[c])
            for c in range(n_classes):
                box[c] = np.exp(box[c] - highest)
                whole += box[c]
            for c in range(n_classes):
                box[c] /= whole
            continue
        whole, sizes = np.float32(0), np.float32(0)
        for c in range(n_classes):
            whole += box[c]
            sizes += abs(box[c])
        divisor = max(max(whole, np.float32(CANCELLED) * sizes), np.float32(SMALLEST_SUM))
        lacking = (np.float32(1) - whole / divisor) / np.float32(n_classes)
        for c in range(n_classes):
            box[c] = box[c] / divisor + lacking
    for c in range(n_classes):
        line = out[c, row, column : column + n_pixels]
        for i in range(n_pixels):
            line[i] = total[i, c]


@kernel
def _first_two_steps(planes, base, n_pixels, root, route, threshold, node):
    """Take a block from the root to its grandchildren. Neighbours still read neighbours here, and loops vectorise."""
    left = np.uint32(route[root] >> np.uint64(32))
    right = left + np.uint32(1)
    at_root = base + np.int64(np.uint32(route[root]))
    at_left = base + np.int64(np.uint32(route[left]))
    at_right = base + np.int64(np.uint32(route[right]))
    of_root, of_left = planes[at_root : at_root + n_pixels], planes[at_left : at_left + n_pixels]
    of_right = planes[at_right : at_right + n_pixels]
    cut_root, cut_left, cut_right = threshold[root], threshold[left], threshold[right]
    left_child, right_child = np.uint32(route[left] >> np.uint64(32)), np.uint32(route[right] >> np.uint64(32))
    for i in range(n_pixels):
        on_left = left_child + np.uint32(of_left[i] >= cut_left)
        on_right = right_child + np.uint32(of_right[i] >= cut_right)
        node[i] = on_right if of_root[i] >= cut_root else on_left


@kernel
def _reach_by_routes(routes, row, column, n_pixels, nodes, t, node):
    """Fill node (>=n_pixels,) with the leaves that a run of pixels of one row reaches in tree t."""
    planes, route, base = routes.values, routes.route, row * routes.stride + column
    threshold, steps = nodes.threshold, nodes.depth[t]
    if steps >= 2:
        _first_two_steps(planes, base, n_pixels, nodes.root[t], route, threshold, node)
        steps -= 2
    else:
        for i in range(n_pixels):
            node[i] = nodes.root[t]
    for _ in range(steps):
        for i in range(n_pixels):
            k = node[i]
            step = route[k]
            value = planes[np.uint32(np.uint32(step) + np.uint32(base) + np.uint32(i))]
            node[i] = np.uint32(step >> np.uint64(32)) + np.uint32(value >= threshold[k])


@kernel_part
def probe_sum(values, start, size, stretch, outside, plane, offset, weight, z, row, column):
    """The value that a node compares with its threshold at one pixel: the weighted sum of its probes (J,).

    values: (P,pixels), in which the image, of this size (Z,H,W), begins at pixel `start`; outside: as in `ReadPlanes`
    stretch: factor for the offsets in rows and columns at this pixel
    """
    half = np.float32(0.5)
    total = np.float32(0)
    depth, height, width = size
    for j in range(plane.shape[0]):
        if weight[j] == 0:
            continue
        s, is_outside = z, False
        if offset[j, 0] != 0:
            s += int(np.floor(offset[j, 0] + half))
            is_outside = s < 0 or s >= depth
            s = min(max(s, 0), depth - 1)
        r = row + int(np.floor(offset[j, 1] * stretch + half))
        c = column + int(np.floor(offset[j, 2] * stretch + half))
        if outside.shape[0] > 0 and (is_outside or r < 0 or r >= height or c < 0 or c >= width):
            total += weight[j] * outside[plane[j]]
        else:
            r = min(max(r, 0), height - 1)
            c = min(max(c, 0), width - 1)
            total += weight[j] * values[plane[j], start + (s * height + r) * width + c]
    return total


@kernel_part
def _reach_leaves(planes, probes, nodes, t, z, row, column, n_pixels, out):
    """Fill out (>=n_pixels,) with the leaves that a run of pixels of one row of the planes reaches in tree t."""
    width = planes.size[2]
    stretch, child, threshold = np.float32(1), nodes.child, nodes.threshold
    for i in range(n_pixels):
        k = nodes.root[t]
        if planes.stretch.shape[0] > 0:
            stretch = planes.stretch[row * width + column + i]
        for _ in range(nodes.depth[t]):
            if child[k] == k:
                break
            value = probe_sum(
                planes.values, 0, planes.size, stretch, planes.outside,
                probes.plane[k], probes.offset[k], probes.weight[k], z, row, column + i,
            )  # fmt: skip
            k = child[k] + np.uint32(value >= threshold[k])
        out[i] = k


@kernel
def walk_forest(routes, planes, probes, nodes, is_softmax, first_row, last_row, origin, out):
    """Fill the rows first_row..last_row of out (C,h,w) with class probabilities.

    Either routes, or planes (`ReadPlanes`) and probes are given; the others are None, and Numba leaves their code out.
    origin: slice, row and column of out's pixel (0, 0) in the planes
    """
    n_classes, _, width = out.shape
    node = np.empty(BLOCK, np.uint32)
    total = np.empty((BLOCK, nodes.votes.shape[1]), np.float32)
    z, top, left = origin
    for row in range(first_row, last_row):
        for column in range(0, width, BLOCK):
            n_pixels = min(BLOCK, width - column)
            total[:] = np.float32(0)
            for t in range(nodes.root.shape[0]):
                if routes is not None:
                    _reach_by_routes(routes, row, column, n_pixels, nodes, t, node)
                if planes is not None:
                    _reach_leaves(planes, probes, nodes, t, z, top + row, left + column, n_pixels, node)
                _add_votes(node, n_pixels, nodes.leaf, nodes.votes, total)
            store(total, n_pixels, n_classes, is_softmax, out, row, column)


@kernel
def find_leaves(routes, planes, probes, nodes, first_row, last_row, origin, out):
    """Fill the rows first_row..last_row of out (T,h,w) with the row of `votes` that each pixel reaches in each tree.

    Arguments as in `walk_forest`.
    """
    width = out.shape[2]
    node = np.empty(width, np.uint32)
    z, top, left = origin
    for row in range(first_row, last_row):
        for t in range(nodes.root.shape[0]):
            if routes is not None:
                _reach_by_routes(routes, row, 0, width, nodes, t, node)
            if planes is not None:
                _reach_leaves(planes, probes, nodes, t, z, top + row, left, width, node)
            for column in range(width):
                out[t, row, column] = nodes.leaf[node[column]]


@kernel
def finish(total, is_softmax, out):
    """Fill out (C,h,w) from summed votes total (h*w,C), which are overwritten, as after walking."""
    n_classes, height, width = out.shape
    for row in range(height):
        store(total[row * width : (row + 1) * width], width, n_classes, is_softmax, out, row, 0)


@kernel
def add_by_leaf(leaf, planes, sums):
    """sums[c, leaf[i]] += planes[c, i], sample after sample: leaf (n,), planes (C,n), sums (C,L) float64."""
    for c in range(planes.shape[0]):
        for i in range(leaf.shape[0]):
            sums[c, leaf[i]] += planes[c, i]
