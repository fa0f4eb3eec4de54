"""The network part of a model file: its weights, stored with the forests that it was mapped from."""

from typing import Any

import numpy as np
import torch

from hedgerow.config import Sharpness
from hedgerow.errors import refuse_unless
from hedgerow.features.encoder import changed_of, encoder_of, with_changed
from hedgerow.features.protocol import FeatureSet
from hedgerow.forest.arrays import MAX_VOTE, MAX_WEIGHT, Forest, ForestStack
from hedgerow.io.checks import choice, flag, number, refinements
from hedgerow.network.mapping import to_convnet
from hedgerow.network.stacknet import CONNECTIONS, SPLITS, StackNet

TRAINED = ("split_weight", "split_bias", "vote_weight")
CONNECTING = ("leaf_weight", "leaf_bias")
NET_CHANGED = "net.changed."  # prefix of the names of the encoder's weights that were refined with the network


def _names(connections: str) -> tuple[str, ...]:
    """The names of the weights in a file; frozen connections are those of the trees."""
    return TRAINED if connections == "frozen" else TRAINED + CONNECTING


def arrays(net: StackNet) -> dict[str, np.ndarray]:
    """Every weight by name: net0.split_weight, ..."""
    weights = {}
    for k in range(net.n_levels):
        level = net.level(k)
        for name in _names(level.connections):
            weights[f"net{k}.{name}"] = getattr(level, name).detach().cpu().numpy()
    if net.tuned is not None:
        weights |= {NET_CHANGED + name: array for name, array in changed_of(net.tuned).items()}
    return weights


def description(net: StackNet) -> dict[str, Any]:
    """Everything that is not an array, ready for JSON."""
    first = net.level(0)
    return {
        "split": first.split,
        "activation": first.activation,
        "connections": first.connections,
        "tolerance": first.tolerance,
        "sharpness": [net.level(k).sharpness.to_dict() for k in range(net.n_levels)],
        "relaxed": net.relaxed,
        "refined": [record.to_dict() for record in net.refinements],
        **({} if net.walked else {"walked": False}),
    }


def rebuild(stack: ForestStack, described: dict[str, Any], arrays: dict[str, np.ndarray]) -> StackNet:
    """The network from a file; raises ModelError unless its weights fit the forests and are finite."""
    refuse_unless(isinstance(described["activation"], str), "its activation is not a name")
    split = choice(described["split"], SPLITS, "kind of split")
    connections = choice(described["connections"], CONNECTIONS, "kind of connections")
    each, names = described["sharpness"], _names(connections)
    refuse_unless(isinstance(each, list) and len(each) == stack.n_levels, "its sharpness does not match its levels")
    changed = {name.removeprefix(NET_CHANGED): array for name, array in arrays.items() if name.startswith(NET_CHANGED)}
    tuned = _tuned(stack.features, changed) if changed else None
    expected = {f"net{k}.{name}" for k in range(stack.n_levels) for name in names} | {
        NET_CHANGED + name for name in changed
    }
    refuse_unless(arrays.keys() == expected, "its weights do not match its levels")
    for k, forest in enumerate(stack.levels):  # before memory is allocated: full connections need a lot of it
        for name, shape in _shapes(forest, split, connections).items():
            refuse_unless(arrays[f"net{k}.{name}"].shape == shape, f"net{k}.{name} does not fit its forest")
    sharpness = [Sharpness.from_dict(values) for values in each]
    net = to_convnet(stack, split, sharpness, activation=described["activation"], connections=connections)
    net.tuned = tuned
    net.set_tolerance(number(described["tolerance"], "tolerance"))
    for k in range(stack.n_levels):
        for name in names:
            weights, array = getattr(net.level(k), name), arrays[f"net{k}.{name}"]
            fits = array.shape == tuple(weights.shape) and bool(np.isfinite(array).all())
            refuse_unless(fits, f"net{k}.{name} does not fit its forest")
            with torch.no_grad():
                weights.copy_(torch.from_numpy(array))
        weight, votes = arrays[f"net{k}.split_weight"], arrays[f"net{k}.vote_weight"]
        fits = bool((np.abs(votes) <= MAX_VOTE).all()) and bool((np.abs(weight) <= MAX_WEIGHT).all())
        refuse_unless(fits, "a vote or the weight of a split is out of range")
        # As in a stack: votes of either sign, divided by their sum, are no probabilities.
        refuse_unless(net.output == "softmax" or bool((votes >= 0).all()), "a vote is negative")
    net.walked = flag(described.get("walked", True), "method of predicting")
    net.refinements, net.relaxed = refinements(described["refined"]), flag(described["relaxed"], "softening")
    return net


def _tuned(features: FeatureSet, changed: dict[str, np.ndarray]) -> FeatureSet:
    """The features of a network whose encoder was refined with it; raises ModelError unless its weights fit."""
    refuse_unless(encoder_of(features) is not None, "it has weights of an encoder, but its features have none")
    tuned = with_changed(features, changed)
    tuned.validate()
    return tuned


def _shapes(forest: Forest, split: str, connections: str) -> dict[str, tuple[int, ...]]:
    """The shapes of a level's weights, except for sparse connections, of which there is one per edge of a tree."""
    n_splits, n_probes = int(forest.is_split.sum()), forest.weight.shape[1]
    n_leaves = forest.n_nodes - n_splits
    shapes: dict[str, tuple[int, ...]] = {
        "split_weight": (n_splits, n_probes),
        "split_bias": (n_splits,),
        "vote_weight": (n_leaves, forest.n_classes),
    }
    if connections != "frozen":
        shapes["leaf_bias"] = (n_leaves,)
    if connections == "full":
        shapes["leaf_weight"] = (n_splits * (2 if split in ("soft", "crelu") else 1), n_leaves)
    return shapes
