"""Networks to map back, and what is compared of the forests that come of it."""

from dataclasses import fields

import numpy as np

from hedgerow.forest.level_input import whole_input
from hedgerow.forest.walk import reached_leaves
from hedgerow.network.mapping import to_convnet
from helpers.net_stacks import read_by


def assert_same_forests(result, expected, but=()):
    for mine, theirs in zip(result.levels, expected.levels, strict=True):
        for field in fields(theirs):
            if field.name not in but:
                np.testing.assert_array_equal(getattr(mine, field.name), getattr(theirs, field.name), field.name)


def assert_same_decisions(result, expected, image):
    """Both stacks lead every pixel to the same leaves, level after level."""
    for level in range(expected.n_levels):
        leaves = [
            reached_leaves(stack.levels[level], whole_input(*read_by(stack, image, level)))
            for stack in (result, expected)
        ]
        np.testing.assert_array_equal(*leaves)


def network(stack, kind):
    """A network of a kind of split, or of soft splits with a leaf activation or connections of a kind."""
    if kind in ("hard", "tanh", "crelu"):
        return to_convnet(stack, kind)
    name = "activation" if kind in ("exp", "softmax") else "connections"
    return to_convnet(stack, "soft", **{name: kind})
