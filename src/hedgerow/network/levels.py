"""`LevelNet`: one forest as a network of two hidden layers."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hedgerow.config import Sharpness
from hedgerow.errors import ConfigError
from hedgerow.forest.arrays import Forest
from hedgerow.kernels.backends import backend_for
from hedgerow.kernels.definition import level as definition
from hedgerow.kernels.wiring import Reads, Wiring, wire
from hedgerow.network.layout import Grid, Source, lay_out

SPLITS = ("hard", "tanh", "soft", "crelu")
ACTIVATIONS = {"hard": ("step",), "tanh": ("sigmoid",), "soft": ("exp", "softmax"), "crelu": ("softmax",)}
CONNECTIONS = ("frozen", "sparse", "full")
FULL_LIMIT = 2**26  # limit on the weights between H1 and H2 of a fully connected level


@dataclass(frozen=True)
class Layer:
    """A summary of one layer: its name in the paper, what its neurons are, how many, and how many incoming weights."""

    name: str
    about: str
    neurons: int
    weights: int


class LevelNet(nn.Module):
    """One forest as a network: splits, leaves, votes.

    split_weight: (N,J) probe weights times alpha_1; split_bias: (N,) -alpha_1 theta; vote_weight: (L,C) alpha_3 votes
    leaf_weight:  between H1 and H2: (E,) on the edges of the tree, or (N,L) (soft and crelu: (2N,L)) fully connected
    leaf_bias:    (L,)
    The last two train only if `connections` is "sparse" or "full".
    """

    def __init__(
        self,
        forest: Forest,
        n_features: int,
        split: str,
        activation: str,
        sharpness: Sharpness | None,
        connections: str,
    ) -> None:
        """sharpness: None for a forest of soft splits, which has its own."""
        super().__init__()
        self.forest, self.n_features, self.wiring = forest, n_features, wire(forest.root, forest.left_child)
        splits, leaves = self.wiring.node_split, forest.leaf_index[self.wiring.node_leaf]
        self.is_own = sharpness is None
        if sharpness is None:
            assert forest.sharpness is not None
            # For information and for learning rates; the splits use the forest's own.
            middle = float(np.median(forest.sharpness[splits])) if len(splits) else 1.0
            sharpness = Sharpness(min(max(middle, 1e-6), 1e6), 1.0, 1.0)
        self.split, self.activation, self.sharpness, self.connections = split, activation, sharpness, connections
        self.tolerance = 0.0
        weight, bias = self.mapped_splits()
        self.split_weight, self.split_bias = (
            nn.Parameter(torch.from_numpy(weight)),
            nn.Parameter(torch.from_numpy(bias)),
        )
        self.vote_weight = nn.Parameter(sharpness.vote * torch.from_numpy(forest.votes[leaves]))
        edges, offsets = definition.mapped_edges(self.wiring, split, sharpness.leaf)
        if connections == "full":
            edges = _dense(edges, self.wiring, paired=split in ("soft", "crelu"))
        trains = connections != "frozen"
        self.leaf_weight = nn.Parameter(edges, requires_grad=trains)
        self.leaf_bias = nn.Parameter(offsets, requires_grad=trains)

    def mapped_splits(self) -> tuple[np.ndarray, np.ndarray]:
        """split_weight (N,J) and split_bias (N,) before any training: alpha_1 w and -alpha_1 theta."""
        splits = self.wiring.node_split
        if self.is_own:
            assert self.forest.sharpness is not None
            alpha = self.forest.sharpness[splits]
        else:
            alpha = _split_sharpness(self.forest, splits, self.n_features, self.sharpness)
        return alpha[:, None] * self.forest.weight[splits], -alpha * self.forest.threshold[splits]

    def forward(self, source: Source, grid: Grid, leaf_sum: bool = False) -> Tensor:
        """Scores (C,Z,h,w) on a grid, before normalisation or softmax; with `leaf_sum`, also sum_l a_H2(l)."""
        values, reads = lay_out(self.forest, self.wiring, source, grid)
        votes: Tensor = self.vote_weight
        if leaf_sum:
            votes = torch.cat([votes, votes.new_ones(len(votes), 1)], dim=1)
        return self._scores(values, reads, votes).reshape(votes.shape[1], *grid.size)

    def _scores(self, values: Tensor, reads: Reads, votes: Tensor) -> Tensor:
        if self.is_fused(values):
            fused: Tensor = self._kernels(values).level_scores(*self._given(values, reads, votes))
            return fused
        given = values, reads, self.wiring, self.split_weight, self.split_bias, self.leaf_weight, self.leaf_bias
        return definition.level_scores(*given, votes, self.split, self.activation)

    def _kernels(self, values: Tensor) -> ModuleType:
        return import_module(f"hedgerow.kernels.{backend_for(values.device.type).name}.level")

    def _given(self, values: Tensor, reads: Reads, votes: Tensor) -> tuple[Any, ...]:
        """The arguments of the fused kernels."""
        weights, kinds = (self.split_weight, self.split_bias, votes), (self.split, self.activation)
        return values, reads, self.wiring, *weights, *kinds, self.sharpness.leaf, self.tolerance

    def tree_scores(self, source: Source, grid: Grid) -> Iterator[Tensor]:
        """Scores (C,Z,h,w) of each tree by itself, without gradients; their sum is `forward`."""
        values, reads = lay_out(self.forest, self.wiring, source, grid)
        votes = self.vote_weight.detach()
        if self.is_fused(values):
            trees = self._kernels(values).tree_scores(*self._given(values, reads, votes))
        else:
            of_tree = torch.as_tensor(self.wiring.leaf_tree, device=values.device)[:, None]
            masked = (torch.where(of_tree == tree, votes, 0) for tree in range(self.wiring.n_trees))
            trees = (self._scores(values, reads, its_own) for its_own in masked)
        for scores in trees:
            yield scores.detach().reshape(-1, *grid.size)

    def relax(self, factor: float) -> None:
        """Soften the splits: multiply their weights and biases, and with them the sharpness, by a factor."""
        with torch.no_grad():
            self.split_weight.mul_(factor)
            self.split_bias.mul_(factor)
        self.sharpness = replace(self.sharpness, split=self.sharpness.split * factor)

    def is_fused(self, values: Tensor) -> bool:
        """Whether fused kernels apply: in float32, with the tree frozen, on a device that has them."""
        has_kernels = backend_for(values.device.type).name != "definition"
        return self.connections == "frozen" and has_kernels and values.dtype == torch.float32

    def layers(self, number: int) -> list[Layer]:
        """H_{3k-2} and H_{3k-1}, and the level's output, for level k = `number`."""
        n_probes = int((self.forest.weight[self.wiring.node_split] != 0).sum())
        pair = 2 if self.split in ("soft", "crelu") else 1
        first, n_splits, n_leaves = 3 * number - 2, self.wiring.n_splits, self.wiring.n_leaves
        between = self.leaf_weight.numel()
        about = "splits, right and left" if pair == 2 else "splits"
        return [
            Layer(f"H{first}", about, pair * n_splits, n_probes + n_splits),
            Layer(f"H{first + 1}", "leaves", n_leaves, between + n_leaves),
            Layer(f"H{first + 2}", "level output", self.vote_weight.shape[1], self.vote_weight.numel()),
        ]


def _split_sharpness(forest: Forest, splits: np.ndarray, n_features: int, sharpness: Sharpness) -> np.ndarray:
    """(N,) alpha_1 of each split.

    A forest tells a probability of 0 from one of 0.002, and relies on it; with one sharpness for all, such a split
    would be undecided. So near 0 and 1 the scale is the threshold's own distance from them.
    """
    reads_before = ((forest.channel[splits] >= n_features) | (forest.weight[splits] == 0)).all(axis=1)
    threshold = forest.threshold[splits]
    distance = np.maximum(np.minimum(np.abs(threshold), np.abs(1 - threshold)), 1e-3)
    factor = np.where(reads_before, np.maximum(1, sharpness.proba / distance), 1)
    return (sharpness.split * factor).astype(np.float32)


def _dense(weight: Tensor, wiring: Wiring, paired: bool) -> Tensor:
    """(N,L) or (2N,L): the tree's edges in a matrix of zeros; if paired, right sides first, then left sides."""
    n, n_leaves = wiring.n_splits, wiring.n_leaves
    if (1 + paired) * n * n_leaves > FULL_LIMIT:
        raise ConfigError(
            f"a fully connected level of {n:,} splits and {n_leaves:,} leaves has too many weights; "
            "use fewer or shallower trees, or connections='sparse'."
        )
    dense = torch.zeros((1 + paired) * n, n_leaves)
    row = wiring.edge_split + (n * (wiring.edge_sign < 0) if paired else 0)
    dense[torch.from_numpy(row), torch.from_numpy(wiring.edge_leaf)] = weight
    return dense
