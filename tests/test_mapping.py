"""A stack of forests as a network: its layers and weights are the paper's, and `hard` is the stack itself."""

import dataclasses
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import hedgerow as hr  # noqa: E402
from forests import random_forest  # noqa: E402
from hedgerow import convnet  # noqa: E402
from hedgerow.config import Sharpness  # noqa: E402
from hedgerow.context import box_averaged, run_forest  # noqa: E402
from hedgerow.errors import ConfigError  # noqa: E402
from hedgerow.filters import FeatureSet  # noqa: E402
from hedgerow.layout import Grid, Source, lay_out  # noqa: E402
from hedgerow.mapping import DEFAULT_SHARPNESS, to_convnet  # noqa: E402
from hedgerow.ops import plain, reference  # noqa: E402
from hedgerow.ops.wiring import places  # noqa: E402
from hedgerow.trees import ForestStack, normalise  # noqa: E402

SPLITS = ("hard", "tanh", "soft", "crelu")
SIZE = (21, 19)


def own_channels(n_inputs):
    """Features that are the image's channels, as they are."""
    zeros, ones = np.zeros(n_inputs, np.float32), np.ones(n_inputs, np.float32)
    return FeatureSet("channels", n_inputs, (), 1000.0, 0.4, 10.0, zeros, ones, zeros, ones)


def whole_numbers(seed, n_inputs=2, size=SIZE):
    """An image (C,H,W) of few different values."""
    return np.random.default_rng(seed).integers(-3, 4, (n_inputs, *size)).astype(np.float32)


def tied(forest, channels, rng, reach=None, outside=None):
    """The forest with thresholds that its splits meet exactly: each one's own value at some pixel."""
    radii = np.unique(forest.radius)
    beyond = [None] * len(channels) if outside is None else outside.tolist()
    # Averaged over boxes first, as the kernels do: in float32, so that they are met to the last bit.
    planes = np.concatenate(
        [[box_averaged(c, int(radius), b) for c, b in zip(channels, beyond, strict=True)] for radius in radii]
    )
    channel = forest.channel + len(channels) * np.searchsorted(radii, forest.radius)
    single = replace(forest, channel=channel, radius=np.zeros_like(forest.radius))
    constants = None if outside is None else np.tile(outside, len(radii))
    threshold = forest.threshold.copy()
    for node in np.flatnonzero(forest.is_split):
        row, column = (rng.integers(0, size) for size in channels.shape[1:])
        threshold[node] = plain.split_value(single, node, planes, row, column, reach, constants)
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
            channels = np.concatenate([image, run_forest(forest, channels)])
        levels.append(forest)
    return ForestStack(own_channels(n_inputs), tuple(levels), tuple(range(10, 10 + n_classes)))


def read_by(stack, image, level):
    """The channels (M,H,W) that a level of the stack reads of an image, and its reach and outside."""
    planes = np.moveaxis(image, -1, 0) if image.ndim == 3 and stack.features.kind == "bank" else image
    planes = (planes if planes.ndim == 3 else planes[None]).astype(np.float32)
    channels = stack.features.compute(planes)
    if level:
        channels = np.concatenate([channels, stack.level_outputs(image)[level - 1]])
    outside = stack.features.outside(stack.n_classes)
    return channels, stack.features.reach(planes), None if outside is None else outside[: len(channels)]


def split_inputs(stack, image, level):
    """z_H1 (N,S) of the hard network of a level, given what the stack gives it to read."""
    net = to_convnet(stack, "hard").level(level)
    channels, reach, outside = read_by(stack, image, level)
    features, grid = stack.features.n_features, Grid(0, 0, *channels.shape[1:])
    before = torch.from_numpy(channels[features:]) if level else None
    source = Source(torch.from_numpy(channels[:features]), before, grid, reach, outside)
    values, reads = lay_out(net.forest, net.wiring, source, grid)
    index = torch.from_numpy(places(reads, 0, grid.height * grid.width))
    return reference.split_input(values, index, net.split_weight.detach(), net.split_bias.detach()).numpy()


def scores_of(net, image):
    """Outputs of the levels on a whole image: inner ones normalised, the last one's scores."""
    channels, reach, outside = read_by(net.stack, image, 0)
    grid = Grid(0, 0, *channels.shape[1:])
    whole = net.features.outside(net.n_classes)
    source = Source(torch.from_numpy(channels), None, None, reach, outside if net.n_levels == 1 else whole)
    return net(source, [grid] * net.n_levels)


@pytest.fixture(scope="module", params=["offsets", "windows", "oblique", "depth", "colour", "channels"])
def grown(request):
    """A grown stack of every kind of feature, and an image of whole numbers that it has not seen."""
    rng = np.random.default_rng(7)
    images, labels = [], []
    for _ in range(3):
        label = np.zeros((20, 24), np.int64)
        label[:, 8:], label[10:, 16:] = 1, 2
        image = (1000 * (1 + label) + 200 * rng.integers(-3, 4, label.shape)).astype(np.uint16)
        if request.param == "depth":
            image[:, :2] = 0  # nothing seen
        if request.param == "colour":
            image = np.stack([image, image[::-1], rng.integers(0, 9, image.shape).astype(np.uint16)], axis=-1)
        if request.param == "channels":
            image = np.stack([image, rng.integers(0, 3, image.shape).astype(np.uint16)]).astype(np.float32)
        images.append(image)
        labels.append(label)
    context = hr.ContextConfig(window=9, n_offsets=3)
    changes = {
        "offsets": {},
        "windows": {"context": replace(context, radii=(0, 1, 3))},
        "oblique": {"context": replace(context, n_probes=3)},
        "depth": {"features": "depth", "context": replace(context, offset_sigma=12.0)},
        "colour": {},
        "channels": {"features": "channels"},
    }[request.param]
    settings = {"n_levels": 3, "n_trees": 3, "max_depth": 6, "min_split": 3, "sigmas": (0.7, 1.6), "context": context}
    sampling = hr.SamplingConfig(step=1)
    config = hr.StackConfig(sampling=sampling, **{**settings, **changes})
    return hr.fit_stack(images[:2], labels[:2], config), images[2]


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
        assert leaves.weights == len(forest.leaf_paths().node) + forest.n_leaves
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
        paths = forest.leaf_paths()
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
    scores = first(Source(torch.from_numpy(image)), grid).detach().numpy()
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
    monkeypatch.setattr(convnet, "FULL_LIMIT", 2 * int(forest.is_split.sum()) * forest.n_leaves - 1)
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
    net, image = to_convnet(stack, split), torch.from_numpy(whole_numbers(4))
    grid = Grid(0, 0, *SIZE)
    before = torch.rand((3, *SIZE), generator=torch.Generator().manual_seed(0))
    for number in (1, 2):
        seen = net.level(number)(Source(image, before, grid), grid)
        unseen = net.level(number)(Source(torch.zeros_like(image), before, grid), grid)
        other = net.level(number)(Source(image, -before, grid), grid)
        assert (seen - unseen).abs().max() > 0.01
        assert (seen - other).abs().max() > 0.01


def test_gradients_flow_from_the_last_level_to_the_first():
    stack = random_stack(6, n_levels=3)
    net = to_convnet(stack, "soft", Sharpness(3.0, 1.0, 0.5))
    sums = []
    channels, *_ = read_by(stack, whole_numbers(6), 0)
    outputs = net(Source(torch.from_numpy(channels)), [Grid(0, 0, *SIZE)] * 3, sums)
    for total in sums:
        np.testing.assert_allclose(total.detach(), 3, atol=1e-5)
    outputs[-1][0].sum().backward()
    for name, parameter in net.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad.abs().max() > 1e-5, name


TOLERANCES = [("hard", 0.0), ("tanh", 0.0), ("soft", 0.0), ("soft", 1e-3), ("crelu", 1e-3)]


@pytest.mark.parametrize(("split", "tolerance"), TOLERANCES)
def test_tiles_equal_the_whole_bit_for_bit_at_inner_levels(grown, split, tolerance):
    stack, image = grown
    net = to_convnet(stack, split)
    net.set_tolerance(tolerance)
    whole, parts = net.level_outputs(image, tile=1000), net.level_outputs(image, tile=9)
    for level, part in zip(whole[:-1], parts[:-1], strict=True):
        np.testing.assert_array_equal(level, part)
    np.testing.assert_allclose(parts[-1], whole[-1], atol=1e-6)


@pytest.mark.parametrize(("split", "tolerance"), TOLERANCES)
def test_tiles_equal_the_whole_bit_for_bit(grown, split, tolerance):
    stack, image = grown
    net = to_convnet(stack, split)
    net.set_tolerance(tolerance)
    whole = net.level_outputs(image, tile=1000)
    expected = np.array(stack.classes)[whole[-1].argmax(axis=0)]
    for tile in (9, 16):
        for level, part in zip(whole, net.level_outputs(image, tile=tile), strict=True):
            np.testing.assert_array_equal(level, part)
    np.testing.assert_array_equal(net.predict_proba(image, tile=11), whole[-1])
    np.testing.assert_array_equal(net.predict(image, tile=11), expected)
    np.testing.assert_array_equal(net.predict(image), expected)


@pytest.mark.parametrize("split", SPLITS)
def test_tiles_equal_the_whole_with_many_classes(split):
    image = whole_numbers(8)
    net = to_convnet(random_stack(8, n_classes=22), split)
    whole = net.level_outputs(image, tile=1000)
    for tile in (5, 16):
        for level, part in zip(whole, net.level_outputs(image, tile=tile), strict=True):
            np.testing.assert_array_equal(level, part)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("size", [(1, 1), (1, 30), (17, 1)])
def test_any_size_can_be_predicted(split, size):
    image = whole_numbers(9, size=size)
    net = to_convnet(random_stack(9), split)
    np.testing.assert_array_equal(net.predict(image, tile=3), net.predict(image))
    np.testing.assert_allclose(net.predict_proba(image).sum(axis=0), 1, atol=1e-5)


def test_a_network_answers_as_its_stack_does(grown):
    stack, image = grown
    for split in SPLITS:
        net = to_convnet(stack, split)
        assert net.classes == stack.classes
        assert net.receptive_field == stack.receptive_field
        assert [net.level_reach(k) for k in range(3)] == [stack.level_reach(k) for k in range(3)]
        assert (net.n_levels, net.n_classes, net.unlabelled) == (stack.n_levels, stack.n_classes, stack.unlabelled)
        assert net.image_dtype == stack.image_dtype
        proba = net.predict_proba(image)
        assert proba.dtype == np.float32
        assert proba.shape == (3, 20, 24)
        np.testing.assert_allclose(proba.sum(axis=0), 1, atol=1e-5)
        assert set(np.unique(net.predict(image))) <= set(stack.classes)


def test_default_networks_start_near_their_stack(grown):
    stack, image = grown
    for split in ("tanh", "soft", "crelu"):
        assert (to_convnet(stack, split).predict(image) == stack.predict(image)).mean() > 0.8, split


@pytest.mark.parametrize("split", ["tanh", "soft", "crelu"])
def test_softmax_preserves_the_most_likely_class(split):
    image, stack = whole_numbers(7), random_stack(7, n_classes=5)
    net = to_convnet(stack, split)
    assert net.output == "softmax"
    with torch.no_grad():
        scores = scores_of(net, image)[-1].numpy()
    proba = net.predict_proba(image)
    exact = np.exp(scores.astype(np.float64))
    np.testing.assert_allclose(proba, exact / exact.sum(axis=0), atol=1e-6)
    np.testing.assert_array_equal(proba.argmax(axis=0), scores.argmax(axis=0))
    np.testing.assert_array_equal(net.predict(image), np.array(net.classes)[scores.argmax(axis=0)])


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
