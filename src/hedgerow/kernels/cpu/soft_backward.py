"""The way back through soft trees, walked as in `soft_walk`: gradients of weights, biases, votes and values.

A tree is walked depth first for a block of pixels, node by node, with the list of the pixels that reach a node. Of every
generation one node is open at a time, and what its list needs is kept until both its children are done: each leaves the
gradients of its pixels' z_H2, summed over its leaves, in the order of its own list, which is the order of its parent's
list without the pixels that were dropped.
"""

from typing import NamedTuple

import numpy as np

from hedgerow.kernels.compiling import kernel_part, multiply_add_part, reducing_kernel, reducing_part
from hedgerow.kernels.cpu.blocks import ONE, ZERO
from hedgerow.kernels.cpu.eights import EIGHT, add_scaled_eight, keep_eight
from hedgerow.kernels.cpu.soft_walk import COLUMNS, MASK, SHIFT, VECTOR, branch, fixed_values

ROWS = 16  # fewer than on the way there: more is kept of each pixel
BLOCK = ROWS * COLUMNS


class SoftSlopes(NamedTuple):
    """Gradients, added to: weight (nodes,J), bias (nodes,), votes (L, >=C); values: from `first_trained` on."""

    weight: np.ndarray
    bias: np.ndarray
    votes: np.ndarray
    values: np.ndarray


class BackRoom(NamedTuple):
    """Room for one thread; G generations.

    node, count, stage: (G,) int64, of the open nodes: number, length of the list, children that are done (-1: new)
    pixel: (G,BLOCK+VECTOR) int32; mass, right, left, from_left: the same, float32: who reaches the node, with what, what
           of it goes right and left, and what the left child left behind
    own:   (BLOCK+VECTOR,), what the node that was done last left behind; other, slope: the same; box: (>=C,)
    """

    node: np.ndarray
    count: np.ndarray
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


def make_back_room(deepest: int, width: int) -> BackRoom:
    """width: of the votes"""
    lists, row = (deepest + 1, BLOCK + VECTOR), BLOCK + VECTOR
    return BackRoom(
        *(np.zeros(deepest + 1, np.int64) for _ in range(3)),
        np.zeros(lists, np.int32),
        *(np.zeros(lists, np.float32) for _ in range(4)),
        *(np.zeros(row, np.float32) for _ in range(3)),
        np.zeros(width, np.float32),
    )


@kernel_part
def _keep(n, tolerance, pixel, side, into_pixel, into_mass):
    """The list of a child from its parent's, of length n, of which `side` goes there; its length."""
    for e in range(n, n + EIGHT):
        side[e] = ZERO
    kept = 0
    for e in range(0, n, EIGHT):
        kept += keep_eight(pixel, side, e, tolerance, into_pixel, into_mass, kept)
    return kept


@kernel_part
def _spread(n, tolerance, side, found, out):
    """What a child left behind, found, in the order of its parent's list of length n: 0 where it was not reached."""
    q = 0
    for e in range(n):
        kept = not side[e] <= tolerance  # NaN is kept
        out[e] = found[q] if kept else ZERO
        q += kept


@reducing_part
def _through_leaf(n, pixel, mass, corner, line, slopes, votes, leaf, box, d_votes, own):
    """Add the gradient of a leaf's votes, and fill `own` with that of its z_H2 at the n pixels of its list.

    slopes: (h*w*width,) gradients of the scores, pixel after pixel; line: w, how many pixels a row has
    """
    width, all_votes = votes.shape[1], votes.reshape(-1)
    box[:] = ZERO
    for e in range(n):
        p = np.uint32(pixel[e])
        at = ((corner[0] + np.int64(p >> SHIFT)) * line + corner[1] + np.int64(p & MASK)) * width
        m, total = mass[e], ZERO
        for c in range(0, width, EIGHT):
            add_scaled_eight(box, c, m, slopes, at + c)
            given, ballot = slopes[at + c : at + c + EIGHT], all_votes[leaf * width + c : leaf * width + c + EIGHT]
            for s in range(EIGHT):
                total += given[s] * ballot[s]
        own[e] = m * total
    target = d_votes[leaf]
    for c in range(width):
        target[c] += box[c]


@multiply_add_part
def _through_split(n, mass, right, left, from_right, from_left, slope, own):
    """Gradient of z_H1 to `slope`, from those of z_H2 on either side; their sum to `own`."""
    for e in range(n):
        up, down = from_right[e], from_left[e]
        slope[e] = (left[e] * up - right[e] * down) / mass[e]
        own[e] = up + down


@reducing_part
def _through_probes(reading, place, weight, sharpness, first_trained, corner, n, pixel, slope, k, d):
    """Add the gradients of node k's weights and bias, and of the values that it reads from `first_trained` on."""
    values, step = reading.values, np.uint32(reading.stride)
    first, total = corner[0] * reading.stride + corner[1], ZERO
    for e in range(n):
        total += slope[e]
    d.bias[k] += total
    for j in range(weight.shape[0]):
        w, start, total = sharpness * weight[j], np.uint64(place[j] + first), ZERO
        for e in range(n):
            p = np.uint32(pixel[e])
            total += slope[e] * values[start + np.uint64(np.uint32((p >> SHIFT) * step) + (p & MASK))]
        d.weight[k, j] += total
        if place[j] >= first_trained and w != 0:
            target = np.uint64(place[j] + first - first_trained)
            for e in range(n):
                p = np.uint32(pixel[e])
                d.values[target + np.uint64(np.uint32((p >> SHIFT) * step) + (p & MASK))] += w * slope[e]


@reducing_kernel
def soft_backward(
    reading, probes, nodes, sharpness, tolerance, first_trained, trees, slopes, width, room, d
):  # fmt: skip
    """Add the gradients that the trees trees[0]..trees[1] have from those of the scores, slopes (h*w*votes' width,).

    reading.size: (h,w) of the grid; width: w; d: `SoftSlopes`, of the network's own weights
    """
    child, weight = nodes.child, probes.weight
    height = reading.size[0]
    node, count, stage = room.node, room.count, room.stage
    for t in range(trees[0], trees[1]):
        for top in range(0, height, ROWS):
            for first in range(0, width, COLUMNS):
                corner, n = (top, first), 0
                for i in range(min(ROWS, height - top)):
                    for j in range(min(COLUMNS, width - first)):
                        room.pixel[0, n], room.mass[0, n] = i * COLUMNS + j, ONE
                        n += 1
                node[0], count[0], stage[0], g = nodes.root[t], n, -1, 0
                while g >= 0:
                    k, n = node[g], count[g]
                    pixel, mass, right, left = room.pixel[g], room.mass[g], room.right[g], room.left[g]
                    if stage[g] < 0:
                        if child[k] == k:
                            _through_leaf(
                                n, pixel, mass, corner, width, slopes, nodes.votes, nodes.leaf[k], room.box, d.votes,
                                room.own,
                            )  # fmt: skip
                            g -= 1
                            continue
                        fixed_values(
                            reading.values, reading.stride, reading.place[k], corner, weight[k], n, pixel, left
                        )  # fmt: skip
                        branch(sharpness[k], nodes.threshold[k], n, mass, left, right)
                        stage[g] = 0
                        kept = _keep(n, tolerance, pixel, left, room.pixel[g + 1], room.mass[g + 1])
                        if kept > 0:
                            node[g + 1], count[g + 1], stage[g + 1] = child[k], kept, -1
                            g += 1
                            continue
                        room.own[0] = ZERO
                    if stage[g] == 0:
                        _spread(n, tolerance, left, room.own, room.from_left[g])
                        stage[g] = 1
                        kept = _keep(n, tolerance, pixel, right, room.pixel[g + 1], room.mass[g + 1])
                        if kept > 0:
                            node[g + 1], count[g + 1], stage[g + 1] = child[k] + 1, kept, -1
                            g += 1
                            continue
                        room.own[0] = ZERO
                    _spread(n, tolerance, right, room.own, room.other)
                    _through_split(n, mass, right, left, room.other, room.from_left[g], room.slope, room.own)
                    _through_probes(
                        reading, reading.place[k], weight[k], sharpness[k], first_trained, corner, n, pixel, room.slope, k, d,
                    )  # fmt: skip
                    g -= 1
