"""A refinement whose numbers run away stops, and keeps a network that was seen to be good."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import hedgerow as hr
from conftest import CLASSES
from hedgerow.config import RefineConfig
from hedgerow.errors import DivergenceError
from hedgerow.network.mapping import to_convnet
from helpers.refinements import (
    SHORT,
    Stopped,
    assert_same_refinement,
    assert_same_weights,
    is_finite,
    record,
    register_loss,
    run,
    stop_at,
    weights,
)
from helpers.refusals import assert_one_sentence


def assert_usable(network, image):
    assert is_finite(network)
    proba = network.predict_proba(image)
    assert np.isfinite(proba).all()
    np.testing.assert_allclose(proba.sum(axis=0), 1, atol=1e-5)
    assert set(np.unique(network.predict(image))) <= set(CLASSES)


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
@pytest.mark.parametrize("average", [0.0, 0.5])
def test_a_run_that_diverges_keeps_a_network_that_predicts(net, example, optimiser, average):
    config = RefineConfig(n_steps=20, check_every=5, optimiser=optimiser, learning_rate=1e3, average=average, relax=1.0)
    with pytest.raises(DivergenceError) as problem:
        run(net, example, config)
    assert_one_sentence(problem, "learning rate", "1000")
    assert_usable(problem.value.network, example.images[0])
    assert_same_weights(problem.value.network, net)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_leave_their_range_stop_the_run_at_once(net, example, monkeypatch, value):
    steps = register_loss(monkeypatch, "poisoned", lambda step, loss: loss * (value if step == 6 else 1.0))
    with pytest.raises(DivergenceError) as problem:
        run(net, example, replace(SHORT, loss="poisoned"))
    assert_one_sentence(problem, "step 6", "network of step 2")
    assert_usable(problem.value.network, example.images[0])
    constant = replace(SHORT, decay="halving", halving_steps=1e9)
    expected = run(net, example, replace(constant, n_steps=2))
    steps.clear()
    with pytest.raises(DivergenceError) as problem:
        run(net, example, replace(constant, loss="poisoned"))
    assert_same_weights(problem.value.network, expected)


def test_the_network_kept_after_a_divergence_is_a_good_one(net, example):
    config = RefineConfig(n_steps=4, check_every=1, optimiser="sgd", learning_rate=1e3)
    with pytest.raises(DivergenceError) as problem:
        run(net, example, config)
    assert hr.evaluate(net, example.images, example.labels).mean_dice > 0.95
    assert hr.evaluate(problem.value.network, example.images, example.labels).mean_dice > 0.95


def test_divergence_does_not_change_the_network_given(stack, example):
    net = to_convnet(stack)
    before = weights(net)
    with pytest.raises(DivergenceError):
        run(net, example, RefineConfig(n_steps=20, check_every=5, optimiser="sgd", learning_rate=1e3))
    for name, tensor in net.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_the_network_kept_after_a_divergence_is_not_relaxed_again(net, example):
    with pytest.raises(DivergenceError) as problem:
        run(net, example, RefineConfig(n_steps=5, check_every=5, optimiser="sgd", learning_rate=1e3, relax=0.4))
    first = problem.value.network
    assert first.level(0).sharpness.split == pytest.approx(0.4 * net.level(0).sharpness.split)
    again = run(first, example)
    assert again.level(0).sharpness.split == first.level(0).sharpness.split


def test_the_network_kept_says_how_far_it_was_refined(net, example, unseen, monkeypatch, tmp_path):
    register_loss(monkeypatch, "growing", lambda step, loss: 0 * loss + (1.0 if step < 5 else 9.0))
    with pytest.raises(DivergenceError) as problem:
        run(net, example, replace(SHORT, loss="growing", dice=0.0), validation=unseen)
    refinement = record(problem.value.network)
    assert [check.step for check in refinement.checks] == [0, 2]
    assert refinement.scores.keys() == {"stack", "mapped"}
    hr.save(problem.value.network, tmp_path / "net.hedge")
    assert record(hr.load(tmp_path / "net.hedge")) == refinement


def test_a_resumed_run_keeps_the_network_that_the_whole_one_keeps(net, example, monkeypatch, tmp_path):
    steps = register_loss(monkeypatch, "poisoned", lambda step, loss: loss * (np.nan if step == 6 else 1.0))
    config = replace(SHORT, loss="poisoned")
    with pytest.raises(DivergenceError) as whole:
        run(net, example, config)
    steps.clear()
    with pytest.raises(Stopped):
        run(net, example, config, checkpoint=tmp_path / "state", progress=stop_at(5))
    del steps[4:]  # the checkpoint is of step 4
    with pytest.raises(DivergenceError) as resumed:
        run(net, example, config, checkpoint=tmp_path / "state")
    assert str(resumed.value) == str(whole.value)
    assert_same_refinement(resumed.value.network, whole.value.network, tmp_path)
