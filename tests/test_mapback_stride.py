"""Map Back 2 from every so many-th row and column of the images."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import hedgerow as hr  # noqa: E402
from fuzzy_trees import altered  # noqa: E402
from hedgerow import mapback, synthetic  # noqa: E402
from hedgerow.context import reached_leaves  # noqa: E402
from hedgerow.layout import Source, lattice  # noqa: E402
from hedgerow.mapping import to_convnet, to_forest  # noqa: E402
from hedgerow.progress import silent  # noqa: E402
from net_stacks import random_stack, read_by, whole_numbers  # noqa: E402
from refusals import assert_one_sentence, assert_refused  # noqa: E402


def reached(stack, image, level):
    """(T,H,W) leaves of all pixels."""
    channels, reach, outside = read_by(stack, image, level)
    return reached_leaves(stack.levels[level], channels, None, reach, outside)


def means(leaves, scores, votes):
    """The mean of scores (C,n) by leaf (n,), one after the other; votes (L,C) where there is none."""
    found = votes.copy()
    for leaf in np.unique(leaves):
        found[leaf] = scores[:, leaves == leaf].mean(axis=1)
    return found


def test_of_one_level_the_means_are_over_the_lattice_of_what_the_whole_network_says():
    stack = random_stack(2, n_levels=1, max_depth=4)
    net, images = altered(to_convnet(stack), 3), [whole_numbers(seed, size=(11, 8)) + 0.25 for seed in (0, 1)]
    first, found = to_forest(net, method="weights"), to_forest(net, images, "leaf_mean", stride=3, progress=silent)
    expected = first.levels[0].votes
    for tree in range(stack.levels[0].n_trees):
        leaves, scores = [], []
        for image in images:
            grid = lattice(*image.shape[1:], 1)
            whole = list(net.level(0).tree_scores(net.source(image), grid))[tree]
            leaves.append(reached(first, image, 0)[tree, ::3, ::3].ravel())
            scores.append(whole.numpy()[:, ::3, ::3].reshape(len(whole), -1))
        expected = means(np.concatenate(leaves), np.concatenate(scores, axis=1), expected)
    np.testing.assert_allclose(found.levels[0].votes, expected, rtol=0, atol=2e-6)
    assert (
        np.abs(found.levels[0].votes - to_forest(net, images, "leaf_mean", progress=silent).levels[0].votes).max() > 0
    )


@pytest.mark.parametrize("stride", [2, 5])
def test_above_the_network_reads_its_level_below_on_the_lattice_as_in_training(stride):
    stack = random_stack(4, n_levels=2, max_depth=4, reach=3)
    net, image = altered(to_convnet(stack), 5), whole_numbers(0, size=(13, 17)) + 0.25
    found = to_forest(net, [image], "leaf_mean", stride=stride, progress=silent)
    grid, source = lattice(13, 17, stride), net.source(image)
    with torch.no_grad():
        below = net(source, [grid, grid])[0]
        trees = list(net.level(1).tree_scores(Source(source.features, below, grid), grid))
    expected = to_forest(net, method="weights").levels[1].votes
    leaves = grid.of(reached(found, image, 1))  # of the stack whose first level has the new votes
    for leaf, scores in zip(leaves, trees, strict=True):
        expected = means(leaf.ravel(), scores.numpy().reshape(len(scores), -1), expected)
    np.testing.assert_allclose(found.levels[1].votes, expected, rtol=0, atol=2e-6)


def test_what_is_kept_between_levels_does_not_change_the_votes(monkeypatch):
    net = altered(to_convnet(random_stack(1, n_levels=3)))
    images = [whole_numbers(seed, size=size) for seed, size in enumerate([(9, 7), (1, 1), (4, 12)])]
    for method in ("leaf_mean", "fitted"):
        kept = to_forest(net, images, method, stride=4, progress=silent)
        monkeypatch.setattr(mapback, "KEPT", 0)
        forgotten = to_forest(net, images, method, stride=4, progress=silent)
        monkeypatch.undo()
        for mine, theirs in zip(kept.levels, forgotten.levels, strict=True):
            np.testing.assert_array_equal(mine.votes, theirs.votes)


def test_depth_images_are_mapped_back_from_a_lattice():
    images, labels = synthetic.bodies(2, seed=0, size=(40, 30))
    config = hr.StackConfig.kinect(n_trees=2, max_depth=5)
    net = altered(to_convnet(hr.fit_stack(images, labels, config, progress=silent)))
    every, some = (to_forest(net, images, stride=stride, progress=silent) for stride in (1, 3))
    some.validate()
    assert (every.levels[1].votes != some.levels[1].votes).any()
    assert np.mean([every.predict(image) == some.predict(image) for image in images]) > 0.9


def test_the_command_takes_a_stride(hedgerow, net_file, place, refined, example):
    finished = hedgerow("back", net_file, place / "images", "-o", place / "forest.hedge", "--stride", 2)
    assert finished.code == 0, finished.err
    expected = to_forest(refined, example.images, stride=2, progress=silent)
    found = hr.load(place / "forest.hedge")
    for mine, theirs in zip(found.levels, expected.levels, strict=True):
        np.testing.assert_array_equal(mine.votes, theirs.votes)
    assert_refused(hedgerow("back", net_file, place / "images", "-o", place / "x.hedge", "--stride", 0), "stride")


@pytest.mark.parametrize(("method", "stride"), [("fitted", 0), ("weights", 2), ("soft", 2)])
def test_strides_that_mean_nothing_are_refused(net, example, method, stride):
    with pytest.raises(hr.ConfigError) as problem:
        to_forest(net, example.images, method, stride=stride)
    assert_one_sentence(problem, stride, "stride")
