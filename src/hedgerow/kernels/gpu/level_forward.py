"""The network of one level on a GPU: reading probes, deciding splits and summing the votes of leaves, tile by tile.

A tile is ROWS x COLUMNS neighbouring pixels of the grid, P in all. Where it extends beyond the grid, the nearest pixel
of the grid is computed in place of the missing one, and its result is dropped or counts as zero. A piece of a tree (see
`pieces`) is processed for a whole tile, as (nodes, P) tensors. Their first axis lies within a thread, so splitting and
joining them along it costs nothing. KIND is the kind of split, a number of `constants`.

Functions here receive as tuples what belongs together:
reading: values, place, spot, offset, row, column, stretch, see `level._Reading`
grid:    width, stride, extent_h, extent_w, see `wiring.Reads`
weights: weight, bias, votes, fine_votes, see `level._Arranged`
trees:   slot, below, is_open, after, see `pieces.Pieces`
"""

import os

import triton
import triton.language as tl

from hedgerow.kernels import constants

# A Triton kernel can read only those globals of its module that are declared as `constexpr`.
HARD, TANH, SOFT = tl.constexpr(constants.HARD), tl.constexpr(constants.TANH), tl.constexpr(constants.SOFT)
EXITS = tl.constexpr(constants.EXITS)
COLUMNS = tl.constexpr(32)  # columns of a tile: the threads of a warp
LOG2E = tl.constexpr(1.4426950408889634)
# Exponent of 2 at which a split is decided: 2^100 / (1 + 2^100) is exactly 1 in float32, so padding has no effect.
DECIDED = tl.constexpr(100.0)
IS_INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")

# One compiled kernel must serve all images and any number of trees: Triton must not specialise it for these numbers, or
# for the alignment of these arrays.
VARIES = [
    "height", "width", "size", "stride", "extent_h", "extent_w", "first_trained",
    "n_items", "n_trees", "n_groups", "n_below", "n_slots",
]  # fmt: skip
ANYWHERE = ["row", "column", "rooms", "out", "slope_in", "d_votes"]


@triton.jit
def inverse(x):
    """1 / x with an error of one or two roundings, for 1 <= x < 2^126."""
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
        # Declared impure so that the compiler does not compute it again for each use.
        return tl.inline_asm_elementwise(
            "{ .reg .f32 t; add.f32 t, $2, 0f3F800000; rcp.approx.ftz.f32 $0, t; mul.f32 $1, $2, $0; }",
            "=&f,=f,f", [away], dtype=(tl.float32, tl.float32), is_pure=False, pack=1,
        )  # fmt: skip


@triton.jit
def parts(x, WHOLE: tl.constexpr):
    """x as an operand of `product`: x, or two float16 numbers whose sum has 22 bits of x or an error of 2^-25."""
    if WHOLE == 1:
        return x, x
    else:
        coarse = x.to(tl.float16)
        return coarse, (x - coarse.to(tl.float32)).to(tl.float16)


@triton.jit
def product(a, a_fine, b, b_fine, WHOLE: tl.constexpr):
    """float32 matrix product: of the operands as they are, or of their parts, in three passes of the matrix units."""
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
    """(2N,P): the rows of `above` (N,P), then those of `under` (N,P)."""
    return tl.reshape(tl.permute(tl.join(above, under), (2, 0, 1)), (2 * N, P))


@triton.jit
def alternating(left, right, N: tl.constexpr, P: tl.constexpr):
    """(2N,P): rows of `left` and `right` (N,P) in turn, the order of children."""
    return tl.reshape(tl.permute(tl.join(left, right), (0, 2, 1)), (2 * N, P))


@triton.jit
def apart(x, N: tl.constexpr, P: tl.constexpr):
    """The rows of left children and those of right children, each (N,P), of x (2N,P)."""
    return tl.split(tl.permute(tl.reshape(x, (N, 2, P)), (0, 2, 1)))


@triton.jit
def tile_pixels(down, across, height, width, P: tl.constexpr):
    """The pixels of a tile: their rows, columns and numbers in the grid, (P,) each, and whether they lie in it."""
    lane = tl.arange(0, P)
    i, k = down * (P // COLUMNS) + lane // COLUMNS, across * COLUMNS + lane % COLUMNS
    is_inside = (i < height) & (k < width)
    i, k = tl.minimum(i, height - 1), tl.minimum(k, width - 1)
    return i, k, tl.max_contiguous(i * width + k, COLUMNS), is_inside


@triton.jit
def stretched_place(row, column, stretch, down, right, h, w, top, left, step, extent_h, extent_w):
    """Index of the value that a probe with a stretched offset reads in its plane; see `wiring.places`."""
    r = row + tl.floor(down * stretch + 0.5).to(row.dtype)
    c = column + tl.floor(right * stretch + 0.5).to(row.dtype)
    is_outside = (extent_h > 0) & ((r < 0) | (r >= extent_h) | (c < 0) | (c >= extent_w))
    # Triton divides towards zero and NumPy downwards, but negative numbers are clipped to 0 either way.
    r = tl.minimum(tl.maximum((r - top + step // 2) // step, 0), h - 1)
    c = tl.minimum(tl.maximum((c - left + step // 2) // step, 0), w - 1)
    return tl.where(is_outside, h * w, r * w + c)


@triton.jit
def starts(place, piece, j: tl.constexpr, J: tl.constexpr):
    """Where probe j of a piece's splits reads for the first pixel, (EXITS,), negative if unused; place: (Q,J,EXITS)."""
    return tl.load(place + (piece * J + j) * EXITS + tl.arange(0, EXITS))


@triton.jit
def places(start, reading, grid, probe, i, k, STRETCHED: tl.constexpr):
    """Indices of the values that one probe of each split of a piece reads for the pixels (i, k), (EXITS,P).

    They have no meaning where the probe is unused.
    start: from `starts`; probe: its number among the Q x J
    """
    _, _, spot, offset, row, column, stretch = reading
    width, stride, extent_h, extent_w = grid
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
    # Not exactly true at the grid's end or if stretched, but it makes neighbouring threads take neighbouring pixels.
    return tl.max_contiguous(at_pixels, (1, COLUMNS))


@triton.jit
def probed(start, reading, grid, probe, i, k, STRETCHED: tl.constexpr):
    """The values at `places`, (EXITS,P); 0 if unused."""
    at = places(start, reading, grid, probe, i, k, STRETCHED)
    # Bypasses the first-level cache: few of these values are read again soon.
    return tl.load(reading[0] + at, mask=(start >= 0)[:, None], other=0.0, cache_modifier=".cg")


@triton.jit
def first_probed(piece, reading, grid, i, k, J: tl.constexpr, STRETCHED: tl.constexpr):
    """The values that the first probes of a piece's splits read, (EXITS,P)."""
    return probed(starts(reading[1], piece, 0, J), reading, grid, piece * J, i, k, STRETCHED)


@triton.jit
def split_inputs(weight, bias, value, piece, reading, grid, i, k, J: tl.constexpr, STRETCHED: tl.constexpr):
    """z_H1 (EXITS,P) of a piece's splits, probes added in the forest's order; value: from `first_probed`."""
    node = tl.arange(0, EXITS)
    z = tl.load(weight + piece * J * EXITS + node)[:, None] * value
    for j in tl.static_range(1, J):
        more = probed(starts(reading[1], piece, j, J), reading, grid, piece * J + j, i, k, STRETCHED)
        z += tl.load(weight + (piece * J + j) * EXITS + node)[:, None] * more
    return z + tl.load(bias + piece * EXITS + node)[:, None]


@triton.jit
def gates(z, leaf, KIND: tl.constexpr):
    """What a split multiplies its carry by on the way right and left; for tanh, what it adds to it."""
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
    if DROPS:  # comparisons are such that NaN stays NaN
        up, down = tl.where(up <= tolerance, 0.0, up), tl.where(down <= tolerance, 0.0, down)
    return alternating(down, up, N, P)


@triton.jit
def descend(top, right, left, tolerance, KIND: tl.constexpr, DROPS: tl.constexpr, P: tl.constexpr):
    """What the exits of a piece carry, (EXITS,P), given what its top carries, (P,), and the gates of its splits."""
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
    """What is stored for the top of a piece, (P,), and whether any of it counts."""
    tl.debug_barrier()  # other threads wrote it
    top = tl.load(stored + tl.arange(0, P))
    if KIND == TANH:
        some = tl.full((), 1, tl.int32)
    else:
        top = tl.where(top <= tolerance, 0.0, top)
        some = tl.max((top != 0).to(tl.int32), axis=0)
    return top, some


@triton.jit
def leaf_activation(carry, leaf, KIND: tl.constexpr, WHOLE: tl.constexpr):
    """a_H2, times WHOLE, of leaves with this carry."""
    if KIND == TANH:
        x = leaf * (carry + 1.0)
        return WHOLE * inverse(1.0 + tl.exp2(tl.minimum(x * -LOG2E, DECIDED, propagate_nan=tl.PropagateNan.ALL)))
    else:
        return carry


@triton.jit
def tree_votes(
    reading, weights, trees, room, first, last, grid, i, k, leaf, tolerance, unit,
    J: tl.constexpr, STRETCHED: tl.constexpr, KIND: tl.constexpr, DROPS: tl.constexpr, WHOLE: tl.constexpr,
    WIDTH: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """(WIDTH,P): the votes of one tree, whose pieces are first..last, for a tile, times WHOLE.

    votes, fine_votes: (Q,EXITS,WIDTH), from `parts`; room: (slots,P), for this tile alone; unit: 1.0
    """
    weight, bias, votes, fine_votes = weights
    slot, below, is_open, after = trees
    lane, exit, ballot = tl.arange(0, P), tl.arange(0, EXITS), tl.arange(0, WIDTH)
    PER_PIECE: tl.constexpr = EXITS * WIDTH
    tl.debug_barrier()
    tl.store(room + lane, tl.full((P,), 0.0 if KIND == TANH else WHOLE, tl.float32))
    total = tl.zeros((WIDTH, P), tl.float32)
    # Memory is slow, so a piece's values are requested while the piece before it is processed, and their places one
    # piece earlier still.
    value = first_probed(first, reading, grid, i, k, J, STRETCHED)
    z = split_inputs(weight, bias, value, first, reading, grid, i, k, J, STRETCHED)
    start = starts(reading[1], tl.minimum(first + 1, last - 1), 0, J)
    at_votes = exit[None, :] * WIDTH + ballot[:, None]
    coarse_votes = tl.load(votes + first * PER_PIECE + at_votes)
    finer_votes = tl.load(fine_votes + first * PER_PIECE + at_votes)
    piece = first
    while piece < last:
        top, some = arriving(room + tl.load(slot + piece) * P, tolerance, KIND, P)
        following = tl.where(some > 0, piece + 1, tl.load(after + piece))
        ahead = tl.minimum(following, last - 1)
        if some == 0:
            start = starts(reading[1], ahead, 0, J)
        value = probed(start, reading, grid, ahead * J, i, k, STRETCHED)
        start = starts(reading[1], tl.minimum(following + 1, last - 1), 0, J)
        next_votes = tl.load(votes + ahead * PER_PIECE + at_votes)
        next_fine = tl.load(fine_votes + ahead * PER_PIECE + at_votes)
        if some > 0:
            right, left = gates(z, leaf, KIND)
            carry = descend(top, right, left, tolerance, KIND, DROPS, P)
            if tl.load(is_open + piece) > 0:
                tl.store((room + tl.load(below + piece) * P + lane)[None, :] + exit[:, None] * P, carry)
            active, fine_active = parts(leaf_activation(carry, leaf, KIND, WHOLE), WHOLE)
            # Multiplied by `unit` to keep the sum out of the matrix units, which round towards zero.
            total += product(coarse_votes, finer_votes, active, fine_active, WHOLE) * unit
        z = split_inputs(weight, bias, value, ahead, reading, grid, i, k, J, STRETCHED)
        coarse_votes, finer_votes, piece = next_votes, next_fine, following
    return total


@triton.jit(do_not_specialize=VARIES, do_not_specialize_on_alignment=ANYWHERE)
def forward(
    values, place, spot, offset, row, column, stretch, weight, bias, votes, fine_votes, slot, below, is_open, after,
    first, rooms, out, height, width, stride, extent_h, extent_w, n_items, n_trees, n_groups, n_classes, n_slots,
    leaf, tolerance, unit,
    J: tl.constexpr, STRETCHED: tl.constexpr, KIND: tl.constexpr, DROPS: tl.constexpr, NORMALISED: tl.constexpr,
    WHOLE: tl.constexpr, WIDTH: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """Fill out (groups,C,S) with scores, one sum for each group of trees. An item is one tile and one group.

    Scores are too large by the factor of the votes and by WHOLE; if NORMALISED, by the factor of the votes over WHOLE.
    """
    reading, grid = (values, place, spot, offset, row, column, stretch), (width, stride, extent_h, extent_w)
    weights, trees = (weight, bias, votes, fine_votes), (slot, below, is_open, after)
    room = rooms + tl.program_id(0).to(tl.int64) * (n_slots + WIDTH) * P
    ballot, lane, per_group = tl.arange(0, WIDTH), tl.arange(0, P), n_trees // n_groups
    # The sum over the trees lies in memory, so that registers hold only the sums of one tree.
    sums = (room + n_slots * P + lane)[None, :] + ballot[:, None] * P
    n_across = tl.cdiv(width, COLUMNS)
    item = tl.program_id(0)
    while item < n_items:
        tile, group = item // n_groups, item % n_groups
        i, k, pixel, is_inside = tile_pixels(tile // n_across, tile % n_across, height, width, P)
        tree = group * per_group
        while tree < (group + 1) * per_group:
            total = tree_votes(
                reading, weights, trees, room, tl.load(first + tree), tl.load(first + tree + 1), grid, i, k, leaf,
                tolerance, unit, J, STRETCHED, KIND, DROPS, WHOLE, WIDTH, P,
            )  # fmt: skip
            if NORMALISED:  # column C of the votes is the same for all leaves
                mass = tl.sum(tl.where((ballot == n_classes)[:, None], total, 0.0), axis=0)
                total = total * tl.where(mass == 0, 0.0, 1.0 / mass)[None, :]
            if tree > group * per_group:
                total += tl.load(sums)
            tl.store(sums, total)
            tree += 1
        tl.debug_barrier()
        at = out + (group * n_classes + ballot)[:, None].to(tl.int64) * (height * width) + pixel[None, :]
        tl.store(at, tl.load(sums), mask=(ballot < n_classes)[:, None] & is_inside[None, :])
        item += tl.num_programs(0)
