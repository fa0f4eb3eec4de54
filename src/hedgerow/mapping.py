"""From a stack of forests to the deep ConvNet that computes the same thing."""

from __future__ import annotations

from collections.abc import Sequence

from hedgerow.config import Sharpness
from hedgerow.convnet import ACTIVATIONS, CONNECTIONS, SPLITS, LevelNet, StackNet
from hedgerow.errors import ConfigError
from hedgerow.trees import ForestStack

# Chosen by measurement, see docs/choices.md. A step has no sharpness; its votes stay as they are.
DEFAULT_SHARPNESS = {
    "hard": Sharpness(1.0, 1.0, 1.0),
    "tanh": Sharpness(100.0, 5.0, 0.5),
    "soft": Sharpness(100.0, 1.0, 0.5, proba=0.3),
    "crelu": Sharpness(100.0, 1.0, 0.5, proba=0.3),
}


def to_convnet(
    stack: ForestStack,
    split: str = "soft",
    sharpness: Sharpness | Sequence[Sharpness] | None = None,
    *,
    activation: str | None = None,
    connections: str = "frozen",
) -> StackNet:
    """The network of a stack: one level of two hidden layers a forest.

    split:       "hard" (the forest itself), "tanh" (the paper's first mapping), "soft" (the fuzzy tree), "crelu" (the
                 fuzzy tree with ReLUs)
    sharpness:   one for all levels, or one a level; None: as measured for this kind of split
    activation:  of the leaf layer of a soft split: "exp" or "softmax"; other splits have one
    connections: between H1 and H2: "frozen" (the tree), "sparse" (its edges train), or "full"
    """
    _check_choice("split", split, SPLITS)
    _check_choice("connections", connections, CONNECTIONS)
    activation = ACTIVATIONS[split][0] if activation is None else activation
    _check_choice(f"the leaf activation of {split!r} splits", activation, ACTIVATIONS[split])
    given = DEFAULT_SHARPNESS[split] if sharpness is None else sharpness
    each = [given] * stack.n_levels if isinstance(given, Sharpness) else list(given)
    if len(each) != stack.n_levels:
        raise ConfigError(f"there are {len(each)} sharpnesses for {stack.n_levels} levels; give one, or one a level.")
    for one in each:
        if split == "hard" and (one.split != 1 or one.proba != 0):
            raise ConfigError("a hard split is a step, which has no sharpness; leave Sharpness.split at 1.")
        if split == "soft" and one.leaf != 1:
            raise ConfigError("the branches of a fuzzy tree multiply as they are; leave Sharpness.leaf at 1.")
    levels = [
        LevelNet(forest, stack.features.n_features, split, activation, one, connections)
        for forest, one in zip(stack.levels, each, strict=True)
    ]
    # The hard network is the stack itself, so its output is the stack's: softmax would change the probabilities.
    return StackNet(stack, levels, "normalise" if split == "hard" else "softmax")


def _check_choice(what: str, given: str, known: Sequence[str]) -> None:
    if given not in known:
        raise ConfigError(f"{what} is {given!r}; it must be one of {', '.join(known)}.")
