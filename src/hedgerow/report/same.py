"""Which models compute the same thing: they share features, and a network's forests are known by their arrays."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from hedgerow.features.protocol import FeatureSet
from hedgerow.forest.arrays import Forest, ForestStack
from hedgerow.forest.level_input import Layered


def read_alike(models: Sequence[Layered]) -> list[list[int]]:
    """Places of models whose levels read the same features in the same surroundings, together."""
    groups: list[list[int]] = []
    for place, model in enumerate(models):
        for group in groups:
            first = models[group[0]]
            if _surroundings(first) == _surroundings(model) and same_features(first.features, model.features):
                group.append(place)
                break
        else:
            groups.append([place])
    return groups


def _surroundings(model: Layered) -> tuple[int, ...]:
    each = [(model.level_reach(level), model.level_tile(level)) for level in range(model.n_levels)]
    return (model.n_classes, model.receptive_field, *(number for pair in each for number in pair))


def same_features(one: FeatureSet, other: FeatureSet) -> bool:
    return one is other or (
        type(one) is type(other) and one.settings() == other.settings() and _same_arrays(one.arrays(), other.arrays())
    )


def same_stack(one: ForestStack, other: ForestStack) -> bool:
    """Whether two stacks give the same answers because they are the same arrays."""
    return one is other or (
        (one.classes, one.n_levels, one.tolerance) == (other.classes, other.n_levels, other.tolerance)
        and [one.is_softmax(k) for k in range(one.n_levels)] == [other.is_softmax(k) for k in range(one.n_levels)]
        and same_features(one.features, other.features)
        and all(_same_arrays(_parts(a), _parts(b)) for a, b in zip(one.levels, other.levels, strict=True))
    )


def _parts(forest: Forest) -> dict[str, Any]:
    return {part.name: getattr(forest, part.name) for part in fields(forest)}


def _same_arrays(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)
