"""A stack of forests as a network: its layers and weights are the paper's, and `hard` is the stack itself."""

import dataclasses
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import hedgerow as hr
from hedgerow.config import Sharpness
from hedgerow.errors import ConfigError
from hedgerow.kernels.definition.outputs import normalise
from hedgerow.network import stacknet
from hedgerow.network.layout import Grid, Source
from hedgerow.network.mapping import DEFAULT_SHARPNESS, to_convnet
from helpers.leaf_paths import leaf_paths
from helpers.net_stacks import (
    SIZE,
    SPLITS,
    random_stack,
    read_by,
    scores_of,
    split_inputs,
    tied,
    whole_numbers,
)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("n_levels", [1, 2, 3])
def test_a_stack_of_k_levels_has_3k_minus_1_hidden_layers(n_levels, split):
    stack = random_stack(n_levels=n_levels, n_probes=2)
    stack.levels[0].weight[stack.levels[0].is_split.argmax(), 1] = 0  # an unused probe is no weight
    *hidden, last = to_convnet(stack, split).layers()
    assert len(hidden) == 3 * n_levels - 1
    assert [layer.name for layer in hidden] == [f"H{number}" for number in range(1, 3 * n_levels)]
    assert last.name == "output"
    for k, forest in enumerate(stack.levels):
        splits, leaves, output = (*hidden, last)[3 * k : 3 * k + 3]
        n_splits, probes = int(forest.is_split.sum()), int((forest.weight[forest.is_split] != 0).sum())
        assert splits.neurons == n_splits * (2 if split in ("soft", "crelu") else 1)
        assert splits.weights == probes + n_splits
        assert leaves.neurons == forest.n_leaves
        assert leaves.weights == len(leaf_paths(forest).node) + forest.n_leaves
        assert output.neurons == 3
        assert output.weights == forest.n_leaves * 3


@pytest.mark.parametrize("split", SPLITS)
def test_parameters_are_the_papers(split):
    stack = random_stack(n_probes=2)
    # The leaves of the second forest are not numbered in the order of its nodes.
    second = stack.levels[1]
    mirrored = np.where(second.is_split, second.leaf_index, second.n_leaves - 1 - second.leaf_index)
    stack = replace(stack, levels=(stack.levels[0], replace(second, leaf_index=mirrored)))
    sharpness = [
        Sharpness(1.0 if split == "hard" else 8.0, 1.0 if split == "soft" else 2.5, 0.25),
        Sharpness(1.0 if split == "hard" else 20.0, 1.0 if split == "soft" else 4.0, 3.0),
    ]
    net = to_convnet(stack, split, sharpness)
    for number, (forest, alpha) in enumerate(zip(stack.levels, sharpness, strict=True)):
        level, splits = net.level(number), np.flatnonzero(forest.is_split)
        np.testing.assert_array_equal(level.split_weight.detach(), np.float32(alpha.split) * forest.weight[splits])
        np.testing.assert_array_equal(level.split_bias.detach(), -np.float32(alpha.split) * forest.threshold[splits])
        leaves = forest.leaf_index[~forest.is_split]
        np.testing.assert_array_equal(level.vote_weight.detach(), np.float32(alpha.vote) * forest.votes[leaves])
        paths = leaf_paths(forest)
        for neuron, leaf in enumerate(leaves):
            steps = slice(paths.start[leaf], paths.start[leaf + 1])
            mine = level.wiring.edge_leaf == neuron
            np.testing.assert_array_equal(splits[level.wiring.edge_split[mine]], paths.node[steps])
            np.testing.assert_array_equal(level.wiring.edge_sign[mine], paths.sign[steps])
            if split in ("hard", "tanh"):
                np.testing.assert_array_equal(level.leaf_weight[mine], np.float32(alpha.leaf) * paths.sign[steps])
                assert level.leaf_bias[neuron] == -np.float32(alpha.leaf) * (mine.sum() - 1)
            else:
                np.testing.assert_array_equal(level.leaf_weight[mine], np.float32(alpha.leaf))
                assert level.leaf_bias[neuron] == 0
        assert level.split_weight.requires_grad
        assert level.split_bias.requires_grad
        assert level.vote_weight.requires_grad
        assert not level.leaf_weight.requires_grad
        assert not level.leaf_bias.requires_grad


def test_one_sharpness_serves_all_levels():
    net = to_convnet(random_stack(n_levels=3), "tanh", Sharpness(7.0, 2.0, 0.1))
    assert [net.level(k).sharpness for k in range(3)] == [Sharpness(7.0, 2.0, 0.1)] * 3
    default = to_convnet(random_stack())
    assert default.split == "soft"
    assert default.level(0).activation == "exp"
    assert default.level(1).sharpness == DEFAULT_SHARPNESS["soft"]


def assert_same_decisions(stack, image):
    net = to_convnet(stack, "hard")
    ours, theirs = net.level_outputs(image), stack.level_outputs(image)
    for level, (mine, its) in enumerate(zip(ours, theirs, strict=True)):
        assert mine.dtype == np.float32
        np.testing.assert_allclose(mine, its, atol=1e-6, rtol=0, err_msg=f"level {level}")
        np.testing.assert_array_equal(mine.argmax(axis=0), its.argmax(axis=0), err_msg=f"level {level}")
    np.testing.assert_array_equal(net.predict(image), stack.predict(image))
    np.testing.assert_allclose(net.predict_proba(image), stack.predict_proba(image), atol=1e-6, rtol=0)


def test_hard_is_the_grown_stack(grown):
    stack, image = grown
    assert_same_decisions(stack, image)
    assert len(np.unique(stack.predict(image))) == 3


def assert_ties_are_decided_alike(stack, image):
    for level in range(stack.n_levels):
        ties = split_inputs(stack, image, level) == 0
        assert ties.any(axis=1).all(), "every split meets its threshold somewhere"
    assert_same_decisions(stack, image)


@pytest.mark.parametrize("case", [{}, {"radii": (0, 1, 3)}, {"n_trees": 8, "leaf_chance": 0.5}])
@pytest.mark.parametrize("seed", range(3))
def test_hard_is_the_stack_where_values_meet_thresholds(seed, case):
    image = whole_numbers(seed)
    assert_ties_are_decided_alike(random_stack(seed, n_levels=3, image=image, **case), image)


@pytest.mark.parametrize("radii", [(0,), (0, 2)])
def test_hard_is_the_stack_where_sums_of_probes_meet_thresholds(radii):
    for seed in range(3):
        image = whole_numbers(seed)
        assert_ties_are_decided_alike(random_stack(seed, n_levels=3, image=image, n_probes=3, radii=radii), image)


def test_hard_is_the_grown_stack_where_values_meet_thresholds(grown):
    stack, image = grown
    rng = np.random.default_rng(0)
    for level, forest in enumerate(stack.levels):
        channels, reach, outside = read_by(stack, image, level)
        forest = tied(forest, channels, rng, reach, outside)
        stack = replace(stack, levels=(*stack.levels[:level], forest, *stack.levels[level + 1 :]))
    assert_ties_are_decided_alike(stack, image)


def test_hard_is_the_stack_with_many_classes():
    image = whole_numbers(5)
    assert_same_decisions(random_stack(5, n_levels=4, n_classes=22, image=image), image)


def test_inner_outputs_are_normalised_votes():
    image = whole_numbers(2)
    stack = random_stack(2, n_levels=2)
    first = to_convnet(stack, "hard").level(0)
    grid = Grid(0, 0, *SIZE)
    scores = first(Source(torch.from_numpy(image[:, None])), grid).detach().numpy()[:, 0]
    np.testing.assert_allclose(to_convnet(stack, "hard").level_outputs(image)[0], normalise(scores), atol=1e-6)
    np.testing.assert_allclose(scores / scores.sum(axis=0), stack.level_outputs(image)[0], atol=1e-6)


@pytest.mark.parametrize(
    ("split", "sharpness", "ends"),
    [
        ("tanh", [Sharpness(a, b, 1.0) for a, b in ((3.0, 1.0), (30.0, 3.0), (1e3, 10.0), (1e6, 40.0))], 1e-5),
        ("soft", [Sharpness(a, 1.0, 1.0) for a in (1.0, 10.0, 1e3, 1e6)], 1e-5),
        ("crelu", [Sharpness(a, 1.0, 1.0) for a in (1.0, 10.0, 1e3, 1e6)], 1e-5),
    ],
)
def test_sharper_networks_tend_to_the_hard_one(split, sharpness, ends):
    image, stack = whole_numbers(1), random_stack(1)  # thresholds of random forests are met nowhere
    hard = [output.detach() for output in scores_of(to_convnet(stack, "hard"), image)]
    errors = []
    for one in sharpness:
        outputs = scores_of(to_convnet(stack, split, one), image)
        errors.append([float((mine - its).abs().mean().detach()) for mine, its in zip(outputs, hard, strict=True)])
    for level in range(2):
        each = [error[level] for error in errors]
        assert each == sorted(each, reverse=True), each
        assert each[0] > 0.01
        assert each[-1] < ends
    sharpest = to_convnet(stack, split, sharpness[-1])
    np.testing.assert_array_equal(sharpest.predict(image), stack.predict(image))


REFUSED = {
    "unknown split": ({"split": "firm"}, "split is 'firm'"),
    "unknown connections": ({"connections": "loose"}, "connections is 'loose'"),
    "too few sharpnesses": ({"sharpness": [Sharpness()]}, "1 sharpnesses for 2 levels"),
    "too many sharpnesses": ({"sharpness": [Sharpness()] * 3}, "3 sharpnesses for 2 levels"),
    "soft with a leaf sharpness": ({"sharpness": Sharpness(leaf=2.0)}, "Sharpness.leaf at 1"),
    "soft, one level": ({"sharpness": [Sharpness(), Sharpness(leaf=0.5)]}, "Sharpness.leaf at 1"),
    "hard with a split sharpness": ({"split": "hard", "sharpness": Sharpness(30.0)}, "Sharpness.split at 1"),
    "activation of another split": ({"split": "tanh", "activation": "exp"}, "activation of 'tanh' splits is 'exp'"),
    "crelu without softmax": ({"split": "crelu", "activation": "exp"}, "it must be one of softmax"),
    "soft with a sigmoid": ({"activation": "sigmoid"}, "it must be one of exp, softmax"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_mapped_is_refused_in_one_sentence(case):
    options, message = REFUSED[case]
    with pytest.raises(ConfigError) as caught:
        to_convnet(random_stack(), **options)
    assert_one_sentence(str(caught.value), message)


def test_too_many_connections_are_refused(monkeypatch):
    stack = random_stack()
    forest = stack.levels[0]
    monkeypatch.setattr(stacknet, "MAX_DENSE_WEIGHTS", 2 * int(forest.is_split.sum()) * forest.n_leaves - 1)
    with pytest.raises(ConfigError) as caught:
        to_convnet(stack, "soft", connections="full")
    assert_one_sentence(str(caught.value), "connections='sparse'")
    to_convnet(replace(stack, levels=stack.levels[:1]), "tanh", connections="full")


def assert_one_sentence(text, part):
    assert part in text
    assert text.endswith(".")
    assert ". " not in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("split", "activation"), [("tanh", "sigmoid"), ("soft", "exp"), ("soft", "softmax"), ("crelu", "softmax")]
)
@pytest.mark.parametrize("connections", ["sparse", "full"])
def test_trainable_connections_start_as_the_tree(split, activation, connections):
    image, stack = whole_numbers(3), random_stack(3, n_trees=2)
    sharpness = Sharpness(3.0, 1.0, 0.5)
    frozen = scores_of(to_convnet(stack, split, sharpness, activation=activation), image)
    net = to_convnet(stack, split, sharpness, activation=activation, connections=connections)
    outputs = scores_of(net, image)
    for mine, its in zip(outputs, frozen, strict=True):
        np.testing.assert_allclose(mine.detach(), its.detach(), atol=2e-5)
    slope = torch.randn(outputs[-1].shape, generator=torch.Generator().manual_seed(0))
    (outputs[-1] * slope).sum().backward()
    for number in range(2):
        level = net.level(number)
        for parameter in (level.leaf_weight, level.leaf_bias):
            assert parameter.requires_grad
            assert torch.isfinite(parameter.grad).all()
            assert parameter.grad.abs().max() > 1e-4
    n_splits, pair = level.wiring.n_splits, 1 if split == "tanh" else 2
    if connections == "full":
        assert level.leaf_weight.shape == (pair * n_splits, level.wiring.n_leaves)
        assert (level.leaf_weight.grad != 0).float().mean() > 0.5, "also between a leaf and splits of other paths"
    else:
        assert level.leaf_weight.shape == (len(level.wiring.edge_leaf),)


@pytest.mark.parametrize("split", SPLITS)
def test_features_are_read_again_at_every_level(split):
    stack = random_stack(4, n_levels=3)
    net, image = to_convnet(stack, split), torch.from_numpy(whole_numbers(4)[:, None])
    grid = Grid(0, 0, *SIZE)
    before = torch.rand((3, *grid.size), generator=torch.Generator().manual_seed(0))
    for number in (1, 2):
        seen = net.level(number)(Source(image, before, grid), grid)
        unseen = net.level(number)(Source(torch.zeros_like(image), before, grid), grid)
        other = net.level(number)(Source(image, -before, grid), grid)
        assert (seen - unseen).abs().max() > 0.01
        assert (seen - other).abs().max() > 0.01


def test_gradients_flow_from_the_last_level_to_the_first():
    stack = random_stack(6, n_levels=3)
    net = to_convnet(stack, "soft", Sharpness(3.0, 1.0, 0.5))
    entropies = []
    channels, *_ = read_by(stack, whole_numbers(6), 0)
    outputs = net(Source(torch.from_numpy(channels[:, None])), [Grid(0, 0, *SIZE)] * 3, entropies)
    for number, entropy in enumerate(entropies):
        largest = np.log(np.bincount(net.level(number).wiring.leaf_tree)).sum()
        assert entropy.min() > 0
        assert entropy.max() < largest, "that of leaves that are equally likely, summed over the trees"
    assert len(entropies) == 3
    outputs[-1][0].sum().backward()
    for name, parameter in net.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad.abs().max() > 1e-5, name


def test_mapping_leaves_the_stack_as_it_was():
    stack = random_stack()
    before = [getattr(f, field.name) for f in stack.levels for field in dataclasses.fields(f)]
    before = [np.array(part) for part in before]
    net = to_convnet(stack, "hard")
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(1)
    after = [getattr(f, field.name) for f in stack.levels for field in dataclasses.fields(f)]
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_moved_model_is_a_new_model(stack):
    net = to_convnet(stack)
    for model in (stack, net):
        for device in ("cpu", torch.device("cpu")):
            moved = model.to(device)
            assert moved is not model
            assert str(moved.device) == "cpu"
        with pytest.raises(ConfigError, match="the device is 'tpu'"):
            model.to("tpu")
    net.to("cpu").set_tolerance(0.25)
    assert net.level(0).tolerance == 0


def test_a_network_is_softened_once_however_it_travels(stack, tmp_path):
    net = to_convnet(stack)
    assert not net.relaxed
    net.relax(0.5)
    soft = hr.to_forest(net, method="soft")
    hr.save(soft, tmp_path / "soft.hedge")
    assert to_convnet(hr.load(tmp_path / "soft.hedge")).relaxed
    hr.save(net, tmp_path / "net.hedge")
    assert hr.load(tmp_path / "net.hedge").relaxed
    assert not to_convnet(hr.to_forest(net, method="weights")).relaxed
