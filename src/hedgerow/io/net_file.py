"""The network part of a model file: its weights, stored beside the forests it was mapped from."""

from typing import Any

import numpy as np
import torch

from hedgerow.config import Sharpness
from hedgerow.errors import refuse_unless
from hedgerow.forest.arrays import ForestStack
from hedgerow.io.checks import flag, refinements
from hedgerow.network.mapping import to_convnet
from hedgerow.network.stacknet import StackNet

TRAINED = ("split_weight", "split_bias", "vote_weight")
CONNECTING = ("leaf_weight", "leaf_bias")


def _names(connections: str) -> tuple[str, ...]:
    """The weights that a file holds; frozen connections are the tree's."""
    return TRAINED if connections == "frozen" else TRAINED + CONNECTING


def arrays(net: StackNet) -> dict[str, np.ndarray]:
    """Every weight by name: net0.split_weight, ..."""
    found = {}
    for k in range(net.n_levels):
        level = net.level(k)
        for name in _names(level.connections):
            found[f"net{k}.{name}"] = getattr(level, name).detach().cpu().numpy()
    return found


def description(net: StackNet) -> dict[str, Any]:
    """Everything that is not an array, JSON-ready."""
    first = net.level(0)
    return {
        "split": first.split,
        "activation": first.activation,
        "connections": first.connections,
        "tolerance": first.tolerance,
        "sharpness": [net.level(k).sharpness.to_dict() for k in range(net.n_levels)],
        "relaxed": net.relaxed,
        "refined": [one.to_dict() for one in net.refinements],
    }


def rebuild(stack: ForestStack, described: dict[str, Any], given: dict[str, np.ndarray]) -> StackNet:
    """The network of a file; raises ModelError unless its weights fit the forests and are finite."""
    refuse_unless(isinstance(described["activation"], str), "its activation is not a name")
    sharpness = [Sharpness.from_dict(values) for values in described["sharpness"]]
    net = to_convnet(
        stack,
        described["split"],
        sharpness,
        activation=described["activation"],
        connections=described["connections"],
    )
    tolerance = described["tolerance"]
    refuse_unless(isinstance(tolerance, float | int), "its tolerance is not a number")
    net.set_tolerance(tolerance)
    names = [f"net{k}.{name}" for k in range(stack.n_levels) for name in _names(described["connections"])]
    refuse_unless(given.keys() == set(names), "its weights do not match its levels")
    for name in names:
        number, _, what = name.removeprefix("net").partition(".")
        weights = getattr(net.level(int(number)), what)
        fits = given[name].shape == tuple(weights.shape) and bool(np.isfinite(given[name]).all())
        refuse_unless(fits, f"{name} does not fit its forest")
        with torch.no_grad():
            weights.copy_(torch.from_numpy(given[name]))
    net.refinements, net.relaxed = refinements(described["refined"]), flag(described["relaxed"], "softening")
    return net
