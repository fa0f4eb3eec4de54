"""Forests on a CUDA device: `forest.walk` with PyTorch and Triton, with the same decisions as on the CPU."""

import numpy as np
import torch
from torch import Tensor

from hedgerow.forest.arrays import Forest, ForestStack
from hedgerow.forest.level_input import LevelInput
from hedgerow.forest.walk import soft_weights
from hedgerow.kernels.cpu import walk as walk_kernels
from hedgerow.kernels.weak_cache import WeakCache
from hedgerow.kernels.wiring import Reads, Wiring, wire
from hedgerow.network.layout import Source, lay_out, region_grid

_WIRINGS = WeakCache()


def run_level(stack: ForestStack, level: int, level_input: LevelInput) -> np.ndarray:
    """(C,Z,h,w) float32 output of one level, like `walk.run_level`, on the stack's device."""
    return run_forest(stack.levels[level], level_input, stack.is_softmax(level), stack.tolerance, stack.device)


def run_forest(forest: Forest, level_input: LevelInput, is_softmax: bool, tolerance: float, device: str) -> np.ndarray:
    """Class probabilities (C,Z,h,w) float32, like `walk.run_forest`."""
    inner = level_input.region
    wiring = _WIRINGS.get(forest, None, lambda: wire(forest.root, forest.left_child))
    channels = torch.from_numpy(np.stack(list(level_input.channels))).to(device)
    source = Source(channels, stretch=level_input.stretch, outside=level_input.outside)
    with torch.no_grad():
        values, reads = lay_out(forest, wiring, source, region_grid(inner))
        if forest.sharpness is None:
            summed = _hard(forest, wiring, values, reads)
        else:
            summed = _soft(forest, wiring, values, reads, tolerance)
        total = np.ascontiguousarray(summed.cpu().numpy())
    # On the CPU, with the code of its forests, since the decisions of the next level depend on these numbers.
    out = np.empty((forest.n_classes, *inner.shape), np.float32)
    walk_kernels.finish(total, is_softmax, out.reshape(forest.n_classes, -1, inner.width))
    return out


def _hard(forest: Forest, wiring: Wiring, values: Tensor, reads: Reads) -> Tensor:
    """Summed votes (S,C), added tree by tree as on the CPU."""
    from hedgerow.kernels.gpu.walk import reached_leaves  # needs Triton

    weight = forest.weight[wiring.node_split]
    leaves = reached_leaves(values, reads, wiring, weight, forest.threshold, forest.tree_depths).long()
    votes = torch.from_numpy(forest.votes[forest.leaf_index[wiring.node_leaf]]).to(values.device)
    total = votes[leaves[0]]
    for leaf in leaves[1:]:
        total += votes[leaf]
    return total


def _soft(forest: Forest, wiring: Wiring, values: Tensor, reads: Reads, tolerance: float) -> Tensor:
    """Scores (S,C) of the network that equals the soft splits."""
    from hedgerow.kernels.gpu.level import level_scores  # needs Triton

    weight, bias, votes = (torch.from_numpy(array).to(values.device) for array in soft_weights(forest, wiring))
    scores: Tensor = level_scores(values, reads, wiring, weight, bias, votes, "soft", "exp", 1.0, tolerance)
    return scores.T
