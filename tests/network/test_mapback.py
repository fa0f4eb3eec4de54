"""Networks mapped back to forests: the paper's Map Back 1 and 2; what all ways back have in common."""

import weakref
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import hedgerow as hr
from hedgerow.errors import ConfigError, InputError, ModelError
from hedgerow.forest import level_input
from hedgerow.forest.arrays import LEAF, ForestStack
from hedgerow.forest.level_input import whole_input
from hedgerow.forest.walk import reached_leaves
from hedgerow.network.layout import Grid
from hedgerow.network.mapback import METHODS, leaf_means, to_forest
from hedgerow.network.mapping import to_convnet
from hedgerow.progress import silent
from helpers.forests import grown_stack, random_forest
from helpers.fuzzy_trees import PARAMETERS, algorithm_1, altered, hard_twin
from helpers.mapped_back import assert_same_decisions, assert_same_forests, network
from helpers.model_files import assert_same_model
from helpers.net_stacks import own_channels, random_stack, read_by, whole_numbers
from helpers.refinements import SHORT, is_finite, run
from helpers.refusals import assert_one_sentence

FEW_STEPS = replace(SHORT, n_steps=2)


# Round trips


def test_the_hard_network_mapped_back_is_the_stack(grown):
    stack, image = grown
    back = to_forest(to_convnet(stack, "hard"), method="weights")
    assert_same_forests(back, stack)
    assert back.output == "normalise"
    for mine, theirs in zip(back.level_outputs(image), stack.level_outputs(image), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("split", ["tanh", "soft", "crelu"])
def test_splits_that_did_not_train_keep_their_thresholds(grown, split):
    stack, image = grown
    back = to_forest(to_convnet(stack, split), method="weights")
    assert back.output == "softmax", "its votes are for a softmax"
    if stack.levels[0].weight.shape[1] == 1:
        assert_same_forests(back, stack, but=("votes",))
        assert_same_decisions(back, stack, image)


@pytest.mark.parametrize("kind", ["ties", "depth"])
def test_oblique_splits_that_did_not_train_decide_as_before(kind):
    image = whole_numbers(0)
    stack, image = grown_stack(kind) if kind == "depth" else (random_stack(0, image=image, n_probes=3), image)
    assert_same_decisions(to_forest(to_convnet(stack), method="weights"), stack, image)


def test_where_one_neuron_fires_map_back_2_is_map_back_1(grown):
    stack, image = grown
    net = altered(to_convnet(stack, "hard"))
    first, second = to_forest(net, method="weights"), to_forest(net, [image], "leaf_mean", progress=silent)
    assert_same_forests(second, first)
    assert second.settings["mapped_back"] == "leaf_mean"
    np.testing.assert_array_equal(second.predict_proba(image), first.predict_proba(image))


# Map Back 1


@pytest.mark.parametrize("is_whole", [False, True], ids=["any weights", "ties and zeros"])
@pytest.mark.parametrize("n_probes", [1, 3])
@pytest.mark.parametrize("seed", [0, 1])
def test_map_back_1_decides_as_hard_splits_of_the_same_weights(seed, n_probes, is_whole):
    image = whole_numbers(seed)
    stack = random_stack(seed, n_levels=3, n_probes=n_probes, n_trees=5, image=image)
    net = altered(to_convnet(stack, "soft"), seed, is_whole=is_whole)
    weight, bias = (getattr(net.level(0), name).detach().numpy() for name in PARAMETERS[:2])
    if is_whole and n_probes == 1:
        for sign in (bias >= 0, bias < 0):
            assert ((weight[:, 0] == 0) & sign).any(), "nothing is read, and all go to one side"
            assert ((weight[:, 0] < 0) & sign).any(), "children are exchanged"
    back, twin = to_forest(net, method="weights"), hard_twin(net)
    back.validate()
    *inner, last = zip(back.level_outputs(image), twin.level_outputs(image), strict=True)
    for mine, theirs in inner:
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_allclose(*last, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(last[0].argmax(0), last[1].argmax(0))


def test_map_back_1_decides_so_on_every_kind_of_image(grown):
    stack, image = grown
    net = altered(to_convnet(stack, "tanh"), size=2.0)
    back, twin = to_forest(net, method="weights"), hard_twin(net)
    for mine, theirs in zip(back.level_outputs(image)[:-1], twin.level_outputs(image), strict=False):
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_allclose(back.predict_proba(image), twin.predict_proba(image), rtol=0, atol=1e-6)


def stumps(weight, bias):
    """A network of as many trees of one split each, over one channel: neurons 2t (left) and 2t + 1 of tree t."""
    n = len(weight)
    forest = random_forest(np.random.default_rng(0), n, 1, n_channels=1, n_classes=2, reach=0, leaf_chance=0)
    net = to_convnet(ForestStack(own_channels(1), (forest,), (0, 1)), "soft")
    with torch.no_grad():
        net.level(0).split_weight.copy_(torch.from_numpy(weight[:, None]))
        net.level(0).split_bias.copy_(torch.from_numpy(bias))
    return net


def assert_thresholds_are_met(weight, bias, values):
    """values: (S,) what splits read; right iff w x + b >= 0, in float32 as the network computes it."""
    forest = to_forest(stumps(weight, bias), method="weights").levels[0]
    with np.errstate(over="ignore"):
        goes_right = weight[:, None] * values + bias[:, None] >= 0
    assert (forest.left_child != LEAF).sum() == len(weight)
    leaves = reached_leaves(forest, whole_input(values[None, None]))[:, 0, 0]
    np.testing.assert_array_equal(leaves, 2 * np.arange(len(weight))[:, None] + goes_right)


def test_thresholds_are_exact_to_the_last_bit():
    rng = np.random.default_rng(3)
    size = lambda low, high: (rng.choice([-1, 1], 300) * 10 ** rng.uniform(low, high, 300)).astype(np.float32)  # noqa: E731
    weight, bias = size(-8, 8), size(-8, 8)
    weight[:20] = np.resize(np.float32([0, -0.0]), 20)
    bias[::15] = np.resize(np.float32([0, -0.0]), 20)
    bias[20:30], weight[25:30] = np.float32(1e30), np.float32(1e-20)  # their quotient is no float32 number
    with np.errstate(all="ignore"):
        at = np.nan_to_num((-bias.astype(np.float64) / weight).clip(-1e24, 1e24)).astype(np.float32)
    around = [at]
    for _ in range(4):
        around = [np.nextafter(around[0], np.float32(-np.inf)), *around, np.nextafter(around[-1], np.float32(np.inf))]
    assert_thresholds_are_met(weight, bias, np.concatenate([*around, np.float32([-1e15, -1, 0, 1, 1e15])]))


def test_thresholds_are_exact_where_products_underflow():
    weight = np.float32([1e-30, -1e-30, 1e-38])
    assert_thresholds_are_met(weight, np.zeros(3, np.float32), np.float32([-1e-20, -1e-30, 0, 1e-30, 1e-20]))


@pytest.mark.parametrize("method", METHODS)
def test_a_split_that_reads_nothing_any_more_can_be_mapped_forward_again(method):
    image = whole_numbers(0)
    net = altered(to_convnet(random_stack(0), "soft"))
    with torch.no_grad():
        net.level(0).split_weight[0] = 0
    again = to_convnet(to_forest(net, [image], method, progress=silent))
    assert is_finite(again)


# Map Back 2


@pytest.mark.parametrize(("n_probes", "seed"), [(1, 4), (2, 3)])
def test_map_back_2_is_algorithm_1(n_probes, seed):
    stack = random_stack(seed, n_levels=3, n_probes=n_probes, max_depth=4, reach=2)
    net = altered(to_convnet(stack, "soft"), 5)
    images = [whole_numbers(seed, size=size) + 0.25 for seed, size in enumerate([(6, 7), (1, 1), (3, 9)])]
    expected, counts = algorithm_1(net, images)
    _, other_counts = algorithm_1(net, images, is_updated=False)
    pairs = zip(counts, other_counts, strict=True)
    assert not all(np.array_equal(*pair) for pair in pairs), "new votes below must lead some pixels elsewhere"
    first, mapped_back = (to_forest(net, images, method, progress=silent) for method in ("weights", "leaf_mean"))
    mapped_back.validate()
    assert_same_forests(mapped_back, first, but=("votes",))
    assert mapped_back.output == "softmax"
    for k in range(3):
        untouched = counts[k] == 0
        assert 0 < untouched.sum() < len(untouched)
        np.testing.assert_array_equal(mapped_back.levels[k].votes[untouched], first.levels[k].votes[untouched])
        np.testing.assert_allclose(mapped_back.levels[k].votes, expected.levels[k].votes, rtol=0, atol=2e-6)
        assert np.abs(mapped_back.levels[k].votes - first.levels[k].votes).max() > 0.05, "the means are others"


@pytest.mark.parametrize("kind", ["exp", "softmax", "sparse", "full", "tanh", "crelu"])
def test_tree_scores_are_the_parts_of_the_levels_scores(kind):
    image, net = whole_numbers(1), altered(network(random_stack(1), kind))
    source = net.region_source(whole_input(*read_by(net.stack, image, 1)))
    grid = Grid(0, 0, *image.shape[1:])
    with torch.no_grad():
        trees, whole = list(net.level(1).tree_scores(source, grid)), net.level(1)(source, grid)
    assert len(trees) == net.stack.levels[1].n_trees
    np.testing.assert_allclose(sum(trees), whole, rtol=0, atol=2e-6)


@pytest.mark.parametrize("kind", ["tanh", "crelu", "sparse", "full"])
def test_every_network_has_a_map_back_2(kind, stack, example):
    net = network(stack, kind)
    back = to_forest(net, example.images[:1], progress=silent)
    back.validate()
    assert_same_forests(back, to_forest(net, method="weights"), but=("votes",))
    agreement = np.mean(back.predict(example.images[0]) == net.predict(example.images[0]))
    assert agreement > 0.9, "sharp splits: what a leaf says is nearly what the network says"


def test_tiles_order_of_the_images_and_the_cache_do_not_change_the_means(net, example, monkeypatch):
    whole = to_forest(net, example.images, "leaf_mean", progress=silent)
    reverse = to_forest(net, example.images[::-1], "leaf_mean", progress=silent)
    monkeypatch.setattr(level_input, "fitting_tile", lambda *_: 11)
    tiled = to_forest(net, example.images, "leaf_mean", progress=silent)
    monkeypatch.undo()
    of_one_image = 24 * 32 * 4 * 3  # bytes of its activations
    forgetful = leaf_means(net, to_forest(net, method="weights"), example.images, silent, memory=of_one_image)
    for other in (reverse, tiled, forgetful):
        for level, expected in zip(other.levels, whole.levels, strict=True):
            np.testing.assert_allclose(level.votes, expected.votes, rtol=1e-6, atol=1e-9)


def test_progress_is_told(net, example):
    heard = []
    to_forest(net, example.images, progress=lambda what, done, total: heard.append((what, done, total)))
    assert heard == [("mapping back", done, 4) for done in range(5)]


class Held(np.ndarray):
    """An array that can be counted while it, or a view of it, is held."""

    __hash__ = object.__hash__
    __eq__ = object.__eq__


class Lazy(Sequence):
    """Images that are made when they are asked for; `most` is how many were held at a time."""

    def __init__(self, n):
        self.n, self.held, self.most = n, weakref.WeakSet(), 0

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if not 0 <= i < self.n:
            raise IndexError(i)
        image = Held((24, 32), np.float32)
        image[:] = np.random.default_rng(i).uniform(0, 255, image.shape)
        self.held.add(image)
        self.most = max(self.most, len(self.held))
        return image


def test_images_are_not_all_held_at_once(net):
    images = Lazy(9)
    to_forest(net, images, progress=silent)
    assert 1 <= images.most <= 3


# What all ways back have in common


@pytest.fixture(scope="module", params=METHODS)
def mapped_back(request, refined, example):
    return to_forest(refined, example.images, request.param, progress=silent)


def test_a_stack_mapped_back_is_saved_and_loaded_as_it_is(mapped_back, example, tmp_path):
    hr.save(mapped_back, tmp_path / "back.hedge")
    loaded = hr.load(tmp_path / "back.hedge")
    assert_same_model(loaded, mapped_back)
    assert (loaded.output, loaded.tolerance, loaded.is_soft) == (
        mapped_back.output, mapped_back.tolerance, mapped_back.is_soft,
    )  # fmt: skip
    np.testing.assert_array_equal(loaded.predict_proba(example.images[0]), mapped_back.predict_proba(example.images[0]))
    hr.save(loaded, tmp_path / "again.hedge")
    assert (tmp_path / "again.hedge").read_bytes() == (tmp_path / "back.hedge").read_bytes()


@pytest.mark.parametrize("tile", [5, 17])
def test_tiles_do_not_change_what_it_predicts(mapped_back, example, tile):
    whole = mapped_back.level_outputs(example.images[1])
    for mine, theirs in zip(mapped_back.level_outputs(example.images[1], tile=tile), whole, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_it_predicts_nearly_as_the_network_does(mapped_back, refined, example, unseen):
    expected = hr.evaluate(refined, *unseen, progress=silent).mean_dice
    found = hr.evaluate(mapped_back, *unseen, progress=silent).mean_dice
    assert found >= expected - (0 if mapped_back.is_soft else 0.1)
    proba = mapped_back.predict_proba(example.images[0])
    np.testing.assert_allclose(proba.sum(0), 1, atol=1e-5)


@pytest.mark.parametrize("split", ["hard", "tanh", "soft", "crelu"])
def test_it_can_be_mapped_forward_again(mapped_back, example, split):
    again = to_convnet(mapped_back, split)
    assert is_finite(again)
    assert again.output == mapped_back.output == "softmax"
    if split == "hard" and not mapped_back.is_soft:
        expected = mapped_back.predict_proba(example.images[0])
        np.testing.assert_allclose(again.predict_proba(example.images[0]), expected, atol=1e-6)


def test_it_can_be_refined_again(mapped_back, example):
    again = run(to_convnet(mapped_back), example, FEW_STEPS)
    assert is_finite(again)
    # A soft forest is the network itself, which goes on; the others begin anew.
    assert len(again.refinements) == (2 if mapped_back.is_soft else 1)
    assert again.settings["mapped_back"] == mapped_back.settings["mapped_back"]


# Refusals


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", PARAMETERS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_no_numbers_are_refused(method, name, value):
    net = to_convnet(random_stack(0), "soft")
    with torch.no_grad():
        getattr(net.level(1), name).view(-1)[-1] = value
    with pytest.raises(ModelError) as problem:
        to_forest(net, [whole_numbers(0)], method, progress=silent)
    assert_one_sentence(problem, "not finite")


@pytest.mark.parametrize("name", ["leaf_weight", "leaf_bias"])
def test_connections_that_are_no_numbers_are_refused(name):
    net = to_convnet(random_stack(0), "soft", connections="sparse")
    with torch.no_grad():
        getattr(net.level(0), name)[0] = np.nan
    with pytest.raises(ModelError):
        to_forest(net, [whole_numbers(0)], progress=silent)


@pytest.mark.parametrize("images", [None, [], (), np.zeros((0, 24, 32))])
def test_map_back_2_without_images_is_refused(net, images):
    with pytest.raises(InputError) as problem:
        to_forest(net, images)
    assert_one_sentence(problem, "images")


@pytest.mark.parametrize(
    "image", [np.zeros((5, 5, 3)), np.full((4, 4), np.nan), np.zeros((0, 3)), np.zeros(7), np.array(["a"]), None]
)
def test_images_of_another_kind_are_refused(net, example, image):
    with pytest.raises(InputError) as problem:
        to_forest(net, [example.images[0], image], progress=silent)
    assert_one_sentence(problem)


def test_a_stack_is_no_network(stack, example):
    with pytest.raises(InputError) as problem:
        to_forest(stack, example.images)
    assert_one_sentence(problem, "ForestStack")


@pytest.mark.parametrize("method", ["Weights", "mean", "", None, 3, ["soft"]])
def test_unknown_methods_are_refused(net, example, method):
    with pytest.raises(ConfigError) as problem:
        to_forest(net, example.images, method)
    assert_one_sentence(problem, "method", *METHODS)


@pytest.mark.parametrize("method", ["weights", "leaf_mean"])
@pytest.mark.parametrize("tolerance", [0.0, 0.01])
def test_a_tolerance_is_for_soft_forests(net, example, method, tolerance):
    with pytest.raises(ConfigError) as problem:
        to_forest(net, example.images, method, tolerance=tolerance)
    assert_one_sentence(problem, "tolerance", "soft")
