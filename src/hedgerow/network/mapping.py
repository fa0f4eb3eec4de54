"""Mapping a stack of forests to the deep ConvNet that computes the same; `mapback` is the way back."""

from collections.abc import Sequence
from dataclasses import replace

from hedgerow.config import Sharpness
from hedgerow.errors import ConfigError
from hedgerow.forest.arrays import ForestStack
from hedgerow.network.stacknet import ACTIVATIONS, CONNECTIONS, SPLITS, LevelNet, StackNet

# The sharpness of soft splits was chosen by measurement (docs/measurements), and crelu uses the same. Tanh needs a leaf
# sharpness at which the true leaf gets most of a tree's activation. Hard splits have no sharpness.
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
    """The network of a stack: one level of two hidden layers per forest.

    split:       "hard" (the forest itself), "tanh" (the paper's first mapping), "soft" (the fuzzy tree), or "crelu"
                 (the fuzzy tree with ReLUs)
    sharpness:   one for all levels, or one per level; None: the stack's own if its splits are soft, else the default
                 for this kind of split
    activation:  of the leaves of soft splits: "exp" or "softmax"; other splits have only one activation
    connections: between H1 and H2: "frozen" (the tree), "sparse" (its edges train), or "full"

    >>> images, labels = hr.synthetic.somites(n_images=2, size=(40, 48))
    >>> stack = hr.fit_stack(images, labels, hr.StackConfig(n_levels=1, n_trees=2))
    >>> net = hr.to_convnet(stack, "hard")
    >>> bool((net.predict(images[0]) == stack.predict(images[0])).all())
    True
    """
    check_choice("split", split, SPLITS)
    check_choice("connections", connections, CONNECTIONS)
    activation = ACTIVATIONS[split][0] if activation is None else activation
    check_choice(f"the leaf activation of {split!r} splits", activation, ACTIVATIONS[split])
    is_own = stack.is_soft and split == "soft" and sharpness is None
    if sharpness is None:
        sharpness = DEFAULT_SHARPNESS[split]
        if stack.output == "softmax":  # its votes come from a network and have the right sharpness already
            sharpness = replace(sharpness, vote=1.0)
    each = [sharpness] * stack.n_levels if isinstance(sharpness, Sharpness) else list(sharpness)
    if len(each) != stack.n_levels:
        raise ConfigError(f"there are {len(each)} sharpnesses for {stack.n_levels} levels; give one, or one per level.")
    for of_level in each:
        if split == "hard" and (of_level.split != 1 or of_level.proba != 0):
            raise ConfigError("hard splits have no sharpness; leave Sharpness.split at 1 and Sharpness.proba at 0.")
        if split == "soft" and of_level.leaf != 1:
            raise ConfigError("the leaves of soft splits have no sharpness; leave Sharpness.leaf at 1.")
    levels = [
        LevelNet(forest, stack.features.n_features, split, activation, None if is_own else of_level, connections)
        for forest, of_level in zip(stack.levels, each, strict=True)
    ]
    # The hard network is the stack itself, so its output is the stack's: softmax would change the probabilities.
    net = StackNet(stack, levels, stack.output if split == "hard" else "softmax")
    if is_own:
        net.set_tolerance(stack.tolerance)
    return net


def check_choice(name: str, choice: str, known: Sequence[str]) -> None:
    """Raise ConfigError unless the choice is one of the known ones."""
    if choice not in known:
        raise ConfigError(f"{name} is {choice!r}; it must be one of {', '.join(known)}.")
