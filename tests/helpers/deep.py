"""Small deep stacks, quickly made."""

import numpy as np

import hedgerow as hr
from hedgerow.predict.evaluate import labelled_for

SMALL = hr.ConvConfig(base=2, n_down=2, n_steps=4, batch=2, check_every=2, crop=16)
STACK = hr.StackConfig(n_levels=2, n_trees=2, max_depth=4, drop_levels=False, sigmas=(1.0, 2.0))
ONLY_EQUAL_WEIGHTS = 1.0
"""A required gain that no weights reach, so that all networks count the same: of so little training, some members
would be left out."""


def pictures(n=5, size=(24, 32), seed=0):
    """Images with a bright disc on noise, and labels 1, 4 and 9: outside, disc, and its left half."""
    rng = np.random.default_rng(seed)
    rows, columns = np.meshgrid(*map(np.arange, size), indexing="ij")
    images, labels = [], []
    for _ in range(n):
        centre = np.array(size) * rng.uniform(0.3, 0.7, 2)
        disc = (rows - centre[0]) ** 2 + (columns - centre[1]) ** 2 < (min(size) / 3) ** 2
        images.append((rng.normal(100, 15, size) + 60 * disc).astype(np.float32))
        labels.append(np.where(disc, np.where(columns < centre[1], 9, 4), 1).astype(np.uint8))
    return images, labels


def small_net(images, labels):
    """The network of a small stack on them."""
    return hr.to_convnet(hr.fit_stack(images, labels, STACK))


def small_recipe(labelled, *, has_encoder=False, required_gain=ONLY_EQUAL_WEIGHTS, **changes):
    """Of a deep stack whose networks all count the same. changes: of its settings, or other fields of the recipe"""
    from hedgerow.deep.recipe import Recipe  # needs PyTorch

    fields = {name: changes.pop(name) for name in ("train_network", "tile", "held_out", "clock") if name in changes}
    config = hr.DeepConfig(**{"n_folds": 2, "n_networks": 2, "left_out": 2, "conv": SMALL, **changes})
    return Recipe(config, labelled, has_encoder=has_encoder, required_gain=required_gain, **fields)


def deepened(net, images, labels, *, folder=None, progress=None, **changes):
    """A deep stack of this network by `small_recipe`, with every member, whatever they are worth."""
    from hedgerow.deep.fitting import deepen_labelled  # needs PyTorch

    recipe = small_recipe(labelled_for(net, images, labels), **changes)
    return deepen_labelled(net, recipe, folder=folder, progress=progress)


def small_deep(images, labels, **changes):
    """`deepened` of a small stack."""
    return deepened(small_net(images, labels), images, labels, **changes)
