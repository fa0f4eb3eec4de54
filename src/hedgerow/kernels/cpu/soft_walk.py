"""Walking soft trees over an image: a pixel enters each branch that it reaches with a probability above the tolerance.

A tree is walked node by node for a block of pixels. Each node has a list of the pixels that reach it, with their
probabilities, from which it makes the lists of its two children. Neighbours reach the same nodes, so lists are long
enough for vector code, and a pixel takes no time in branches that it does not enter. The sums at a pixel are taken in
the tree's order, whichever pixels share its block.
Callers guarantee that every read is in range; nothing is checked here.
"""

from typing import NamedTuple

import numpy as np

from hedgerow.kernels.compiling import kernel, kernel_part
from hedgerow.kernels.cpu.blocks import ONE, ZERO
from hedgerow.kernels.cpu.simd8 import EIGHT, add_scaled_eight, add_two_eight, branch_eight, share_eight, weigh_eight
from hedgerow.kernels.cpu.walk import store

# Large enough for long lists, since a short one takes as long as a long one, yet small enough for lists to stay cached.
ROWS, COLUMNS = 16, 128
BLOCK = ROWS * COLUMNS
NORMALISED, SOFTMAX, SCORES = range(3)  # what follows the sums: a function of `outputs`, or nothing
# Pixel p of a block is in its row p >> SHIFT and column p & MASK, which is faster than looking it up.
SHIFT, MASK = np.uint32(COLUMNS.bit_length() - 1), np.uint32(COLUMNS - 1)
LAST = np.uint32(COLUMNS - EIGHT)  # the last column from which eight pixels are in one row
VECTOR = 16


class SoftReading(NamedTuple):
    """What probes read, at fixed offsets, or, if the stride is 0, at offsets that may be stretched.

    values:  flat planes; stride: from one of their rows to the next
    place:   (N,J) int64, with fixed offsets: where each probe reads for the region's first pixel
    size:    (H,W) of the planes
    beyond:  index in `values` of the planes' constants beyond the border; -1: the nearest edge pixel is read there
    stretch: (H*W,) float32 factor for the offsets at each pixel, or empty
    """

    values: np.ndarray
    stride: int
    place: np.ndarray
    size: tuple[int, int]
    beyond: int
    stretch: np.ndarray


class _Room(NamedTuple):
    """Working memory for one tree.

    waiting: (generations,4) int64, for each waiting node: its number, and its list's pile, begin and length
    top: (2,) int64, ends of the two piles; pixel, mass: (2,n), the lists in them
    place: (BLOCK,) int64; value, right: (BLOCK+VECTOR,)
    """

    waiting: np.ndarray
    top: np.ndarray
    pixel: np.ndarray
    mass: np.ndarray
    place: np.ndarray
    value: np.ndarray
    right: np.ndarray


@kernel_part
def list_all(n_rows, n_columns, pixel, mass):
    """Fill a list with all pixels of a block, each with probability 1; returns its length."""
    n = 0
    for i in range(n_rows):
        for j in range(n_columns):
            pixel[n], mass[n] = i * COLUMNS + j, ONE
            n += 1
    return n


@kernel_part
def _add_votes(n, pixel, mass, leaf, votes, total):
    """Add the votes of a leaf, times the probability of reaching it, at the n pixels of a list."""
    width, all_votes, boxes = votes.shape[1], votes.reshape(-1), total.reshape(-1)
    for e in range(n):
        m, at = mass[e], pixel[e] * width
        for c in range(0, width, EIGHT):
            add_scaled_eight(boxes, at + c, m, all_votes, leaf * width + c)


@kernel_part
def _weigh_each(values, step, start, weight, first, last, pixel, is_more, out):
    """`_weigh` for the part first..last of the list, wherever its pixels lie."""
    for e in range(first, last):
        p = np.uint32(pixel[e])
        product = weight * values[np.uint64(start) + np.uint64(np.uint32((p >> SHIFT) * step) + (p & MASK))]
        out[e] = out[e] + product if is_more else product


@kernel_part
def _weigh(values, stride, start, weight, n, pixel, is_more, out):
    """Fill `out` with the weighted values at n pixels of a block that begins at `start`; if is_more, add them to it."""
    step, whole = np.uint32(stride), n - n % EIGHT
    for e in range(0, whole, EIGHT):
        p = np.uint32(pixel[e])
        # Neighbouring pixels are mostly neighbours in the list, too.
        if pixel[e + EIGHT - 1] - pixel[e] == EIGHT - 1 and (p & MASK) <= LAST:
            at = start + np.int64(np.uint32((p >> SHIFT) * step) + (p & MASK))
            weigh_eight(out, e, weight, values, at, is_more)
        else:
            _weigh_each(values, step, start, weight, e, e + EIGHT, pixel, is_more, out)
    _weigh_each(values, step, start, weight, whole, n, pixel, is_more, out)


@kernel_part
def fixed_values(values, stride, place, corner, weight, n, pixel, out):
    """Fill `out` with the weighted sums of a node's probes (J,) at n pixels of a block that begins at `corner`."""
    first = corner[0] * stride + corner[1]
    _weigh(values, stride, place[0] + first, weight[0], n, pixel, False, out)
    for j in range(1, weight.shape[0]):
        _weigh(values, stride, place[j] + first, weight[j], n, pixel, True, out)


@kernel_part
def _stretched_values(reading, corner, stretch, plane, offset, weight, n, pixel, place, out):
    """As `fixed_values`, with offsets stretched by stretch (BLOCK,), as in `probe_sum`."""
    values, size, beyond = reading.values, reading.size, reading.beyond
    height, width = np.int32(size[0]), np.int32(size[1])
    top, left, half = np.int32(corner[0]), np.int32(corner[1]), np.float32(0.5)
    for e in range(n):
        out[e] = ZERO
    for j in range(weight.shape[0]):
        w = weight[j]
        if w == 0:
            continue
        down, right, start = offset[j, 1], offset[j, 2], plane[j] * size[0] * size[1]
        for e in range(n):
            p = np.uint32(pixel[e])
            s = stretch[p]
            row = np.int32(top + np.int32(p >> SHIFT) + np.int32(np.floor(down * s + half)))
            column = np.int32(left + np.int32(p & MASK) + np.int32(np.floor(right * s + half)))
            if beyond < 0:
                row = min(max(row, np.int32(0)), height - np.int32(1))
                column = min(max(column, np.int32(0)), width - np.int32(1))
            is_inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            inside = start + np.int64(row) * width + column
            place[e] = inside if is_inside else beyond + plane[j]
        for e in range(n):
            out[e] += w * values[np.uint64(place[e])]


@kernel_part
def branch(sharpness, threshold, n, mass, value, right):
    """Replace `value` by the part of mass (>=n,) that goes left, and fill `right`, in steps of eight (also past n)."""
    for e in range(0, n, EIGHT):
        branch_eight(mass, value, right, e, sharpness, threshold)


@kernel_part
def _part(sharpness, threshold, n, tolerance, pixel, mass, value, right_pixel, right_mass):
    """Divide a list of n pixels between the two children, whose lengths are returned; the left child's replaces it."""
    n_left, n_right = 0, 0
    for e in range(0, n, EIGHT):
        among = (1 << min(n - e, EIGHT)) - 1
        more_right, more_left = share_eight(
            pixel, mass, value, e, among, sharpness, threshold, tolerance, right_pixel, right_mass, n_right, n_left
        )  # fmt: skip
        n_right += more_right
        n_left += more_left
    return n_left, n_right


@kernel_part
def _add_two_votes(n, tolerance, pixel, left, right, leaf, right_leaf, votes, total):
    """Add the votes of the two leaves of a split at the n pixels of its list, without making the leaves' lists."""
    width, all_votes, boxes = votes.shape[1], votes.reshape(-1), total.reshape(-1)
    for e in range(n):
        to_right, to_left, at = right[e], left[e], pixel[e] * width
        for c in range(0, width, EIGHT):
            # The right leaf's come first, as in a walk.
            add_two_eight(
                boxes, at + c, to_right, to_left, tolerance, all_votes, right_leaf * width + c, leaf * width + c
            )  # fmt: skip


@kernel_part
def _walk_tree(reading, probes, nodes, sharpness, t, n_rows, n_columns, corner, stretch, tolerance, room, total):
    """Add to total (BLOCK,>=C) the votes of the leaves that pixels reach, times the probability of reaching them.

    Lists lie in two piles. A node's list is on top of one pile; its left child's list replaces it there, and its right
    child's list goes on top of the other pile.
    """
    waiting, top, value, right = room.waiting, room.top, room.value, room.right
    child, weight = nodes.child, probes.weight
    n = list_all(n_rows, n_columns, room.pixel[0], room.mass[0])
    waiting[0, 0], waiting[0, 1], waiting[0, 2], waiting[0, 3], n_waiting = nodes.root[t], 0, 0, n, 1
    top[0], top[1] = n, 0
    while n_waiting > 0:
        n_waiting -= 1
        k, mine, first, n = waiting[n_waiting]
        other = 1 - mine
        pixel, mass, last = room.pixel[mine, first:], room.mass[mine, first:], top[other]
        if child[k] == k:
            _add_votes(n, pixel, mass, nodes.leaf[k], nodes.votes, total)
            top[mine] = first
            continue
        if reading.stride > 0:
            fixed_values(reading.values, reading.stride, reading.place[k], corner, weight[k], n, pixel, value)
        else:
            plane, offset = probes.plane[k], probes.offset[k]
            _stretched_values(reading, corner, stretch, plane, offset, weight[k], n, pixel, room.place, value)
        left = child[k]
        if child[left] == left and child[left + 1] == left + 1:
            branch(sharpness[k], nodes.threshold[k], n, mass, value, right)
            leaf, right_leaf = nodes.leaf[left], nodes.leaf[left + 1]
            _add_two_votes(n, tolerance, pixel, value, right, leaf, right_leaf, nodes.votes, total)
            top[mine] = first
            continue
        n_left, n_right = _part(
            sharpness[k], nodes.threshold[k], n, tolerance, pixel, mass, value,
            room.pixel[other, last:], room.mass[other, last:],
        )  # fmt: skip
        top[mine], top[other] = first + n_left, last + n_right
        for c, pile, begin, length in ((0, mine, first, n_left), (1, other, last, n_right)):
            if length > 0:
                waiting[n_waiting, 0], waiting[n_waiting, 1] = child[k] + c, pile
                waiting[n_waiting, 2], waiting[n_waiting, 3] = begin, length
                n_waiting += 1


@kernel
def walk_soft(reading, probes, nodes, sharpness, tolerance, finish, first_row, last_row, origin, out):
    """Fill the rows first_row..last_row of out (C,h,w) with the output of soft trees.

    sharpness: (N,) float32; tolerance: float32, a pixel does not enter a node that it reaches with at most this
    probability; finish: NORMALISED, SOFTMAX or SCORES; origin: row and column of out's pixel (0, 0) if stretched
    """
    n_classes, _, width = out.shape
    deepest, size = nodes.depth.max(), reading.size
    total = np.empty((BLOCK, nodes.votes.shape[1]), np.float32)
    stretch = np.ones(BLOCK, np.float32)
    # A pixel is in at most one waiting list per generation, and in the lists of the children that are being made.
    length = (deepest + 2) * BLOCK + VECTOR
    room = _Room(
        np.empty((deepest + 2, 4), np.int64), np.empty(2, np.int64),
        np.empty((2, length), np.int32), np.zeros((2, length), np.float32), np.empty(BLOCK, np.int64),
        np.zeros(BLOCK + VECTOR, np.float32), np.zeros(BLOCK + VECTOR, np.float32),
    )  # fmt: skip
    for top in range(first_row, last_row, ROWS):
        n_rows = min(ROWS, last_row - top)
        for left in range(0, width, COLUMNS):
            n_columns = min(COLUMNS, width - left)
            corner = (top, left) if reading.stride > 0 else (top + origin[0], left + origin[1])
            if reading.stretch.shape[0] > 0:
                for i in range(n_rows):
                    for j in range(n_columns):
                        stretch[i * COLUMNS + j] = reading.stretch[(corner[0] + i) * size[1] + corner[1] + j]
            total[:] = ZERO
            for t in range(nodes.root.shape[0]):
                _walk_tree(
                    reading, probes, nodes, sharpness, t, n_rows, n_columns, corner, stretch, tolerance, room, total
                )  # fmt: skip
            if finish != SCORES:
                for i in range(n_rows):
                    store(total[i * COLUMNS :], n_columns, n_classes, finish == SOFTMAX, out, top + i, left)
                continue
            for c in range(n_classes):
                for i in range(n_rows):
                    for j in range(n_columns):
                        out[c, top + i, left + j] = total[i * COLUMNS + j, c]
