"""How sharp each split of a mapped network is, and how it is relaxed."""

import numpy as np
import pytest

pytest.importorskip("torch")

import hedgerow as hr
from helpers.refusals import assert_one_sentence


def alphas(net, stack, level):
    """(N,) factor between the network's biases and the forest's thresholds, where these are not 0."""
    of_level = net.level(level)
    threshold = stack.levels[level].threshold[of_level.wiring.node_split]
    bias = of_level.split_bias.detach().numpy()
    return np.divide(-bias, threshold, out=np.full(len(bias), np.nan), where=threshold != 0), threshold


def reads_before(net, stack, level):
    forest = stack.levels[level]
    return forest.channel[net.level(level).wiring.node_split][:, 0] >= stack.features.n_features


@pytest.mark.parametrize("level", [0, 1])
def test_one_sharpness_serves_all_splits_unless_told(stack, level):
    found, _ = alphas(hr.to_convnet(stack, "soft", hr.Sharpness(50.0, 1.0, 0.5)), stack, level)
    np.testing.assert_allclose(found[~np.isnan(found)], 50, rtol=1e-5)


def test_splits_near_zero_and_one_are_sharper(stack):
    net = hr.to_convnet(stack, "soft", hr.Sharpness(50.0, 1.0, 0.5, proba=0.9))
    result, threshold = alphas(net, stack, 1)
    before = reads_before(net, stack, 1)
    assert before.any()
    assert not before.all()
    distance = np.maximum(np.minimum(threshold, 1 - threshold), 1e-3)
    expected = np.where(before, 50 * np.maximum(1, 0.9 / distance), 50)
    known = ~np.isnan(result)
    np.testing.assert_allclose(result[known], expected[known], rtol=1e-4)
    assert (expected[before] > 50).any()


def test_the_first_level_reads_no_probabilities(stack):
    found, _ = alphas(hr.to_convnet(stack, "soft", hr.Sharpness(50.0, 1.0, 0.5, proba=0.3)), stack, 0)
    np.testing.assert_allclose(found[~np.isnan(found)], 50, rtol=1e-5)


def test_a_step_has_no_sharpness_at_all(stack):
    with pytest.raises(hr.ConfigError) as refusal:
        hr.to_convnet(stack, "hard", hr.Sharpness(1.0, 1.0, 1.0, proba=0.3))
    assert_one_sentence(refusal, "sharpness")


def test_relaxing_softens_splits_and_nothing_else(stack):
    net, relaxed = hr.to_convnet(stack), hr.to_convnet(stack)
    relaxed.level(1).relax(0.25)
    for name, weights in net.level(1).named_parameters():
        factor = 0.25 if name.startswith("split") else 1
        after = dict(relaxed.level(1).named_parameters())[name]
        np.testing.assert_array_equal(after.detach().numpy(), factor * weights.detach().numpy())
    assert relaxed.level(1).sharpness.split == 0.25 * net.level(1).sharpness.split
