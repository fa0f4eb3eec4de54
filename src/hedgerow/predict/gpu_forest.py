"""Forests on a CUDA device: `forest.walk` with PyTorch and Triton, and with the same decisions as on the CPU."""

import numpy as np
import torch

from hedgerow.forest.arrays import Forest, ForestStack
from hedgerow.forest.level_input import LevelInput
from hedgerow.forest.walk import soft_weights
from hedgerow.images.regions import Region
from hedgerow.kernels.cpu import walk as walk_kernels
from hedgerow.kernels.weak_cache import WeakCache
from hedgerow.kernels.wiring import Wiring, wire
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
        if forest.sharpness is None:
            summed = _hard(forest, wiring, source, inner)
        else:
            summed = _soft(forest, wiring, source, inner, tolerance)
        total = np.ascontiguousarray(summed.cpu().numpy())
    # On the CPU, with the code of its forests: the next level's decisions depend on these numbers.
    out = np.empty((forest.n_classes, *inner.shape), np.float32)
    walk_kernels.finish(total, is_softmax, out.reshape(forest.n_classes, -1, inner.width))
    return out


def _hard(forest: Forest, wiring: Wiring, source: Source, inner: Region) -> torch.Tensor:
    """Summed votes (S,C), added tree by tree as on the CPU."""
    from hedgerow.kernels.gpu.walk import reached_leaves  # needs Triton

    values, reads = lay_out(forest, wiring, source, region_grid(inner))
    leaves = reached_leaves(
        values, reads, wiring, forest.weight[wiring.node_split], forest.threshold, forest.tree_depths
    ).long()
    votes = torch.from_numpy(forest.votes[forest.leaf_index[wiring.node_leaf]]).to(values.device)
    total = votes[leaves[0]]
    for leaf in leaves[1:]:
        total += votes[leaf]
    return total


def _soft(forest: Forest, wiring: Wiring, source: Source, inner: Region, tolerance: float) -> torch.Tensor:
    """Scores (S,C) of the network that equals the soft splits."""
    from hedgerow.kernels.gpu.level import level_scores  # needs Triton

    values, reads = lay_out(forest, wiring, source, region_grid(inner))
    weight, bias, votes = (torch.from_numpy(array).to(values.device) for array in soft_weights(forest, wiring))
    scores: torch.Tensor = level_scores(values, reads, wiring, weight, bias, votes, "soft", "exp", 1.0, tolerance)
    return scores.T
