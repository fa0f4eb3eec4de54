"""Forests on a CUDA device: what `context.run_forest` does, with PyTorch and Triton; decisions are the CPU's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from hedgerow.forest.arrays import Forest
from hedgerow.forest.soft_walk import soft_weights
from hedgerow.images.regions import Region
from hedgerow.kernels.keeping import Kept
from hedgerow.kernels.wiring import Wiring, wire
from hedgerow.network.layout import Source, lay_out, region_grid

_WIRINGS = Kept()


def run_forest(
    forest: Forest,
    channels: np.ndarray | Sequence[np.ndarray],
    inner: Region,
    reach: np.ndarray | None,
    outside: np.ndarray | None,
    is_softmax: bool,
    tolerance: float,
    device: str,
) -> np.ndarray:
    """Class probabilities (C,h,w) float32 of the `inner` region; arguments as in `context.run_forest`."""
    from hedgerow.kernels.cpu import walk as walk_kernels

    wiring = _WIRINGS.get(forest, None, lambda: wire(forest))
    source = Source(torch.from_numpy(np.stack(list(channels))).to(device), stretch=reach, outside=outside)
    with torch.no_grad():
        if forest.sharpness is None:
            summed = _hard(forest, wiring, source, inner)
        else:
            summed = _soft(forest, wiring, source, inner, tolerance)
        total = np.ascontiguousarray(summed.cpu().numpy())
    # On the CPU, by the code of the CPU's forests: the next level decides by these numbers.
    out = np.empty((forest.n_classes, inner.height, inner.width), np.float32)
    walk_kernels.finish(total, is_softmax, out)
    return out


def _hard(forest: Forest, wiring: Wiring, source: Source, inner: Region) -> torch.Tensor:
    """Summed votes (S,C), tree after tree as on the CPU."""
    from hedgerow.kernels.gpu.walk import reached_leaves

    values, reads = lay_out(forest, wiring, source, region_grid(inner))
    leaves = reached_leaves(
        values, reads, wiring, forest.weight[wiring.node_split], forest.threshold, forest.depth
    ).long()
    votes = torch.from_numpy(forest.votes[forest.leaf_index[wiring.node_leaf]]).to(values.device)
    total = votes[leaves[0]]
    for leaf in leaves[1:]:
        total += votes[leaf]
    return total


def _soft(forest: Forest, wiring: Wiring, source: Source, inner: Region, tolerance: float) -> torch.Tensor:
    """Scores (S,C) of the network that the soft splits are."""
    from hedgerow.kernels.gpu.level import level_scores

    values, reads = lay_out(forest, wiring, source, region_grid(inner))
    weight, bias, votes = (torch.from_numpy(array).to(values.device) for array in soft_weights(forest, wiring))
    return level_scores(values, reads, wiring, weight, bias, votes, "soft", "exp", 1.0, tolerance).T
