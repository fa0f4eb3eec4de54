"""One level of the network, computed by us, by its definition, and as one would write it in PyTorch.

Apart from `bench_net`, so that the other benchmarks' processes do not load PyTorch.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from hedgerow.features.channels import Channels
from hedgerow.features.protocol import unfitted
from hedgerow.forest.arrays import LEAF, Forest, ForestStack
from hedgerow.kernels.cpu import level as cpu_level
from hedgerow.kernels.definition import level as definition
from hedgerow.kernels.wiring import Reads, Wiring, wire
from hedgerow.network.layout import Grid, Source, lay_out


def full_forest(seed: int, n_trees: int, depth: int, n_channels: int, n_classes: int, reach: int) -> Forest:
    """Trees without early leaves: one probe at a random offset up to `reach`, random thresholds and votes."""
    rng = np.random.default_rng(seed)
    in_tree, roots = np.arange(2 ** (depth + 1) - 1), np.arange(n_trees) * (2 ** (depth + 1) - 1)
    is_split = np.tile(in_tree < 2**depth - 1, n_trees)
    n = len(is_split)
    return Forest(
        root=roots.astype(np.int32),
        left_child=np.where(is_split, np.add.outer(roots, 2 * in_tree + 1).ravel(), LEAF).astype(np.int32),
        threshold=np.where(is_split, rng.standard_normal(n) / 2, 0).astype(np.float32),
        channel=rng.integers(0, n_channels, (n, 1)).astype(np.int32),
        offset=np.pad(rng.integers(-reach, reach + 1, (n, 1, 2)), ((0, 0), (0, 0), (1, 0))).astype(np.float32),
        radius=np.zeros((n, 1), np.int32),
        weight=np.ones((n, 1), np.float32),
        leaf_index=np.where(is_split, LEAF, np.cumsum(~is_split) - 1).astype(np.int32),
        votes=rng.random((int((~is_split).sum()), n_classes)).astype(np.float32),
        n_channels=n_channels,
    )


def stack_of(forests: Sequence[Forest], n_features: int) -> ForestStack:
    """Forests that read the image's own channels."""
    features = Channels(n_features, **unfitted(n_features))
    return ForestStack(features, tuple(forests), tuple(range(forests[0].n_classes)))


@dataclass(frozen=True)
class Level:
    """What every contender is given: soft splits, exponential leaves.

    values: (V,) what the probes read, see `layout`; slope: (C,S) gradient of the scores that is sent back
    split_weight (N,1), split_bias (N,), vote_weight (L,C)
    """

    wiring: Wiring
    reads: Reads
    values: Tensor
    split_weight: Tensor
    split_bias: Tensor
    vote_weight: Tensor
    slope: Tensor

    @classmethod
    def of(cls, forest: Forest, source: Source, grid: Grid, sharpness: float) -> Level:
        wiring = wire(forest.root, forest.left_child)
        values, reads = lay_out(forest, wiring, source, grid)
        weight, threshold = forest.weight[wiring.node_split], forest.threshold[wiring.node_split]
        slope = np.random.default_rng(0).standard_normal((forest.n_classes, grid.height * grid.width))
        votes = forest.votes[forest.leaf_index[wiring.node_leaf]]
        parameters = (sharpness * weight, -sharpness * threshold, votes, slope)
        return cls(wiring, reads, values, *(torch.from_numpy(array).float() for array in parameters))

    def to(self, dtype: torch.dtype) -> Level:
        names = ("values", "split_weight", "split_bias", "vote_weight", "slope")
        return replace(self, **{name: getattr(self, name).to(dtype) for name in names})


class Contender(ABC):
    """Computes a level's scores (C,S) and the gradients of everything that trains, and of the level before's values.

    read: the values that get a gradient, or hold those that do
    """

    def __init__(self, level: Level, read: Tensor) -> None:
        self.level = level
        given = (read, level.split_weight, level.split_bias, level.vote_weight)
        self.read, self.split_weight, self.split_bias, self.vote_weight = (leaf(tensor) for tensor in given)

    @abstractmethod
    def forward(self) -> Tensor: ...

    def forward_and_backward(self) -> None:
        for tensor in (self.read, self.split_weight, self.split_bias, self.vote_weight):
            tensor.grad = None
        scores = self.forward()
        scores.backward(self.level.slope[:, : scores.shape[1]])

    def gradients(self) -> dict[str, Tensor]:
        """The gradients after the backward pass, by name; for values only those of the previous level."""
        carried = len(self.read) - (len(self.level.values) - self.level.reads.carried)
        assert self.read.grad is not None
        others = {name: getattr(self, name).grad for name in ("split_weight", "split_bias", "vote_weight")}
        return {"values": self.read.grad[carried:], **others}


def leaf(tensor: Tensor) -> Tensor:
    return tensor.detach().clone().requires_grad_()


class Ours(Contender):
    def __init__(self, level: Level, tolerance: float = 0.0) -> None:
        super().__init__(level, level.values)
        self.tolerance = tolerance

    def forward(self) -> Tensor:
        given = (self.level.reads, self.level.wiring, self.split_weight, self.split_bias, self.vote_weight)
        return cpu_level.level_scores(self.read, *given, "soft", "exp", 1.0, self.tolerance)


class Definition(Contender):
    def __init__(self, level: Level) -> None:
        super().__init__(level, level.values)
        self.edges = [tensor.to(level.values.dtype) for tensor in definition.mapped_edges(level.wiring, "soft", 1.0)]

    def forward(self) -> Tensor:
        given = (self.level.reads, self.level.wiring, self.split_weight, self.split_bias)
        return definition.level_scores(self.read, *given, *self.edges, self.vote_weight, "soft", "exp")


class InPyTorch(Contender):
    """A level of full trees for its first `n_pixels` pixels; `form` is one of FORMS.

    Splits that read features come first, those that read the level before follow: only the latter have a gradient to
    send back, and PyTorch is spared the others.
    """

    def __init__(self, level: Level, form: str, n_pixels: int) -> None:
        reads, wiring = level.reads, level.wiring
        super().__init__(level, level.values[reads.carried :])
        self.features = level.values[: reads.carried]
        is_before = reads.place[:, 0] >= reads.carried
        order = np.argsort(is_before, kind="stable")
        number = np.argsort(order)
        # The right activations of all splits come first, then the left ones.
        column = (number[wiring.edge_split] + wiring.n_splits * (wiring.edge_sign < 0)).reshape(wiring.n_leaves, -1)
        self.path_sum = FORMS[form](torch.from_numpy(column), 2 * wiring.n_splits)
        place = torch.from_numpy(reads.place[order])
        self.order, n_features = torch.from_numpy(order), int((~is_before).sum())
        self.place, self.place_before = place[:n_features], place[n_features:] - reads.carried
        row, k = np.divmod(np.arange(n_pixels), reads.size[2])
        self.shift = torch.from_numpy(row * reads.stride + k)

    def forward(self) -> Tensor:
        probes = torch.cat([self.features[self.place + self.shift], self.read[self.place_before + self.shift]])
        z = self.split_weight[self.order] * probes + self.split_bias[self.order][:, None]
        both = torch.cat([functional.logsigmoid(z), functional.logsigmoid(-z)])
        return self.vote_weight.T @ torch.exp(self.path_sum(both))


PathSum = Callable[[Tensor], Tensor]
"""From the splits' activations, right ones then left ones (2N,S), to their sums along the paths (L,S)."""


def _gathers(column: Tensor, n_columns: int) -> PathSum:
    return lambda both: both[column].sum(1)


def _bags(column: Tensor, n_columns: int) -> PathSum:
    return lambda both: functional.embedding_bag(column, both, mode="sum")


def _sparse_csr(column: Tensor, n_columns: int) -> PathSum:
    n_leaves, depth = column.shape
    start = torch.arange(0, n_leaves * depth + 1, depth)
    entries = (start, column.sort(1)[0].ravel(), torch.ones(column.numel()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that the format is in beta
        matrix = torch.sparse_csr_tensor(*entries, (n_leaves, n_columns), check_invariants=True)
    return lambda both: torch.sparse.mm(matrix, both)


def _sparse_coo(column: Tensor, n_columns: int) -> PathSum:
    n_leaves, depth = column.shape
    places = torch.stack([torch.arange(n_leaves).repeat_interleave(depth), column.ravel()])
    entries = (places, torch.ones(column.numel()))
    matrix = torch.sparse_coo_tensor(*entries, (n_leaves, n_columns), check_invariants=True).coalesce()
    return lambda both: torch.sparse.mm(matrix, both)


GATHERS, BAGS, CSR, COO = "gathers", "embedding bags", "sparse CSR", "sparse COO"
FORMS: dict[str, Callable[[Tensor, int], PathSum]] = {
    GATHERS: _gathers,
    BAGS: _bags,
    CSR: _sparse_csr,
    COO: _sparse_coo,
}
