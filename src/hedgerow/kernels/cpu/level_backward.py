"""The backward pass of one level on a CPU: gradients of weights, biases, votes and of the values that are read.

Everything that the forward pass computed is computed again, for one block and one piece of a tree at a time; see
`level_forward`.
"""

import numpy as np

from hedgerow.kernels.compiling import multiply_add_part, reducing_kernel, reducing_part
from hedgerow.kernels.constants import SOFT, TANH
from hedgerow.kernels.cpu.blocks import BLOCK, COLUMNS, ONE, ROWS, WIDTH, ZERO, copy_row, invert, mix_four
from hedgerow.kernels.cpu.level_forward import add_tree, descend, next_piece, read_fixed, read_stretched, start_tree


@multiply_add_part
def _leaf_slopes(four, votes, slope, out):
    """Fill out (4*BLOCK,) with the gradients of a_H2 of four leaves: their votes times slope (C,BLOCK)."""
    n_classes = votes.shape[1]
    va, vb, vc, vd = votes[four[0]], votes[four[1]], votes[four[2]], votes[four[3]]
    rows = slope.reshape(-1)
    out[:] = ZERO
    s = 0
    while s + 4 <= n_classes:
        mix_four(
            va[s], va[s + 1], va[s + 2], va[s + 3], vb[s], vb[s + 1], vb[s + 2], vb[s + 3],
            vc[s], vc[s + 1], vc[s + 2], vc[s + 3], vd[s], vd[s + 1], vd[s + 2], vd[s + 3],
            rows[s * BLOCK : (s + 4) * BLOCK], out,
        )  # fmt: skip
        s += 4
    while s < n_classes:
        row = slope[s]
        wa, wb, wc, wd = va[s], vb[s], vc[s], vd[s]
        for p in range(BLOCK):
            out[p] += wa * row[p]
            out[p + BLOCK] += wb * row[p]
            out[p + 2 * BLOCK] += wc * row[p]
            out[p + 3 * BLOCK] += wd * row[p]
        s += 1


@reducing_part
def _add_dots(four, active, slope, d_votes):
    """Add to d_votes (L,C), the gradients of the votes, for four leaves with activations active (4*BLOCK,)."""
    rows, n_classes = slope.reshape(-1), slope.shape[0]
    oa, ob, oc, od = d_votes[four[0]], d_votes[four[1]], d_votes[four[2]], d_votes[four[3]]
    s = 0
    while s + 4 <= n_classes:
        g = rows[s * BLOCK : (s + 4) * BLOCK]
        aw, ax, ay, az, bw, bx, by, bz = ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO
        cw, cx, cy, cz, dw, dx, dy, dz = ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO
        for p in range(BLOCK):  # sixteen sums at once, so that each number read is used four times
            a, b, c, d = active[p], active[p + BLOCK], active[p + 2 * BLOCK], active[p + 3 * BLOCK]
            w, x, y, z = g[p], g[p + BLOCK], g[p + 2 * BLOCK], g[p + 3 * BLOCK]
            aw, ax, ay, az = aw + a * w, ax + a * x, ay + a * y, az + a * z
            bw, bx, by, bz = bw + b * w, bx + b * x, by + b * y, bz + b * z
            cw, cx, cy, cz = cw + c * w, cx + c * x, cy + c * y, cz + c * z
            dw, dx, dy, dz = dw + d * w, dx + d * x, dy + d * y, dz + d * z
        oa[s], oa[s + 1], oa[s + 2], oa[s + 3] = oa[s] + aw, oa[s + 1] + ax, oa[s + 2] + ay, oa[s + 3] + az
        ob[s], ob[s + 1], ob[s + 2], ob[s + 3] = ob[s] + bw, ob[s + 1] + bx, ob[s + 2] + by, ob[s + 3] + bz
        oc[s], oc[s + 1], oc[s + 2], oc[s + 3] = oc[s] + cw, oc[s + 1] + cx, oc[s + 2] + cy, oc[s + 3] + cz
        od[s], od[s + 1], od[s + 2], od[s + 3] = od[s] + dw, od[s + 1] + dx, od[s + 2] + dy, od[s + 3] + dz
        s += 4
    while s < n_classes:
        g = slope[s]
        aw, bw, cw, dw = ZERO, ZERO, ZERO, ZERO
        for p in range(BLOCK):
            w = g[p]
            aw += active[p] * w
            bw += active[p + BLOCK] * w
            cw += active[p + 2 * BLOCK] * w
            dw += active[p + 3 * BLOCK] * w
        oa[s] += aw
        ob[s] += bw
        oc[s] += cw
        od[s] += dw
        s += 1


@reducing_part
def _through_leaves(n_leaves, leaf_of, votes, activation, room, f, d_votes):
    """Replace a_H2 in piece f's `carry` by the gradient of z_H2, and add the votes' gradients, four leaves at a time.

    `room.d_sums` (C,BLOCK) holds the gradient of the tree's sums, `room.mean` (BLOCK,) what softmax subtracts from the
    gradients of a_H2, or 0.
    """
    leaves, node, carry, leaf, mean = room.leaves[f], room.node[f], room.carry[f], activation.leaf, room.mean
    four, active, slope, slopes = room.four_leaves, room.four, room.d_sums, room.slopes
    for first in range(0, n_leaves, 4):
        n = min(4, n_leaves - first)
        active[:] = ZERO  # if fewer than four are left, inactive leaves fill the places
        for u in range(4):
            at = leaves[min(first + u, n_leaves - 1)]
            four[u] = leaf_of[node[at]]
            if u < n:
                copy_row(carry[at], active[u * BLOCK : (u + 1) * BLOCK])
        _leaf_slopes(four, votes, slope, slopes)
        _add_dots(four, active, slope, d_votes)
        for u in range(n):
            row, d = carry[leaves[first + u]], slopes[u * BLOCK : (u + 1) * BLOCK]
            if activation.kind == TANH:
                for p in range(BLOCK):
                    row[p] = leaf * row[p] * (ONE - row[p]) * d[p]
            else:
                for p in range(BLOCK):
                    row[p] = row[p] * (d[p] - mean[p])


@multiply_add_part
def _through_split(activation, gate, right, left, own, dz):
    """Fill dz, the gradient of z_H1, and `own` from the gradients of z_H2, summed over the leaves on either side."""
    kind, leaf = activation.kind, activation.leaf
    if kind == SOFT:
        for p in range(BLOCK):
            own[p] = right[p] + left[p]
            dz[p] = (ONE - gate[p]) * right[p] - gate[p] * left[p]
        return
    for p in range(BLOCK):
        own[p] = right[p] + left[p]
    if kind == TANH:
        for p in range(BLOCK):
            dz[p] = (ONE - gate[p] * gate[p]) * (right[p] - left[p])
    else:
        for p in range(BLOCK):
            dz[p] = leaf * ((right[p] if gate[p] < 0 else ZERO) - (left[p] if gate[p] > 0 else ZERO))


@reducing_part
def _through_probes(reading, weight, n, i, k, first_trained, index, probe, dz, d_weights, d_values):
    """Add the gradients of split n's weights and bias, and of the values that it reads from `first_trained` on."""
    values, place, stride, planes = reading.values, reading.place, reading.stride, reading.planes
    total = ZERO
    for p in range(BLOCK):
        total += dz[p]
    d_weights.bias[n] += total
    for j in range(place.shape[1]):
        if place[n, j] < 0:
            continue
        w = weight[n, j]
        if stride > 0:
            at = place[n, j] + i * stride + k
            read_fixed(values, at, stride, probe)
            if at >= first_trained:
                for r in range(ROWS):
                    target, line = np.uint64(at - first_trained + r * stride), np.uint64(r * COLUMNS)
                    for c in range(WIDTH):
                        d_values[target + c] += w * dz[line + c]
        else:
            read_stretched(reading, n, j, i, k, index, probe)
            if planes[place[n, j], 0] >= first_trained:
                for p in range(BLOCK):
                    d_values[index[p] - first_trained] += w * dz[p]
        total = ZERO
        for p in range(BLOCK):
            total += dz[p] * probe[p]
        d_weights.split[n, j] += total


@reducing_part
def _through_piece(reading, split_of, weight, activation, room, f, i, k, first_trained, d_weights, d_values):
    """Sum the gradients of z_H2 up to the top of piece f, and pass them through its splits."""
    node, child, carry, gate, d_input = room.node[f], room.child[f], room.carry[f], room.gate[f], room.d_input
    for at in range(room.n_inner[f] - 1, -1, -1):
        n = split_of[node[at]]
        if n >= 0:
            left = carry[child[at, 0]] if child[at, 0] >= 0 else room.nothing
            right = carry[child[at, 1]] if child[at, 1] >= 0 else room.nothing
            _through_split(activation, gate[at], right, left, carry[at], d_input)
            _through_probes(
                reading, weight, n, i, k, first_trained, room.places, room.probe, d_input, d_weights, d_values
            )  # fmt: skip


@multiply_add_part
def _through_softmax(slope, sums, mass, out, mean):
    """Fill out (C,BLOCK), the gradient of a tree's sums, which were divided by the mass, and `mean`, see `Room`."""
    invert(mass)
    mean[:] = ZERO
    for s in range(slope.shape[0]):
        for p in range(BLOCK):
            out[s, p] = slope[s, p] * mass[p]
            mean[p] += out[s, p] * sums[s, p] * mass[p]


@reducing_kernel
def backward(
    reading, trees, weights, activation, room, first_trained, first_row, last_row, slope, d_weights, d_values
):  # fmt: skip
    """Add the gradients that follow from that of the scores, slope (C,h,w), in the rows first_row..last_row.

    d_weights: `Weights`; d_values: of the values from `first_trained` on
    """
    size, carry, open_ends, d_scores, d_sums = reading.size, room.carry, room.open_ends, room.scores, room.d_sums
    for i in range(first_row, last_row, ROWS):
        for k in range(0, size[1], COLUMNS):
            d_scores[:] = ZERO  # beyond the grid nothing has a gradient
            for s in range(slope.shape[0]):
                for r in range(min(ROWS, last_row - i)):
                    for c in range(min(COLUMNS, size[1] - k)):
                        d_scores[s, r * COLUMNS + c] = slope[s, i + r, k + c]
            for s in range(slope.shape[0]):
                copy_row(d_scores[s], d_sums[s])
            for t in range(trees.root.shape[0]):
                if activation.normalised:
                    room.sums[:] = ZERO
                    add_tree(reading, trees, weights, activation, room, i, k, t, room.sums)
                    _through_softmax(d_scores, room.sums, room.mass, d_sums, room.mean)
                f = 0
                start_tree(activation.kind, trees.root[t], room)
                while f >= 0:
                    if room.n_done[f] < 0:
                        n_leaves = descend(reading, trees, weights, activation, room, i, k, f)
                        _through_leaves(n_leaves, trees.leaf_of, weights.votes, activation, room, f, d_weights.votes)
                    following = next_piece(f, room)
                    if following < f:  # all pieces below are done
                        _through_piece(
                            reading, trees.split_of, weights.split, activation, room, f, i, k, first_trained,
                            d_weights, d_values,
                        )  # fmt: skip
                        if f > 0:
                            copy_row(carry[f, 0], carry[f - 1, open_ends[f - 1, room.n_done[f - 1] - 1]])
                    f = following
