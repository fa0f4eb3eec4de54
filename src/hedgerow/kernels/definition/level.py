"""The network of one level as the paper defines it, in plain PyTorch: short, differentiable, for any dtype.

The kernels must agree with it in value and gradient. It stores arrays of size pixels x neurons, so `level_scores`
processes the pixels in blocks.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from hedgerow.kernels.constants import UNUSED
from hedgerow.kernels.definition.outputs import CANCELLED, SMALLEST_SUM
from hedgerow.kernels.wiring import Reads, Wiring, places

BLOCK_VALUES = 2**25  # limit on pixels x edges of one block
LARGEST_EXPONENT = 30.0  # trained connections may give a leaf an activation above 1, but not an infinite one


def split_input(values: Tensor, index: Tensor, split_weight: Tensor, split_bias: Tensor) -> Tensor:
    """z_H1 (N,S): the weighted probes, values[index] with index (N,J,S), plus the bias."""
    total = torch.zeros((), dtype=values.dtype, device=values.device)
    for j in range(index.shape[1]):  # in the forest's order, so that hard decisions are the same
        total = total + split_weight[:, j, None] * values[index[:, j]]
    return total + split_bias[:, None]


def split_activation(z: Tensor, split: str) -> tuple[Tensor, Tensor]:
    """The outputs of H1 for paths that go right and for paths that go left, (N,S) each; weights +-1 come later."""
    if split == "hard":
        side = torch.where(z >= 0, 1.0, -1.0).to(z.dtype)
        return side, side
    if split == "tanh":
        return torch.tanh(z), torch.tanh(z)
    if split == "soft":
        return functional.logsigmoid(z), functional.logsigmoid(-z)
    return -torch.relu(-z), -torch.relu(z)  # crelu


def leaf_input(right: Tensor, left: Tensor, wiring: Wiring, leaf_weight: Tensor, leaf_bias: Tensor) -> Tensor:
    """z_H2 (L,S): the sum over the splits of each leaf's path, leaf_weight (E,) on the edges, leaf_bias (L,).

    If fully connected, leaf_weight is (N,L), or (2N,L) if H1 has different outputs for right and left.
    """
    if leaf_weight.ndim == 2:
        both = right if len(leaf_weight) == len(right) else torch.cat([right, left])
        return leaf_weight.T @ both + leaf_bias[:, None]
    split, leaf, goes_right = (torch.as_tensor(a, device=right.device) for a in _edges(wiring))
    passed = torch.where(goes_right[:, None], right[split], left[split])
    start = leaf_bias[:, None].expand(-1, right.shape[1])
    return torch.index_add(start, 0, leaf, leaf_weight[:, None] * passed)


def leaf_activation(z: Tensor, wiring: Wiring, activation: str) -> Tensor:
    """a_H2 (L,S): sigmoid, exponential, step, or softmax over the leaves of each tree."""
    if activation == "sigmoid":
        return torch.sigmoid(z)
    if activation == "step":
        return (z > 0).to(z.dtype)
    if activation == "exp":
        return torch.exp(z.clamp(max=LARGEST_EXPONENT))
    tree = torch.as_tensor(wiring.leaf_tree, device=z.device)
    zeros = torch.zeros((wiring.n_trees, z.shape[1]), dtype=z.dtype, device=z.device)
    highest = torch.scatter_reduce(zeros - torch.inf, 0, tree[:, None].expand(z.shape), z.detach(), "amax")
    grown = torch.exp(z - highest[tree])
    return grown / torch.index_add(zeros, 0, tree, grown)[tree]


def level_scores(
    values: Tensor,
    reads: Reads,
    wiring: Wiring,
    split_weight: Tensor,
    split_bias: Tensor,
    leaf_weight: Tensor,
    leaf_bias: Tensor,
    vote_weight: Tensor,
    split: str,
    activation: str,
) -> Tensor:
    """Scores (C,S) of the pixels of a grid, before normalisation or softmax: sum_l a_H2(l) w_H2(l),c.

    values: (V,) flat planes; split_weight (N,J), split_bias (N,), leaf_weight (E,), leaf_bias (L,), vote_weight (L,C)
    """
    reads.check_split(split)

    def block(index: Tensor, *tensors: Tensor) -> Tensor:
        *weights, votes = tensors
        return votes.T @ leaf_activation(_leaf_input(index, wiring, split, *weights), wiring, activation)

    return _by_blocks(block, reads, wiring, values, split_weight, split_bias, leaf_weight, leaf_bias, vote_weight)


def leaf_entropy(
    values: Tensor, reads: Reads, wiring: Wiring, split_weight: Tensor, split_bias: Tensor, leaf_weight: Tensor,
    leaf_bias: Tensor,
) -> Tensor:  # fmt: skip
    """(1,S) entropy of leaf membership of fuzzy trees, -sum_l p(l) log p(l), summed over the trees."""

    def block(index: Tensor, *weights: Tensor) -> Tensor:
        log_membership = _leaf_input(index, wiring, "soft", *weights)
        return -(torch.exp(log_membership) * log_membership).sum(dim=0, keepdim=True)

    return _by_blocks(block, reads, wiring, values, split_weight, split_bias, leaf_weight, leaf_bias)


def _leaf_input(
    index: Tensor, wiring: Wiring, split: str, values: Tensor, split_weight: Tensor, split_bias: Tensor,
    leaf_weight: Tensor, leaf_bias: Tensor,
) -> Tensor:  # fmt: skip
    """z_H2 (L,S) of the pixels whose probes read at index (N,J,S); unused probes have a split_weight of 0."""
    z = split_input(values, index, split_weight, split_bias)
    return leaf_input(*split_activation(z, split), wiring, leaf_weight, leaf_bias)


def _by_blocks(
    block: Callable[..., Tensor], reads: Reads, wiring: Wiring, values: Tensor, split_weight: Tensor, *weights: Tensor
) -> Tensor:
    """block(index, values, split_weight, *weights) for all pixels of a grid, as many at a time as BLOCK_VALUES allows.

    The backward pass computes blocks again, so memory does not grow with the number of pixels.
    """
    # An unused probe reads some value, with a weight of 0.
    used = torch.as_tensor(reads.place != UNUSED, device=values.device)

    def at(first: int, last: int, values: Tensor, split_weight: Tensor, *weights: Tensor) -> Tensor:
        index = torch.as_tensor(places(reads, first, last), device=values.device)
        return block(index, values, torch.where(used, split_weight, 0), *weights)

    tensors, n_pixels = (values, split_weight, *weights), reads.n_pixels
    size = max(1, BLOCK_VALUES // max(len(wiring.edge_leaf), 1))
    if n_pixels <= size:
        return at(0, n_pixels, *tensors)
    ranges = [(first, min(first + size, n_pixels)) for first in range(0, n_pixels, size)]
    return torch.cat([checkpoint(at, *pair, *tensors, use_reentrant=False) for pair in ranges], dim=1)


def _edges(wiring: Wiring) -> tuple[np.ndarray, ...]:
    return wiring.edge_split, wiring.edge_leaf, wiring.edge_sign > 0


def normalise(scores: Tensor) -> Tensor:
    """Inner outputs H_3k, whose sum is one, from scores (C,...), with finite gradients; see `outputs.normalise`."""
    total = _sum_of_planes(scores)
    divisor = torch.maximum(total, CANCELLED * _sum_of_planes(scores.abs())).clamp(min=SMALLEST_SUM)
    return scores / divisor + (1 - total / divisor) / len(scores)


def softmax(scores: Tensor) -> Tensor:
    """Class probabilities from scores (C,...); a pixel's do not depend on where it lies in the array."""
    grown = torch.exp(scores - scores.amax(0))
    return grown / _sum_of_planes(grown)


def _sum_of_planes(planes: Tensor) -> Tensor:
    """The sum in order, as in the forest's kernels; the order of `sum` may depend on the place in the array."""
    total = planes[0]
    for plane in planes[1:]:
        total = total + plane
    return total


def mapped_edges(wiring: Wiring, split: str, sharpness: float) -> tuple[Tensor, Tensor]:
    """leaf_weight (E,) and leaf_bias (L,) of the mapped network: the tree as weights between H1 and H2."""
    sign = torch.as_tensor(wiring.edge_sign, dtype=torch.float32)
    if split in ("hard", "tanh"):
        length = torch.as_tensor(wiring.path_length, dtype=torch.float32)
        return sharpness * sign, -sharpness * (length - 1)
    return sharpness * torch.ones_like(sign), torch.zeros(wiring.n_leaves)
