"""The backward pass through soft trees, walked as in `soft_walk`: gradients of weights, biases, votes and values.

A tree is walked depth first for a block of pixels, node by node, with the list of the pixels that reach a node. One
node per generation is open at a time, and its list is kept until both its children are done. A child leaves the
gradients of z_H2 of its pixels, summed over its leaves, in the order of its own list, which is that of its parent's
list without the pixels that were dropped.
"""

from typing import NamedTuple

import numpy as np

from hedgerow.kernels.compiling import kernel_part, multiply_add_part, reducing_kernel, reducing_part
from hedgerow.kernels.cpu.blocks import ZERO
from hedgerow.kernels.cpu.simd8 import EIGHT, add_scaled_eight, keep_eight, spread_eight
from hedgerow.kernels.cpu.soft_walk import BLOCK, COLUMNS, MASK, ROWS, SHIFT, VECTOR, branch, fixed_values, list_all


class SoftBackRoom(NamedTuple):
    """The working memory of one thread, for G generations.

    node, length, stage: (G,) int64, of the open nodes: number, length of the list, children that are done (-1: new)
    pixel: (G,BLOCK+VECTOR) int32, the pixels that reach the node
    mass, right, left: of the same shape, float32, their probabilities, and the parts that go right and left
    from_left: of the same shape, gradients that the left child left; own: (BLOCK+VECTOR,), those of the last node
    other, slope: as own; box: (>=C,)
    """

    node: np.ndarray
    length: np.ndarray
    stage: np.ndarray
    pixel: np.ndarray
    mass: np.ndarray
    right: np.ndarray
    left: np.ndarray
    from_left: np.ndarray
    own: np.ndarray
    other: np.ndarray
    slope: np.ndarray
    box: np.ndarray


def make_soft_back_room(deepest: int, width: int) -> SoftBackRoom:
    """deepest: depth of the deepest tree; width: number of columns of the votes"""
    n, row = deepest + 1, BLOCK + VECTOR
    return SoftBackRoom(
        node=np.empty(n, np.int64),
        length=np.empty(n, np.int64),
        stage=np.empty(n, np.int64),
        pixel=np.zeros((n, row), np.int32),
        mass=np.ones((n, row), np.float32),
        right=np.zeros((n, row), np.float32),
        left=np.zeros((n, row), np.float32),
        from_left=np.zeros((n, row), np.float32),
        own=np.zeros(row, np.float32),
        other=np.zeros(row, np.float32),
        slope=np.zeros(row, np.float32),
        box=np.zeros(width, np.float32),
    )


@kernel_part
def _keep(n, tolerance, pixel, side, into_pixel, into_mass):
    """Make a child's list from that of its parent, of length n, whose part `side` goes there; returns its length."""
    for e in range(n, n + EIGHT):
        side[e] = ZERO
    n_kept = 0
    for e in range(0, n, EIGHT):
        n_kept += keep_eight(pixel, side, e, tolerance, into_pixel, into_mass, n_kept)
    return n_kept


@kernel_part
def _spread(n, tolerance, side, gradients, out):
    """Fill `out` with the gradients that a child left, in the order of its parent's list of length n; 0 for others."""
    q = 0
    for e in range(0, n, EIGHT):
        q += spread_eight(side, e, tolerance, gradients, q, out)


@reducing_part
def _through_leaf(n, pixel, mass, slopes, votes, leaf, box, d_votes, own):
    """Add the gradient of a leaf's votes, and fill `own` with that of its z_H2 at the n pixels of its list.

    slopes: (BLOCK*width,), gradients of the scores, pixel after pixel
    """
    width, all_votes = votes.shape[1], votes.reshape(-1)
    box[:] = ZERO
    for e in range(n):
        m, at, total = mass[e], pixel[e] * width, ZERO
        for c in range(0, width, EIGHT):
            add_scaled_eight(box, c, m, slopes, at + c)
            eight_slopes, first = slopes[at + c : at + c + EIGHT], leaf * width + c
            eight_votes = all_votes[first : first + EIGHT]
            for s in range(EIGHT):
                total += eight_slopes[s] * eight_votes[s]
        own[e] = m * total
    target = d_votes[leaf]
    for c in range(width):
        target[c] += box[c]


@multiply_add_part
def _through_split(n, mass, right, left, from_right, from_left, slope, own):
    """Fill `slope`, the gradient of z_H1, from those of z_H2 on either side, and `own` with the sum of these."""
    for e in range(n):
        up, down = from_right[e], from_left[e]
        slope[e] = (left[e] * up - right[e] * down) / mass[e]
        own[e] = up + down


@reducing_part
def _through_probes(
    reading, place, weight, sharpness, first_trained, corner, n, pixel, slope, k, d_weights, d_values
):  # fmt: skip
    """Add the gradients of node k's weights and bias, and of the values that it reads from `first_trained` on."""
    values, step = reading.values, np.uint32(reading.stride)
    first, total = corner[0] * reading.stride + corner[1], ZERO
    for e in range(n):
        total += slope[e]
    d_weights.bias[k] += total
    for j in range(weight.shape[0]):
        w, start, total = sharpness * weight[j], np.uint64(place[j] + first), ZERO
        for e in range(n):
            p = np.uint32(pixel[e])
            total += slope[e] * values[start + np.uint64(np.uint32((p >> SHIFT) * step) + (p & MASK))]
        d_weights.split[k, j] += total
        if place[j] >= first_trained and w != 0:
            target = np.uint64(place[j] + first - first_trained)
            for e in range(n):
                p = np.uint32(pixel[e])
                d_values[target + np.uint64(np.uint32((p >> SHIFT) * step) + (p & MASK))] += w * slope[e]


def in_blocks(slope: np.ndarray, width: int) -> np.ndarray:
    """Gradients of the scores (C,h,w) as (blocks, BLOCK*width): block after block, and pixel after pixel."""
    n_classes, h, w = slope.shape
    down, across = -(-h // ROWS), -(-w // COLUMNS)
    whole = np.zeros((down * ROWS, across * COLUMNS, width), np.float32)
    whole[:h, :w, :n_classes] = slope.transpose(1, 2, 0)
    return np.ascontiguousarray(
        whole.reshape(down, ROWS, across, COLUMNS, width).transpose(0, 2, 1, 3, 4)
    ).reshape(down * across, -1)  # fmt: skip


@reducing_kernel
def soft_backward(
    reading, probes, nodes, sharpness, tolerance, first_trained, trees, size, slopes, room, d_weights, d_values
):  # fmt: skip
    """Add the gradients of the trees trees[0]..trees[1], from those of the scores, `in_blocks`.

    size: (h,w) of the grid; d_weights: `Weights` of the network, over nodes; d_values: from `first_trained` on
    """
    child, weight = nodes.child, probes.weight
    node, length, stage = room.node, room.length, room.stage
    across = -(-size[1] // COLUMNS)
    for block in range(slopes.shape[0]):
        corner = (block // across * ROWS, block % across * COLUMNS)
        for t in range(trees[0], trees[1]):
            n_rows, n_columns = min(ROWS, size[0] - corner[0]), min(COLUMNS, size[1] - corner[1])
            n = list_all(n_rows, n_columns, room.pixel[0], room.mass[0])
            node[0], length[0], stage[0], g = nodes.root[t], n, -1, 0
            while g >= 0:
                k, n, below = node[g], length[g], g + 1
                pixel, mass, right, left = room.pixel[g], room.mass[g], room.right[g], room.left[g]
                if stage[g] < 0 and child[k] == k:
                    _through_leaf(
                        n, pixel, mass, slopes[block], nodes.votes, nodes.leaf[k], room.box, d_weights.votes, room.own
                    )  # fmt: skip
                    g -= 1
                    continue
                if stage[g] < 0:
                    fixed_values(reading.values, reading.stride, reading.place[k], corner, weight[k], n, pixel, left)
                    branch(sharpness[k], nodes.threshold[k], n, mass, left, right)
                    stage[g] = 0
                    n_kept = _keep(n, tolerance, pixel, left, room.pixel[below], room.mass[below])
                    if n_kept > 0:
                        node[below], length[below], stage[below] = child[k], n_kept, -1
                        g = below
                        continue
                if stage[g] == 0:
                    _spread(n, tolerance, left, room.own, room.from_left[g])
                    stage[g] = 1
                    n_kept = _keep(n, tolerance, pixel, right, room.pixel[below], room.mass[below])
                    if n_kept > 0:
                        node[below], length[below], stage[below] = child[k] + 1, n_kept, -1
                        g = below
                        continue
                _spread(n, tolerance, right, room.own, room.other)
                _through_split(n, mass, right, left, room.other, room.from_left[g], room.slope, room.own)
                _through_probes(
                    reading, reading.place[k], weight[k], sharpness[k], first_trained, corner, n, pixel, room.slope, k,
                    d_weights, d_values,
                )  # fmt: skip
                g -= 1
