"""Stacks of forests for tests of their networks: random ones, full of ties if wanted, and what their levels read."""

from dataclasses import replace

import numpy as np
import torch

from hedgerow.features.channels import Channels
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.level_input import whole_input
from hedgerow.forest.walk import run_forest
from hedgerow.images.array_checks import to_planes
from hedgerow.kernels.cpu.plane_ops import box_averaged
from hedgerow.kernels.definition import forest as plain
from hedgerow.kernels.definition import level as definition
from hedgerow.kernels.wiring import places
from hedgerow.network.layout import Grid, Source, lay_out
from hedgerow.network.mapping import to_convnet
from helpers.forests import random_forest

SPLITS = ("hard", "tanh", "soft", "crelu")
SIZE = (21, 19)


def own_channels(n_inputs):
    """Features that are the image's channels, as they are."""
    zeros, ones = np.zeros(n_inputs, np.float32), np.ones(n_inputs, np.float32)
    return Channels(n_inputs, zeros, ones)


def whole_numbers(seed, n_inputs=2, size=SIZE):
    """An image (C,H,W) of few different values."""
    return np.random.default_rng(seed).integers(-3, 4, (n_inputs, *size)).astype(np.float32)


def tied(forest, channels, rng, stretch=None, outside=None):
    """The forest with thresholds that its splits meet exactly: each one's own value at some pixel."""
    radii = np.unique(forest.radius)
    beyond = [None] * len(channels) if outside is None else outside.tolist()
    # Averaged over boxes first, as the kernels do: in float32, so that they are met to the last bit.
    planes = np.concatenate(
        [[box_averaged(c[None], int(radius), b) for c, b in zip(channels, beyond, strict=True)] for radius in radii]
    )
    channel = forest.channel + len(channels) * np.searchsorted(radii, forest.radius)
    single = replace(forest, channel=channel, radius=np.zeros_like(forest.radius))
    constants = None if outside is None else np.tile(outside, len(radii))
    threshold = forest.threshold.copy()
    for node in np.flatnonzero(forest.is_split):
        row, column = (rng.integers(0, size) for size in channels.shape[1:])
        threshold[node] = plain.split_value(single, node, planes, (0, row, column), stretch, constants)
    return replace(forest, threshold=threshold)


def random_stack(seed=0, n_levels=2, n_inputs=2, n_classes=3, image=None, **shape):
    """Random forests, of as many classes; with an image, full of ties on it."""
    rng = np.random.default_rng(seed)
    levels, channels = [], image
    for level in range(n_levels):
        n_channels = n_inputs + (n_classes if level else 0)
        forest = random_forest(rng, n_channels=n_channels, n_classes=n_classes, **{"max_depth": 4, **shape})
        if image is not None:
            forest = tied(forest, channels, rng)
            channels = np.concatenate([image, run_forest(forest, whole_input(channels))[:, 0]])
        levels.append(forest)
    return ForestStack(own_channels(n_inputs), tuple(levels), tuple(range(10, 10 + n_classes)))


def read_by(stack, image, level):
    """The channels (M,H,W) that a level of the stack reads of an image, and its stretch and outside."""
    planes = to_planes(image, layout=stack.features.layout)
    channels = stack.features.compute(planes)
    if level:
        channels = np.concatenate([channels, stack.level_outputs(image)[level - 1]])
    outside = stack.features.outside(stack.n_classes)
    return channels, stack.features.stretch(planes), None if outside is None else outside[: len(channels)]


def split_inputs(stack, image, level):
    """z_H1 (N,S) of the hard network of a level, given what the stack gives it to read."""
    net = to_convnet(stack, "hard").level(level)
    channels, stretch, outside = read_by(stack, image, level)
    features, grid = stack.features.n_features, Grid(0, 0, *channels.shape[1:])
    before = torch.from_numpy(channels[features:, None]) if level else None
    source = Source(torch.from_numpy(channels[:features, None]), before, grid, stretch, outside)
    values, reads = lay_out(net.forest, net.wiring, source, grid)
    index = torch.from_numpy(places(reads, 0, grid.height * grid.width))
    return definition.split_input(values, index, net.split_weight.detach(), net.split_bias.detach()).numpy()


def scores_of(net, image):
    """Outputs of the levels on a whole image: inner ones normalised, the last one's scores."""
    channels, stretch, outside = read_by(net.stack, image, 0)
    grid = Grid(0, 0, *channels.shape[1:])
    whole = net.features.outside(net.n_classes)
    source = Source(torch.from_numpy(channels[:, None]), None, None, stretch, outside if net.n_levels == 1 else whole)
    return net(source, [grid] * net.n_levels)
