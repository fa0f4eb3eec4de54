"""Names of models and classes on the page.

A plain name comes before the paper's: forest (DF), network (ConvNet), forest again (MB1, MB2, ...), and deep stack
(Deep), a kind of model that the paper does not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hedgerow.deep.any_model import AnyModel, parts_of
from hedgerow.images.legend import Legend
from hedgerow.report.formatting import counted

FOREST, NETWORK, FOREST_AGAIN, DEEP = "forest", "network", "forest again", "deep stack"
MAP_BACK_METHODS = {
    "weights": ("MB1", "leaves vote with the network's weights"),
    "leaf_mean": ("MB2", "leaves vote with the network's mean output on their pixels"),
    "fitted": ("fitted", "leaves vote with weights fitted to the network's output"),
    "soft": ("soft", "splits stay soft, as in the network"),
}
"""For each method, the name of its forests (the paper's, if it has one) and how they vote."""


def plain_name(model: AnyModel) -> str:
    """The kind of model in words that need no paper."""
    stack, net, deep = parts_of(model)
    if net is not None:
        return NETWORK if deep is None else DEEP
    return FOREST_AGAIN if "mapped_back" in stack.settings else FOREST


def paper_name(model: AnyModel) -> str:
    """The paper's name; "fitted", "soft" and "Deep" are this package's own."""
    stack, net, deep = parts_of(model)
    if net is not None:
        return "ConvNet" if deep is None else "Deep"
    return MAP_BACK_METHODS.get(stack.settings.get("mapped_back", ""), ("DF", ""))[0]


def model_label(name: str, model: AnyModel) -> str:
    """The plain name of a model and the user's name: "forest (DF)"; a name that contains the plain one is unchanged."""
    plain = plain_name(model)
    return name if plain in name.lower() else f"{plain} ({name})"


def labelled_models(models: Mapping[str, AnyModel]) -> dict[str, AnyModel]:
    """The models by their labels, or by their given names if two labels would be equal."""
    by_label = {model_label(name, model): model for name, model in models.items()}
    return by_label if len(by_label) == len(models) else dict(models)


def with_article(label: str) -> str:
    """A model's label for use inside a sentence."""
    return f"the {label}" if label.startswith((FOREST, NETWORK, DEEP)) else label


def description(model: AnyModel) -> str:
    """A sentence that explains the model."""
    stack, net, deep = parts_of(model)
    if deep is not None:
        n_nets = counted(sum(map(len, deep.nets.values())), "convolutional network")
        own = " and of its own" if "stack" in deep.weights else ""
        return f"The network with a convolutional level on top: a weighted mean of the output of {n_nets}{own}."
    if net is not None:
        steps = sum(refinement.checks[-1].step for refinement in net.refinements)
        trained = f"trained end to end for {counted(steps, 'step')}" if steps else "not trained further"
        return f"The ConvNet that computes the same function as the forest, {trained}."
    if "mapped_back" in stack.settings:
        _, method = MAP_BACK_METHODS.get(str(stack.settings["mapped_back"]), ("", "leaves vote as the network does"))
        return f"The network converted back to decision trees, which run anywhere; {method}."
    levels = counted(stack.n_levels, "level")
    trees = counted(max(forest.n_trees for forest in stack.levels), "tree")
    context = "; each level after the first also reads the predictions of the one before" if stack.n_levels > 1 else ""
    return f"Decision trees grown from labelled images: {levels} of {trees}{context}."


@dataclass(frozen=True)
class ClassDisplay:
    """Names and colours of classes.

    values: (C,) class values; names: (C,) for axes; phrases: (C,) for sentences, e.g. "class 3"
    palette: class value -> (3,) uint8
    """

    values: tuple[int, ...]
    names: tuple[str, ...]
    phrases: tuple[str, ...]
    palette: Mapping[int, np.ndarray]

    def phrase(self, value: int) -> str:
        return self.phrases[self.values.index(value)]


def class_display(
    values: tuple[int, ...], legend: Legend, names: Mapping[int, str] | None = None, background: int | None = None
) -> ClassDisplay:
    """names: take precedence over the legend's; background: shown near black, unless the legend gives it a colour"""
    names = names or {}
    return ClassDisplay(
        values,
        tuple(names.get(value, legend.name(value)) for value in values),
        tuple(names.get(value, legend.spoken(value)) for value in values),
        legend.palette(values, background),
    )
