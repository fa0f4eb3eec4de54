"""Walking a forest over an image: blocks of pixels side by side, one tree level at a time.

A leaf is its own left child with a threshold that nothing reaches (NaN), so every pixel of a block takes the same
number of steps and the loop has no branch. Votes are added tree after tree, in order, so the sum does not depend on
blocks or tiles.
Callers guarantee that every read is in range; nothing is checked here.
"""

from typing import NamedTuple

import numpy as np

from hedgerow.kernels.compiling import kernel, kernel_part
from hedgerow.kernels.definition.outputs import CANCELLED, SMALLEST_SUM

BLOCK = 512  # pixels of a row


class Nodes(NamedTuple):
    """N nodes of T trees; a leaf is its own left child, of threshold NaN where splits are hard.

    root: (T,) uint32; depth: (T,) int64; child, leaf: (N,) uint32, left child and row of the votes
    threshold: (N,) float32; votes: (L, >=C) float32, padded with zeros to a width that suits the vector unit
    """

    root: np.ndarray
    depth: np.ndarray
    child: np.ndarray
    threshold: np.ndarray
    leaf: np.ndarray
    votes: np.ndarray


class Probes(NamedTuple):
    """Of N nodes: plane (N,J) int32; offset (N,J,3) float32; weight (N,J) float32, 0 if unused."""

    plane: np.ndarray
    offset: np.ndarray
    weight: np.ndarray


class ReadPlanes(NamedTuple):
    """Planes of one image or volume.

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
    """total (BLOCK, >=C) to out (C,H,W) at a run of pixels of one row; softmax, or as `outputs.normalise` does it."""
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
    """Take a block from the root to its grandchildren: neighbours read neighbours, so this much is vector work."""
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
def _reach_single(planes, base, n_pixels, t, route, nodes, node):
    """node (>=n_pixels,): the leaves that a run of pixels, the first at `base`, reaches in tree t."""
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


@kernel
def walk_single_probe(planes, stride, route, nodes, is_softmax, first_row, last_row, out):
    """Rows first_row..last_row of out (C,H,W), for splits of one probe of weight 1 at a fixed offset.

    planes: flat; stride: from one row to the next
    route: (N,) uint64: left child in the upper half, in the lower half the index of the probe for the pixel (0, 0);
    side by side they are one read
    """
    n_classes, _, width = out.shape
    node = np.empty(BLOCK, np.uint32)
    total = np.empty((BLOCK, nodes.votes.shape[1]), np.float32)
    for row in range(first_row, last_row):
        for column in range(0, width, BLOCK):
            n_pixels = min(BLOCK, width - column)
            total[:] = np.float32(0)
            for t in range(nodes.root.shape[0]):
                _reach_single(planes, row * stride + column, n_pixels, t, route, nodes, node)
                _add_votes(node, n_pixels, nodes.leaf, nodes.votes, total)
            store(total, n_pixels, n_classes, is_softmax, out, row, column)


@kernel_part
def probe_sum(values, start, size, stretch, outside, plane, offset, weight, z, row, column):
    """What a node compares with its threshold at one pixel: the weighted sum of its probes (J,) into values (P,pixels).

    The pixels of the image, of this size, begin at `start`; stretch: factor for the offsets in rows and columns at this
    pixel; outside: as in `ReadPlanes`
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
    """out (>=n_pixels,): nodes of the leaves that a run of pixels of one row of the planes reaches in tree t."""
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
def walk_any_probes(planes, probes, nodes, is_softmax, first_row, last_row, origin, out):
    """Rows first_row..last_row of out (C,h,w), whose pixel (0, 0) is the planes' `origin` (slice, row, column)."""
    n_classes, _, width = out.shape
    node = np.empty(BLOCK, np.uint32)
    total = np.empty((BLOCK, nodes.votes.shape[1]), np.float32)
    for row in range(first_row, last_row):
        for column in range(0, width, BLOCK):
            n_pixels = min(BLOCK, width - column)
            total[:] = np.float32(0)
            for t in range(nodes.root.shape[0]):
                _reach_leaves(planes, probes, nodes, t, origin[0], origin[1] + row, origin[2] + column, n_pixels, node)
                _add_votes(node, n_pixels, nodes.leaf, nodes.votes, total)
            store(total, n_pixels, n_classes, is_softmax, out, row, column)


@kernel
def find_leaves_single(planes, stride, route, nodes, first_row, last_row, out):
    """Rows first_row..last_row of out (T,h,w): the row of `votes` that each pixel reaches; see `walk_single_probe`."""
    width = out.shape[2]
    node = np.empty(width, np.uint32)
    for row in range(first_row, last_row):
        for t in range(nodes.root.shape[0]):
            _reach_single(planes, row * stride, width, t, route, nodes, node)
            for column in range(width):
                out[t, row, column] = nodes.leaf[node[column]]


@kernel
def find_leaves(planes, probes, nodes, first_row, last_row, origin, out):
    """Rows first_row..last_row of out (T,h,w): the row of `votes` that each pixel reaches; see `walk_any_probes`."""
    width = out.shape[2]
    node = np.empty(width, np.uint32)
    for t in range(nodes.root.shape[0]):
        for row in range(first_row, last_row):
            _reach_leaves(planes, probes, nodes, t, origin[0], origin[1] + row, origin[2], width, node)
            for column in range(width):
                out[t, row, column] = nodes.leaf[node[column]]


@kernel
def finish(total, is_softmax, out):
    """Summed votes total (h*w,C), which are used up, to out (C,h,w), as after walking."""
    n_classes, height, width = out.shape
    for row in range(height):
        store(total[row * width : (row + 1) * width], width, n_classes, is_softmax, out, row, 0)


@kernel
def add_by_leaf(leaf, planes, sums):
    """sums[c, leaf[i]] += planes[c, i]: leaf (n,), planes (C,n), sums (C,L) float64; samples in their order."""
    for c in range(planes.shape[0]):
        for i in range(leaf.shape[0]):
            sums[c, leaf[i]] += planes[c, i]
