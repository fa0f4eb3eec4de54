"""Networks predict whole images as in tiles, of any size, and answer as the stack they were mapped from."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hedgerow.network.mapback import to_forest
from hedgerow.network.mapping import to_convnet
from hedgerow.network.soft_levels import is_walked
from helpers.net_stacks import SPLITS, random_stack, scores_of, whole_numbers

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
        scores = scores_of(net, image)[-1].numpy()[:, 0]
    proba = net.predict_proba(image)
    exact = np.exp(scores.astype(np.float64))
    np.testing.assert_allclose(proba, exact / exact.sum(axis=0), atol=1e-6)
    np.testing.assert_array_equal(proba.argmax(axis=0), scores.argmax(axis=0))
    np.testing.assert_array_equal(net.predict(image), np.array(net.classes)[scores.argmax(axis=0)])


@pytest.mark.parametrize("size", [(1, 1), (5, 31), (21, 19)])
def test_soft_networks_predict_by_walking_what_their_levels_compute(size):
    image, net = whole_numbers(7, size=size), to_convnet(random_stack(7, n_classes=5))
    net.set_tolerance(1e-3)
    walked = net.level_outputs(image)
    for ours, soft in zip(walked, to_forest(net, method="soft").level_outputs(image), strict=True):
        np.testing.assert_array_equal(ours, soft)
    with torch.no_grad():
        scores = scores_of(net, image)[-1][:, 0]
    np.testing.assert_allclose(walked[-1], torch.softmax(scores, 0), atol=2e-6)
    net.walked = False
    for ours, plain in zip(walked, net.level_outputs(image), strict=True):
        np.testing.assert_allclose(ours, plain, atol=2e-6)


@pytest.mark.parametrize(
    ("options", "tolerance"),
    [({"activation": "softmax"}, 1e-3), ({"connections": "sparse"}, 1e-3), ({"split": "crelu"}, 1e-3), ({}, 0.0)],
)
def test_what_is_no_fuzzy_tree_or_leaves_nothing_out_is_not_walked(options, tolerance):
    net = to_convnet(random_stack(7), **options)
    net.set_tolerance(tolerance)
    assert not any(is_walked(net.level(number)) for number in range(net.n_levels))
