"""What the splits of forests chose to look at: channels, and offsets.

A model does not keep how many samples reached a split. A split at depth d counts 2^-d instead: the part of the pixels
that would reach it if every split above it were even. Probes of one split share its count by the size of their weights.
"""

from dataclasses import dataclass

import numpy as np

from hedgerow.forest.arrays import Forest, ForestStack

MOST_CELLS = 33  # along a side of a map of offsets; odd, so that one cell is the pixel itself


@dataclass(frozen=True)
class Shares:
    """Parts of one, of each channel, (M,): `weighted` by depth, `plain` by the number of probes."""

    weighted: np.ndarray
    plain: np.ndarray


@dataclass(frozen=True)
class OffsetMap:
    """Where a level looks. cells: (n,n) float64, sum 1, rows and columns between -extent and +extent.

    share:  the part of the level's weight that reads these channels
    median: the distance from the pixel, in the units of the offsets, that half of the weight lies within
    """

    cells: np.ndarray
    extent: float
    share: float
    median: float


@dataclass(frozen=True)
class LevelChoices:
    """of_features, of_classes: where probes into the features, and into the level before, look; None: nowhere"""

    shares: Shares
    of_features: OffsetMap | None
    of_classes: OffsetMap | None


def node_depths(forest: Forest) -> np.ndarray:
    """(N,) int64: splits above each node."""
    depth = np.zeros(forest.n_nodes, np.int64)
    nodes, level = forest.root[forest.is_split[forest.root]], 0
    while len(nodes):
        level += 1
        children = np.concatenate([forest.left_child[nodes], forest.left_child[nodes] + 1])
        depth[children] = level
        nodes = children[forest.is_split[children]]
    return depth


def probe_weights(forest: Forest) -> np.ndarray:
    """(N,J) float64, sum 1 (0 for trees without a split): how much each probe counts."""
    size = np.abs(forest.weight.astype(np.float64)) * forest.is_split[:, None]
    total = size.sum(axis=1, keepdims=True)
    counts = np.divide(size, total, out=np.zeros_like(size), where=total > 0) * 2.0 ** -node_depths(forest)[:, None]
    return counts / max(counts.sum(), 1e-300)


def stack_choices(stack: ForestStack) -> list[LevelChoices]:
    """What each level chose; the maps of all levels have one extent, so that they can be compared."""
    extent = max(farthest(forest) for forest in stack.levels)
    found = []
    for forest in stack.levels:
        weight = probe_weights(forest)
        used = (weight > 0).astype(np.float64)
        sums = [np.bincount(forest.channel.ravel(), w.ravel(), forest.n_channels) for w in (weight, used)]
        is_feature = forest.channel < stack.features.n_features
        maps = [offset_map(forest, np.where(some, weight, 0), extent) for some in (is_feature, ~is_feature)]
        found.append(LevelChoices(Shares(sums[0], sums[1] / max(used.sum(), 1)), *maps))
    return found


def farthest(forest: Forest) -> float:
    """The largest offset in rows or columns that a split has."""
    return float(np.abs(forest.offset[forest.is_read][:, 1:]).max(initial=0.0))


def offset_map(forest: Forest, weight: np.ndarray, extent: float) -> OffsetMap | None:
    """The offsets in rows and columns of probes that count `weight`, (N,J), whatever the slice; None if none counts."""
    share = float(weight.sum())
    if share <= 0:
        return None
    chosen = weight > 0
    offsets, counts = forest.offset[chosen][:, 1:].astype(np.float64), weight[chosen] / share
    # A cell is at least a pixel, and the middle one is centred on the pixel itself.
    half = min(int(np.ceil(extent)), MOST_CELLS // 2)
    edge = max(extent, 0.5) * (2 * half + 1) / max(2 * half, 1)
    edges = np.linspace(-edge, edge, 2 * half + 2)
    cells, _, _ = np.histogram2d(offsets[:, 0], offsets[:, 1], bins=(edges, edges), weights=counts)
    distance = np.hypot(offsets[:, 0], offsets[:, 1])
    order = np.argsort(distance, kind="stable")
    middle = min(int(np.searchsorted(np.cumsum(counts[order]), 0.5)), len(order) - 1)
    return OffsetMap(cells, float(edge), share, float(distance[order][middle]))
