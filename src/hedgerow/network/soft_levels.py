"""Running a network level by level. A level of soft splits runs as the forest it equals, which is faster."""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from hedgerow.forest.arrays import Forest
from hedgerow.forest.level_input import LevelInput
from hedgerow.forest.walk import run_soft_forest
from hedgerow.kernels.constants import LEAF
from hedgerow.kernels.cpu.level_work import in_stored_order
from hedgerow.kernels.cpu.soft_level import MIN_WALKED_TOLERANCE, factored
from hedgerow.kernels.definition import level as definition
from hedgerow.network.layout import region_grid
from hedgerow.network.stacknet import LevelNet, StackNet


def run_level(net: StackNet, number: int, level_input: LevelInput) -> np.ndarray:
    """(C,Z,h,w) float32 output of one level of a network in a region."""
    level, is_softmax = net.level(number), net.output == "softmax" and number + 1 == net.n_levels
    if net.walked and is_walked(level):
        return run_soft_forest(soft_forest(level), level_input, is_softmax, level.tolerance)
    with torch.no_grad(), nullcontext() if net.walked else in_stored_order():
        scores = level(net.region_source(level_input), region_grid(level_input.region))
        output: Tensor = definition.softmax(scores) if is_softmax else definition.normalise(scores)
        return output.cpu().numpy()


def is_walked(level: LevelNet) -> bool:
    """Whether a level equals a forest of soft splits, and its tolerance leaves out enough branches for fast walking.

    Softmax leaves divide by a sum, from which small branches are missing; a forest does not divide.
    """
    is_fuzzy = (level.split, level.activation, level.connections) == ("soft", "exp", "frozen")
    is_plain = (level.vote_weight.device.type, level.vote_weight.dtype) == ("cpu", torch.float32)
    return is_fuzzy and is_plain and level.tolerance >= MIN_WALKED_TOLERANCE


def soft_forest(level: LevelNet) -> Forest:
    """The forest that equals a level of soft splits; exactly, since the sharpness factored out is a power of two."""
    forest, (weight, threshold, scale) = level.forest, factored(*split_weights(level))
    of_node = {name: getattr(forest, name).copy() for name in ("weight", "threshold")}
    splits, sharpness = level.wiring.node_split, np.ones(forest.n_nodes, np.float32)
    of_node["weight"][splits], of_node["threshold"][splits], sharpness[splits] = weight, threshold, scale
    return with_votes(replace(forest, **of_node, sharpness=sharpness), level)


def split_weights(level: LevelNet) -> tuple[np.ndarray, np.ndarray]:
    """Weights (N,J) and biases (N,) of the splits."""
    weight, bias = (tensor.detach().cpu().numpy() for tensor in (level.split_weight, level.split_bias))
    # The network does not read probes that the forest does not have, whatever their weight.
    return np.where(level.forest.weight[level.wiring.node_split] != 0, weight, 0), bias


def with_votes(forest: Forest, level: LevelNet) -> Forest:
    """The forest with the network's votes, one row per leaf."""
    leaf_index = np.full(forest.n_nodes, LEAF, np.int32)
    leaf_index[level.wiring.node_leaf] = np.arange(level.wiring.n_leaves)
    return replace(forest, leaf_index=leaf_index, votes=level.vote_weight.detach().cpu().numpy().copy())
