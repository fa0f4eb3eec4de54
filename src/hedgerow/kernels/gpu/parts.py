"""Parts of the GPU kernels for one level of the network: reading, splitting, and going down a piece of a tree.

A tile is ROWS x COLUMNS neighbouring pixels of the grid, P in all; what it has beyond the grid's end is computed for
the nearest pixel of the grid, and dropped, or adds nothing. A piece of a tree (see `pieces`) is worked through for a
tile at once, as (nodes, P) tensors whose first axis lies within a thread, so that cutting and joining it costs nothing.
KIND is the kind of split, a number of `constants`.
"""

import os

import triton
import triton.language as tl

from hedgerow.kernels import constants

# What a kernel reads of its module must be a constant of Triton's.
HARD, TANH, SOFT = tl.constexpr(constants.HARD), tl.constexpr(constants.TANH), tl.constexpr(constants.SOFT)
EXITS = tl.constexpr(constants.EXITS)
COLUMNS = tl.constexpr(32)  # of a tile, as many as a warp has threads
LOG2E = tl.constexpr(1.4426950408889634)
# Beyond this power of two a split is decided. 1 / (1 + 2^100) times 2^100 is 1 exactly, so padding changes nothing.
DECIDED = tl.constexpr(100.0)
IS_INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")

# Numbers that differ from image to image, or with how many trees are run together: a kernel that was compiled for one
# of them must do for all. So must it for arrays that begin anywhere in memory.
VARIES = [
    "height", "width", "size", "stride", "extent_h", "extent_w", "first_trained",
    "n_items", "n_trees", "n_groups", "n_below", "n_slots",
]  # fmt: skip
ANYWHERE = ["row", "column", "rooms", "out", "slope_in", "d_votes"]


@triton.jit
def inverse(x):
    """1 / x to a rounding error or two, for 1 <= x < 2^126."""
    if IS_INTERPRETED:
        return 1.0 / x
    else:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )


@triton.jit
def both_ways(away):
    """1 / (1 + x) and x / (1 + x), for 0 <= x < 2^126."""
    if IS_INTERPRETED:
        right = 1.0 / (1.0 + away)
        return right, away * right
    else:
        # Called impure, lest it be computed anew for each use.
        return tl.inline_asm_elementwise(
            "{ .reg .f32 t; add.f32 t, $2, 0f3F800000; rcp.approx.ftz.f32 $0, t; mul.f32 $1, $2, $0; }",
            "=&f,=f,f", [away], dtype=(tl.float32, tl.float32), is_pure=False, pack=1,
        )  # fmt: skip


@triton.jit
def parts(x, WHOLE: tl.constexpr):
    """x as an operand of `product`: itself, or two float16 that sum to x to 22 digits, if under 2^-3 to 2^-25."""
    if WHOLE == 1:
        return x, x
    else:
        coarse = x.to(tl.float16)
        return coarse, (x - coarse.to(tl.float32)).to(tl.float16)


@triton.jit
def product(a, a_fine, b, b_fine, WHOLE: tl.constexpr):
    """Matrix product of float32, of operands as they are, or in three passes of the matrix units over their parts."""
    if WHOLE == 1:
        return tl.dot(a, b, input_precision="ieee")
    else:
        return tl.dot(a, b, acc=tl.dot(a, b_fine, acc=tl.dot(a_fine, b)))


@triton.jit
def halves(x, N: tl.constexpr, P: tl.constexpr):
    """The first and the last half of the rows of x (N,P)."""
    return tl.split(tl.permute(tl.reshape(x, (2, N // 2, P)), (1, 2, 0)))


@triton.jit
def stacked(above, under, N: tl.constexpr, P: tl.constexpr):
    """(2N,P): the rows of one (N,P), then those of the other."""
    return tl.reshape(tl.permute(tl.join(above, under), (2, 0, 1)), (2 * N, P))


@triton.jit
def alternating(left, right, N: tl.constexpr, P: tl.constexpr):
    """(2N,P): rows of two (N,P) in turn, as children follow each other."""
    return tl.reshape(tl.permute(tl.join(left, right), (0, 2, 1)), (2 * N, P))


@triton.jit
def apart(x, N: tl.constexpr, P: tl.constexpr):
    """The left and the right children of (2N,P), (N,P) each."""
    return tl.split(tl.permute(tl.reshape(x, (N, 2, P)), (0, 2, 1)))


@triton.jit
def tile_pixels(down, across, height, width, P: tl.constexpr):
    """The pixels of a tile: row and column (P,) in the grid, their numbers, and which of them are in it."""
    lane = tl.arange(0, P)
    i, k = down * (P // COLUMNS) + lane // COLUMNS, across * COLUMNS + lane % COLUMNS
    is_inside = (i < height) & (k < width)
    i, k = tl.minimum(i, height - 1), tl.minimum(k, width - 1)
    return i, k, tl.max_contiguous(i * width + k, COLUMNS), is_inside


@triton.jit
def stretched_place(row, column, stretch, down, right, h, w, top, left, step, extent_h, extent_w):
    """Which value of its plane a probe at an offset that is stretched reads; see `wiring.places`."""
    r = row + tl.floor(down * stretch + 0.5).to(row.dtype)
    c = column + tl.floor(right * stretch + 0.5).to(row.dtype)
    is_outside = (extent_h > 0) & ((r < 0) | (r >= extent_h) | (c < 0) | (c >= extent_w))
    # Division rounds towards zero here; what is negative ends at the edge either way.
    r = tl.minimum(tl.maximum((r - top + step // 2) // step, 0), h - 1)
    c = tl.minimum(tl.maximum((c - left + step // 2) // step, 0), w - 1)
    return tl.where(is_outside, h * w, r * w + c)


@triton.jit
def starts(place, piece, j: tl.constexpr, J: tl.constexpr):
    """Where probe j of a piece's splits begins to read, (EXITS,), negative if it does not; place: (Q,J,EXITS)."""
    return tl.load(place + (piece * J + j) * EXITS + tl.arange(0, EXITS))


@triton.jit
def places(
    start, spot, offset, row, column, stretch, probe, i, k, width, stride, extent_h, extent_w, STRETCHED: tl.constexpr
):
    """Which values a probe of a piece's splits reads for the pixels (i, k), (EXITS,P); nothing of meaning if unused.

    start: its `starts`; probe: which of the Q x J it is; spot: (Q,J,5,EXITS) height, width, top, left and step of each
    plane; offset: (Q,J,2,EXITS)
    """
    if STRETCHED:
        node = tl.arange(0, EXITS)
        at, s = probe * (5 * EXITS) + node, i * width + k
        h, w = tl.load(spot + at)[:, None], tl.load(spot + at + EXITS)[:, None]
        top, left = tl.load(spot + at + 2 * EXITS)[:, None], tl.load(spot + at + 3 * EXITS)[:, None]
        step = tl.load(spot + at + 4 * EXITS)[:, None]
        down = tl.load(offset + probe * (2 * EXITS) + node)[:, None]
        right = tl.load(offset + probe * (2 * EXITS) + EXITS + node)[:, None]
        at_pixels = start[:, None] + stretched_place(
            tl.load(row + s)[None, :], tl.load(column + s)[None, :], tl.load(stretch + s)[None, :], down, right,
            h, w, top, left, step, extent_h, extent_w,
        )  # fmt: skip
    else:
        at_pixels = start[:, None] + (i.to(start.dtype) * stride + k)[None, :]
    # Not quite so at the grid's end, or stretched; said to let neighbouring threads have neighbouring pixels.
    return tl.max_contiguous(at_pixels, (1, COLUMNS))


@triton.jit
def probed(
    values, start, spot, offset, row, column, stretch, probe, i, k, width, stride, extent_h, extent_w,
    STRETCHED: tl.constexpr,
):  # fmt: skip
    """What is read at `places`, (EXITS,P); 0 if unused."""
    at = places(start, spot, offset, row, column, stretch, probe, i, k, width, stride, extent_h, extent_w, STRETCHED)
    # Past the first cache, which has better use for its room: few values are read again soon.
    return tl.load(values + at, mask=(start >= 0)[:, None], other=0.0, cache_modifier=".cg")


@triton.jit
def split_inputs(
    values, place, spot, offset, row, column, stretch, weight, bias, value, piece, i, k, width, stride,
    extent_h, extent_w, J: tl.constexpr, STRETCHED: tl.constexpr,
):  # fmt: skip
    """z_H1 (EXITS,P) of a piece's splits, probes added in the forest's order; value: what the first probe read."""
    node = tl.arange(0, EXITS)
    z = tl.load(weight + piece * J * EXITS + node)[:, None] * value
    for j in tl.static_range(1, J):
        more = probed(
            values, starts(place, piece, j, J), spot, offset, row, column, stretch, piece * J + j, i, k, width, stride,
            extent_h, extent_w, STRETCHED,
        )  # fmt: skip
        z += tl.load(weight + (piece * J + j) * EXITS + node)[:, None] * more
    return z + tl.load(bias + piece * EXITS + node)[:, None]


@triton.jit
def gates(z, leaf, KIND: tl.constexpr):
    """What a split does to what it carries, to the right and to the left: factors, or for tanh terms."""
    if KIND == HARD:
        right = tl.where(z >= 0, 1.0, 0.0)
        left = 1.0 - right
    elif KIND == TANH:
        away = tl.exp2(tl.abs(z) * (-2 * LOG2E))
        size = (1.0 - away) * inverse(1.0 + away)
        a = tl.where(z >= 0, size, -size)
        right, left = a - 1.0, -1.0 - a
    elif KIND == SOFT:
        away = tl.exp2(tl.minimum(z * -LOG2E, DECIDED, propagate_nan=tl.PropagateNan.ALL))
        right, left = both_ways(away)
    else:
        lost = tl.exp2(tl.abs(z) * (-leaf * LOG2E))
        right, left = tl.where(z >= 0, 1.0, lost), tl.where(z <= 0, 1.0, lost)
    return right, left


@triton.jit
def _children(carry, right, left, tolerance, KIND: tl.constexpr, DROPS: tl.constexpr, N: tl.constexpr, P: tl.constexpr):
    if KIND == TANH:
        up, down = carry + right, carry + left
    else:
        up, down = carry * right, carry * left
    if DROPS:  # written so that NaN stays
        up, down = tl.where(up <= tolerance, 0.0, up), tl.where(down <= tolerance, 0.0, down)
    return alternating(down, up, N, P)


@triton.jit
def descend(top, right, left, tolerance, KIND: tl.constexpr, DROPS: tl.constexpr, P: tl.constexpr):
    """What the exits of a piece of four generations carry, (EXITS,P), from its top's, (P,), and all its gates."""
    right, right3 = halves(right, 16, P)
    right, right2 = halves(right, 8, P)
    right, right1 = halves(right, 4, P)
    right, right0 = halves(right, 2, P)
    left, left3 = halves(left, 16, P)
    left, left2 = halves(left, 8, P)
    left, left1 = halves(left, 4, P)
    left, left0 = halves(left, 2, P)
    carry = _children(top[None, :], right0, left0, tolerance, KIND, DROPS, 1, P)
    carry = _children(carry, right1, left1, tolerance, KIND, DROPS, 2, P)
    carry = _children(carry, right2, left2, tolerance, KIND, DROPS, 4, P)
    return _children(carry, right3, left3, tolerance, KIND, DROPS, 8, P)


@triton.jit
def arriving(stored, tolerance, KIND: tl.constexpr, P: tl.constexpr):
    """What reaches the top of a piece, (P,), from where it is kept, and whether anything does."""
    tl.debug_barrier()  # it was written by other threads
    top = tl.load(stored + tl.arange(0, P))
    if KIND == TANH:
        some = tl.full((), 1, tl.int32)
    else:
        top = tl.where(top <= tolerance, 0.0, top)
        some = tl.max((top != 0).to(tl.int32), axis=0)
    return top, some


@triton.jit
def leaf_activation(carry, leaf, KIND: tl.constexpr, WHOLE: tl.constexpr):
    """a_H2, times WHOLE, from what reaches a leaf."""
    if KIND == TANH:
        x = leaf * (carry + 1.0)
        return WHOLE * inverse(1.0 + tl.exp2(tl.minimum(x * -LOG2E, DECIDED, propagate_nan=tl.PropagateNan.ALL)))
    else:
        return carry


@triton.jit
def tree_votes(
    values, place, spot, offset, row, column, stretch, weight, bias, votes, fine_votes, slot, below, is_open,
    after, room, first, last, i, k, width, stride, extent_h, extent_w, leaf, tolerance, unit,
    J: tl.constexpr, STRETCHED: tl.constexpr, KIND: tl.constexpr, DROPS: tl.constexpr, WHOLE: tl.constexpr,
    WIDTH: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """(WIDTH,P): what the leaves of one tree, its pieces first..last, vote for in a tile, times WHOLE.

    votes, fine_votes: (Q,EXITS,WIDTH), see `parts`; room: (slots,P), for this tile alone; unit: 1.0
    """
    lane, exit, ballot = tl.arange(0, P), tl.arange(0, EXITS), tl.arange(0, WIDTH)
    PER_PIECE: tl.constexpr = EXITS * WIDTH
    tl.debug_barrier()
    tl.store(room + lane, tl.full((P,), 0.0 if KIND == TANH else WHOLE, tl.float32))
    total = tl.zeros((WIDTH, P), tl.float32)
    # Memory is slow: what the next piece reads is asked for before this one is worked through, and where, one before.
    value = probed(
        values, starts(place, first, 0, J), spot, offset, row, column, stretch, first * J, i, k, width, stride,
        extent_h, extent_w, STRETCHED,
    )  # fmt: skip
    z = split_inputs(
        values, place, spot, offset, row, column, stretch, weight, bias, value, first, i, k, width, stride,
        extent_h, extent_w, J, STRETCHED,
    )  # fmt: skip
    start = starts(place, tl.minimum(first + 1, last - 1), 0, J)
    at_votes = exit[None, :] * WIDTH + ballot[:, None]
    coarse_votes = tl.load(votes + first * PER_PIECE + at_votes)
    finer_votes = tl.load(fine_votes + first * PER_PIECE + at_votes)
    piece = first
    while piece < last:
        top, some = arriving(room + tl.load(slot + piece) * P, tolerance, KIND, P)
        following = tl.where(some > 0, piece + 1, tl.load(after + piece))
        ahead = tl.minimum(following, last - 1)
        if some == 0:
            start = starts(place, ahead, 0, J)
        value = probed(
            values, start, spot, offset, row, column, stretch, ahead * J, i, k, width, stride, extent_h, extent_w,
            STRETCHED,
        )  # fmt: skip
        start = starts(place, tl.minimum(following + 1, last - 1), 0, J)
        next_votes = tl.load(votes + ahead * PER_PIECE + at_votes)
        next_fine = tl.load(fine_votes + ahead * PER_PIECE + at_votes)
        if some > 0:
            right, left = gates(z, leaf, KIND)
            carry = descend(top, right, left, tolerance, KIND, DROPS, P)
            if tl.load(is_open + piece) > 0:
                tl.store((room + tl.load(below + piece) * P + lane)[None, :] + exit[:, None] * P, carry)
            active, fine_active = parts(leaf_activation(carry, leaf, KIND, WHOLE), WHOLE)
            # Times `unit`, so that the sum stays outside of the matrix units, which round towards zero.
            total += product(coarse_votes, finer_votes, active, fine_active, WHOLE) * unit
        z = split_inputs(
            values, place, spot, offset, row, column, stretch, weight, bias, value, ahead, i, k, width, stride,
            extent_h, extent_w, J, STRETCHED,
        )  # fmt: skip
        coarse_votes, finer_votes, piece = next_votes, next_fine, following
    return total
