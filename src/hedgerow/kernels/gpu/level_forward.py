"""The network of one level on a GPU, forward: probe, split, leaf and vote over tiles of pixels; see `parts`."""

import triton
import triton.language as tl

from hedgerow.kernels.gpu.parts import ANYWHERE, COLUMNS, VARIES, tile_pixels, tree_votes


@triton.jit(do_not_specialize=VARIES, do_not_specialize_on_alignment=ANYWHERE)
def forward(
    values, place, spot, offset, row, column, stretch, weight, bias, votes, fine_votes, slot, below, is_open, after,
    first, rooms, out, height, width, stride, extent_h, extent_w, n_items, n_trees, n_groups, n_classes, n_slots,
    leaf, tolerance, unit,
    J: tl.constexpr, STRETCHED: tl.constexpr, KIND: tl.constexpr, DROPS: tl.constexpr, NORMALISED: tl.constexpr,
    WHOLE: tl.constexpr, WIDTH: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """out (groups,C,S): scores, trees shared out to groups. An item is one tile and one group of trees.

    Scores come out as many times too large as the votes are, times WHOLE; if NORMALISED, over WHOLE.
    """
    room = rooms + tl.program_id(0).to(tl.int64) * (n_slots + WIDTH) * P
    ballot, lane, per_group = tl.arange(0, WIDTH), tl.arange(0, P), n_trees // n_groups
    # The sum over the trees is kept in memory: in registers there are only the sums of one tree.
    sums = (room + n_slots * P + lane)[None, :] + ballot[:, None] * P
    n_across = tl.cdiv(width, COLUMNS)
    item = tl.program_id(0)
    while item < n_items:
        tile, group = item // n_groups, item % n_groups
        i, k, pixel, is_inside = tile_pixels(tile // n_across, tile % n_across, height, width, P)
        tree = group * per_group
        while tree < (group + 1) * per_group:
            total = tree_votes(
                values, place, spot, offset, row, column, stretch, weight, bias, votes, fine_votes, slot, below,
                is_open, after, room, tl.load(first + tree), tl.load(first + tree + 1), i, k, width, stride,
                extent_h, extent_w, leaf, tolerance, unit, J, STRETCHED, KIND, DROPS, WHOLE, WIDTH, P,
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
