"""What a model is, in plain words beside the paper's: forest (DF), network (ConvNet), forest again (MB1, MB2, ...)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hedgerow.forest.arrays import ForestStack
from hedgerow.report.words import counted

if TYPE_CHECKING:
    from hedgerow.network.stacknet import StackNet

FOREST, NETWORK, AGAIN = "forest", "network", "forest again"
_BACK = {
    "weights": "leaves vote with the network's weights",
    "leaf_mean": "leaves vote with the network's mean answer there",
    "fitted": "leaves vote with weights fitted to the network's answers",
    "soft": "splits stay soft, as in the network",
}


def plain_name(model: ForestStack | StackNet) -> str:
    """What someone who has not read the paper would call it."""
    if not isinstance(model, ForestStack):
        return NETWORK
    return AGAIN if "mapped_back" in model.settings else FOREST


def label(name: str, model: ForestStack | StackNet) -> str:
    """The name that a model was given, behind the plain one: "forest (DF)"; a name that says it already stays."""
    plain = plain_name(model)
    return name if plain in name.lower() else f"{plain} ({name})"


def labels(models: Mapping[str, ForestStack | StackNet]) -> dict[str, ForestStack | StackNet]:
    """The models by their labels; by the names they were given if labels would coincide."""
    found = {label(name, model): model for name, model in models.items()}
    return found if len(found) == len(models) else dict(models)


def spoken(name: str) -> str:
    """A label as part of a sentence."""
    return f"the {name}" if name.startswith((FOREST, NETWORK)) else name


def about(model: ForestStack | StackNet) -> str:
    """One sentence on what it is."""
    levels = counted(model.n_levels, "level")
    if not isinstance(model, ForestStack):
        steps = sum(refinement.checks[-1].step for refinement in model.refinements)
        trained = f"trained end to end for {counted(steps, 'step')}" if steps else "not trained further"
        return f"The ConvNet that computes what the forest computes, {trained}."
    if "mapped_back" in model.settings:
        how = _BACK.get(str(model.settings["mapped_back"]), "leaves vote as the network does")
        return f"The network turned back into decision trees, which run anywhere; {how}."
    trees = counted(max(forest.n_trees for forest in model.levels), "tree")
    context = "; each level reads what the one before it said" if model.n_levels > 1 else ""
    return f"Decision trees as grown from painted images: {levels} of {trees}{context}."
