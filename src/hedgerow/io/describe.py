"""A description of a model, for people to read."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from hedgerow.deep.any_model import parts_of
from hedgerow.deep.record import ENSEMBLE
from hedgerow.features.encoder import changed_of, encoder_of
from hedgerow.forest.arrays import ForestStack

if TYPE_CHECKING:
    from hedgerow.deep.any_model import AnyModel
    from hedgerow.deep.deepstack import DeepStack
    from hedgerow.network.stacknet import StackNet


def description(model: AnyModel) -> dict[str, Any]:
    """The description that `hedgerow info` shows, ready for JSON."""
    stack, net, deep = parts_of(model)
    network = {} if net is None else _network(net)
    return network | _forests(stack) | ({} if deep is None else {"convolutional": _convolutional(deep)})


def _forests(stack: ForestStack) -> dict[str, Any]:
    forests: dict[str, Any] = {
        "classes": list(stack.classes),
        "legend": stack.legend.to_list(),
        "features": stack.features.settings() | {"names": list(stack.features.names)},
        "receptive_field": stack.receptive_field,
        "levels": [
            {
                "trees": forest.n_trees,
                "nodes": forest.n_nodes,
                "leaves": forest.n_leaves,
                "depth": int(forest.tree_depths.max()),
                "reach": forest.reach,
            }
            for forest in stack.levels
        ],
        **{key: stack.settings[key] for key in ("n_images", "held_out", "reserved", "config") if key in stack.settings},
    }
    if "mapped_back" in stack.settings:
        forests |= {"mapped_back": stack.settings["mapped_back"], "soft": stack.is_soft, "tolerance": stack.tolerance}
    return forests


def _network(net: StackNet) -> dict[str, Any]:
    values: dict[str, Any] = {
        "split": net.split,
        "layers": [dataclasses.asdict(layer) for layer in net.layers()],
        "sharpness": [net.level(k).sharpness.to_dict() for k in range(net.n_levels)],
        "refined": [
            {
                "config": dict(record.config),
                "scores": record.scores,
                "n_scored": record.n_scored,
                "history": [
                    {"step": check.step, "loss": check.loss, "mean_dice": check.mean_dice if record.n_scored else None}
                    for check in record.checks
                ],
            }
            for record in net.refinements
        ],
    }
    encoder = None if net.tuned is None else encoder_of(net.tuned)
    if encoder is not None:
        n_weights = sum(array.size for array in changed_of(encoder).values())
        values["tuned_encoder"] = {"name": encoder.source.encoder, "weights": n_weights}
    return values


def _convolutional(deep: DeepStack) -> dict[str, Any]:
    """The convolutional level on top of a network: its members and their scores."""
    return {
        "members": [dataclasses.asdict(member) for member in deep.members],
        "together": deep.record.scores.get(ENSEMBLE),
        "held": deep.record.held,
        "n_held": deep.record.n_held,
        "receptive_field": deep.receptive_field,
        "config": dict(deep.record.config),
    }
