"""Walking soft trees over an image: a pixel enters every branch that it reaches with more than a tolerance.

A tree is walked node by node for a block of pixels. A node has the list of those pixels that reach it, with the
probability that they do; it makes the lists of its two children from it. Neighbours reach the same nodes, so lists are
long enough for vector work, and a pixel costs nothing where it does not go. At each pixel the sums are taken in the
tree's order, whatever pixels share its block.
Callers guarantee that every read is in range; nothing is checked here.
"""

from __future__ import annotations

import numpy as np

from hedgerow.ops.blocks import ONE, ZERO, exp
from hedgerow.ops.compiling import kernel, kernel_part, multiply_add_part
from hedgerow.ops.walk_kernels import probe_sum, store

ROWS, COLUMNS = 64, 128  # large, so that many pixels share a node: a list of few costs as much as one of many
BLOCK = ROWS * COLUMNS
VECTOR = 16


@kernel_part
def _node_values(
    planes, stride, size, outside, place, plane, offset, weight, k, n, pixel, first, row, column, stretch, out
):
    """What node k compares with its threshold at n pixels of the block, to out (>=n,)."""
    if stride > 0:
        joined, at, w = planes[0], place[k, 0], weight[k, 0]
        for e in range(n):
            out[e] = w * joined[np.uint64(at + first[np.uint32(pixel[e])])]
        for j in range(1, weight.shape[1]):
            at, w = place[k, j], weight[k, j]
            for e in range(n):
                out[e] += w * joined[np.uint64(at + first[np.uint32(pixel[e])])]
    else:
        for e in range(n):
            p = pixel[e]
            out[e] = probe_sum(
                planes, 0, size[0], size[1], stretch[p], outside, plane[k], offset[k], weight[k], row[p], column[p]
            )  # fmt: skip


@multiply_add_part
def _branch(sharpness, threshold, n, mass, value, right):
    """Replace `value` by what goes left of mass (>=n,), and fill `right`; whole vectors, so beyond n as well."""
    for first in range(0, n, VECTOR):
        m, v, r = mass[first : first + VECTOR], value[first : first + VECTOR], right[first : first + VECTOR]
        for e in range(VECTOR):
            # The network's own numbers: its weights are these, times a power of two.
            z = sharpness * (v[e] - threshold)
            away = exp(-abs(z))
            likely = ONE / (ONE + away)
            unlikely = away * likely
            to_right, to_left = (likely, unlikely) if z >= 0 else (unlikely, likely)
            r[e], v[e] = m[e] * to_right, m[e] * to_left


@kernel_part
def _walk_tree(reading, nodes, root, n_pixels, at, row, column, stretch, tolerance, room, total):
    """Add to total (BLOCK,>=C) the votes of the leaves that pixels reach, times the probability of reaching them."""
    planes, stride, size, _, outside, place = reading
    plane, offset, weight, threshold, sharpness, child, leaf, votes = nodes
    waiting, begin, pixel, mass, value, right, right_pixel = room
    for p in range(n_pixels):
        pixel[p], mass[p] = p, ONE
    waiting[0], begin[0], n_waiting, end = root, 0, 1, n_pixels
    while n_waiting > 0:
        n_waiting -= 1
        k, first = waiting[n_waiting], begin[n_waiting]
        n = end - first
        if child[k] == k:
            ballot = votes[leaf[k]]
            for e in range(first, end):
                box, m = total[pixel[e]], mass[e]
                for c in range(ballot.shape[0]):
                    box[c] += m * ballot[c]
            end = first
            continue
        here, carried = pixel[first:], mass[first:]
        _node_values(
            planes, stride, size, outside, place, plane, offset, weight, k, n, here, at, row, column, stretch, value
        )  # fmt: skip
        _branch(sharpness[k], threshold[k], n, carried, value, right)
        # Written whether it stays or not; only what stays moves the end. Not "greater": NaN must show.
        n_left, n_right = 0, 0
        for e in range(n):
            p, up, down = here[e], right[e], value[e]
            right_pixel[n_right], right[n_right] = p, up
            n_right += not up <= tolerance
            here[n_left], carried[n_left] = p, down
            n_left += not down <= tolerance
        for e in range(n_right):
            here[n_left + e], carried[n_left + e] = right_pixel[e], right[e]
        end = first
        if n_left > 0:
            waiting[n_waiting], begin[n_waiting] = child[k], first
            n_waiting, end = n_waiting + 1, first + n_left
        if n_right > 0:
            waiting[n_waiting], begin[n_waiting] = child[k] + np.uint32(1), first + n_left
            n_waiting, end = n_waiting + 1, first + n_left + n_right


@kernel
def walk_soft(reading, nodes, root, deepest, tolerance, is_softmax, first_row, last_row, origin, out):
    """Rows first_row..last_row of out (C,h,w) of soft trees.

    reading: planes, stride, size, reach, outside, place: with a stride, planes (1,P) are padded and joined, and probe j
             of node n reads for the pixel (0, 0) at place[n, j]; without (0), as `walk_kernels.walk_any_probes` does
    nodes:   plane, offset, weight (N,J); threshold, sharpness, child, leaf (N,); votes (L,>=C)
    """
    n_classes, _, width = out.shape
    stride, size, reach, votes = reading[1], reading[2], reading[3], nodes[7]
    total = np.empty((BLOCK, votes.shape[1]), np.float32)
    row, column, at = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    stretch = np.ones(BLOCK, np.float32)
    # A pixel waits at most once in each generation, and once more for the children that are being made.
    room_size = (deepest + 2) * BLOCK + VECTOR
    room = (
        np.empty(deepest + 2, np.uint32), np.empty(deepest + 2, np.int64),
        np.empty(room_size, np.int32), np.zeros(room_size, np.float32),
        np.zeros(BLOCK + VECTOR, np.float32), np.zeros(BLOCK + VECTOR, np.float32), np.empty(BLOCK, np.int32),
    )  # fmt: skip
    for top in range(first_row, last_row, ROWS):
        n_rows = min(ROWS, last_row - top)
        for left in range(0, width, COLUMNS):
            n_columns = min(COLUMNS, width - left)
            n_pixels = n_rows * n_columns
            for p in range(n_pixels):
                row[p], column[p] = top + p // n_columns, left + p % n_columns
                at[p] = row[p] * stride + column[p]
                if stride == 0:  # places in the image; with a stride, those in the region
                    row[p] += origin[0]
                    column[p] += origin[1]
                if reach.shape[0] > 0:
                    stretch[p] = reach[row[p] * size[1] + column[p]]
            total[:] = ZERO
            for t in range(root.shape[0]):
                _walk_tree(reading, nodes, root[t], n_pixels, at, row, column, stretch, tolerance, room, total)
            for i in range(n_rows):
                store(total[i * n_columns :], n_columns, n_classes, is_softmax, out, top + i, left)
