"""Small volumes with labels: a ball and a wall in noise."""

import numpy as np

import hedgerow as hr

CONFIG = hr.StackConfig(
    n_levels=2, n_trees=3, max_depth=6, min_split=8, sigmas=(1.0,), drop_levels=False,
    sampling=hr.SamplingConfig(step=1), context=hr.ContextConfig(window=5, n_offsets=4),
)  # fmt: skip


def labelled_volume(seed, size=(5, 14, 16)):
    """A volume (Z,Y,X) float32 and its labels: 0, a ball 1, and a wall 2."""
    z, y, x = np.indices(size)
    depth, height, width = size
    inside = (2 * (z - depth // 2)) ** 2 + (y - height / 2) ** 2 + (x - width / 2) ** 2 < (height / 3) ** 2
    labels = np.where(x < 3, 2, inside).astype(np.uint8)
    noise = np.random.default_rng(seed).normal(0, 0.6, size)
    return (labels + noise).astype(np.float32), labels


def labelled_volumes(n=4, size=(5, 14, 16)):
    """Lists of n volumes and their labels."""
    volumes, labels = zip(*(labelled_volume(seed, size) for seed in range(n)), strict=True)
    return list(volumes), list(labels)
