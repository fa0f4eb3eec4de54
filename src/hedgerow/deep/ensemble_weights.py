"""The weights of the members: those with the best score on held-out predictions."""

import itertools
from collections.abc import Mapping

import numpy as np

from hedgerow.images.metrics import Scores, confusion

WEIGHT_STEPS = 10  # weights are multiples of 1 / WEIGHT_STEPS
MIN_GAIN = 0.002  # relative gain in mean Dice below which other weights are not better than equal ones
MIN_GAIN_FEW_IMAGES = 0.2
"""The same with few images: a gain of 0.03 arose by chance, and lost 0.03 on other images (docs/measurements)."""
MANY_SUBJECTS = 10  # with judged images of at least so many subjects, MIN_GAIN decides
MIN_GAIN_HANDICAPPED = 0.3
"""The same, where networks that read the stack are judged on few images. The stacks that they read were trained on
fewer images than the final stack, so their scores are too low: weights that suited two images lost 0.04 on others."""


def mean_dice(proba: np.ndarray, target: np.ndarray) -> float:
    """Mean Dice of class probabilities (C,S) against class indices (S,)."""
    table = confusion(target, proba.argmax(axis=0).astype(np.uint8), len(proba))
    return float(Scores(tuple(range(len(proba))), table).mean_dice)


def find_weights(
    held_out: Mapping[str, np.ndarray],
    target: np.ndarray,
    usual: Mapping[str, float] | None = None,
    min_gain: float | None = None,
) -> dict[str, float]:
    """A weight for each member; they sum to 1.

    held_out: by member, held-out class probabilities (C,S) of the same pixels; target: (S,) class indices
    usual:    weights that are kept unless the best of all weights have a relative gain above `min_gain`; None: equal
    min_gain: None: there are enough images, so it is MIN_GAIN, and any gain of a single member suffices
    """
    names = list(held_out)
    first = np.array([1 / len(names) if usual is None else usual[name] for name in names])
    dice = {tuple(weights): mean_dice(_mixed(held_out, weights), target) for weights in _candidates(len(names))}
    dice_of_first = mean_dice(_mixed(held_out, first), target)
    # Of equally good weights, those closest to the usual ones, because they use every member.
    best = max(dice, key=lambda weights: (round(dice[weights], 6), -float(np.square(weights - first).sum())))
    single = max(mean_dice(proba, target) for proba in held_out.values())
    is_first_enough = (1 - (MIN_GAIN if min_gain is None else min_gain)) * dice[best] <= dice_of_first
    is_first_enough = is_first_enough and (min_gain is not None or dice_of_first >= single)
    chosen = first if is_first_enough else np.array(best)
    return {name: float(weight) for name, weight in zip(names, chosen, strict=True)}


def _candidates(n: int) -> list[np.ndarray]:
    """All weights of n members that are multiples of 1 / WEIGHT_STEPS."""
    each = itertools.product(range(WEIGHT_STEPS + 1), repeat=n - 1)
    return [np.array([*some, WEIGHT_STEPS - sum(some)]) / WEIGHT_STEPS for some in each if sum(some) <= WEIGHT_STEPS]


def _mixed(held_out: Mapping[str, np.ndarray], weights: np.ndarray) -> np.ndarray:
    """(C,S): the weighted sum."""
    total = np.zeros_like(next(iter(held_out.values())))
    for weight, proba in zip(weights, held_out.values(), strict=True):
        if weight:
            total += np.float32(weight) * proba
    return total
