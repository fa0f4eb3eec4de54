"""The network of one level on the CPU for PyTorch: the fused kernels, for frozen trees; see `definition.level`."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hedgerow.kernels.cpu.level_arguments import Weights
from hedgerow.kernels.cpu.level_work import LevelWork
from hedgerow.kernels.wiring import Reads, Wiring


def level_scores(
    values: Tensor,
    reads: Reads,
    wiring: Wiring,
    split_weight: Tensor,
    split_bias: Tensor,
    vote_weight: Tensor,
    split: str,
    activation: str,
    leaf_sharpness: float,
    tolerance: float = 0.0,
) -> Tensor:
    """Scores (C,S) of the pixels of a grid, before normalisation or softmax, with the tree as it is.

    values: (V,) float32 flat planes; split_weight (N,J), split_bias (N,), vote_weight (L,C), all float32
    leaf_sharpness: alpha_2; 1 for the fuzzy tree ("soft")
    tolerance: branches that carry at most this much at a pixel are left out there; 0: none
    """
    reads.check_split(split)
    work = LevelWork(reads, wiring, split, activation, leaf_sharpness, tolerance)
    return _LevelScores.apply(values, split_weight, split_bias, vote_weight, work)


def tree_scores(values: Tensor, reads: Reads, wiring: Wiring, *arguments: Any) -> Iterator[Tensor]:
    """Scores (C,S) of each tree, without gradients; arguments as in `level_scores`."""
    reads = replace(reads, features_train=False)
    sparse, weights = LevelWork(reads, wiring, *arguments[3:]).sparse, Weights(*map(_array, arguments[:3]))
    if sparse is not None:
        yield from (torch.from_numpy(each).flatten(1) for each in sparse.tree_scores(_array(values), weights))
        return
    for root in np.split(wiring.root, wiring.n_trees):
        yield level_scores(values.detach(), reads, replace(wiring, root=root), *arguments).detach()


class _LevelScores(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, values: Tensor, weight: Tensor, bias: Tensor, votes: Tensor, work: LevelWork) -> Tensor:
        padded = work.padded(_array(values))
        context.save_for_backward(values, weight, bias, votes)
        context.work, context.padded = work, padded  # padded once for both passes
        scores = work.scores(padded, Weights(_array(weight), _array(bias), _array(votes)))
        return torch.from_numpy(scores).reshape(len(scores), -1)

    @staticmethod
    def backward(context: Any, *slopes: Tensor) -> Any:
        work: LevelWork = context.work
        # Read through autograd, which refuses weights that have changed since the forward pass.
        values_read, *weights = (_array(tensor) for tensor in context.saved_tensors)
        slope = _array(slopes[0]).reshape(-1, *work.size)
        needs_values = context.needs_input_grad[0]
        first_trained = work.first_trained if needs_values else values_read.size
        d_weights, read = work.gradients(context.padded, Weights(*weights), slope, first_trained)
        weight, bias, votes = (torch.from_numpy(total) for total in d_weights)
        values = None
        if needs_values:
            slope_of_values = np.zeros(values_read.size, np.float32)  # memory that is never written is not allocated
            slope_of_values[first_trained:] = read
            values = torch.from_numpy(slope_of_values)
        return values, weight, bias, votes, None


def _array(tensor: Tensor) -> np.ndarray:
    return np.ascontiguousarray(tensor.detach().numpy())
