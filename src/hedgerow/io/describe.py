"""A description of a model, for people to read."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from hedgerow.forest.arrays import ForestStack

if TYPE_CHECKING:
    from hedgerow.network.stacknet import StackNet


def description(model: ForestStack | StackNet) -> dict[str, Any]:
    """What `hedgerow info` shows, JSON-ready."""
    network: dict[str, Any] = {}
    if not isinstance(model, ForestStack):
        network = {
            "split": model.split,
            "layers": [dataclasses.asdict(layer) for layer in model.layers()],
            "sharpness": [model.level(k).sharpness.to_dict() for k in range(model.n_levels)],
            "refined": [
                {
                    "config": dict(one.config),
                    "scores": one.scores,
                    "n_scored": one.n_scored,
                    "history": [
                        {"step": check.step, "loss": check.loss, "mean_dice": check.mean_dice if one.n_scored else None}
                        for check in one.checks
                    ],
                }
                for one in model.refinements
            ],
        }
        model = model.stack
    forests: dict[str, Any] = {
        "classes": list(model.classes),
        "legend": model.legend.to_list(),
        "features": model.features.settings() | {"names": list(model.features.names)},
        "receptive_field": model.receptive_field,
        "levels": [
            {
                "trees": forest.n_trees,
                "nodes": forest.n_nodes,
                "leaves": forest.n_leaves,
                "depth": int(forest.tree_depths.max()),
                "reach": forest.reach,
            }
            for forest in model.levels
        ],
        **{key: model.settings[key] for key in ("n_images", "held_out", "reserved", "config") if key in model.settings},
    }
    if "mapped_back" in model.settings:
        forests |= {"mapped_back": model.settings["mapped_back"], "soft": model.is_soft, "tolerance": model.tolerance}
    return network | forests
