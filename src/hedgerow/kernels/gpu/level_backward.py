"""The backward pass of one level on a GPU: gradients of weights, biases, votes and of values that train.

Everything that the forward pass computed is computed again, tile by tile and piece by piece. A piece passes up to the
piece above it the gradients of z_H2, summed over the leaves below its top, and stores them over what its top carried.
"""

import triton
import triton.language as tl

from hedgerow.kernels.gpu.level_forward import (
    ANYWHERE,
    COLUMNS,
    EXITS,
    HARD,
    SOFT,
    TANH,
    VARIES,
    apart,
    arriving,
    descend,
    first_probed,
    gates,
    leaf_activation,
    parts,
    places,
    product,
    split_inputs,
    stacked,
    starts,
    tile_pixels,
    tree_votes,
)


@triton.jit
def _add(target, amount, scale, mask, FIXED_POINT: tl.constexpr):
    """Add to gradients that other programs add to as well; sums of whole numbers do not depend on the order."""
    if FIXED_POINT:
        # Amounts that are masked out may not fit the integer type.
        tl.atomic_add(target, tl.where(mask, amount * scale, 0.0).to(tl.int64), mask=mask, sem="relaxed")
    else:
        tl.atomic_add(target, amount.to(target.dtype.element_ty), mask=mask, sem="relaxed")


@triton.jit
def _sums(exits, P: tl.constexpr):
    """The sums over the exits (EXITS,P) right and left of each split, (EXITS,P) each, and over all of them, (P,)."""
    left3, right3 = apart(exits, 8, P)
    left2, right2 = apart(left3 + right3, 4, P)
    left1, right1 = apart(left2 + right2, 2, P)
    left0, right0 = apart(left1 + right1, 1, P)
    none = tl.zeros_like(right0)
    right = stacked(stacked(stacked(stacked(none, right0, 1, P), right1, 2, P), right2, 4, P), right3, 8, P)
    left = stacked(stacked(stacked(stacked(none, left0, 1, P), left1, 2, P), left2, 4, P), left3, 8, P)
    return right, left, tl.sum(left0 + right0, axis=0)


@triton.jit
def _split_slope(z, right, left, sum_right, sum_left, leaf, KIND: tl.constexpr):
    """Gradient of z_H1 from the sums of the gradients of z_H2 over the leaves on either side."""
    if KIND == SOFT:
        return left * sum_right - right * sum_left
    elif KIND == TANH:
        return right * left * (sum_right - sum_left)  # (1 - a)(1 + a)
    else:
        return leaf * (tl.where(z < 0, sum_right, 0.0) - tl.where(z > 0, sum_left, 0.0))


@triton.jit
def _normalised_slope(slope, total, n_classes, WIDTH: tl.constexpr, WHOLE: tl.constexpr):
    """The gradient of a tree's sums (WIDTH,P), which are divided by its mass, one of their rows; and 1 / mass (P,).

    The gradient is not yet multiplied by 1 / mass: an activation divided by the mass is at most 1, but a gradient could
    become arbitrarily large. The mass in `total` is WHOLE x WHOLE times too large; 1 / mass is corrected for that.
    """
    ballot = tl.arange(0, WIDTH)[:, None]
    mass = tl.sum(tl.where(ballot == n_classes, total, 0.0), axis=0)
    inverse = tl.where(mass == 0, 0.0, 1.0 / mass)
    score = tl.sum(tl.where(ballot < n_classes, slope * total, 0.0), axis=0) * inverse
    return tl.where(ballot == n_classes, -score[None, :], slope), inverse * (WHOLE * WHOLE)


@triton.jit(do_not_specialize=VARIES, do_not_specialize_on_alignment=ANYWHERE)
def backward(
    values, place, spot, offset, row, column, stretch, weight, bias, votes, fine_votes, slot, below, is_open, after,
    first, rooms, slopes, slope_in, split, leaves, opens, visited, is_up, visit_after, first_visit,
    d_weight, d_bias, d_votes, d_values, scales, height, width, stride, extent_h, extent_w, first_trained,
    n_items, n_below, n_trees, n_classes, n_slots, leaf, tolerance, unit,
    J: tl.constexpr, STRETCHED: tl.constexpr, KIND: tl.constexpr, DROPS: tl.constexpr, NORMALISED: tl.constexpr,
    NEEDS_VALUES: tl.constexpr, FIXED_POINT: tl.constexpr, WHOLE: tl.constexpr,
    WIDTH: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """Add to the gradients, in the pieces' order: d_weight (Q,J,EXITS), d_bias (Q,EXITS), d_votes (Q,EXITS,WIDTH).

    An item is one tree and up to n_below tiles, one below the other. A piece is processed for all these tiles before
    its sums over their pixels are added to the gradients.
    Gradients of votes are too large by the factor of slope_in and by WHOLE; all others also by the factor of the votes.
    slopes: (programs,n_below,2,WIDTH,P), room for the parts of gradients; slope_in: (C,S) of the scores
    d_values: (V - first_trained,); scales: (3,) of fixed-point numbers: weights, votes, values
    """
    reading, grid = (values, place, spot, offset, row, column, stretch), (width, stride, extent_h, extent_w)
    weights, trees = (weight, bias, votes, fine_votes), (slot, below, is_open, after)
    # Each tile has room for what the tops of pieces carry (slots,P), 1 / mass of the tree (P,), and the parts of the
    # gradient of the tree's sums.
    per_tile, per_slope = (n_slots + 1) * P, WIDTH * P
    rooms += tl.program_id(0).to(tl.int64) * n_below * per_tile
    slopes += tl.program_id(0).to(tl.int64) * n_below * (2 * per_slope)
    lane, exit, ballot = tl.arange(0, P), tl.arange(0, EXITS), tl.arange(0, WIDTH)
    # Offsets within a tile's room are the same for all tiles, so they are computed once.
    at_slope, at_exit = ballot[None, :] * P + lane[:, None], exit[:, None] * P
    is_row = (ballot < n_classes + (1 if NORMALISED else 0))[None, :]
    all_values = d_values - first_trained  # indexed by the places of `values`
    weight_scale, vote_scale, value_scale = tl.load(scales), tl.load(scales + 1), tl.load(scales + 2)
    n_down, n_across = tl.cdiv(height, P // COLUMNS), tl.cdiv(width, COLUMNS)
    item = tl.program_id(0)
    while item < n_items:
        tree, across = item % n_trees, (item // n_trees) % n_across
        first_down = (item // n_trees) // n_across * n_below
        n_here = tl.minimum(n_below, n_down - first_down)

        tile = 0
        while tile < n_here:
            room = rooms + tile * per_tile
            i, k, pixel, is_inside = tile_pixels(first_down + tile, across, height, width, P)
            slope = tl.load(
                slope_in + ballot[:, None].to(tl.int64) * (height * width) + pixel[None, :],
                mask=(ballot < n_classes)[:, None] & is_inside[None, :], other=0.0,
            )  # fmt: skip
            if NORMALISED:
                total = tree_votes(
                    reading, weights, trees, room, tl.load(first + tree), tl.load(first + tree + 1), grid, i, k, leaf,
                    tolerance, unit, J, STRETCHED, KIND, DROPS, WHOLE, WIDTH, P,
                )  # fmt: skip
                slope, inverse = _normalised_slope(slope, total, n_classes, WIDTH, WHOLE)
                tl.store(room + n_slots * P + lane, inverse)
            tl.debug_barrier()
            slope, fine_slope = parts(tl.trans(slope), WHOLE)
            stored_slope = slopes + tile * (2 * per_slope) + at_slope
            tl.store(stored_slope, slope)
            tl.store(stored_slope + per_slope, fine_slope)
            tl.store(room + lane, tl.full((P,), 0.0 if KIND == TANH else WHOLE, tl.float32))
            tile += 1

        visit = tl.load(first_visit + tree)
        while visit < tl.load(first_visit + tree + 1):
            piece = tl.load(visited + visit)
            here, exits_from = tl.load(slot + piece) * P, tl.load(below + piece) * P
            at_split = piece * EXITS + exit
            n_active = 0
            tile = 0
            if tl.load(is_up + visit) > 0:
                # Loaded transposed: otherwise the compiler lays out the loads of values like these, of the same shape.
                at_votes = at_split[None, :] * WIDTH + ballot[:, None]
                coarse_votes = tl.trans(tl.load(votes + at_votes))
                finer_votes = tl.trans(tl.load(fine_votes + at_votes))
                is_open_here = tl.load(is_open + piece)
                d_votes_here = tl.zeros((EXITS, WIDTH), tl.float32)
                d_split = tl.zeros((EXITS, P), tl.float32)
                d_probe = tl.zeros((EXITS, P), tl.float32)
                i, k, _pixel, _is_inside = tile_pixels(first_down, across, height, width, P)
                value = first_probed(piece, reading, grid, i, k, J, STRETCHED)
                while tile < n_here:
                    room = rooms + tile * per_tile
                    i, k, _pixel, _is_inside = tile_pixels(first_down + tile, across, height, width, P)
                    top, some = arriving(room + here, tolerance, KIND, P)
                    # Requested long before it is needed, since memory is slow.
                    next_i, next_k, _pixel, _is_inside = tile_pixels(first_down + tile + 1, across, height, width, P)
                    next_value = first_probed(piece, reading, grid, next_i, next_k, J, STRETCHED)
                    if some > 0:
                        n_active += 1
                        z = split_inputs(weight, bias, value, piece, reading, grid, i, k, J, STRETCHED)
                        right, left = gates(z, leaf, KIND)
                        carry = descend(top, right, left, tolerance, KIND, DROPS, P)
                        active = leaf_activation(carry, leaf, KIND, WHOLE)
                        share = active
                        if NORMALISED:
                            share = active * tl.load(room + n_slots * P + lane)[None, :]
                        coarse, fine = parts(share, WHOLE)
                        stored_slope = slopes + tile * (2 * per_slope) + at_slope
                        slope = tl.load(stored_slope, mask=is_row, other=0.0)
                        fine_slope = tl.load(stored_slope + per_slope, mask=is_row, other=0.0)
                        d_votes_here += product(coarse, fine, slope, fine_slope, WHOLE) * unit  # see `tree_votes`
                        if KIND != HARD:
                            d_active = product(coarse_votes, finer_votes, tl.trans(slope), tl.trans(fine_slope), WHOLE)
                            below_here = (room + exits_from + lane)[None, :] + at_exit
                            # This load reads nothing, but it makes the compiler convert the product to the layout of
                            # pixels here, once, instead of using the layout of products for all that follows.
                            exits = share * tl.load(below_here, mask=n_trees < 0, other=d_active)
                            if KIND == TANH:
                                exits *= leaf - leaf / WHOLE * active
                            if is_open_here > 0:
                                is_end = (tl.load(opens + at_split) > 0)[:, None]
                                exits = tl.where(is_end, tl.load(below_here, mask=is_end, other=0.0), exits)
                            sum_right, sum_left, sum_top = _sums(exits, P)
                            tl.debug_barrier()  # all threads have read what the top carries
                            tl.store(room + here + lane, sum_top)
                            d_z = _split_slope(z, right, left, sum_right, sum_left, leaf, KIND)
                            d_split += d_z
                            for j in tl.static_range(J):
                                probe = (piece * J + j) * EXITS + exit
                                if J > 1 or NEEDS_VALUES:
                                    start = starts(place, piece, j, J)
                                    at = places(start, reading, grid, piece * J + j, i, k, STRETCHED)
                                if NEEDS_VALUES:  # pixels beyond the grid have a slope of 0
                                    d_value = tl.load(weight + probe)[:, None] * d_z
                                    trains = (start >= first_trained)[:, None]
                                    _add(all_values + at, d_value, value_scale, trains, FIXED_POINT)
                                if j == 0:
                                    d_probe += d_z * value
                                else:
                                    more = tl.load(values + at, mask=(start >= 0)[:, None], other=0.0)
                                    _add(
                                        d_weight + probe, tl.sum(d_z * more, axis=1), weight_scale,
                                        tl.load(split + at_split) >= 0, FIXED_POINT,
                                    )  # fmt: skip
                    else:
                        tl.store(room + here + lane, tl.zeros((P,), tl.float32))
                    value = next_value
                    tile += 1
                if n_active > 0:
                    is_vote = (tl.load(leaves + at_split) >= 0)[:, None] & (ballot < n_classes)[None, :]
                    at_sums = at_split[:, None] * WIDTH + ballot[None, :]
                    _add(d_votes + at_sums, d_votes_here, vote_scale, is_vote, FIXED_POINT)
                    if KIND != HARD:
                        is_split = tl.load(split + at_split) >= 0
                        _add(d_bias + at_split, tl.sum(d_split, axis=1), weight_scale, is_split, FIXED_POINT)
                        at_probe = d_weight + piece * (J * EXITS) + exit
                        _add(at_probe, tl.sum(d_probe, axis=1), weight_scale, is_split, FIXED_POINT)
                visit += 1
            else:
                while tile < n_here:
                    room = rooms + tile * per_tile
                    i, k, _pixel, _is_inside = tile_pixels(first_down + tile, across, height, width, P)
                    top, some = arriving(room + here, tolerance, KIND, P)
                    n_active += some
                    value = first_probed(piece, reading, grid, i, k, J, STRETCHED)
                    z = split_inputs(weight, bias, value, piece, reading, grid, i, k, J, STRETCHED)
                    right, left = gates(z, leaf, KIND)
                    tl.store(
                        (room + exits_from + lane)[None, :] + at_exit,
                        descend(top, right, left, tolerance, KIND, DROPS, P),
                    )
                    tile += 1
                if n_active > 0:
                    visit += 1
                else:  # nothing reaches this piece, so it passes up zeros
                    tile = 0
                    while tile < n_here:
                        tl.store(rooms + tile * per_tile + here + lane, tl.zeros((P,), tl.float32))
                        tile += 1
                    visit = tl.load(visit_after + visit)
        item += tl.num_programs(0)
