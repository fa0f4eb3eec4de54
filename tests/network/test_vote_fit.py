"""Votes fitted together: what a turn does, that it brings a forest nearer to the network, and what it leaves alone."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hedgerow.forest import level_input
from hedgerow.images.array_checks import to_planes
from hedgerow.images.regions import Region
from hedgerow.kernels.definition.outputs import softmax
from hedgerow.network import mapback, vote_fit
from hedgerow.network.mapback import to_forest
from hedgerow.network.mapping import to_convnet
from hedgerow.progress import silent
from helpers.fuzzy_trees import altered

N_LEAVES, N_CLASSES, N_SAMPLES = (4, 3), 3, 60


@pytest.fixture
def case():
    """Votes of two trees, the leaves that samples reach (the first tree's last: none), and what a network says."""
    rng = np.random.default_rng(0)
    votes = rng.random((sum(N_LEAVES), N_CLASSES)).astype(np.float32)
    leaf = np.stack([rng.integers(0, 3, N_SAMPLES), 4 + rng.integers(0, 3, N_SAMPLES)])
    said = softmax(3 * rng.random((N_CLASSES, N_SAMPLES))).astype(np.float32)
    return votes, leaf, said


def plain(votes, leaf, output):
    """Sample by sample, leaf by leaf, class by class."""
    votes = votes.astype(np.float64)
    for _ in range(vote_fit.N_PASSES):
        for tree in leaf:
            proba = [softmax(sum(votes[other[i]] for other in leaf)) for i in range(N_SAMPLES)]
            for row in np.unique(tree):
                here = [i for i in range(N_SAMPLES) if tree[i] == row]
                for c in range(N_CLASSES):
                    lacking = sum(output[c, i] - proba[i][c] for i in here)
                    curvature = sum(proba[i][c] * (1 - proba[i][c]) for i in here)
                    change = vote_fit.STEP_FRACTION * lacking / (curvature + vote_fit.PRIOR_SAMPLES)
                    votes[row, c] += np.clip(change, -vote_fit.MAX_CHANGE, vote_fit.MAX_CHANGE)
    return votes


def test_a_fit_is_that_of_the_plain_definition(case):
    votes, leaf, output = case
    votes = votes.copy()
    fitted = vote_fit.fit_votes(votes, leaf, output)
    np.testing.assert_allclose(fitted, plain(votes, leaf, output), rtol=0, atol=1e-5)
    np.testing.assert_array_equal(votes, votes, "what was given is not changed")
    np.testing.assert_array_equal(fitted[3], votes[3], "nobody reaches it")
    assert fitted.dtype == np.float32


def test_a_vote_changes_by_no_more_than_the_largest_step_of_each_turn(case):
    votes, leaf, said = case
    certain = np.zeros_like(said)
    certain[0] = 1
    votes[:, 1] += 30  # the forest is as certain of another class: no curvature holds a step back
    many = np.repeat(leaf, 200, axis=1), np.repeat(certain, 200, axis=1)
    found = vote_fit.fit_votes(votes, *many)
    assert np.abs(found - votes).max() == pytest.approx(vote_fit.N_PASSES * vote_fit.MAX_CHANGE, rel=1e-5)


def distance(forest, net, image):
    """Cross-entropy of what the forest says to what the network says, over an image."""
    target = net.predict_proba(image, progress=silent)
    return float(-(target * np.log(forest.predict_proba(image, progress=silent) + 1e-9)).sum(axis=0).mean())


@pytest.mark.parametrize("split", ["soft", "tanh", "crelu"])
def test_fitted_votes_are_nearer_to_the_network_than_means(grown, split):
    stack, image = grown
    net = altered(to_convnet(stack, split))
    mean, fitted = (to_forest(net, [image], method, progress=silent) for method in ("leaf_mean", "fitted"))
    fitted.validate()
    assert fitted.settings["mapped_back"] == "fitted"
    assert distance(fitted, net, image) < distance(mean, net, image)
    for level in range(stack.n_levels):
        for name in ("threshold", "weight", "left_child", "leaf_index"):
            mine, theirs = (getattr(each.levels[level], name) for each in (fitted, mean))
            np.testing.assert_array_equal(mine, theirs)


def test_where_the_forest_is_the_network_nothing_is_left_to_fit(grown):
    stack, image = grown
    fitted = to_forest(to_convnet(stack, "hard"), [image], "fitted", progress=silent)
    mean = to_forest(to_convnet(stack, "hard"), [image], "leaf_mean", progress=silent)
    for mine, theirs in zip(fitted.levels, mean.levels, strict=True):
        np.testing.assert_array_equal(mine.votes, theirs.votes)


@pytest.mark.parametrize(("n_samples", "n_leaves"), [(0, 3), (1, 1), (1013, 7)])
def test_sums_by_leaf_are_those_of_bincount(n_samples, n_leaves):
    rng = np.random.default_rng(n_samples)
    leaf = rng.integers(0, n_leaves, n_samples).astype(np.int32)
    planes = rng.normal(size=(3, n_samples)).astype(np.float32)
    found = vote_fit._leaf_sums(leaf, planes, n_leaves)
    np.testing.assert_array_equal(found, np.stack([np.bincount(leaf, plane, n_leaves) for plane in planes], axis=1))


def test_votes_that_fit_stay(case):
    votes, leaf, _ = case
    found = vote_fit.fit_votes(votes, leaf, softmax(vote_fit._summed(votes, leaf)))
    np.testing.assert_allclose(found, votes, rtol=0, atol=1e-6)


def test_only_the_last_level_is_fitted(grown):
    stack, image = grown
    net = altered(to_convnet(stack))
    fitted, mean = (to_forest(net, [image], method, progress=silent) for method in ("fitted", "leaf_mean"))
    for mine, theirs in zip(fitted.levels[:-1], mean.levels[:-1], strict=True):
        np.testing.assert_array_equal(mine.votes, theirs.votes)
    planes = to_planes(image, "image", net.features.layout)
    level, size = stack.n_levels - 1, (1, *planes.shape[1:])
    (part,) = mapback._Walk(net, mean, level).add(planes, 1, None)
    assert part.is_whole
    assert part.size == size
    leaves, said = (array.reshape(len(array), -1) for array in (part.leaves, part.output))
    expected = vote_fit.fit_votes(mean.levels[-1].votes, leaves, said)
    np.testing.assert_allclose(fitted.levels[-1].votes, expected, rtol=1e-5, atol=1e-5)


def test_one_walk_makes_both_forests(grown):
    stack, image = grown
    images, net = [image, image * 0.5], altered(to_convnet(stack))
    samples = vote_fit.FitSamples(len(images))
    means = mapback.leaf_means(net, to_forest(net, method="weights"), images, silent, samples)
    both = {"leaf_mean": means, "fitted": mapback.fitted_votes(means, samples)}
    for method, forests in both.items():
        expected = to_forest(net, images, method, progress=silent)
        assert forests.settings == expected.settings
        for mine, theirs in zip(forests.levels, expected.levels, strict=True):
            np.testing.assert_array_equal(mine.votes, theirs.votes)


def test_votes_do_not_depend_on_tiles(grown, monkeypatch):
    stack, image = grown
    net = altered(to_convnet(stack))
    whole = to_forest(net, [image], "fitted", progress=silent)
    monkeypatch.setattr(level_input, "fitting_tile", lambda *_: 11)
    tiled = to_forest(net, [image], "fitted", progress=silent)
    for mine, theirs in zip(tiled.levels, whole.levels, strict=True):
        np.testing.assert_allclose(mine.votes, theirs.votes, rtol=1e-4, atol=1e-4)


def test_samples_lie_on_a_lattice_of_the_whole_image_and_are_bounded():
    samples, size = vote_fit.FitSamples(n_images=4, n_samples=200), (37, 41)
    places = np.arange(size[0] * size[1]).reshape(1, *size)
    for region in (Region(0, 20, 0, 41), Region(20, 37, 0, 13), Region(20, 37, 13, 41)):
        here = region.of(places)
        samples.add(size, region, here, here)
    leaves = np.concatenate(samples._leaves, axis=1)
    np.testing.assert_array_equal(np.sort(leaves[0]), places[0, ::6, ::6].ravel())
    assert leaves.size <= 50
    np.testing.assert_array_equal(leaves, np.concatenate(samples._outputs, axis=1))
