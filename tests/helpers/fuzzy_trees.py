"""For tests of mapping back: fuzzy trees and Algorithm 1 in plain NumPy, and networks whose weights are anything."""

from dataclasses import replace

import numpy as np
import torch

from hedgerow.config import Sharpness
from hedgerow.kernels.definition import forest as plain
from hedgerow.kernels.definition.outputs import normalise
from hedgerow.network.mapback import to_forest
from hedgerow.network.stacknet import LevelNet, StackNet
from helpers.leaf_paths import leaf_paths

PARAMETERS = ("split_weight", "split_bias", "vote_weight")


def altered(net, seed=0, size=1.0, is_whole=False):
    """The network with other weights; whole numbers meet ties on an image of whole numbers, and are often 0."""
    rng = np.random.default_rng(seed)
    for number in range(net.n_levels):
        level = net.level(number)
        for name in PARAMETERS:
            tensor = getattr(level, name)
            drawn = rng.integers(-2, 3, tensor.shape) if is_whole else size * rng.standard_normal(tensor.shape)
            if name == "vote_weight":
                drawn = tensor.detach().numpy() + rng.uniform(-0.2, 0.6, tensor.shape)
            if name == "split_weight":  # a probe that a split does not have gets no weight
                drawn = np.where(level.forest.weight[level.wiring.node_split] != 0, drawn, 0)
            with torch.no_grad():
                tensor.copy_(torch.from_numpy(drawn.astype(np.float32)))
    return net


def hard_twin(net):
    """The network that decides hard with the same weights."""
    once, n_features = Sharpness(1.0, 1.0, 1.0), net.features.n_features
    levels = [LevelNet(forest, n_features, "hard", "step", once, "frozen") for forest in net.stack.levels]
    twin = StackNet(net.stack, levels, net.output)
    for number in range(net.n_levels):
        for name in PARAMETERS:
            with torch.no_grad():
                getattr(twin.level(number), name).copy_(getattr(net.level(number), name))
    return twin


def sigmoid(z):
    return 0.5 * (1 + np.tanh(z / 2))


def leaf_probabilities(forest, channels, **context):
    """(L,H,W) float64: the product over the splits of each leaf's path of the probability of its branch."""
    height, width = channels.shape[1:]
    right = {}
    for node in np.flatnonzero(forest.is_split):
        value = np.array(
            [
                plain.split_value(forest, node, channels[:, None], place, **context)
                for place in np.ndindex(1, height, width)
            ],
            np.float64,
        ).reshape(height, width)
        right[node] = sigmoid(float(forest.sharpness[node]) * (value - float(forest.threshold[node])))
    paths, result = leaf_paths(forest), np.ones((forest.n_leaves, height, width))
    for leaf in range(forest.n_leaves):
        for step in range(paths.start[leaf], paths.start[leaf + 1]):
            chance = right[paths.node[step]]
            result[leaf] *= chance if paths.sign[step] > 0 else 1 - chance
    return result


def tree_of_leaf(forest):
    """(L,) the tree of each row of votes."""
    nodes = np.flatnonzero(~forest.is_split)
    trees = np.empty(forest.n_leaves, int)
    trees[forest.leaf_index[nodes]] = np.searchsorted(forest.root, nodes, side="right") - 1
    return trees


def network_forest(level):
    """The fuzzy tree of a level's own numbers: sharpness 1, weights and votes the network's, thresholds -b."""
    weight, threshold = level.forest.weight.copy(), level.forest.threshold.copy()
    splits = level.wiring.node_split
    weight[splits], threshold[splits] = level.split_weight.detach().numpy(), -level.split_bias.detach().numpy()
    ones = np.ones(level.forest.n_nodes, np.float32)
    votes = level.vote_weight.detach().numpy()
    return replace(level.forest, weight=weight, threshold=threshold, sharpness=ones, votes=votes)


def algorithm_1(net, images, is_updated=True):
    """The paper's Algorithm 1 pixel by pixel, on images (C,H,W) that are the features: a stack, and N_l of each level.

    is_updated: leaves are found by the stack whose levels below have their new votes; else (wrongly) their old ones
    """
    first = to_forest(net, method="weights")
    messages = [_tree_scores(net, image) for image in images]
    stack, all_counts = first, []
    for level in range(net.n_levels):
        forest = stack.levels[level]
        sums, counts = np.zeros(forest.votes.shape), np.zeros(forest.n_leaves, int)
        for image, scores in zip(images, messages, strict=True):
            channels = image
            for below in (stack if is_updated else first).levels[:level]:
                channels = np.concatenate([image, plain.forest_proba(below, channels[:, None])[:, 0]])
            for tree in range(forest.n_trees):
                for i, j in np.ndindex(image.shape[1:]):
                    leaf = plain.leaf_of(forest, tree, channels[:, None], (0, i, j))
                    sums[leaf] += scores[level][tree, :, i, j]
                    counts[leaf] += 1
        votes = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], forest.votes)
        forest = replace(forest, votes=votes.astype(np.float32))
        stack = replace(stack, levels=(*stack.levels[:level], forest, *stack.levels[level + 1 :]))
        all_counts.append(counts)
    return stack, all_counts


def _tree_scores(net, image):
    """What each tree of each level says in the network: (T,C,H,W) a level."""
    result, channels = [], image
    for number in range(net.n_levels):
        forest = network_forest(net.level(number))
        spoken = leaf_probabilities(forest, channels)[:, None] * forest.votes[..., None, None]
        trees = tree_of_leaf(forest)
        result.append(np.stack([spoken[trees == tree].sum(axis=0) for tree in range(forest.n_trees)]))
        channels = np.concatenate([image, normalise(result[-1].sum(axis=0).astype(np.float32))])
    return result
