"""What a model is, in plain words beside the paper's: forest (DF), network (ConvNet), forest again (MB1, MB2, ...);
and ours: deep stack (Deep).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hedgerow.deep.parts import parts_of
from hedgerow.report.words import counted

if TYPE_CHECKING:
    from hedgerow.deep.parts import AnyModel

FOREST, NETWORK, AGAIN, DEEP = "forest", "network", "forest again", "deep stack"
_BACK = {
    "weights": "leaves vote with the network's weights",
    "leaf_mean": "leaves vote with the network's mean answer there",
    "fitted": "leaves vote with weights fitted to the network's answers",
    "soft": "splits stay soft, as in the network",
}


def plain_name(model: AnyModel) -> str:
    """What someone who has not read the paper would call it."""
    stack, net, deep = parts_of(model)
    if net is not None:
        return NETWORK if deep is None else DEEP
    return AGAIN if "mapped_back" in stack.settings else FOREST


def label(name: str, model: AnyModel) -> str:
    """The name that a model was given, behind the plain one: "forest (DF)"; a name that says it already stays."""
    plain = plain_name(model)
    return name if plain in name.lower() else f"{plain} ({name})"


def labels(models: Mapping[str, AnyModel]) -> dict[str, AnyModel]:
    """The models by their labels; by the names they were given if labels would coincide."""
    found = {label(name, model): model for name, model in models.items()}
    return found if len(found) == len(models) else dict(models)


def spoken(name: str) -> str:
    """A label as part of a sentence."""
    return f"the {name}" if name.startswith((FOREST, NETWORK, DEEP)) else name


def about(model: AnyModel) -> str:
    """One sentence on what it is."""
    stack, net, deep = parts_of(model)
    if deep is not None:
        n_nets = counted(sum(map(len, deep.nets.values())), "convolutional network")
        own = " with its own" if "stack" in deep.weights else ""
        return f"The network with one more level: {n_nets}, whose answers are averaged{own} by their weights."
    if net is not None:
        steps = sum(refinement.checks[-1].step for refinement in net.refinements)
        trained = f"trained end to end for {counted(steps, 'step')}" if steps else "not trained further"
        return f"The ConvNet that computes what the forest computes, {trained}."
    if "mapped_back" in stack.settings:
        how = _BACK.get(str(stack.settings["mapped_back"]), "leaves vote as the network does")
        return f"The network turned back into decision trees, which run anywhere; {how}."
    levels = counted(stack.n_levels, "level")
    trees = counted(max(forest.n_trees for forest in stack.levels), "tree")
    context = "; each level reads what the one before it said" if stack.n_levels > 1 else ""
    return f"Decision trees as grown from painted images: {levels} of {trees}{context}."
