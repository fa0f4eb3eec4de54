"""The fused network of one level on a CPU: probe, split, leaf and vote over a block of pixels.

A block is ROWS x COLUMNS neighbouring pixels of the grid; where it extends beyond the grid, results are dropped.
A tree is processed piece by piece. A piece is the CPU_GENERATIONS below a node: small enough to stay in the processor's
cache together with the values that it reads. Each node passes the state of its path to its children (the "carry": a
product of branch probabilities, or for tanh a sum), so no path is walked twice. Nodes at the foot of a piece that split
again are its open ends; each is the top of another piece, which is processed before the next one.
Memory holds only block x nodes of a few pieces, each below an open end of the one before. The backward pass goes
through a piece's list of nodes from its end, after all pieces below it.

A branch that carries at most `tolerance` at a pixel is dropped there. At 0 this loses nothing, and a pixel's result
never depends on which pixels share its block.
Callers guarantee that every read is in range; nothing is checked here. `level_arguments` describes the arguments.
"""

import numpy as np

from hedgerow.kernels.compiling import kernel_part, multiply_add_part
from hedgerow.kernels.constants import CPU_GENERATIONS, CRELU, SOFT, TANH
from hedgerow.kernels.cpu.blocks import (
    BLOCK,
    COLUMNS,
    ONE,
    ROWS,
    WIDTH,
    ZERO,
    add_scaled,
    as_bits,
    copy_row,
    exp,
    invert,
    mix_four,
    mix_one,
    prefetch_block,
)


@kernel_part
def read_fixed(values, at, stride, out):
    """Copy a block of values, whose first pixel's value is at `at`, to out (BLOCK,)."""
    for r in range(ROWS):
        source, line = np.uint64(at + r * stride), np.uint64(r * COLUMNS)
        for c in range(WIDTH):
            out[line + c] = values[source + c]


@kernel_part
def read_stretched(reading, n, j, i, k, index, out):
    """Fill out (BLOCK,) with what probe j of split n reads for the block at (i, k), its offset stretched at each pixel.

    index: (BLOCK,) receives the places that are read
    """
    values, size, row, column, stretch = reading.values, reading.size, reading.row, reading.column, reading.stretch
    plane, extent = reading.planes[reading.place[n, j]], reading.extent
    down, right = reading.offset[n, j, 0], reading.offset[n, j, 1]
    start, h, w, top, left, step = plane[0], plane[1], plane[2], plane[3], plane[4], plane[5]
    for p in range(BLOCK):
        s = min(i + p // COLUMNS, size[0] - 1) * size[1] + min(k + p % COLUMNS, size[1] - 1)
        r = row[s] + np.int64(np.floor(down * stretch[s] + np.float32(0.5)))
        c = column[s] + np.int64(np.floor(right * stretch[s] + np.float32(0.5)))
        if extent[0] > 0 and (r < 0 or r >= extent[0] or c < 0 or c >= extent[1]):
            index[p] = start + h * w
        else:
            if step > 1:
                r, c = (r - top + step // 2) // step, (c - left + step // 2) // step
            else:
                r, c = r - top, c - left
            index[p] = start + min(max(r, 0), h - 1) * w + min(max(c, 0), w - 1)
        out[p] = values[index[p]]


@kernel_part
def _ask_for(reading, n, i, k):
    """Prefetch what split n (-1: a leaf) reads for a block."""
    values, place, stride = reading.values, reading.place, reading.stride
    if stride > 0 and n >= 0:
        for j in range(place.shape[1]):
            if place[n, j] >= 0:
                prefetch_block(values, place[n, j] + i * stride + k, stride)


@kernel_part
def _split_input(reading, weights, n, i, k, index, probe, z):
    """z_H1 of split n; probes are added in the forest's order, without fused multiply-adds, so hard decisions agree."""
    values, place, stride, weight, b = reading.values, reading.place, reading.stride, weights.split, weights.bias[n]
    if place.shape[1] == 1 and stride > 0 and place[n, 0] >= 0:  # the most common case, in one pass
        w, at = weight[n, 0], place[n, 0] + i * stride + k
        for r in range(ROWS):
            source, line = np.uint64(at + r * stride), np.uint64(r * COLUMNS)
            for c in range(WIDTH):
                z[line + c] = w * values[source + c] + b
        return
    z[:] = ZERO
    for j in range(place.shape[1]):
        if place[n, j] < 0:
            continue
        if stride > 0:
            read_fixed(values, place[n, j] + i * stride + k, stride, probe)
        else:
            read_stretched(reading, n, j, i, k, index, probe)
        w = weight[n, j]
        for p in range(BLOCK):
            z[p] += w * probe[p]
    for p in range(BLOCK):
        z[p] += b


@multiply_add_part
def _branch(activation, carry, gate, right, left):
    """Fill `right` and `left` with what the children carry, and replace z_H1 in `gate` by what the backward pass needs.

    Returns which children carry anything: 0 none, 1 left, 2 right, 3 both.
    """
    kind, leaf, tolerance = activation.kind, activation.leaf, activation.tolerance
    # NaN must count as carried, so that it shows in the result.
    some_right, some_left = np.int32(0), np.int32(0)
    if kind == TANH:
        for p in range(BLOCK):
            z = gate[p]
            away = exp(np.float32(-2) * abs(z))
            a = (ONE - away) / (ONE + away)
            a = a if z >= 0 else -a
            gate[p] = a
            right[p] = carry[p] + (a - ONE)
            left[p] = carry[p] - (a + ONE)
        return 3
    if kind == SOFT:
        for p in range(BLOCK):
            z = gate[p]
            away = exp(-abs(z))
            likely = ONE / (ONE + away)
            unlikely = away * likely
            to_right, to_left = (likely, unlikely) if z >= 0 else (unlikely, likely)
            gate[p] = to_right
            up, down = carry[p] * to_right, carry[p] * to_left
            up, down = ZERO if up <= tolerance else up, ZERO if down <= tolerance else down
            right[p], left[p] = up, down
            some_right, some_left = np.int32(some_right | as_bits(up)), np.int32(some_left | as_bits(down))
    elif kind == CRELU:
        for p in range(BLOCK):
            z = gate[p]
            lost = carry[p] * exp(-leaf * abs(z))
            up, down = carry[p] if z >= 0 else lost, carry[p] if z <= 0 else lost
            up, down = ZERO if up <= tolerance else up, ZERO if down <= tolerance else down
            right[p], left[p] = up, down
            some_right, some_left = np.int32(some_right | as_bits(up)), np.int32(some_left | as_bits(down))
    else:
        for p in range(BLOCK):
            up = carry[p] if gate[p] >= 0 else ZERO
            down = carry[p] - up
            right[p], left[p] = up, down
            some_right, some_left = np.int32(some_right | as_bits(up)), np.int32(some_left | as_bits(down))
    return 2 * (some_right != 0) + (some_left != 0)


@kernel_part
def start_tree(kind, root, room):
    """Make the root the top of the first piece."""
    room.node[0, 0] = root
    room.n_done[0] = -1
    for p in range(BLOCK):
        room.carry[0, 0, p] = ZERO if kind == TANH else ONE


@multiply_add_part
def descend(reading, trees, weights, activation, room, i, k, f):
    """Process piece f of a tree, whose top is node[f, 0] with carry[f, 0], for the block at (i, k).

    Fills `carry` (a_H2 at leaves) for the nodes that are reached, and returns the number of leaves among them.
    """
    left_child, split_of, leaf = trees.left_child, trees.split_of, activation.leaf
    node, child, carry, gate = room.node[f], room.child[f], room.carry[f], room.gate[f]
    leaves, open_ends = room.leaves[f], room.open_ends[f]
    begin, count, n_inner, n_leaves, n_open = 0, 1, 0, 0, 0
    _ask_for(reading, split_of[node[0]], i, k)
    for generation in range(CPU_GENERATIONS + 1):
        end = count
        # All reads of a generation come first, since they need not wait for each other.
        if generation < CPU_GENERATIONS:
            for at in range(begin, end):
                n = split_of[node[at]]
                if n >= 0:
                    _split_input(reading, weights, n, i, k, room.places, room.probe, gate[at])
        for at in range(begin, end):
            below = left_child[node[at]]
            if below < 0:
                leaves[n_leaves] = at
                n_leaves += 1
                continue
            if generation == CPU_GENERATIONS:
                open_ends[n_open] = at
                n_open += 1
                continue
            # Both are written; a child that carries nothing is overwritten by the next one.
            some = _branch(activation, carry[at], gate[at], carry[count + 1], carry[count])
            child[at, 0] = child[at, 1] = -1
            first = count
            if some & 1:
                node[count] = below
                child[at, 0] = count
                count += 1
            elif some & 2:
                copy_row(carry[count + 1], carry[count])
            if some & 2:
                node[count] = below + 1
                child[at, 1] = count
                count += 1
            if generation + 1 < CPU_GENERATIONS:
                for new in range(first, count):
                    _ask_for(reading, split_of[node[new]], i, k)
        n_inner, begin = begin, end
    if activation.kind == TANH:
        for q in range(n_leaves):
            a = carry[leaves[q]]
            for p in range(BLOCK):
                x = leaf * (a[p] + ONE)
                away = exp(-abs(x))
                likely = ONE / (ONE + away)
                a[p] = likely if x >= 0 else away * likely
    room.n_inner[f], room.n_open[f], room.n_done[f] = n_inner, n_open, 0
    return n_leaves


@kernel_part
def next_piece(f, room):
    """The piece to process after piece f: below its next open end, or, if none is left, the one above (-1: none)."""
    done = room.n_done[f]
    if done == room.n_open[f]:
        return f - 1
    at = room.open_ends[f, done]
    room.node[f + 1, 0] = room.node[f, at]
    copy_row(room.carry[f, at], room.carry[f + 1, 0])
    room.n_done[f], room.n_done[f + 1] = done + 1, -1
    return f + 1


@multiply_add_part
def _add_votes(leaves, node, leaf_of, carry, votes, four, out):
    """out (C,BLOCK) += votes times a_H2, leaf after leaf; a pass over the pixels takes four leaves and four classes."""
    rows = out.reshape(-1)
    n_leaves, n_classes = len(leaves), out.shape[0]
    full = n_leaves - n_leaves % 4
    for q in range(0, full, 4):
        for u in range(4):
            copy_row(carry[leaves[q + u]], four[u * BLOCK : (u + 1) * BLOCK])
        va, vb = votes[leaf_of[node[leaves[q]]]], votes[leaf_of[node[leaves[q + 1]]]]
        vc, vd = votes[leaf_of[node[leaves[q + 2]]]], votes[leaf_of[node[leaves[q + 3]]]]
        s = 0
        while s + 4 <= n_classes:
            mix_four(
                va[s], vb[s], vc[s], vd[s], va[s + 1], vb[s + 1], vc[s + 1], vd[s + 1],
                va[s + 2], vb[s + 2], vc[s + 2], vd[s + 2], va[s + 3], vb[s + 3], vc[s + 3], vd[s + 3],
                four, rows[s * BLOCK : (s + 4) * BLOCK],
            )  # fmt: skip
            s += 4
        while s < n_classes:
            mix_one(va[s], vb[s], vc[s], vd[s], four, out[s])
            s += 1
    for q in range(full, n_leaves):
        a, va = carry[leaves[q]], votes[leaf_of[node[leaves[q]]]]
        for s in range(n_classes):
            add_scaled(va[s], a, out[s])


@multiply_add_part
def add_tree(reading, trees, weights, activation, room, i, k, t, out):
    """Add the votes of the leaves of tree t in one block to out (C,BLOCK).

    If leaves are normalised, the sum of their activations is left in `room.mass`.
    """
    leaf_of, leaf_group = trees.leaf_of, trees.leaf_group
    node, carry, leaves, mass, part = room.node, room.carry, room.leaves, room.mass, room.part
    f, group = 0, np.int32(-1)
    mass[:] = ZERO
    start_tree(activation.kind, trees.root[t], room)
    while f >= 0:
        if room.n_done[f] < 0:
            n_leaves = descend(reading, trees, weights, activation, room, i, k, f)
            # Leaves are first summed in groups, since a single small term would be lost in the sum over all trees. The
            # groups are those of the tree, so that a pixel's sum does not depend on which pixels share its block.
            end = 0
            while end < n_leaves:
                begin, which = end, leaf_group[leaf_of[node[f, leaves[f, end]]]]
                while end < n_leaves and leaf_group[leaf_of[node[f, leaves[f, end]]]] == which:
                    end += 1
                if which != group:
                    if group >= 0:
                        _add_rows(part, out)
                    part[:] = ZERO
                    group = which
                _add_votes(leaves[f, begin:end], node[f], leaf_of, carry[f], weights.votes, room.four, part)
            if activation.normalised:
                for q in range(n_leaves):
                    add_scaled(ONE, carry[f, leaves[f, q]], mass)
        f = next_piece(f, room)
    if group >= 0:
        _add_rows(part, out)


@kernel_part
def _add_rows(part, out):
    for s in range(out.shape[0]):
        target, row = out[s], part[s]
        for p in range(BLOCK):
            target[p] += row[p]


@multiply_add_part
def forward(reading, trees, weights, activation, room, first_row, last_row, out):
    """Fill the rows first_row..last_row of the scores, out (C,h,w)."""
    size, normalised, mass, sums, total = reading.size, activation.normalised, room.mass, room.sums, room.scores
    target = sums if normalised else total
    for i in range(first_row, last_row, ROWS):
        for k in range(0, size[1], COLUMNS):
            total[:] = ZERO
            for t in range(trees.root.shape[0]):
                if normalised:
                    sums[:] = ZERO
                add_tree(reading, trees, weights, activation, room, i, k, t, target)
                if normalised:
                    invert(mass)
                    for s in range(out.shape[0]):
                        for p in range(BLOCK):
                            total[s, p] += sums[s, p] * mass[p]
            for s in range(out.shape[0]):
                for r in range(min(ROWS, last_row - i)):
                    for c in range(min(COLUMNS, size[1] - k)):
                        out[s, i + r, k + c] = total[s, r * COLUMNS + c]
