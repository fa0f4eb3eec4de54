"""`StackNet`: a stack of forests as the deep ConvNet that computes the same; `soft_levels` runs it.

Each level is a `LevelNet` of two hidden layers: H_{3k-2}, one neuron per split, and H_{3k-1}, one neuron per leaf. The
outputs of inner levels, H_{3k}, are normalised and become inputs of the next level, together with the features.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hedgerow.config import Sharpness
from hedgerow.errors import ConfigError
from hedgerow.features.protocol import FeatureSet
from hedgerow.forest.arrays import Forest, ForestStack
from hedgerow.forest.history import Known, Refinement
from hedgerow.forest.level_input import LevelInput
from hedgerow.images.array_checks import as_volumes
from hedgerow.images.legend import Legend
from hedgerow.images.regions import Region
from hedgerow.kernels.backends import backend_for
from hedgerow.kernels.definition import level as definition
from hedgerow.kernels.wiring import Reads, Wiring, wire
from hedgerow.model_methods import ModelMethods
from hedgerow.network.layout import Grid, Source, lay_out, region_grid

SPLITS = ("hard", "tanh", "soft", "crelu")
ACTIVATIONS = {"hard": ("step",), "tanh": ("sigmoid",), "soft": ("exp", "softmax"), "crelu": ("softmax",)}
CONNECTIONS = ("frozen", "sparse", "full")
MAX_DENSE_WEIGHTS = 2**26  # limit on weights between H1 and H2 of a fully connected level


@dataclass(frozen=True)
class Layer:
    """A summary of one layer: its name in the paper, what its neurons are, and the numbers of neurons and weights."""

    name: str
    about: str
    neurons: int
    weights: int


class LevelNet(nn.Module):
    """One forest as a network: splits, leaves, votes.

    split_weight: (N,J) probe weights times alpha_1; split_bias: (N,) -alpha_1 theta; vote_weight: (L,C) alpha_3 votes
    leaf_weight:  between H1 and H2: (E,) on the edges of the tree; if fully connected, (N,L), or (2N,L) for soft and
                  crelu; leaf_bias: (L,). These two train only if `connections` is "sparse" or "full"
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
        """sharpness: None: the forest's own, if its splits are soft"""
        super().__init__()
        self.forest, self.n_features, self.wiring = forest, n_features, wire(forest.root, forest.left_child)
        splits, leaves = self.wiring.node_split, forest.leaf_index[self.wiring.node_leaf]
        self.is_own = sharpness is None
        if sharpness is None:
            assert forest.sharpness is not None
            # Only for display and for learning rates; the splits use the forest's own sharpness.
            middle = float(np.median(forest.sharpness[splits])) if len(splits) else 1.0
            sharpness = Sharpness(min(max(middle, 1e-6), 1e6), 1.0, 1.0)
        self.split, self.activation, self.sharpness, self.connections = split, activation, sharpness, connections
        self.tolerance = 0.0
        self.split_weight, self.split_bias = (nn.Parameter(torch.from_numpy(array)) for array in self.mapped_splits())
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

    def forward(self, source: Source, grid: Grid, with_spread: bool = False) -> Tensor:
        """Scores (C,Z,h,w) on a grid, before normalisation or softmax.

        with_spread: append a plane that tells how many leaves are active: sum_l a_H2(l), or for soft splits, where that
                     is the number of trees, the entropy of leaf membership, summed over the trees
        """
        values, reads = lay_out(self.forest, self.wiring, source, grid)
        votes: Tensor = self.vote_weight
        if with_spread and self.split != "soft":
            votes = torch.cat([votes, votes.new_ones(len(votes), 1)], dim=1)
        scores = self._scores(values, reads, votes)
        if with_spread and self.split == "soft":
            weights = self.split_weight, self.split_bias, self.leaf_weight, self.leaf_bias
            scores = torch.cat([scores, definition.leaf_entropy(values, reads, self.wiring, *weights)])
        return scores.reshape(-1, *grid.size)

    def _scores(self, values: Tensor, reads: Reads, votes: Tensor) -> Tensor:
        if self.is_fused(values):
            return self._kernels(values).level_scores(*self._kernel_arguments(values, reads, votes))
        weights = self.split_weight, self.split_bias, self.leaf_weight, self.leaf_bias
        return definition.level_scores(values, reads, self.wiring, *weights, votes, self.split, self.activation)

    def _kernels(self, values: Tensor) -> ModuleType:
        return import_module(f"hedgerow.kernels.{backend_for(values.device.type).name}.level")

    def _kernel_arguments(self, values: Tensor, reads: Reads, votes: Tensor) -> tuple[Any, ...]:
        weights, kinds = (self.split_weight, self.split_bias, votes), (self.split, self.activation)
        return values, reads, self.wiring, *weights, *kinds, self.sharpness.leaf, self.tolerance

    def tree_scores(self, source: Source, grid: Grid) -> Iterator[Tensor]:
        """Scores (C,Z,h,w) of each tree, without gradients; their sum is that of `forward`."""
        values, reads = lay_out(self.forest, self.wiring, source, grid)
        votes = self.vote_weight.detach()
        if self.is_fused(values):
            trees = self._kernels(values).tree_scores(*self._kernel_arguments(values, reads, votes))
        else:
            of_tree = torch.as_tensor(self.wiring.leaf_tree, device=values.device)[:, None]
            masked = (torch.where(of_tree == tree, votes, 0) for tree in range(self.wiring.n_trees))
            trees = (self._scores(values, reads, its_own) for its_own in masked)
        for scores in trees:
            yield scores.detach().reshape(-1, *grid.size)

    def relax(self, factor: float) -> None:
        """Soften the splits: multiply their weights, biases and sharpness by a factor."""
        with torch.no_grad():
            self.split_weight.mul_(factor)
            self.split_bias.mul_(factor)
        self.sharpness = replace(self.sharpness, split=self.sharpness.split * factor)

    def is_fused(self, values: Tensor) -> bool:
        """Whether fused kernels can be used: in float32, with frozen trees, on a device that has them."""
        has_kernels = backend_for(values.device.type).name != "definition"
        return self.connections == "frozen" and has_kernels and values.dtype == torch.float32

    def layers(self, number: int) -> list[Layer]:
        """H_{3k-2}, H_{3k-1} and the output of level k = `number`."""
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


class FromStack(ModelMethods):
    """A model that has the classes of a stack of forests."""

    stack: ForestStack

    @property
    def classes(self) -> tuple[int, ...]:
        return self.stack.classes

    @property
    def unlabelled(self) -> int:
        return self.stack.unlabelled

    @property
    def image_dtype(self) -> str:
        return self.stack.image_dtype

    @property
    def legend(self) -> Legend:
        return self.stack.legend

    @property
    def known(self) -> Known:
        return self.stack.known

    @property
    def n_classes(self) -> int:
        return self.stack.n_classes


class StackNet(FromStack, nn.Module):  # type: ignore[misc]  # in this order, so that `to` is that of `ModelMethods`
    """The network of a stack of forests, with 3K-1 hidden layers.

    stack:       the forests that it was mapped from
    output:      the function after the last level's scores: "softmax", or "normalise" as after the inner levels
    settings:    how the forests were made, for display
    refinements: past ones, in order
    relaxed:     whether its splits have been softened for training, which is done once
    tuned:       the features that it reads, if their encoder was refined with it; None: those of its forests
    walked:      whether levels of soft splits predict by walking, which is faster; false for networks of 0.1.0, so that
                 they predict the same bits as then

    >>> images, labels = hr.synthetic.somites(n_images=2, size=(40, 48))
    >>> stack = hr.fit_stack(images, labels, hr.StackConfig(n_levels=1, n_trees=2))
    >>> net = hr.to_convnet(stack)
    >>> [layer.about for layer in net.layers()]
    ['splits, right and left', 'leaves', 'classes, softmax']
    """

    def __init__(self, stack: ForestStack, levels: Sequence[LevelNet], output: str) -> None:
        super().__init__()
        self.stack, self.output = stack, output
        self.levels = nn.ModuleList(levels)
        self.settings: dict[str, Any] = dict(stack.settings)
        self.refinements: tuple[Refinement, ...] = stack.refinements
        self.relaxed = stack.relaxed
        self.tuned: FeatureSet | None = None
        self.walked = True

    def __repr__(self) -> str:
        """One line; `layers()` lists the layers."""
        n_weights = sum(parameter.numel() for parameter in self.parameters())
        parts = [f"{self.split} splits", f"{self.n_levels} level{'s' * (self.n_levels != 1)}", f"{n_weights:,} weights"]
        parts.append(f"{self.n_classes} classes")
        if self.refinements:
            parts.append(f"refined for {self.refinements[-1].checks[-1].step:,} steps")
        return f"StackNet({', '.join(parts)})"

    @property
    def features(self) -> FeatureSet:
        return self.stack.features if self.tuned is None else self.tuned

    @property
    def n_levels(self) -> int:
        return self.stack.n_levels

    @property
    def receptive_field(self) -> int:
        return self.stack.receptive_field

    def level_reach(self, level: int) -> int:
        """How far from a pixel this level reads its channels, in rows and columns."""
        return self.stack.level_reach(level)

    def level_reach_z(self, level: int) -> int:
        """How far from a pixel this level reads its channels, in slices."""
        return self.stack.level_reach_z(level)

    @property
    def split(self) -> str:
        return self.level(0).split

    def level(self, number: int) -> LevelNet:
        net = self.levels[number]
        assert isinstance(net, LevelNet)
        return net

    @property
    def device(self) -> torch.device:
        return self.level(0).vote_weight.device

    def set_tolerance(self, tolerance: float) -> None:
        """Leave out branches that carry at most this much at a pixel (with fused kernels; soft, crelu); 0: none."""
        if not 0 <= tolerance < 1:
            raise ConfigError(f"the tolerance is {tolerance}; it must be at least 0 and less than 1.")
        for number in range(self.n_levels):
            self.level(number).tolerance = tolerance

    def relax(self, factor: float) -> None:
        """Soften the splits of all levels."""
        for number in range(self.n_levels):
            self.level(number).relax(factor)
        self.relaxed = True

    def layers(self) -> list[Layer]:
        """The 3K-1 hidden layers and the output layer, in order."""
        layers = [layer for number in range(self.n_levels) for layer in self.level(number).layers(number + 1)]
        last = layers[-1]
        return [*layers[:-1], Layer("output", f"classes, {self.output}", last.neurons, last.weights)]

    def source(self, planes: np.ndarray) -> Source:
        """The input of the first level for an image (C,H,W) float32."""
        features = torch.from_numpy(as_volumes(self.features.compute(planes))).to(self.device)
        return Source(features, stretch=self.features.stretch(planes), outside=self.features.outside(self.n_classes))

    def grids(self, extent: tuple[int, ...], last: Grid) -> list[Grid]:
        """The grids on which to compute the levels so that the last one is known on `last`; extent: of the image"""
        grids, whole = [last], Region.whole(extent)
        for number in range(self.n_levels - 1, 0, -1):
            reach = self.level_reach(number)
            grids.insert(0, grids[0].grown((self.level_reach_z(number), reach, reach), whole))
        return grids

    def forward(self, source: Source, grids: Sequence[Grid], leaf_spread: list[Tensor] | None = None) -> list[Tensor]:
        """Outputs (C,Z,h,w) of the levels on their grids: inner ones are normalised, those of the last are scores.

        leaf_spread: a list to which each level's plane (Z,h,w) is appended: how widely its leaves fire
        """
        outputs: list[Tensor] = []
        for number, grid in enumerate(grids):
            if outputs:
                source = Source(source.features, outputs[-1], grids[number - 1], source.stretch, source.outside)
            scores = self.level(number)(source, grid, leaf_spread is not None)
            if leaf_spread is not None:
                leaf_spread.append(scores[-1])
                scores = scores[:-1]
            outputs.append(scores if number + 1 == self.n_levels else definition.normalise(scores))
        return outputs

    def region_source(self, level_input: LevelInput) -> Source:
        """The input of a level as tensors."""
        n_features, device = self.features.n_features, self.device
        planes = torch.from_numpy(np.stack(list(level_input.channels[:n_features]))).to(device)
        before, known = None, None
        if len(level_input.channels) > n_features:
            before = torch.from_numpy(np.stack(list(level_input.channels[n_features:]))).to(device)
            known = region_grid(Region.whole(level_input.size))
        return Source(planes, before, known, level_input.stretch, level_input.outside)


def _split_sharpness(forest: Forest, splits: np.ndarray, n_features: int, sharpness: Sharpness) -> np.ndarray:
    """(N,) alpha_1 of each split.

    A forest may rely on distinguishing a probability of 0 from one of 0.002. With the same sharpness for all, such a
    split would be undecided, so splits on probabilities are sharper the closer their threshold is to 0 or 1.
    """
    reads_before = ((forest.channel[splits] >= n_features) | (forest.weight[splits] == 0)).all(axis=1)
    threshold = forest.threshold[splits]
    distance = np.maximum(np.minimum(np.abs(threshold), np.abs(1 - threshold)), 1e-3)
    factor = np.where(reads_before, np.maximum(1, sharpness.proba / distance), 1)
    return (sharpness.split * factor).astype(np.float32)


def _dense(weight: Tensor, wiring: Wiring, paired: bool) -> Tensor:
    """(N,L) or (2N,L): the tree's edges in a matrix of zeros; if paired, right sides first, then left sides."""
    n, n_leaves = wiring.n_splits, wiring.n_leaves
    if (1 + paired) * n * n_leaves > MAX_DENSE_WEIGHTS:
        raise ConfigError(
            f"a fully connected level of {n:,} splits and {n_leaves:,} leaves has too many weights; use fewer or "
            "shallower trees, or connections='sparse'."
        )
    dense = torch.zeros((1 + paired) * n, n_leaves)
    row = wiring.edge_split + (n * (wiring.edge_sign < 0) if paired else 0)
    dense[torch.from_numpy(row), torch.from_numpy(wiring.edge_leaf)] = weight
    return dense
