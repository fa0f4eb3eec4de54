"""Walking hard forests on a GPU: each pixel takes one path down each tree, with the same decisions as on the CPU."""

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from hedgerow.kernels.constants import LEAF, NO_PLANE, UNUSED
from hedgerow.kernels.gpu.level_forward import ANYWHERE, VARIES, stretched_place
from hedgerow.kernels.wiring import Reads, Wiring

PIXELS = 128  # per program


@triton.jit(do_not_specialize=VARIES, do_not_specialize_on_alignment=ANYWHERE)
def _walk(
    values, place, spot, offset, row, column, stretch, weight, threshold, child, split_of, leaf_of, root, depth, out,
    size, width, stride, extent_h, extent_w, J: tl.constexpr, STRETCHED: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """Fill out (T,S) with the leaf that each pixel reaches; place, weight (N+1,J), spot (N+1,J,5), offset (N+1,J,2)."""
    tree, s = tl.program_id(1), tl.program_id(0) * P + tl.arange(0, P)
    is_inside = s < size
    s = tl.minimum(s, size - 1)
    node = tl.load(root + tree) + tl.zeros((P,), tl.int32)
    steps = tl.load(depth + tree)
    while steps > 0:
        split = tl.load(split_of + node)
        total = tl.zeros((P,), tl.float32)
        for j in tl.static_range(J):
            start = tl.load(place + split * J + j)
            used = start >= 0
            if STRETCHED:
                at, to = spot + (split * J + j) * 5, offset + (split * J + j) * 2
                where = start + stretched_place(
                    tl.load(row + s), tl.load(column + s), tl.load(stretch + s), tl.load(to), tl.load(to + 1),
                    tl.load(at), tl.load(at + 1), tl.load(at + 2), tl.load(at + 3), tl.load(at + 4),
                    extent_h, extent_w,
                )  # fmt: skip
            else:
                where = start + (s // width).to(start.dtype) * stride + s % width
            value = tl.load(values + where, mask=used, other=0.0)
            total += tl.load(weight + split * J + j) * value
        # A leaf is its own left child and its threshold is NaN, so a pixel stays there: no value is >= NaN.
        node = tl.load(child + node) + (total >= tl.load(threshold + node)).to(tl.int32)
        steps -= 1
    tl.store(out + tree.to(tl.int64) * size + s, tl.load(leaf_of + node), mask=is_inside)


def reached_leaves(
    values: Tensor, reads: Reads, wiring: Wiring, weight: np.ndarray, threshold: np.ndarray, depth: np.ndarray
) -> Tensor:
    """(T,S) int32: the H2 neuron that each pixel of the grid reaches in each tree.

    values: (V,) float32; weight: (N,J) of the splits; threshold: (nodes,); depth: (T,)
    """
    device = values.device
    whole = torch.int32 if values.numel() < 2**31 else torch.int64

    def put(array: np.ndarray, dtype: torch.dtype) -> Tensor:
        return torch.as_tensor(np.ascontiguousarray(array), device=device).to(dtype)

    n_splits, n_probes = reads.place.shape
    place = np.concatenate([reads.place, np.full((1, n_probes), UNUSED)])
    spot = offset = row = column = stretch = values
    if reads.is_stretched:
        planes = np.where((place == UNUSED)[..., None], NO_PLANE, reads.planes[place])
        place, spot = planes[..., 0], put(planes[..., 1:], whole)
        offset = put(np.concatenate([reads.offset, np.zeros((1, n_probes, 2))]), torch.float32)
        row, column = put(reads.row, whole), put(reads.column, whole)
        stretch = put(reads.stretch, torch.float32)
    nodes = np.arange(len(wiring.left_child))
    is_split = wiring.left_child != LEAF
    arguments = (
        put(place, whole), spot, offset, row, column, stretch,
        put(np.concatenate([weight, np.zeros((1, n_probes))]), torch.float32),
        put(np.where(is_split, threshold, np.nan), torch.float32),
        put(np.where(is_split, wiring.left_child, nodes), torch.int32),
        put(np.where(is_split, wiring.split_of, n_splits), torch.int32),
        put(np.where(is_split, 0, wiring.leaf_of), torch.int32),
        put(wiring.root, torch.int32), put(depth, torch.int32),
    )  # fmt: skip
    n_slices, height, width = reads.size
    slices = []
    for z in range(n_slices):
        slices.append(torch.empty((wiring.n_trees, height * width), dtype=torch.int32, device=device))
        _walk[(triton.cdiv(height * width, PIXELS), wiring.n_trees)](
            values[reads.slice_start(z) :], *arguments, slices[z], height * width, width, reads.stride, *reads.extent,
            J=n_probes, STRETCHED=reads.is_stretched, P=PIXELS, enable_fp_fusion=False,
        )  # fmt: skip
    return slices[0] if n_slices == 1 else torch.cat(slices, dim=1)
