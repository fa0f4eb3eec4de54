"""The levels of a stack or a network as ONNX nodes; `forest.walk` and `kernels.definition` define them.

A level works through the pixels in blocks, in a loop of the graph, so its memory is proportional to a block times the
nodes of its trees, whatever the size of the image. Hard splits are walked in a loop over the depth. Soft ones carry
their value from parents to children, generation after generation. Both take all trees at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from hedgerow.errors import ConfigError
from hedgerow.export.onnx_features import Scene
from hedgerow.export.onnx_graph import INTEGER, Graph
from hedgerow.export.onnx_reads import OnnxReads, Pick, reads_of
from hedgerow.forest.arrays import Forest, ForestStack
from hedgerow.kernels.definition.outputs import CANCELLED, SMALLEST_SUM

if TYPE_CHECKING:
    from hedgerow.network.stacknet import LevelNet, StackNet  # needs PyTorch

WALKED_VALUES, CARRIED_VALUES = 2**16, 2**20  # pixels x trees, and pixels x splits, of a block
LEAST_LOGARITHM = -70.0  # its exponential is still a normal float32, and negligible
SMALLEST_LEAF_SUM = 1e-30  # divides the leaves of a tree of which every branch was left out


@dataclass(frozen=True)
class Level:
    """One level, of a stack or of a network, as a forest.

    forest:         for a network, it holds the weights of the network, and its thresholds are the negative biases
    split:          "hard", "soft", "tanh", "crelu"; activation: of the leaves, as in `LevelNet`
    leaf_sharpness: alpha_2
    tolerance:      a soft branch is left out if it carries at most this
    """

    forest: Forest
    split: str
    activation: str
    leaf_sharpness: float = 1.0
    tolerance: float = 0.0


def stack_proba(graph: Graph, scene: Scene, model: ForestStack | StackNet) -> str:
    """(C,H,W) class probabilities of the last level of a stack."""
    levels = _levels(model)
    proba = ""
    for number, level in enumerate(levels):
        channels = graph.node("Concat", scene.features, proba, axis=0) if number else scene.features
        scores = level_scores(graph, scene, channels, level)
        if number + 1 == len(levels) and model.output == "softmax":
            proba = graph.node("Softmax", scores, axis=0)
        else:
            proba = normalised(graph, scores, model.n_classes)
    return proba


def _levels(model: ForestStack | StackNet) -> list[Level]:
    if isinstance(model, ForestStack) and not model.is_soft:
        return [Level(forest, "hard", "step") for forest in model.levels]
    if isinstance(model, ForestStack):
        return [Level(forest, "soft", "exp", tolerance=model.tolerance) for forest in model.levels]
    levels = []
    for number in range(model.n_levels):
        level = model.level(number)
        if level.connections != "frozen":
            raise ConfigError(
                f"the network's connections are {level.connections!r}, but only frozen ones can be exported to ONNX; "
                "map the stack with connections='frozen'."
            )
        tolerance = level.tolerance if level.split in ("soft", "crelu") else 0.0
        levels.append(Level(_with_weights(level), level.split, level.activation, level.sharpness.leaf, tolerance))
    return levels


def _with_weights(level: LevelNet) -> Forest:
    """The forest of a level with the weights of the network; its thresholds are where the inputs of splits are 0."""
    forest, wiring = level.forest, level.wiring
    weight, bias, votes = (
        tensor.detach().cpu().numpy() for tensor in (level.split_weight, level.split_bias, level.vote_weight)
    )
    weights, thresholds = np.zeros_like(forest.weight), np.zeros_like(forest.threshold)
    weights[wiring.node_split] = np.where(forest.weight[wiring.node_split] != 0, weight, 0)  # others are not read
    thresholds[wiring.node_split] = -bias
    return replace(forest, weight=weights, threshold=thresholds, votes=votes, leaf_index=wiring.leaf_of, sharpness=None)


def level_scores(graph: Graph, scene: Scene, channels: str, level: Level) -> str:
    """(C,H,W): the summed votes of a level that reads channels (M,H,W)."""
    forest = level.forest
    if level.split == "hard":
        reads = reads_of(graph, scene, channels, forest, np.arange(forest.n_nodes))
        walk = _walk(graph, forest, reads)
        return _in_blocks(graph, scene, forest.n_classes, WALKED_VALUES // forest.n_trees, walk)
    splits = np.flatnonzero(forest.is_split)
    reads = reads_of(graph, scene, channels, forest, splits)
    carry = _carry(level, splits, reads)
    return _in_blocks(graph, scene, forest.n_classes, CARRIED_VALUES // max(len(splits), 1), carry)


def normalised(graph: Graph, scores: str, n_classes: int) -> str:
    """(C,H,W) class probabilities like those of `kernels.definition.outputs.normalise`, summed in the same order."""
    node = graph.node
    total = graph.sum_in_order(scores, n_classes)
    sizes = graph.sum_in_order(node("Abs", scores), n_classes)
    divisor = node("Max", total, node("Mul", sizes, CANCELLED), SMALLEST_SUM)
    lacking = node("Div", node("Sub", 1.0, node("Div", total, divisor)), float(n_classes))
    return node("Add", node("Div", scores, divisor), lacking)


Scores = Callable[[Graph, str], str]
"""Adds nodes that give scores (C,B) from the numbers (B,) of pixels."""


def _in_blocks(graph: Graph, scene: Scene, n_classes: int, most: int, scores: Scores) -> str:
    """(C,H,W) scores, computed for at most `most` pixels at a time."""
    node = graph.node
    n_pixels = node("Mul", scene.height, scene.width)
    last = node("Sub", n_pixels, 1)
    size = node("Min", n_pixels, max(most, 1))
    n_blocks = node("Add", node("Div", last, size), 1)
    within = node("Range", 0, size, 1)

    def block(inner: Graph, number: str) -> list[str]:
        pixel = inner.node("Add", inner.node("Mul", number, size), within)
        return [scores(inner, inner.node("Min", pixel, last))]  # the last block repeats the last pixel

    blocks = graph.loop(n_blocks, block, n_collected=1)[0]
    planes = node("Reshape", node("Transpose", blocks, perm=[1, 0, 2]), [n_classes, -1])
    planes = node("Slice", planes, [0], node("Unsqueeze", n_pixels, [0]), [1])
    size_of_image = (node("Unsqueeze", each, [0]) for each in (scene.height, scene.width))
    return node("Reshape", planes, node("Concat", [n_classes], *size_of_image, axis=0))


def _split_value(
    graph: Graph, forest: Forest, reads: OnnxReads, pick: Pick, weight: str, block: tuple[str, ...]
) -> str:
    """The weighted sum of the probes, in the order of our own code, so that hard decisions do not differ."""
    values = reads.values(graph, pick, block)
    if forest.weight.shape[1] > 1 or (forest.weight[forest.is_split] != 1).any():
        values = graph.node("Mul", values, pick(weight))
    return graph.sum_in_order(values, forest.weight.shape[1])


def _walk(graph: Graph, forest: Forest, reads: OnnxReads) -> Scores:
    # A leaf is its own left child, and nothing is >= NaN: a pixel stays there whatever its value.
    nodes = np.arange(forest.n_nodes)
    left = graph.table(np.where(forest.is_split, forest.left_child, nodes))
    threshold = np.where(forest.is_split, forest.threshold, np.nan).astype(np.float32)
    first = forest.n_nodes * np.arange(forest.weight.shape[1]).reshape(-1, 1, 1)  # of each probe, in a flat table
    leaf = graph.table(np.where(forest.is_split, 0, forest.leaf_index))
    weight = graph.node("Identity", np.ascontiguousarray(forest.weight.T))

    def scores(block: Graph, pixel: str) -> str:
        here = reads.of_block(block, pixel)

        def step(inner: Graph, number: str, at: str) -> list[str]:
            place = inner.node("Add", inner.node("Unsqueeze", at, [0]), first)
            columns = lambda table: inner.look_up(inner.node("Reshape", table, [-1]), place)  # noqa: E731
            value = _split_value(inner, forest, reads, columns, weight, here)
            goes_right = inner.node("GreaterOrEqual", value, inner.look_up(threshold, at))
            return [inner.node("Add", inner.look_up(left, at), inner.node("Cast", goes_right, to=INTEGER))]

        start = block.node("Expand", forest.root.astype(np.int64)[:, None], block.node("Shape", pixel))
        reached = block.loop(int(forest.tree_depths.max()), step, [start], INTEGER)[0]
        votes = block.node("Gather", forest.votes, block.look_up(leaf, reached))
        return block.node("Transpose", block.sum_in_order(votes, forest.n_trees), perm=[1, 0])

    return scores


def _carry(level: Level, splits: np.ndarray, reads: OnnxReads) -> Scores:
    forest, is_sum = level.forest, level.split == "tanh"
    weight = np.ascontiguousarray(forest.weight[splits].T)
    number = np.cumsum(forest.is_split, dtype=np.int32) - 1  # of each split among all splits

    def split_input(graph: Graph, pixel: str) -> str:
        """z_H1 (N,B)"""
        node = graph.node
        here = reads.of_block(graph, pixel)
        columns = lambda table: node("Unsqueeze", table, [2])  # noqa: E731
        value = _split_value(graph, forest, reads, columns, node("Identity", weight), here)
        z = node("Sub", value, forest.threshold[splits][:, None])
        return z if forest.sharpness is None else node("Mul", z, forest.sharpness[splits][:, None])

    def scores(graph: Graph, pixel: str) -> str:
        node, leaves, memberships = graph.node, [], []
        sides = node("Concat", *_sides(graph, level, split_input(graph, pixel)), axis=0) if len(splits) else ""
        start = np.full((forest.n_trees, 1), 0 if is_sum else 1, np.float32)
        carried = node("Expand", start, node("Shape", pixel))
        nodes = forest.root  # those of all trees at one depth
        while len(nodes):
            is_split = forest.is_split[nodes]
            parents = nodes[is_split]
            if not is_split.all():
                leaves.append(nodes[~is_split])
                memberships.append(node("Gather", carried, np.flatnonzero(~is_split).astype(np.int32), axis=0))
            if len(parents):  # their right children, then their left ones
                side = np.concatenate([number[parents], number[parents] + len(splits)])
                above = node("Gather", carried, np.tile(np.flatnonzero(is_split).astype(np.int32), 2), axis=0)
                carried = node("Add" if is_sum else "Mul", above, node("Gather", sides, side.astype(np.int32), axis=0))
                if level.tolerance:
                    carried = node("Where", node("LessOrEqual", carried, level.tolerance), 0.0, carried)
            nodes = np.concatenate([forest.left_child[parents] + 1, forest.left_child[parents]])
        reached = np.concatenate(leaves)
        active = _leaf_activation(graph, level, node("Concat", *memberships, axis=0), reached)
        return node("MatMul", np.ascontiguousarray(forest.votes[forest.leaf_index[reached]].T), active)

    return scores


def _sides(graph: Graph, level: Level, z: str) -> tuple[str, str]:
    """The terms (tanh) or factors (soft, crelu) with which a split of input z changes the value carried to its right
    and to its left.

    exp(min(z, 0)) and exp(min(-z, 0)) are the sides of crelu; divided by their sum they are the sigmoids of z and -z,
    and tanh(z) - 1 is -2 sigmoid(-2z).
    """
    node = graph.node
    if level.split != "soft":
        z = node("Mul", z, 2.0 if level.split == "tanh" else level.leaf_sharpness)
    right, left = (node("Exp", node("Clip", side, LEAST_LOGARITHM, 0.0)) for side in (z, node("Neg", z)))
    if level.split == "crelu":
        return right, left
    both = node("Add", right, left)
    right, left = node("Div", right, both), node("Div", left, both)
    if level.split == "soft":
        return right, left
    return node("Mul", left, -2.0), node("Mul", right, -2.0)


def _leaf_activation(graph: Graph, level: Level, carried: str, leaves: np.ndarray) -> str:
    """(L,B) a_H2 from the values carried to the leaves, which are the nodes `leaves`."""
    node = graph.node
    if level.activation == "sigmoid":
        z = node("Mul", node("Add", carried, 1.0), -level.leaf_sharpness)
        return node("Reciprocal", node("Add", node("Exp", z), 1.0))  # the Sigmoid of a runtime may end at 1e-8
    if level.activation == "exp":
        return carried
    # Softmax over the leaves of each tree. The largest is never small, so it need not be subtracted first. A row of
    # zeros pads all trees to the same length: ScatterND would not need it, but onnxruntime's threads lose terms.
    tree = np.searchsorted(level.forest.root, leaves, side="right") - 1
    count = np.bincount(tree)
    of_tree = np.full((len(count), count.max()), len(leaves), np.int32)
    of_tree[np.arange(count.max()) < count[:, None]] = np.argsort(tree, kind="stable")
    zeros = node("Expand", np.zeros((1, 1), np.float32), node("Shape", node("Gather", carried, 0)))
    by_tree = node("Gather", node("Concat", carried, zeros, axis=0), of_tree, axis=0)
    sums = node("Max", node("ReduceSum", by_tree, [1], keepdims=0), SMALLEST_LEAF_SUM)
    return node("Div", carried, node("Gather", sums, tree.astype(np.int32), axis=0))
