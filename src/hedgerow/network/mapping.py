"""From a stack of forests to the deep ConvNet that computes the same thing, and back."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hedgerow.config import Sharpness
from hedgerow.errors import ConfigError, InputError, ModelError
from hedgerow.forest.arrays import Forest, ForestStack
from hedgerow.images.labelled import Images, listed_for
from hedgerow.network.levels import ACTIVATIONS, CONNECTIONS, SPLITS, LevelNet
from hedgerow.network.mapback import fitted_votes, leaf_means
from hedgerow.network.soft_levels import soft_forest, split_weights, with_votes
from hedgerow.network.stacknet import StackNet
from hedgerow.network.vote_fit import FitSamples
from hedgerow.progress import Report

# The sharpness of soft splits was chosen by measurement (docs/measurements), and crelu uses the same; tanh needs a leaf
# sharpness that gives the true leaf most of a tree's activation. A step has no sharpness; its votes stay as they are.
DEFAULT_SHARPNESS = {
    "hard": Sharpness(1.0, 1.0, 1.0),
    "tanh": Sharpness(100.0, 5.0, 0.5),
    "soft": Sharpness(100.0, 1.0, 0.5, proba=0.3),
    "crelu": Sharpness(100.0, 1.0, 0.5, proba=0.3),
}
METHODS = ("weights", "leaf_mean", "fitted", "soft")
FROM_IMAGES = ("leaf_mean", "fitted")
FARTHEST = np.float32(1e25)  # a threshold beyond every value that can still be multiplied by a sharpness


def to_convnet(
    stack: ForestStack,
    split: str = "soft",
    sharpness: Sharpness | Sequence[Sharpness] | None = None,
    *,
    activation: str | None = None,
    connections: str = "frozen",
) -> StackNet:
    """The network of a stack: one level of two hidden layers per forest.

    split:       "hard" (the forest itself), "tanh" (the paper's first mapping), "soft" (the fuzzy tree), "crelu" (the
                 fuzzy tree with ReLUs)
    sharpness:   one for all levels, or one per level; None: the stack's own if its splits are soft, else the default
                 for this kind of split
    activation:  of the leaf layer of a soft split: "exp" or "softmax"; other splits have only one
    connections: between H1 and H2: "frozen" (the tree), "sparse" (its edges train), or "full"

    >>> images, labels = hr.synthetic.somites(n_images=2, size=(40, 48))
    >>> stack = hr.fit_stack(images, labels, hr.StackConfig(n_levels=1, n_trees=2))
    >>> net = hr.to_convnet(stack, "hard")
    >>> bool((net.predict(images[0]) == stack.predict(images[0])).all())
    True
    """
    _check_choice("split", split, SPLITS)
    _check_choice("connections", connections, CONNECTIONS)
    activation = ACTIVATIONS[split][0] if activation is None else activation
    _check_choice(f"the leaf activation of {split!r} splits", activation, ACTIVATIONS[split])
    is_own = stack.is_soft and split == "soft" and sharpness is None
    if sharpness is None:
        sharpness = DEFAULT_SHARPNESS[split]
        if stack.output == "softmax":  # its votes came from a network, and are already as sharp as they should be
            sharpness = replace(sharpness, vote=1.0)
    each = [sharpness] * stack.n_levels if isinstance(sharpness, Sharpness) else list(sharpness)
    if len(each) != stack.n_levels:
        raise ConfigError(f"there are {len(each)} sharpnesses for {stack.n_levels} levels; give one, or one per level.")
    for one in each:
        if split == "hard" and (one.split != 1 or one.proba != 0):
            raise ConfigError("a hard split is a step, which has no sharpness; leave Sharpness.split at 1.")
        if split == "soft" and one.leaf != 1:
            raise ConfigError("a fuzzy tree multiplies its branches as they are; leave Sharpness.leaf at 1.")
    levels = [
        LevelNet(forest, stack.features.n_features, split, activation, None if is_own else one, connections)
        for forest, one in zip(stack.levels, each, strict=True)
    ]
    # The hard network is the stack itself, so its output is the stack's: softmax would change the probabilities.
    net = StackNet(stack, levels, stack.output if split == "hard" else "softmax")
    if is_own:
        net.set_tolerance(stack.tolerance)
    return net


def to_forest(
    net: StackNet,
    images: Images | None = None,
    method: str = "fitted",
    *,
    stride: int = 1,
    tolerance: float | None = None,
    progress: Report | None = None,
) -> ForestStack:
    """The stack of forests that a network maps back to, with what the network learned.

    method: "weights", the paper's Map Back 1: thresholds -b / w, and the network's votes
            "leaf_mean", Map Back 2: in addition, the votes of a leaf become the mean of what the network says about the
            pixels of `images`, (H,W[,C]) each, or of one, that reach it
            "fitted": Map Back 2, then the last level's votes are fitted together, so that it says what the network says
            "soft": exactly the network; a split goes both ways, as in a fuzzy tree
    stride: "leaf_mean", "fitted": use every stride-th row and column of the images, which helps if the network is slow
    tolerance: "soft": branches reached at a pixel with at most this probability are left out. What a tree says then
            lacks at most this much, times its votes, for each branch left out; None: as in the network

    >>> images, labels = hr.synthetic.somites(n_images=2, size=(40, 48))
    >>> stack = hr.fit_stack(images, labels, hr.StackConfig(n_levels=1, n_trees=2))
    >>> small = hr.to_forest(hr.to_convnet(stack), images)
    >>> small.settings["mapped_back"]
    'fitted'
    """
    if not isinstance(net, StackNet):
        raise InputError(f"a {type(net).__name__} was given to to_forest; give a network, e.g. from refine(...).")
    if type(net) is not StackNet:
        raise InputError(f"a {type(net).__name__} has parts that no forest has; map its forests' network back.")
    _check_choice("method", method, METHODS)
    if tolerance is not None and (method != "soft" or not 0 <= tolerance < 1):
        raise ConfigError(f"the tolerance is {tolerance}; it is for method 'soft' and must be at least 0 and below 1.")
    if not isinstance(stride, int) or stride < 1:
        raise ConfigError(f"the stride is {stride}; it must be a whole number of at least 1.")
    if stride > 1 and method not in FROM_IMAGES:
        raise ConfigError(f"{method!r} takes no votes from images; leave the stride of {stride} out, or use 'fitted'.")
    images, _ = listed_for(() if images is None else images, net.features.n_inputs, net.features.layout)
    if method in FROM_IMAGES and not len(images):
        raise InputError(
            f"{method!r} takes its votes from images, but there are none; give the training images, or use 'weights'."
        )
    back = soft_back if method == "soft" else weights_back
    levels = tuple(back(net.level(k)) for k in range(net.n_levels))
    settings = {**net.settings, "mapped_back": method}
    stack = replace(net.stack, features=net.features, levels=levels, output=net.output, settings=settings)
    stack = replace(stack, refinements=(), relaxed=False, device="cpu")
    if method == "soft":
        # Softmax leaves divide by a sum that would lack what is left out; a forest does not divide.
        own = net.level(0).tolerance if net.level(0).activation == "exp" else 0.0
        # It continues the network's history; the others start a new one.
        return replace(
            stack, tolerance=own if tolerance is None else tolerance, refinements=net.refinements, relaxed=net.relaxed
        )
    stack = replace(stack, tolerance=0.0)
    if method == "weights":
        return stack
    samples = FitSamples(len(images)) if method == "fitted" and net.output == "softmax" else None
    means = leaf_means(net, stack, images, progress, samples, stride)
    return means if method == "leaf_mean" else fitted_votes(means, samples)


def weights_back(level: LevelNet) -> Forest:
    """Map Back 1 of one level: theta = -b / w, and the votes that the leaves have in the network.

    A split that did not train keeps its values, since dividing what was multiplied need not give the same number. If it
    did train and has one probe, its weight becomes 1 again, and its children are swapped if its weight was negative; it
    decides as the network's split does, whatever it reads. Splits with several probes keep the network's weights.
    """
    _check_finite(level)
    forest, weight, bias = level.forest, *split_weights(level)
    splits, mapped = level.wiring.node_split, level.mapped_splits()
    is_changed = (mapped[0] != weight).any(axis=1) | (mapped[1] != bias)
    is_swapped, theta = np.zeros(len(splits), bool), -bias
    if weight.shape[1] == 1:
        is_changed |= forest.weight[splits, 0] != 1  # of a soft forest
        is_swapped = is_changed & (weight[:, 0] < 0)
        weight, theta = np.ones_like(weight), _threshold(weight[:, 0], bias)
    of_node = {name: getattr(forest, name).copy() for name in ("weight", "threshold")}
    of_node["weight"][splits[is_changed]] = weight[is_changed]
    of_node["threshold"][splits[is_changed]] = theta[is_changed]
    found = with_votes(replace(forest, **of_node, sharpness=None), level)
    return _swapped(found, splits[is_swapped])


def soft_back(level: LevelNet) -> Forest:
    """A level of soft splits as a forest: the same numbers."""
    if level.split != "soft" or level.connections != "frozen":
        raise ConfigError(
            f"a network of {level.split} splits and {level.connections} connections is not a fuzzy tree, so no soft "
            "forest equals it; use method 'leaf_mean', or refine a network from to_convnet(stack, split='soft')."
        )
    _check_finite(level)
    return soft_forest(level)


def _check_finite(level: LevelNet) -> None:
    if not all(np.isfinite(weights.detach().cpu().numpy()).all() for weights in level.parameters()):
        raise ModelError("a weight of the network is not a number; refine an earlier network at a lower learning rate.")


def _threshold(weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """(N,) float32: the smallest value from which a split with one probe decides as it does for large values.

    Found by bisecting the ordered list of all float32 numbers with the network's own arithmetic, since near -b / w
    rounding decides. If the weight is 0, all values go one way, and the threshold lies beyond them.
    """
    below = np.full(len(weight), -_rank(FARTHEST) - 1, np.int64)
    found = np.full(len(weight), _rank(FARTHEST), np.int64)
    with np.errstate(under="ignore"):
        while (found - below > 1).any():
            middle = (below + found) // 2
            is_right = weight * _ranked(middle) + bias >= 0
            is_beyond = np.where(weight < 0, ~is_right, is_right)
            below, found = np.where(is_beyond, below, middle), np.where(is_beyond, middle, found)
    return _ranked(found)


def _rank(number: np.float32) -> int:
    """The rank of a non-negative number among the float32 numbers, counted from 0.0."""
    return int(np.float32(number).view(np.int32))


def _ranked(rank: np.ndarray) -> np.ndarray:
    """The float32 numbers with these ranks; negative numbers have negative ranks."""
    return np.sign(rank).astype(np.float32) * np.abs(rank).astype(np.int32).view(np.float32)


def _swapped(forest: Forest, splits: np.ndarray) -> Forest:
    """The forest with the left and right children of these nodes swapped; two children are neighbours in the arrays."""
    order, left = np.arange(forest.n_nodes), forest.left_child[splits]
    order[left], order[left + 1] = left + 1, left
    names = ("left_child", "threshold", "channel", "offset", "radius", "weight", "leaf_index")
    return replace(forest, **{name: getattr(forest, name)[order] for name in names})


def _check_choice(what: str, given: str, known: Sequence[str]) -> None:
    if given not in known:
        raise ConfigError(f"{what} is {given!r}; it must be one of {', '.join(known)}.")
