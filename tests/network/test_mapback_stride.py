"""Map Back 2 from every N-th row and column of the images."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import hedgerow as hr
from hedgerow import synthetic
from hedgerow.forest.level_input import whole_input
from hedgerow.forest.walk import reached_leaves
from hedgerow.images.array_checks import to_planes
from hedgerow.network.layout import lattice
from hedgerow.network.mapback import fitted_votes, leaf_means, to_forest
from hedgerow.network.mapping import to_convnet
from hedgerow.network.vote_fit import FitSamples
from hedgerow.progress import silent
from hedgerow.threads import threads
from helpers.fuzzy_trees import altered
from helpers.net_stacks import random_stack, read_by, whole_numbers
from helpers.refusals import assert_one_sentence, assert_refused


def reached(stack, image, level):
    """(T,H,W) leaves of all pixels."""
    channels, stretch, outside = read_by(stack, image, level)
    return reached_leaves(stack.levels[level], whole_input(channels, stretch, outside))[:, 0]


def means(leaves, scores, votes):
    """The mean of scores (C,n) by leaf (n,), one after the other; votes (L,C) where there is none."""
    new_votes = votes.copy()
    for leaf in np.unique(leaves):
        new_votes[leaf] = scores[:, leaves == leaf].mean(axis=1)
    return new_votes


def test_of_one_level_the_means_are_over_the_lattice_of_what_the_whole_network_says():
    stack = random_stack(2, n_levels=1, max_depth=4)
    net, images = altered(to_convnet(stack), 3), [whole_numbers(seed, size=(11, 8)) + 0.25 for seed in (0, 1)]
    first, mapped_back = (
        to_forest(net, method="weights"),
        to_forest(net, images, "leaf_mean", stride=3, progress=silent),
    )
    expected = first.levels[0].votes
    for tree in range(stack.levels[0].n_trees):
        leaves, scores = [], []
        for image in images:
            grid = lattice(*image.shape[1:], 1)
            whole = list(net.level(0).tree_scores(net.source(image), grid))[tree]
            leaves.append(reached(first, image, 0)[tree, ::3, ::3].ravel())
            scores.append(whole.numpy()[..., ::3, ::3].reshape(len(whole), -1))
        expected = means(np.concatenate(leaves), np.concatenate(scores, axis=1), expected)
    np.testing.assert_allclose(mapped_back.levels[0].votes, expected, rtol=0, atol=2e-6)
    every = to_forest(net, images, "leaf_mean", progress=silent)
    assert (mapped_back.levels[0].votes != every.levels[0].votes).any()


def assert_upper_votes_are_means_on_the_lattice(net, image, stride):
    """Of the second level of two: the network reads its level below on the lattice, as in training."""
    mapped_back = to_forest(net, [image], "leaf_mean", stride=stride, progress=silent)
    planes = to_planes(image, layout=net.features.layout)
    grid, source = lattice(*planes.shape[1:], stride), net.source(planes)
    with torch.no_grad():
        below = net(source, [grid, grid])[0]
        trees = list(net.level(1).tree_scores(replace(source, before=below, known=grid), grid))
    expected = to_forest(net, method="weights").levels[1].votes
    leaves = grid.of(reached(mapped_back, image, 1))  # of the stack whose first level has the new votes
    for leaf, scores in zip(leaves, trees, strict=True):
        expected = means(leaf.ravel(), scores.numpy().reshape(len(scores), -1), expected)
    np.testing.assert_allclose(mapped_back.levels[1].votes, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("stride", [2, 5])
def test_above_the_network_reads_its_level_below_on_the_lattice_as_in_training(stride):
    net = altered(to_convnet(random_stack(4, n_levels=2, max_depth=4, reach=3)), 5)
    assert_upper_votes_are_means_on_the_lattice(net, whole_numbers(0, size=(13, 17)) + 0.25, stride)


def test_offsets_of_depth_images_are_stretched_on_the_lattice_too():
    images, labels = synthetic.bodies(2, seed=0, size=(40, 30))
    config = hr.StackConfig.kinect(n_trees=2, max_depth=5)
    net = altered(to_convnet(hr.fit_stack(images, labels, config, progress=silent)))
    assert_upper_votes_are_means_on_the_lattice(net, images[0], 3)


@pytest.mark.parametrize("is_fitted", [False, True])
def test_the_cache_between_levels_does_not_change_the_votes(is_fitted):
    net = altered(to_convnet(random_stack(1, n_levels=3)))
    images = [whole_numbers(seed, size=size) for seed, size in enumerate([(9, 7), (1, 1), (4, 12)])]
    cached = to_forest(net, images, "fitted" if is_fitted else "leaf_mean", stride=4, progress=silent)
    samples = FitSamples(len(images)) if is_fitted else None
    forgotten = leaf_means(net, to_forest(net, method="weights"), images, silent, samples, 4, memory=0)
    if is_fitted:
        forgotten = fitted_votes(forgotten, samples)
    for mine, theirs in zip(cached.levels, forgotten.levels, strict=True):
        np.testing.assert_array_equal(mine.votes, theirs.votes)


@pytest.mark.parametrize("stride", [1, 2])
def test_the_votes_are_the_same_on_any_number_of_threads(net, example, stride):
    stacks = []
    for count in (1, 3):
        with threads(count):
            stacks.append(to_forest(net, example.images, stride=stride, progress=silent))
    for mine, theirs in zip(*(stack.levels for stack in stacks), strict=True):
        np.testing.assert_array_equal(mine.votes, theirs.votes)


def test_the_command_takes_a_stride(hedgerow, net_file, place, refined, example):
    finished = hedgerow("back", net_file, place / "images", "-o", place / "forest.hedge", "--stride", 2)
    assert finished.code == 0, finished.err
    expected = to_forest(refined, example.images, stride=2, progress=silent)
    found = hr.load(place / "forest.hedge")
    for mine, theirs in zip(found.levels, expected.levels, strict=True):
        np.testing.assert_array_equal(mine.votes, theirs.votes)
    assert_refused(hedgerow("back", net_file, place / "images", "-o", place / "x.hedge", "--stride", 0), "stride")


@pytest.mark.parametrize(("method", "stride"), [("fitted", 0), ("fitted", 2.0), ("weights", 2), ("soft", 2)])
def test_strides_that_mean_nothing_are_refused(net, example, method, stride):
    with pytest.raises(hr.ConfigError) as problem:
        to_forest(net, example.images, method, stride=stride)
    assert_one_sentence(problem, stride, "stride")
