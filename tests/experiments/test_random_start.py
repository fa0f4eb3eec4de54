"""The network from random weights: Gaussian ones in the places of the mapped network's, repeatable, and trainable."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from experiments.random_start import SIGMA, random_start, schedule
from hedgerow.config import UNALTERED, RefineConfig
from hedgerow.errors import ConfigError
from hedgerow.network import stacknet
from hedgerow.network.mapping import to_convnet
from hedgerow.progress import silent
from hedgerow.refinement.loop import refine
from hedgerow.refinement.schedules import learning_rate, momentum
from helpers.leaf_paths import leaf_paths
from helpers.net_stacks import random_stack, scores_of, whole_numbers
from helpers.refinements import assert_same_weights, weights
from helpers.refusals import assert_one_sentence

CONNECTIONS = ("sparse", "full")
# Faster than the paper's, so that a few steps show.
BRISK = RefineConfig(
    n_steps=30, learning_rate=0.2, relax=1.0, dice=0.0, stride=1, augment=UNALTERED, held_out=0.0, check_every=1
)


@pytest.fixture(autouse=True)
def one_thread():
    """Small sums are slower on many threads, and much slower where other tests use them too."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def large():
    """A stack of some thousand weights; a part of its splits use one of their two probes only."""
    stack = random_stack(n_levels=2, n_trees=6, max_depth=5, n_probes=2)
    for forest in stack.levels:
        forest.weight[np.flatnonzero(forest.is_split)[::3], 1] = 0
    return stack


def drawn_parts(net):
    """By name, what was drawn of each of the network's tensors: unused probes have no weight."""
    parts = {name: tensor.numpy().ravel() for name, tensor in weights(net).items()}
    return {name: part[part != 0] for name, part in parts.items()}


def assert_gaussian(values, sigma):
    """Within five standard errors: the mean, the deviation, and how many lie within one and within two sigma."""
    n = len(values)
    assert abs(values.mean()) < 5 * sigma / np.sqrt(n)
    assert abs(values.std() / sigma - 1) < 5 / np.sqrt(2 * n)
    for width, share in ((1, 0.6827), (2, 0.9545)):
        assert abs((np.abs(values) < width * sigma).mean() - share) < 5 * np.sqrt(share * (1 - share) / n)


@pytest.mark.parametrize("connections", CONNECTIONS)
@pytest.mark.parametrize("sigma", [None, 0.3])
def test_weights_are_gaussian(large, connections, sigma):
    net = random_start(large, connections, 0) if sigma is None else random_start(large, connections, 0, sigma)
    parts = drawn_parts(net)
    for part in parts.values():
        assert_gaussian(part, sigma or 0.01)
    everything = np.concatenate(list(parts.values()))
    assert len(everything) > 1500
    assert len(np.unique(everything)) > 0.99 * len(everything), "no two tensors are the same draw"
    assert SIGMA == 0.01


@pytest.mark.parametrize("connections", CONNECTIONS)
def test_the_architecture_is_the_mapped_networks(large, connections):
    net, mapped = random_start(large, connections, 0), to_convnet(large, "tanh", connections=connections)
    assert net.layers() == mapped.layers()
    assert (net.split, net.output, net.classes) == ("tanh", "softmax", large.classes)
    shapes = {name: tensor.shape for name, tensor in weights(mapped).items()}
    assert {name: tensor.shape for name, tensor in weights(net).items()} == shapes
    for number, forest in enumerate(large.levels):
        level, n_splits = net.level(number), int(forest.is_split.sum())
        assert level.connections == connections
        assert (level.activation, level.tolerance) == ("sigmoid", 0)
        edges = len(leaf_paths(forest).node)
        assert level.leaf_weight.shape == ((edges,) if connections == "sparse" else (n_splits, forest.n_leaves))
        assert all(parameter.requires_grad for parameter in level.parameters())
        # Connections that only "full" has are drawn as well; probes that the forest does not have are not.
        unused = forest.weight[level.wiring.node_split] == 0
        assert unused.any()
        np.testing.assert_array_equal(level.split_weight.detach().numpy() == 0, unused)


@pytest.mark.parametrize("connections", CONNECTIONS)
def test_nothing_of_the_forests_votes_and_thresholds_is_left(connections):
    """Two stacks of the same shape start alike."""
    stack = random_stack(1)
    other = replace(
        stack, levels=tuple(replace(f, threshold=f.threshold + 1, votes=f.votes[::-1].copy()) for f in stack.levels)
    )
    assert_same_weights(random_start(other, connections, 4), random_start(stack, connections, 4))


@pytest.mark.parametrize("connections", CONNECTIONS)
def test_same_seed_same_weights_and_the_global_generator_is_left_alone(large, connections):
    before = torch.get_rng_state()
    first = random_start(large, connections, 3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    assert_same_weights(random_start(large, connections, 3), first)
    other = weights(random_start(large, connections, 4))
    for name, tensor in weights(first).items():
        used = tensor != 0
        assert (other[name] != tensor)[used].float().mean() > 0.99, name


def test_sigma_is_a_factor(large):
    one, ten = (weights(random_start(large, "sparse", 2, sigma)) for sigma in (0.01, 0.1))
    for name, tensor in one.items():
        torch.testing.assert_close(ten[name], 10 * tensor)


def test_the_stack_stays_as_it_was(large):
    before = [array.copy() for f in large.levels for array in (f.weight, f.threshold, f.votes)]
    random_start(large, "sparse", 0)
    after = [array for f in large.levels for array in (f.weight, f.threshold, f.votes)]
    for found, expected in zip(after, before, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("connections", CONNECTIONS)
def test_a_random_network_answers_nearly_the_same_for_every_class(connections):
    """Leaves are half active and votes are small, so the scores are small too: it knows nothing yet."""
    stack, image = random_stack(2), whole_numbers(2)
    net = random_start(stack, connections, 0)
    scores = scores_of(net, image)[-1].detach().numpy()
    expected = 0.5 * net.level(1).vote_weight.detach().numpy().sum(axis=0)
    np.testing.assert_allclose(scores, np.broadcast_to(expected[:, None, None, None], scores.shape), atol=0.02)
    np.testing.assert_allclose(net.predict_proba(image), 1 / 3, atol=0.1)


@pytest.mark.parametrize("connections", CONNECTIONS)
def test_a_random_network_learns_more_than_how_frequent_the_classes_are(stack, example, connections):
    image, labels = example.images[:1], example.labels[:1]
    net = random_start(stack, connections, 0)
    trained = refine(net, image, labels, BRISK, progress=silent)
    share = np.unique(labels[0], return_counts=True)[1] / labels[0].size
    constant = -(share * np.log(share)).sum()  # the best loss of an answer that is the same everywhere
    losses = [check.loss for check in trained.refinements[-1].checks]
    assert losses[0] > constant
    assert losses[-1] < 0.7 * constant
    for name, start in weights(net).items():
        assert not torch.equal(weights(trained)[name], start), name
    for number in range(net.n_levels):
        assert trained.level(number).connections == connections


@pytest.mark.parametrize("connections", CONNECTIONS)
def test_the_papers_schedule_lowers_the_loss(stack, example, connections):
    """At a higher rate and on every pixel, since 3e-5 shows after hundreds of steps only."""
    config = replace(schedule(10, 0), learning_rate=0.03, stride=1, check_every=1)
    net = random_start(stack, connections, 0)
    trained = refine(net, example.images[:1], example.labels[:1], config, progress=silent)
    losses = [check.loss for check in trained.refinements[-1].checks[1:]]
    assert len(losses) == 10
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] - 5e-5


def test_the_schedule_is_the_papers():
    config = schedule(2500, 7)
    assert (config.n_steps, config.seed, config.optimiser, config.loss) == (2500, 7, "sgd", "balanced")
    assert [learning_rate(config, step) for step in (0, 96, 288)] == pytest.approx([3e-5, 1.5e-5, 0.75e-5])
    assert [momentum(config, step) for step in (0, 95, 96, 2499)] == [0.4, 0.4, 0.99, 0.99]
    # All images train, as they are, and the weights are not softened before.
    assert (config.augment, config.held_out, config.relax, config.dice) == (UNALTERED, 0.0, 1.0, 0.0)


def test_too_many_connections_are_refused(large, monkeypatch):
    monkeypatch.setattr(stacknet, "MAX_DENSE_WEIGHTS", 10)
    with pytest.raises(ConfigError) as refusal:
        random_start(large, "full", 0)
    assert_one_sentence(refusal, "connections='sparse'")


def test_unknown_connections_are_refused(large):
    with pytest.raises(ConfigError) as refusal:
        random_start(large, "loose", 0)
    assert_one_sentence(refusal, "'loose'", "sparse")
