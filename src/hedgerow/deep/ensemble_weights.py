"""How much each member counts: weights that are best on predictions of images that the members did not see."""

import itertools
from collections.abc import Mapping

import numpy as np

from hedgerow.images.metrics import Scores, confusion

STEPS = 10  # weights are multiples of 1 / STEPS
CLEARLY = 0.002  # part of a mean Dice: by less than this, other weights are no better than equal ones
FEW = 0.2  # the same, where few images tell: 0.03 of 0.4 were passed by chance, and lost 0.03 on others (docs/deep.md)
ENOUGH = 10  # images below which they are few
HANDICAP = 0.3
"""The same, where few images tell of networks that read. What they read of those comes from stacks of fewer images than
what they will read later, so they look worse than they are: weights found on two images lost 0.04 on others."""


def mean_dice(proba: np.ndarray, target: np.ndarray) -> float:
    """Of class probabilities (C,S) against class indices (S,)."""
    table = confusion(target, proba.argmax(axis=0).astype(np.uint8), len(proba))
    return float(Scores(tuple(range(len(proba))), table).mean_dice)


def find_weights(
    said: Mapping[str, np.ndarray],
    target: np.ndarray,
    usual: Mapping[str, float] | None = None,
    clearly: float | None = None,
) -> dict[str, float]:
    """A weight for each member; they sum to 1.

    said:    by member, held-out class probabilities (C,S) of the same pixels; target: (S,) class indices
    usual:   weights that are kept unless others are better by more than the part `clearly`; None: equal ones
    clearly: None: there is enough to tell by, so it is CLEARLY, and a single member need only be better at all
    What replaces them are the best of all weights, those of single members included.
    """
    names = list(said)
    first = np.array([1 / len(names) if usual is None else usual[name] for name in names])
    found = {tuple(weights): mean_dice(_mixed(said, weights), target) for weights in _candidates(len(names))}
    at_first = mean_dice(_mixed(said, first), target)
    # Of equally good ones, those that are closest to the usual: they rest on every member.
    best = max(found, key=lambda weights: (round(found[weights], 6), -float(np.square(weights - first).sum())))
    single = max(mean_dice(proba, target) for proba in said.values())
    is_enough = (1 - (CLEARLY if clearly is None else clearly)) * found[best] <= at_first
    is_enough = is_enough and (clearly is not None or at_first >= single)
    chosen = first if is_enough else np.array(best)
    return {name: float(weight) for name, weight in zip(names, chosen, strict=True)}


def _candidates(n: int) -> list[np.ndarray]:
    """All weights of n members in steps of 1 / STEPS."""
    each = itertools.product(range(STEPS + 1), repeat=n - 1)
    return [np.array([*some, STEPS - sum(some)]) / STEPS for some in each if sum(some) <= STEPS]


def _mixed(said: Mapping[str, np.ndarray], weights: np.ndarray) -> np.ndarray:
    """(C,S): the weighted sum."""
    total = np.zeros_like(next(iter(said.values())))
    for weight, proba in zip(weights, said.values(), strict=True):
        if weight:
            total += np.float32(weight) * proba
    return total
