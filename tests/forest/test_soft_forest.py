"""Forests of soft splits: the fuzzy tree as defined, equal to the network it came from, cut short by a tolerance."""

import copy
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import hedgerow as hr
from hedgerow.errors import ConfigError
from hedgerow.forest.arrays import LEAF, Forest
from hedgerow.forest.level_input import whole_input
from hedgerow.forest.walk import run_forest
from hedgerow.io.model_file import load, save
from hedgerow.kernels.definition.outputs import normalise
from hedgerow.network.mapback import to_forest
from hedgerow.network.mapping import to_convnet
from hedgerow.threads import threads
from helpers.forests import grown_stack, random_forest
from helpers.fuzzy_trees import altered, leaf_probabilities, tree_of_leaf
from helpers.leaf_paths import leaf_paths
from helpers.mapped_back import assert_same_forests, network
from helpers.model_files import Contents, assert_same_model, refused
from helpers.net_stacks import random_stack, whole_numbers
from helpers.refinements import SHORT, assert_same_weights
from helpers.refusals import assert_one_sentence

BLUR = hr.Sharpness(3.0, 1.0, 0.5)
FEW_STEPS = replace(SHORT, n_steps=2)


def soft_forest(seed=0, **shape):
    """A random forest whose splits are soft, each as much as it likes."""
    rng = np.random.default_rng(seed)
    forest = random_forest(rng, **shape)
    return replace(forest, sharpness=(10 ** rng.uniform(-1, 1.5, forest.n_nodes)).astype(np.float32))


def cut(stack, image, size):
    """The image, continued by itself, at this size."""
    axis = 1 if stack.features.kind == "channels" else 0
    repeats = [1] * image.ndim
    repeats[axis : axis + 2] = (-(-n // m) for n, m in zip(size, image.shape[axis:], strict=False))
    return np.tile(image, repeats)[(slice(None),) * axis + tuple(slice(n) for n in size)].copy()


def probabilities(scores, is_softmax):
    """Summed votes (C,H,W) float64 to class probabilities."""
    if not is_softmax:
        return normalise(scores)
    grown = np.exp(scores - scores.max(axis=0))
    return grown / grown.sum(axis=0)


# The walk


@pytest.mark.parametrize("is_softmax", [False, True])
@pytest.mark.parametrize("context", ["fixed", "stretched", "outside"])
@pytest.mark.parametrize(("n_probes", "radii"), [(1, (0,)), (3, (0, 2))])
def test_a_soft_forest_is_the_sum_over_leaves_of_products_of_branches(n_probes, radii, context, is_softmax):
    forest, size = soft_forest(n_probes, n_probes=n_probes, radii=radii, max_depth=4), (5, 7)
    rng = np.random.default_rng(1)
    channels = rng.standard_normal((4, *size)).astype(np.float32)
    level_input = {} if context == "fixed" else {"stretch": rng.uniform(0.2, 2.5, size).astype(np.float32)}
    if context == "outside":
        level_input["outside"] = rng.standard_normal(4).astype(np.float32)
    reached = leaf_probabilities(forest, channels, **level_input)
    for tree in range(forest.n_trees):
        np.testing.assert_allclose(reached[tree_of_leaf(forest) == tree].sum(axis=0), 1, atol=1e-12)
    expected = probabilities(np.einsum("lc,lhw->chw", forest.votes.astype(float), reached), is_softmax)
    found = run_forest(forest, whole_input(channels, **level_input), is_softmax)[:, 0]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("tolerance", [0.0, 1e-3])
@pytest.mark.parametrize("n_probes", [1, 2])
def test_a_volume_whose_splits_look_at_other_slices(n_probes, tolerance):
    """Each offset in z is that of a forest which reads the slices as channels of their own."""
    forest = soft_forest(n_probes, n_probes=n_probes, reach_z=2, max_depth=4)
    channels = np.random.default_rng(1).standard_normal((4, 5, 6, 9)).astype(np.float32)
    proba = run_forest(forest, whole_input(channels), tolerance=tolerance)
    for z in range(5):
        seen = np.clip(z + np.arange(-2, 3), 0, 4)
        slices = channels[:, seen].reshape(20, 6, 9)
        flat = forest.offset * np.float32([0, 1, 1])
        channel = forest.channel * 5 + 2 + forest.offset[..., 0].astype(np.int32)
        by_slice = replace(forest, channel=channel, offset=flat, n_channels=20)
        expected = run_forest(by_slice, whole_input(slices), tolerance=tolerance)
        np.testing.assert_array_equal(proba[:, z : z + 1], expected)


def full_tree(depth):
    return random_forest(np.random.default_rng(0), 1, depth, leaf_chance=0, n_channels=1, n_classes=2)


def chain(depth, side):
    """One tree in which every split has a leaf on one side and goes on on the other (0: left, 1: right)."""
    n = 2 * depth + 1
    left_child = np.full(n, LEAF, np.int32)
    left_child[[0, *(2 * np.arange(depth - 1) + 1 + side)]] = 2 * np.arange(depth) + 1
    is_leaf = left_child == LEAF
    zeros = np.zeros((n, 1))
    votes = np.random.default_rng(1).random((depth + 1, 2)).astype(np.float32)
    leaf_index = np.where(is_leaf, np.cumsum(is_leaf) - 1, LEAF).astype(np.int32)
    return Forest(
        np.zeros(1, np.int32), left_child, zeros[:, 0].astype(np.float32), zeros.astype(np.int32),
        np.zeros((n, 1, 3), np.float32), zeros.astype(np.int32), zeros.astype(np.float32) + 1, leaf_index, votes, 1,
    )  # fmt: skip


@pytest.mark.parametrize(
    "make", [lambda: full_tree(8), lambda: full_tree(0), lambda: chain(60, 0), lambda: chain(60, 1)]
)
def test_where_every_pixel_goes_everywhere_all_leaves_are_added(make):
    """Blocks are full at every node: the room for pixels that wait is used to its end."""
    forest = make()
    forest.validate()
    forest = replace(forest, sharpness=np.full(forest.n_nodes, 1e-30, np.float32))
    length = np.diff(leaf_paths(forest).start)
    expected = probabilities((forest.votes * 0.5 ** length[:, None]).sum(axis=0), is_softmax=True)
    image = np.random.default_rng(0).standard_normal((1, 65, 130)).astype(np.float32)
    found = run_forest(forest, whole_input(image), is_softmax=True)
    np.testing.assert_allclose(found, np.broadcast_to(expected[:, None, None, None], found.shape), atol=1e-6)


@pytest.mark.parametrize("n_probes", [1, 2])
def test_pixels_that_are_no_numbers_harm_nobody_else(n_probes):
    forest = soft_forest(3, n_probes=n_probes, max_depth=9, leaf_chance=0, reach=2)
    image = np.random.default_rng(0).standard_normal((4, 70, 66)).astype(np.float32)
    hurt = image.copy()
    hurt[:, 5:9, 60:], hurt[0, 30, 30], hurt[1, 40, 40] = np.nan, np.inf, -np.inf
    before, after = (run_forest(forest, whole_input(given), is_softmax=True) for given in (image, hurt))
    for row, column in [(slice(0, 3), slice(0, 66)), (slice(11, 28), slice(0, 66)), (slice(43, 70), slice(0, 66))]:
        np.testing.assert_array_equal(after[:, 0, row, column], before[:, 0, row, column])
    assert np.isnan(after[:, 0, 7, 64]).all(), "it shows"
    assert np.isnan(run_forest(forest, whole_input(np.full_like(image, np.nan)))).all()


@pytest.mark.parametrize("n_threads", [1, 2, 3, 7])
def test_the_number_of_threads_changes_nothing(n_threads):
    forest = soft_forest(4, n_probes=2, max_depth=6)
    image = np.random.default_rng(0).standard_normal((4, 71, 67)).astype(np.float32)
    with threads(5):
        expected = run_forest(forest, whole_input(image), tolerance=1e-3)
    with threads(n_threads):
        np.testing.assert_array_equal(run_forest(forest, whole_input(image), tolerance=1e-3), expected)


# The tolerance


def entered_mass(forest, channels, tolerance):
    """(H,W) the sum over trees of the probabilities of leaves that are entered, from votes of one for one class."""
    votes = np.tile(np.float32([1, 0]), (forest.n_leaves, 1))
    forest = replace(forest, votes=votes)
    one, other = run_forest(forest, whole_input(channels), is_softmax=True, tolerance=tolerance)[:, 0]
    return np.log(one.astype(float) / other)


def left_out(forest, channels, tolerance):
    """(H,W) each: the probability of all branches that are left out, and their number, by the definition."""
    mass, number = (np.zeros(channels.shape[1:]) for _ in range(2))
    every = leaf_probabilities(forest, channels)
    paths = leaf_paths(forest)
    reaching = [np.zeros(mass.shape) for _ in range(forest.n_nodes)]
    for leaf, node in enumerate(np.argsort(forest.leaf_index, kind="stable")[forest.n_nodes - forest.n_leaves :]):
        for above in [node, *paths.node[paths.start[leaf] : paths.start[leaf + 1]]]:
            reaching[above] += every[leaf]
    is_entered = [np.ones(mass.shape, bool) for _ in range(forest.n_nodes)]
    for node in np.flatnonzero(forest.is_split):
        for child in (forest.left_child[node], forest.left_child[node] + 1):
            is_entered[child] = is_entered[node] & (reaching[child] > tolerance)
            is_left_out = is_entered[node] & ~is_entered[child]
            mass += np.where(is_left_out, reaching[child], 0)
            number += is_left_out
    return mass, number


def test_a_tolerance_leaves_out_no_more_than_it_says():
    forest = soft_forest(5, n_trees=2, max_depth=5, leaf_chance=0.1, reach=2)
    channels = np.random.default_rng(0).standard_normal((4, 5, 6)).astype(np.float32)
    previous = np.full(channels.shape[1:], np.inf)
    for tolerance in (0.6, 0.2, 0.03, 1e-3, 1e-5, 0.0):
        lost, n_branches = left_out(forest, channels, tolerance)
        missing_mass = 2 - entered_mass(forest, channels, tolerance)
        np.testing.assert_allclose(missing_mass, lost, atol=3e-6)
        assert (missing_mass <= tolerance * n_branches + 3e-6).all()
        assert (missing_mass <= previous + 3e-6).all()
        assert tolerance == 0 or (n_branches > 0).any()
        previous = missing_mass
    assert previous.max() < 3e-6


@pytest.mark.parametrize("tolerance", [1e-3, 0.05])
def test_softmax_leaves_divide_by_what_is_left_so_nothing_is_left_out(tolerance):
    stack, image = grown_stack("offsets")
    net = to_convnet(stack, "soft", BLUR, activation="softmax")
    exact = net.predict_proba(image)
    net.set_tolerance(tolerance)
    soft = to_forest(net, method="soft")
    assert soft.tolerance == 0
    np.testing.assert_allclose(soft.predict_proba(image), exact, rtol=0, atol=1e-5)


@pytest.mark.parametrize("tolerance", [1e-3, 0.05])
def test_the_network_leaves_out_the_same(tolerance):
    stack, image = grown_stack("offsets")
    net = to_convnet(stack, "soft", BLUR)
    exact = net.predict_proba(image)
    net.set_tolerance(tolerance)
    soft = to_forest(net, method="soft")
    assert soft.tolerance == tolerance
    np.testing.assert_allclose(soft.predict_proba(image), net.predict_proba(image), rtol=0, atol=1e-5)
    assert np.abs(soft.predict_proba(image) - exact).max() > 1e-5
    unabridged = to_forest(net, method="soft", tolerance=0.0)
    np.testing.assert_allclose(unabridged.predict_proba(image), exact, rtol=0, atol=1e-5)


# The network


@pytest.mark.parametrize("activation", ["exp", "softmax"])
def test_a_soft_forest_predicts_as_its_network_does(grown, activation):
    stack, image = grown
    for net in (to_convnet(stack, "soft", BLUR, activation=activation), altered(to_convnet(stack, "soft"), size=3.0)):
        soft = to_forest(net, method="soft")
        soft.validate()
        assert soft.is_soft
        for mine, theirs in zip(soft.level_outputs(image), net.level_outputs(image), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("size", [(1, 1), (1, 70), (67, 2), (33, 65)])
def test_images_of_any_size(grown, size):
    stack, image = grown
    net, image = to_convnet(stack, "soft", BLUR), cut(stack, image, size)
    soft = to_forest(net, method="soft")
    np.testing.assert_allclose(soft.predict_proba(image), net.predict_proba(image), rtol=0, atol=1e-5)


@pytest.mark.parametrize("tile", [13, 64])
def test_tiles_change_nothing(grown, tile):
    stack, image = grown
    image = cut(stack, image, (66, 71))
    for tolerance in (0.0, 1e-2):
        soft = to_forest(to_convnet(stack, "soft", BLUR), method="soft", tolerance=tolerance)
        whole = soft.level_outputs(image, tile=1000)
        for mine, theirs in zip(soft.level_outputs(image, tile=tile), whole, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_tiles_of_one_pixel_change_nothing():
    stack, image = grown_stack("channels")
    soft, image = to_forest(to_convnet(stack, "soft", BLUR), method="soft"), image[:, :4, :5]
    np.testing.assert_array_equal(soft.predict_proba(image, tile=1), soft.predict_proba(image))


def test_there_and_back_as_often_as_one_likes(grown):
    stack, image = grown
    for net in (to_convnet(stack), to_convnet(stack, "soft", BLUR), altered(to_convnet(stack), size=7.0)):
        net.set_tolerance(0.01)
        soft = to_forest(net, method="soft")
        again = to_convnet(soft)
        assert_same_weights(again, net)
        assert (again.level(0).tolerance, again.output) == (0.01, "softmax")
        np.testing.assert_array_equal(again.predict_proba(image), net.predict_proba(image))
        twice = to_forest(again, method="soft")
        assert_same_forests(twice, soft)
        assert twice.tolerance == soft.tolerance


@pytest.mark.parametrize("split", [1e-6, 2e-6, 5e5, 1e6])
def test_every_sharpness_that_a_network_may_have_comes_back(split):
    net = to_convnet(random_stack(0), "soft", hr.Sharpness(split, 1.0, 0.5))
    assert_same_weights(to_convnet(to_forest(net, method="soft")), net)


def test_hard_splits_of_a_soft_forest_are_map_back_1(grown):
    stack, image = grown
    net = altered(to_convnet(stack), size=2.0)
    soft, first = (to_forest(net, method=method) for method in ("soft", "weights"))
    mine, theirs = to_convnet(soft, "hard").level_outputs(image), first.level_outputs(image)
    for one, other in zip(mine[:-1], theirs[:-1], strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(mine[-1], theirs[-1], rtol=0, atol=1e-6)


def test_a_network_of_a_soft_forest_is_saved_and_loaded(tmp_path):
    image = whole_numbers(0)
    net = to_convnet(to_forest(altered(to_convnet(random_stack(0))), method="soft", tolerance=0.02))
    save(net, tmp_path / "net.hedge")
    loaded = load(tmp_path / "net.hedge")
    assert_same_weights(loaded, net)
    assert_same_model(loaded.stack, net.stack)
    np.testing.assert_array_equal(loaded.predict_proba(image), net.predict_proba(image))
    for method in ("soft", "weights"):
        assert_same_forests(to_forest(loaded, method=method), to_forest(net, method=method))


def test_weights_of_any_size_come_back():
    net = altered(to_convnet(random_stack(0, n_probes=2)))
    with torch.no_grad():
        for n, size in enumerate((0.0, 1e-12, 1e-5, 1e5, 1e12)):
            net.level(0).split_weight[n] *= size
            net.level(0).split_bias[n] *= max(size, 1e-3)
    soft = to_forest(net, method="soft")
    soft.validate()
    used = np.abs(soft.levels[0].weight[net.level(0).wiring.node_split]).max(axis=1)
    assert ((used == 0) | (used > 0.7) & (used < 1.5)).all(), "thresholds are on the scale of what is read"
    image = whole_numbers(0)
    np.testing.assert_allclose(soft.predict_proba(image), net.predict_proba(image), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["hard", "tanh", "crelu", "sparse", "full"])
def test_networks_that_are_no_fuzzy_trees_are_refused(kind):
    with pytest.raises(ConfigError) as problem:
        to_forest(network(random_stack(0), kind), method="soft")
    assert_one_sentence(problem, "soft", kind)


@pytest.mark.parametrize("tolerance", [-1e-9, 1.0, 7, np.nan, np.inf])
def test_tolerances_out_of_range_are_refused(tolerance):
    with pytest.raises(ConfigError) as problem:
        to_forest(to_convnet(random_stack(0)), method="soft", tolerance=tolerance)
    assert_one_sentence(problem, tolerance)


# Files


@pytest.fixture(scope="module")
def soft_file(refined, tmp_path_factory):
    path = tmp_path_factory.mktemp("soft") / "soft.hedge"
    save(to_forest(refined, method="soft"), path)
    return path


@pytest.fixture
def contents(soft_file):
    return copy.deepcopy(Contents.of(soft_file))


def put(value, name="level1.sharpness"):
    def deceive(contents):
        contents.arrays[name] = contents.arrays[name].astype(np.float64)
        contents.arrays[name][0] = value

    return deceive


DECEITS = {
    "negative sharpness": put(-1.0),
    "zero sharpness": put(0.0),
    "NaN sharpness": put(np.nan),
    "infinite sharpness": put(np.inf),
    "sharpness beyond float32": put(1e300),
    "sharpness that vanishes in float32": put(1e-300),
    "sharpness of one level only": lambda c: c.arrays.pop("level1.sharpness"),
    "no sharpness": lambda c: [c.arrays.pop(f"level{k}.sharpness") for k in range(2)],
    "a sharpness too few": lambda c: c.arrays.update({"level0.sharpness": c.arrays["level0.sharpness"][:-1]}),
    "sharpness of two axes": lambda c: c.arrays.update({"level0.sharpness": c.arrays["level0.sharpness"][:, None]}),
    "not said to be soft": lambda c: c.model.pop("soft"),
    **{f"soft is {value!r}": lambda c, value=value: c.model.update(soft=value) for value in (False, None, 1, "yes")},
    **{
        f"tolerance is {value!r}": lambda c, value=value: c.model.update(tolerance=value)
        for value in (-0.1, 1, 1.0, 1e300, "0.1", None, True, [0.1], float("nan"), float("inf"), 10**400)
    },
    **{
        f"output is {value!r}": lambda c, value=value: c.model.update(output=value)
        for value in ("tanh", "", "Softmax", None, 3, ["softmax"], "softmax\n", "s" * 1000)
    },
}


@pytest.mark.parametrize("name", DECEITS)
def test_files_made_to_deceive_are_refused(contents, tmp_path, name):
    DECEITS[name](contents)
    contents.write(tmp_path / "deceit.hedge")
    refused(tmp_path / "deceit.hedge")


def test_a_plain_forest_made_soft_in_some_levels_is_refused(model_file, tmp_path):
    contents = Contents.of(model_file)
    assert not {"soft", "tolerance", "output"} & contents.model.keys(), "a plain forest's file says nothing of it"
    contents.arrays["level0.sharpness"] = np.ones(len(contents.arrays["level0.threshold"]), np.float32)
    for is_soft in (True, False):
        contents.model["soft"] = is_soft
        contents.write(tmp_path / "half.hedge")
        refused(tmp_path / "half.hedge")


@pytest.mark.parametrize("history", [5, "x", [5], [{}], None])
def test_a_history_that_is_none_is_refused(contents, tmp_path, history):
    contents.model["refined"] = history
    contents.write(tmp_path / "odd.hedge")
    assert "history" in refused(tmp_path / "odd.hedge")
