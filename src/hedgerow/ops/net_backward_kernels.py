"""The way back through the network of one level: gradients of weights, biases, votes and of the values that are read.

Everything that the forward pass knew is computed again for one block and one tree at a time; see `net_kernels`.
"""

from __future__ import annotations

import numpy as np

from hedgerow.ops.compiling import multiply_add_kernel, reducing_kernel, reducing_part
from hedgerow.ops.net_kernels import (
    AHEAD,
    BLOCK,
    COLUMNS,
    ONE,
    ROWS,
    SOFT,
    TANH,
    ZERO,
    descend,
    prefetch_fixed,
    read_fixed,
    read_stretched,
)


@multiply_add_kernel
def _leaf_slopes(n_leaves, leaves, node, leaf_of, votes, slope, out):
    """out (leaves,BLOCK): gradient of a_H2, the votes times slope (C,BLOCK), four classes to a pass."""
    n_classes = votes.shape[1]
    for q in range(n_leaves):
        row, v = out[q], votes[leaf_of[node[leaves[q]]]]
        for p in range(BLOCK):
            row[p] = ZERO
        s = 0
        while s + 4 <= n_classes:
            a, b, c, d = slope[s], slope[s + 1], slope[s + 2], slope[s + 3]
            wa, wb, wc, wd = v[s], v[s + 1], v[s + 2], v[s + 3]
            for p in range(BLOCK):
                row[p] = (((row[p] + wa * a[p]) + wb * b[p]) + wc * c[p]) + wd * d[p]
            s += 4
        while s < n_classes:
            a, wa = slope[s], v[s]
            for p in range(BLOCK):
                row[p] += wa * a[p]
            s += 1


@reducing_part
def _add_dots(a, b, slope, of_a, of_b):
    """Add to the votes' gradients, of_a and of_b (C,), of two leaves with activations a and b (BLOCK,)."""
    s = 0
    while s + 2 <= slope.shape[0]:
        g, h = slope[s], slope[s + 1]
        ag, ah, bg, bh = ZERO, ZERO, ZERO, ZERO
        for p in range(BLOCK):  # four sums at once: what is read serves twice
            ag += a[p] * g[p]
            ah += a[p] * h[p]
            bg += b[p] * g[p]
            bh += b[p] * h[p]
        of_a[s] += ag
        of_a[s + 1] += ah
        of_b[s] += bg
        of_b[s + 1] += bh
        s += 2
    if s < slope.shape[0]:
        g = slope[s]
        ag, bg = ZERO, ZERO
        for p in range(BLOCK):
            ag += a[p] * g[p]
            bg += b[p] * g[p]
        of_a[s] += ag
        of_b[s] += bg


@multiply_add_kernel
def _through_leaves(n_leaves, leaves, kind, leaf, normalised, carry, slopes, mean):
    """Replace a_H2 in `carry` by the gradient of z_H2, given the gradients of a_H2 (leaves,BLOCK)."""
    if kind == TANH:
        for q in range(n_leaves):
            a, d = carry[leaves[q]], slopes[q]
            for p in range(BLOCK):
                a[p] = leaf * a[p] * (ONE - a[p]) * d[p]
        return
    for p in range(BLOCK):
        mean[p] = ZERO
    if normalised:
        for q in range(n_leaves):
            a, d = carry[leaves[q]], slopes[q]
            for p in range(BLOCK):
                mean[p] += a[p] * d[p]
    for q in range(n_leaves):
        a, d = carry[leaves[q]], slopes[q]
        for p in range(BLOCK):
            a[p] = a[p] * (d[p] - mean[p])


@multiply_add_kernel
def _through_split(kind, leaf, gate, right, left, own, dz):
    """Gradient of z_H1 from the sums of the gradients of z_H2 over the leaves on either side; their sum to `own`."""
    for p in range(BLOCK):
        own[p] = right[p] + left[p]
    if kind == TANH:
        for p in range(BLOCK):
            dz[p] = (ONE - gate[p] * gate[p]) * (right[p] - left[p])
    elif kind == SOFT:
        for p in range(BLOCK):
            dz[p] = (ONE - gate[p]) * right[p] - gate[p] * left[p]
    else:
        for p in range(BLOCK):
            dz[p] = leaf * ((right[p] if gate[p] < 0 else ZERO) - (left[p] if gate[p] > 0 else ZERO))


@reducing_part
def _through_probes(
    values, place, stride, size, offset, row, column, stretch, planes, extent, n, i, k,
    weight, carried, index, probe, dz, d_weight, d_bias, d_values,
):  # fmt: skip
    """Add the gradients of split n's weights and bias, and of the values it reads beyond `carried`."""
    total = ZERO
    for p in range(BLOCK):
        total += dz[p]
    d_bias[n] += total
    for j in range(place.shape[1]):
        if place[n, j] < 0:
            continue
        w = weight[n, j]
        if stride > 0:
            at = place[n, j] + i * stride + k
            read_fixed(values, at, stride, probe)
            if at >= carried:
                for r in range(ROWS):
                    start = at - carried + r * stride
                    target, line = d_values[start : start + COLUMNS], dz[r * COLUMNS : (r + 1) * COLUMNS]
                    for c in range(COLUMNS):
                        target[c] += w * line[c]
        else:
            plane = planes[place[n, j]]
            down, right = offset[n, j, 0], offset[n, j, 1]
            read_stretched(values, plane, down, right, size, row, column, stretch, extent, i, k, index, probe)
            if plane[0] >= carried:
                for p in range(BLOCK):
                    d_values[index[p] - carried] += w * dz[p]
        total = ZERO
        for p in range(BLOCK):
            total += dz[p] * probe[p]
        d_weight[n, j] += total


@reducing_kernel
def backward(
    values, place, stride, size, offset, row, column, stretch, planes, extent,
    root, left_child, split_of, leaf_of, largest, weight, bias, votes, kind, leaf, normalised, tolerance,
    carried, first_row, last_row, slope, d_weight, d_bias, d_votes, d_values,
):  # fmt: skip
    """Add the gradients that the scores' gradient, slope (C,h,w), has in the rows first_row..last_row.

    d_values: (V - carried,)
    """
    n_classes = votes.shape[1]
    index = np.empty(BLOCK, np.int64)
    probe, z = np.empty(BLOCK, np.float32), np.empty(BLOCK, np.float32)
    node, leaves = np.empty(largest, np.int32), np.empty(largest, np.int32)
    child = np.empty((largest, 2), np.int32)
    carry, gate = np.empty((largest + 2, BLOCK), np.float32), np.empty((largest, BLOCK), np.float32)
    slopes = np.empty((largest // 2 + 1, BLOCK), np.float32)
    here = np.empty((n_classes, BLOCK), np.float32)
    nothing, unused = np.zeros(BLOCK, np.float32), np.zeros(n_classes, np.float32)
    for i in range(first_row, last_row, ROWS):
        for k in range(0, size[1], COLUMNS):
            here[:] = ZERO  # beyond the grid nothing has a gradient
            for s in range(n_classes):
                for r in range(min(ROWS, last_row - i)):
                    for c in range(min(COLUMNS, size[1] - k)):
                        here[s, r * COLUMNS + c] = slope[s, i + r, k + c]
            for t in range(root.shape[0]):
                count, n_leaves = descend(
                    values, place, stride, size, offset, row, column, stretch, planes, extent, i, k,
                    root[t], left_child, split_of, weight, bias, kind, leaf, normalised, tolerance,
                    index, probe, z, node, child, carry, gate, leaves,
                )  # fmt: skip
                _leaf_slopes(n_leaves, leaves, node, leaf_of, votes, here, slopes)
                for q in range(0, n_leaves - 1, 2):
                    a, b = leaves[q], leaves[q + 1]
                    _add_dots(carry[a], carry[b], here, d_votes[leaf_of[node[a]]], d_votes[leaf_of[node[b]]])
                if n_leaves % 2:
                    a = leaves[n_leaves - 1]
                    _add_dots(carry[a], carry[a], here, d_votes[leaf_of[node[a]]], unused)
                _through_leaves(n_leaves, leaves, kind, leaf, normalised, carry, slopes, z)
                for at in range(count - 1, -1, -1):
                    if stride > 0 and at >= AHEAD:
                        soon = split_of[node[at - AHEAD]]
                        if soon >= 0:
                            for j in range(place.shape[1]):
                                if place[soon, j] >= 0:
                                    prefetch_fixed(values, place[soon, j] + i * stride + k, stride)
                    n = split_of[node[at]]
                    if n < 0:
                        continue
                    left = carry[child[at, 0]] if child[at, 0] >= 0 else nothing
                    right = carry[child[at, 1]] if child[at, 1] >= 0 else nothing
                    _through_split(kind, leaf, gate[at], right, left, carry[at], z)
                    _through_probes(
                        values, place, stride, size, offset, row, column, stretch, planes, extent, n, i, k,
                        weight, carried, index, probe, z, d_weight, d_bias, d_values,
                    )  # fmt: skip
