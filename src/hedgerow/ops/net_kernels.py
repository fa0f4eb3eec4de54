"""The network of one level, fused: probe, split, leaf and vote over a block of pixels, and the same way back.

A block is ROWS x COLUMNS neighbouring pixels of the grid (what it has beyond the grid's end is computed and dropped),
and every inner loop runs over its pixels. A tree is worked through generation by generation, and each node passes on to
its children what the path so far amounts to (the "carry": a product of branch probabilities, or for tanh a sum), so no
path is walked twice. The backward pass goes through the same list of nodes from its end. What is stored is of the size
block x nodes of one tree.

A branch that carries no more than `tolerance` at a pixel is dropped there: exactly nothing is lost at 0, and at each
pixel the result is the same whatever pixels share its block.
Callers guarantee that every read is in range; nothing is checked here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from hedgerow.ops.compiling import kernel, multiply_add_kernel

ROWS, COLUMNS = 8, 16
BLOCK = ROWS * COLUMNS
HARD, TANH, SOFT, CRELU = range(4)
ONE, ZERO = np.float32(1), np.float32(0)


def _float_of_bits(typing_context, bits):
    """The float32 that has these 32 bits."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


_as_float: Any = intrinsic(_float_of_bits)


def _start_reading(typing_context, array, at):
    """Ask for the cache line of array[at], without waiting for it."""

    def generate(context, builder, signature, arguments):
        held = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = builder.bitcast(builder.gep(held.data, [arguments[1]]), ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        signature_of = ir.FunctionType(ir.VoidType(), [pointer.type, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch.p0", (), signature_of)
        builder.call(function, [pointer, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


_prefetch: Any = intrinsic(_start_reading)
AHEAD = 8  # splits whose values are asked for before they are needed


@kernel
def prefetch_fixed(values, at, stride):
    """Ask for a block of values, first and last pixel of each row."""
    for r in range(ROWS):
        _prefetch(values, at + r * stride)
        _prefetch(values, at + r * stride + COLUMNS - 1)


@multiply_add_kernel
def _exp(x):
    """exp of a float32 that is not positive, to 2e-7; straight code, so that loops over it become vector code."""
    x = np.float32(-87) if x < np.float32(-87) else x  # NaN stays NaN
    power = np.floor(x * np.float32(1.442695041) + np.float32(0.5))
    x = (x - power * np.float32(0.693359375)) + power * np.float32(2.12194440e-4)  # ln 2 in two parts
    tail = np.float32(1.9875691500e-4)
    tail = tail * x + np.float32(1.3981999507e-3)
    tail = tail * x + np.float32(8.3334519073e-3)
    tail = tail * x + np.float32(4.1665795894e-2)
    tail = tail * x + np.float32(1.6666665459e-1)
    tail = tail * x + np.float32(5.0000001201e-1)
    return (tail * x * x + x + ONE) * _as_float((np.int32(power) + np.int32(127)) << np.int32(23))


@kernel
def read_fixed(values, at, stride, out):
    """A block of values whose first pixel's is at `at`, to out (BLOCK,)."""
    for r in range(ROWS):
        source, line = values[at + r * stride : at + r * stride + COLUMNS], out[r * COLUMNS : (r + 1) * COLUMNS]
        for c in range(COLUMNS):
            line[c] = source[c]


@kernel
def read_stretched(values, plane, down, right, size, row, column, stretch, extent, i, k, index, out):
    """A block, from the grid's pixel (i, k) on, of values at an offset that is stretched at each pixel.

    plane: (6,) start, height, width, top, left, step; index: (BLOCK,) gets the places that are read
    """
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


@kernel
def _split_input(
    values, place, stride, size, offset, row, column, stretch, planes, extent, n, i, k, weight, bias, index, probe, z
):  # fmt: skip
    """z_H1 of split n: probes added in the forest's order and never contracted, so that hard decisions are the same."""
    b = bias[n]
    if place.shape[1] == 1 and stride > 0 and place[n, 0] >= 0:  # the most common case, in one pass
        w, at = weight[n, 0], place[n, 0] + i * stride + k
        for r in range(ROWS):
            source, line = values[at + r * stride : at + r * stride + COLUMNS], z[r * COLUMNS : (r + 1) * COLUMNS]
            for c in range(COLUMNS):
                line[c] = w * source[c] + b
        return
    z[:] = ZERO
    for j in range(place.shape[1]):
        if place[n, j] < 0:
            continue
        if stride > 0:
            read_fixed(values, place[n, j] + i * stride + k, stride, probe)
        else:
            down, right = offset[n, j, 0], offset[n, j, 1]
            read_stretched(
                values, planes[place[n, j]], down, right, size, row, column, stretch, extent, i, k, index, probe
            )
        w = weight[n, j]
        for p in range(BLOCK):
            z[p] += w * probe[p]
    for p in range(BLOCK):
        z[p] += b


@multiply_add_kernel
def _branch(kind, leaf, tolerance, carry, gate, right, left):
    """What the two children carry; `gate` holds z_H1 and gets what the backward pass needs.

    Returns where anything is carried: 0 nowhere, 1 left only, 2 right only, 3 both.
    """
    # Written so that NaN counts as carried: it must show.
    some_right, some_left = np.int32(0), np.int32(0)
    if kind == TANH:
        for p in range(BLOCK):
            z = gate[p]
            away = _exp(np.float32(-2) * abs(z))
            a = (ONE - away) / (ONE + away)
            a = a if z >= 0 else -a
            gate[p] = a
            right[p] = carry[p] + (a - ONE)
            left[p] = carry[p] - (a + ONE)
        return 3
    if kind == SOFT:
        for p in range(BLOCK):
            z = gate[p]
            away = _exp(-abs(z))
            likely = ONE / (ONE + away)
            unlikely = away * likely
            to_right, to_left = (likely, unlikely) if z >= 0 else (unlikely, likely)
            gate[p] = to_right
            up, down = carry[p] * to_right, carry[p] * to_left
            right[p] = ZERO if up <= tolerance else up
            left[p] = ZERO if down <= tolerance else down
            some_right += np.int32(not up <= tolerance)
            some_left += np.int32(not down <= tolerance)
    elif kind == CRELU:
        for p in range(BLOCK):
            z = gate[p]
            lost = carry[p] * _exp(-leaf * abs(z))
            up, down = carry[p] if z >= 0 else lost, carry[p] if z <= 0 else lost
            right[p] = ZERO if up <= tolerance else up
            left[p] = ZERO if down <= tolerance else down
            some_right += np.int32(not up <= tolerance)
            some_left += np.int32(not down <= tolerance)
    else:
        for p in range(BLOCK):
            right[p] = carry[p] if gate[p] >= 0 else ZERO
            left[p] = carry[p] - right[p]
            some_right += np.int32(right[p] > 0)
            some_left += np.int32(left[p] > 0)
    return 2 * (some_right > 0) + (some_left > 0)


@multiply_add_kernel
def descend(
    values, place, stride, size, offset, row, column, stretch, planes, extent, i, k,
    root, left_child, split_of, weight, bias, kind, leaf, normalised, tolerance,
    index, probe, total, node, child, carry, gate, leaves,
):  # fmt: skip
    """One tree over one block: fills `carry` (a_H2 at leaves) for the nodes that are reached, listed in `node`.

    child: (nodes,2) positions of left and right child in that list, or -1; leaves: positions of leaves
    Returns the number of nodes and of leaves.
    """
    node[0] = root
    for p in range(BLOCK):
        carry[0, p] = ZERO if kind == TANH else ONE
    begin, count, n_leaves = 0, 1, 0
    while begin < count:
        end = count
        # All reads of a generation first: they do not wait for each other.
        for at in range(begin, end):
            if stride > 0 and at + AHEAD < end:
                soon = split_of[node[at + AHEAD]]
                if soon >= 0:
                    for j in range(place.shape[1]):
                        if place[soon, j] >= 0:
                            prefetch_fixed(values, place[soon, j] + i * stride + k, stride)
            n = split_of[node[at]]
            if n >= 0:
                _split_input(
                    values, place, stride, size, offset, row, column, stretch, planes, extent, n, i, k,
                    weight, bias, index, probe, gate[at],
                )  # fmt: skip
        for at in range(begin, end):
            below = left_child[node[at]]
            if below < 0:
                leaves[n_leaves] = at
                n_leaves += 1
                continue
            # Both are written; a child that carries nothing is overwritten by the next one.
            some = _branch(kind, leaf, tolerance, carry[at], gate[at], carry[count + 1], carry[count])
            child[at, 0] = child[at, 1] = -1
            if some & 1:
                node[count] = below
                child[at, 0] = count
                count += 1
            elif some & 2:
                kept, written = carry[count], carry[count + 1]
                for p in range(BLOCK):
                    kept[p] = written[p]
            if some & 2:
                node[count] = below + 1
                child[at, 1] = count
                count += 1
        begin = end
    if kind == TANH:
        for q in range(n_leaves):
            a = carry[leaves[q]]
            for p in range(BLOCK):
                x = leaf * (a[p] + ONE)
                away = _exp(-abs(x))
                likely = ONE / (ONE + away)
                a[p] = likely if x >= 0 else away * likely
    elif normalised:
        for p in range(BLOCK):
            total[p] = ZERO
        for q in range(n_leaves):
            a = carry[leaves[q]]
            for p in range(BLOCK):
                total[p] += a[p]
        for p in range(BLOCK):  # 0: every leaf was dropped
            total[p] = ONE / total[p] if total[p] != 0 else ZERO
        for q in range(n_leaves):
            a = carry[leaves[q]]
            for p in range(BLOCK):
                a[p] *= total[p]
    return count, n_leaves


@multiply_add_kernel
def _add_votes(n_leaves, leaves, node, leaf_of, carry, votes, out):
    """out (C,BLOCK) += votes times a_H2, leaf after leaf, four leaves to a pass over the pixels."""
    q = 0
    while q + 4 <= n_leaves:
        a, b, c, d = carry[leaves[q]], carry[leaves[q + 1]], carry[leaves[q + 2]], carry[leaves[q + 3]]
        va, vb = votes[leaf_of[node[leaves[q]]]], votes[leaf_of[node[leaves[q + 1]]]]
        vc, vd = votes[leaf_of[node[leaves[q + 2]]]], votes[leaf_of[node[leaves[q + 3]]]]
        for s in range(out.shape[0]):
            row = out[s]
            wa, wb, wc, wd = va[s], vb[s], vc[s], vd[s]
            for p in range(BLOCK):
                row[p] = (((row[p] + wa * a[p]) + wb * b[p]) + wc * c[p]) + wd * d[p]
        q += 4
    while q < n_leaves:
        a, va = carry[leaves[q]], votes[leaf_of[node[leaves[q]]]]
        for s in range(out.shape[0]):
            row, wa = out[s], va[s]
            for p in range(BLOCK):
                row[p] += wa * a[p]
        q += 1


@kernel
def forward(
    values, place, stride, size, offset, row, column, stretch, planes, extent,
    root, left_child, split_of, leaf_of, largest, weight, bias, votes, kind, leaf, normalised, tolerance,
    leaf_group, first_row, last_row, out,
):  # fmt: skip
    """Rows first_row..last_row of the scores, out (C,h,w)."""
    index = np.empty(BLOCK, np.int64)
    probe, z = np.empty(BLOCK, np.float32), np.empty(BLOCK, np.float32)
    node, leaves = np.empty(largest, np.int32), np.empty(largest, np.int32)
    child = np.empty((largest, 2), np.int32)
    # Two rows more: children are written before it is known whether they carry anything.
    carry, gate = np.empty((largest + 2, BLOCK), np.float32), np.empty((largest, BLOCK), np.float32)
    total, part = np.empty((votes.shape[1], BLOCK), np.float32), np.empty((votes.shape[1], BLOCK), np.float32)
    for i in range(first_row, last_row, ROWS):
        for k in range(0, size[1], COLUMNS):
            total[:] = ZERO
            for t in range(root.shape[0]):
                _, n_leaves = descend(
                    values, place, stride, size, offset, row, column, stretch, planes, extent, i, k,
                    root[t], left_child, split_of, weight, bias, kind, leaf, normalised, tolerance,
                    index, probe, z, node, child, carry, gate, leaves,
                )  # fmt: skip
                # Some leaves at a time: a leaf's small part would be lost in the sum over all trees. Which ones is the
                # tree's affair, not the block's, so that a pixel's sum does not depend on what shares its block.
                end = 0
                while end < n_leaves:
                    begin, which = end, leaf_group[leaf_of[node[leaves[end]]]]
                    while end < n_leaves and leaf_group[leaf_of[node[leaves[end]]]] == which:
                        end += 1
                    some = leaves[begin:end]
                    part[:] = ZERO
                    _add_votes(len(some), some, node, leaf_of, carry, votes, part)
                    for s in range(total.shape[0]):
                        for p in range(BLOCK):
                            total[s, p] += part[s, p]
            for s in range(out.shape[0]):
                for r in range(min(ROWS, last_row - i)):
                    for c in range(min(COLUMNS, size[1] - k)):
                        out[s, i + r, k + c] = total[s, r * COLUMNS + c]
