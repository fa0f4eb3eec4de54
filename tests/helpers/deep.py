"""Small deep stacks, quickly made."""

from contextlib import contextmanager

import numpy as np
import pytest

import hedgerow as hr

SMALL = hr.ConvConfig(base=2, n_down=2, n_steps=4, batch=2, check_every=2, crop=16)
STACK = hr.StackConfig(n_levels=2, n_trees=2, max_depth=4, drop_levels=False, sigmas=(1.0, 2.0))


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


def small_deep(images, labels, **changes):
    """A deep stack with every member, whatever they are worth."""
    config = hr.DeepConfig(**{"n_folds": 2, "n_networks": 2, "left_out": 2, "conv": SMALL, **changes})
    return hr.deepen(small_net(images, labels), images, labels, config)


@contextmanager
def equal_weights():
    """All members count the same, whatever they are worth: of so little training, some would be left out."""
    from hedgerow.deep import fitting  # needs PyTorch

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "find_weights", lambda said, target, *usual: {name: 1 / len(said) for name in said})
        yield
