"""The part of a model file that is a network: its weights beside the forests it was mapped from."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from hedgerow.config import Sharpness
from hedgerow.convnet import StackNet
from hedgerow.errors import ModelError
from hedgerow.mapping import to_convnet
from hedgerow.trees import ForestStack

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
    """All that is not an array, JSON-ready."""
    first = net.level(0)
    return {
        "split": first.split,
        "activation": first.activation,
        "connections": first.connections,
        "tolerance": first.tolerance,
        "sharpness": [net.level(k).sharpness.to_dict() for k in range(net.n_levels)],
        "refined": net.settings.get("refined", []),
    }


def rebuild(stack: ForestStack, described: dict[str, Any], given: dict[str, np.ndarray]) -> StackNet:
    """The network of a file; a ModelError unless its weights fit the forests and are finite."""
    if not isinstance(described["activation"], str):
        raise ModelError("its activation is no name, so it is damaged or was edited; copy it again.")
    sharpness = [Sharpness.from_dict(values) for values in described["sharpness"]]
    net = to_convnet(
        stack,
        described["split"],
        sharpness,
        activation=described["activation"],
        connections=described["connections"],
    )
    tolerance = described["tolerance"]
    if not isinstance(tolerance, float | int):
        raise ModelError("its tolerance is no number, so it is damaged or was edited; copy it again.")
    net.set_tolerance(tolerance)
    names = [f"net{k}.{name}" for k in range(stack.n_levels) for name in _names(described["connections"])]
    if given.keys() != set(names):
        raise ModelError("its weights are not those of its levels, so it is damaged or was edited; copy it again.")
    for name in names:
        number, _, what = name.removeprefix("net").partition(".")
        weights = getattr(net.level(int(number)), what)
        if given[name].shape != tuple(weights.shape) or not np.isfinite(given[name]).all():
            raise ModelError(f"{name} does not fit its forest, so it is damaged or was edited; copy it again.")
        with torch.no_grad():
            weights.copy_(torch.from_numpy(given[name]))
    refined = described["refined"]
    if not isinstance(refined, list) or not all(_is_record(each) for each in refined):
        raise ModelError("its history is no list of refinements, so it is damaged or was edited; copy it again.")
    net.settings = {**stack.settings, "refined": refined} if refined else dict(stack.settings)
    return net


def _is_record(value: Any) -> bool:
    """Whether this tells of a refinement what is read one by one: its scores, and the steps of its history."""
    if not isinstance(value, dict):
        return False
    scores, history = value.get("scores"), value.get("history")
    if not isinstance(scores, dict) or not isinstance(history, list) or not history:
        return False
    are_numbers = all(score is None or type(score) in (int, float) for score in scores.values())
    return are_numbers and all(isinstance(entry, dict) and type(entry.get("step")) is int for entry in history)
