"""Refinement: it learns, is repeatable to the last bit, may be stopped anywhere, and refuses what cannot be."""

import copy
import sys
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import hedgerow as hr
from conftest import CLASSES
from hedgerow.config import UNALTERED, RefineConfig, Sharpness
from hedgerow.errors import ConfigError, HedgerowError, InputError
from hedgerow.network.layout import Grid, Source
from hedgerow.network.mapping import to_convnet
from hedgerow.progress import silent
from hedgerow.refinement.loop import refine
from hedgerow.refinement.losses import cross_entropy, with_dice
from hedgerow.refinement.schedules import learning_rate, momentum
from hedgerow.threads import threads
from helpers.refinements import (
    SHORT,
    Stopped,
    assert_same_refinement,
    is_finite,
    record,
    run,
    weights,
)
from helpers.refusals import assert_one_sentence

# It learns


def test_refinement_lowers_the_loss_and_raises_the_score(blurred_net, example, unseen):
    config = RefineConfig(n_steps=24, check_every=4, learning_rate=0.2, relax=1.0, stride=2)
    refinement = record(run(blurred_net, example, config, validation=unseen))
    losses = [check.loss for check in refinement.checks[1:]]
    assert losses[-1] < 0.5 * losses[0]
    assert refinement.mapped < 0.9
    assert refinement.refined > refinement.mapped + 0.2


@pytest.mark.parametrize("split", ["soft", "tanh", "crelu"])
@pytest.mark.parametrize("connections", ["frozen", "sparse", "full"])
def test_every_kind_of_network_trains(stack, example, split, connections):
    net = to_convnet(stack, split, connections=connections)
    refined = run(
        net, example, replace(SHORT, n_steps=4, stride=4, augment=UNALTERED, learning_rate=0.02, held_out=0.0)
    )
    assert record(refined).checks[-1].loss < record(refined).checks[1].loss
    before, after = weights(net), weights(refined)
    for name, tensor in before.items():
        trains = connections != "frozen" or "leaf_" not in name
        assert torch.equal(after[name], tensor) != trains, name
    assert refined.level(0).connections == connections


def test_the_leaf_layer_of_soft_splits_may_be_a_softmax(stack, example):
    refined = run(to_convnet(stack, activation="softmax"), example)
    assert refined.level(0).activation == "softmax"
    assert is_finite(refined)


def test_the_papers_update_is_followed_step_by_step(stack, example):
    """SGD with its own momentum and rate at each step, against the same by hand."""
    image, label = example.images[0], example.labels[0]
    config = RefineConfig.zebrafish(n_steps=3, momentum_steps=2, stride=1, learning_rate=0.5, loss="cross_entropy")
    refined = refine(to_convnet(stack, "tanh"), [image], [label], config, progress=silent)
    net = to_convnet(stack, "tanh")
    features = torch.from_numpy(net.features.compute(image[None].astype(np.float32))[:, None])
    target = torch.from_numpy(np.searchsorted(CLASSES, label).reshape(-1))
    velocity = [torch.zeros_like(p) for p in net.parameters()]
    for i in range(3):
        scores = net(Source(features), [Grid(0, 0, *image.shape)] * 2)[-1]
        net.zero_grad()
        with_dice(cross_entropy([], 3), scores.reshape(3, -1), target, 0.0).backward()
        with torch.no_grad():
            for p, v in zip(net.parameters(), velocity, strict=True):
                if p.requires_grad:
                    v.mul_(momentum(config, i)).add_(p.grad)
                    p.sub_(learning_rate(config, i) * v)
    start = weights(to_convnet(stack, "tanh"))
    for name, expected in weights(net).items():
        moved = (expected - start[name]).abs().max()
        torch.testing.assert_close(weights(refined)[name], expected, rtol=1e-6, atol=1e-3 * float(moved) + 1e-7)


def test_balanced_loss_and_dice_change_what_is_learned(net, example):
    results = [run(net, example, replace(SHORT, **change)) for change in ({}, {"loss": "balanced"}, {"dice": 0.0})]
    for a, b in ((0, 1), (0, 2)):
        assert not torch.equal(results[a].level(1).vote_weight, results[b].level(1).vote_weight)


def leaf_spread(net, image):
    """How widely the leaves of all levels fire: mean over pixels of what the penalties lower."""
    features = torch.from_numpy(net.features.compute(image[None].astype(np.float32))[:, None])
    sums = []
    with torch.no_grad():
        net(Source(features), [Grid(0, 0, *image.shape)] * net.n_levels, sums)
    return float(torch.stack([each.mean() for each in sums]).sum())


@pytest.mark.parametrize(
    ("split", "penalty", "sharpness"),
    [("tanh", "leaf_l1", Sharpness(3.0, 2.0, 0.5)), ("soft", "leaf_entropy", Sharpness(3.0, 1.0, 0.5))],
)
def test_a_penalty_makes_fewer_leaves_fire(stack, example, split, penalty, sharpness):
    net = to_convnet(stack, split, sharpness)
    with_it, without = (
        run(net, example, replace(SHORT, learning_rate=0.05, **{penalty: value})) for value in (1.0, 0.0)
    )
    image = example.images[0]
    assert leaf_spread(with_it, image) < 0.98 * leaf_spread(without, image)
    assert with_it.level(0).vote_weight.shape == net.level(0).vote_weight.shape


@pytest.mark.parametrize("split", ["soft", "tanh"])
def test_a_newly_mapped_network_is_relaxed_once(stack, example, split):
    """Training aside (so small a rate moves nothing), its splits are softer, and its sharpness says so."""
    still = replace(SHORT, optimiser="sgd", learning_rate=1e-12, relax=0.25, n_steps=2)
    net = to_convnet(stack, split)
    once = run(net, example, still)
    for refined in (once, run(once, example, still)):
        for number in range(2):
            level, mapped = refined.level(number), net.level(number)
            torch.testing.assert_close(level.split_weight, 0.25 * mapped.split_weight)
            torch.testing.assert_close(level.split_bias, 0.25 * mapped.split_bias)
            assert torch.equal(level.leaf_weight, mapped.leaf_weight)
            assert level.sharpness == replace(mapped.sharpness, split=0.25 * mapped.sharpness.split)


def test_the_mapped_score_is_of_the_network_before_it_is_relaxed(net, example, unseen):
    found = record(run(net, example, replace(SHORT, relax=1e-3, n_steps=1), validation=unseen))
    assert found.mapped == hr.evaluate(net, *unseen).mean_dice
    assert found.checks[0].mean_dice < found.mapped


# The result is a copy, and repeatable


def test_the_network_given_stays_as_it_was(stack, example):
    net = to_convnet(stack)
    before, settings = weights(net), copy.deepcopy(net.settings)
    refined = run(net, example)
    assert refined is not net
    assert net.settings == settings
    assert net.level(0).tolerance == 0
    for name, tensor in net.state_dict().items():
        assert torch.equal(tensor, before[name]), name
        assert tensor.data_ptr() != refined.state_dict()[name].data_ptr(), name


def test_images_and_labels_stay_as_they_were(net, example):
    before = [array.copy() for array in (*example.images, *example.labels)]
    run(net, example, replace(SHORT, crop=16))
    for array, old in zip((*example.images, *example.labels), before, strict=True):
        np.testing.assert_array_equal(array, old)


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(net, example, tmp_path):
    first = run(net, example)
    assert_same_refinement(run(net, example), first, tmp_path)
    other = run(net, example, replace(SHORT, seed=1))
    assert not torch.equal(other.level(0).split_weight, first.level(0).split_weight)


@pytest.mark.parametrize("split", ["soft", "tanh"])
def test_the_number_of_threads_does_not_change_the_result(stack, example, tmp_path, split):
    net, before, results = to_convnet(stack, split), torch.get_num_threads(), []
    for count in (1, 2):
        torch.set_num_threads(count)
        with threads(count):
            results.append(run(net, example, replace(SHORT, stride=1)))
        assert torch.get_num_threads() == count, "given back"
    torch.set_num_threads(before)
    assert_same_refinement(*results, tmp_path)


def test_frozen_connections_stay_the_trees_in_the_running_mean(stack, example):
    net = to_convnet(stack, "tanh", Sharpness(100.0, 0.07, 0.5))
    refined = run(net, example, RefineConfig(n_steps=30, stride=4, held_out=0.0, average=0.9))
    for number in range(2):
        assert torch.equal(refined.level(number).leaf_weight, net.level(number).leaf_weight)
        assert torch.equal(refined.level(number).leaf_bias, net.level(number).leaf_bias)


def test_the_running_mean_is_what_is_returned(net, example):
    steady = replace(SHORT, decay="halving", halving_steps=1e9)
    after = [weights(run(net, example, replace(steady, n_steps=n))) for n in range(1, SHORT.n_steps + 1)]
    refined = run(net, example, replace(steady, average=0.5))
    for name, tensor in weights(refined).items():
        mean = after[0][name].double()
        for later in after[1:]:
            mean = 0.5 * mean + 0.5 * later[name]
        torch.testing.assert_close(tensor, mean.float(), rtol=1e-6, atol=1e-6)


# What is refused


@pytest.mark.parametrize(
    ("mapping", "change", "words"),
    [
        ({"split": "hard"}, {}, ["hard", "'soft'"]),
        ({}, {"leaf_l1": 0.1}, ["leaf_l1", "'soft'"]),
        ({"split": "crelu"}, {"leaf_l1": 0.1}, ["leaf_l1", "'crelu'"]),
        ({"split": "tanh"}, {"leaf_entropy": 0.1}, ["leaf_entropy", "'tanh'"]),
        ({}, {"trim": True}, ["trim", "depth"]),
    ],
)
def test_what_cannot_be_trained_is_refused(stack, example, mapping, change, words):
    with pytest.raises(ConfigError) as refusal:
        run(to_convnet(stack, **mapping), example, replace(SHORT, **change))
    assert_one_sentence(refusal, *words)


@pytest.mark.parametrize("config", [{"n_steps": 3}, 3, hr.StackConfig()])
def test_settings_of_another_kind_are_refused(net, example, config):
    with pytest.raises(ConfigError) as refusal:
        run(net, example, config)
    assert_one_sentence(refusal, "RefineConfig")


def test_labels_of_an_unknown_class_are_refused_with_their_name(net, example):
    labels = [example.labels[0], example.labels[1].copy()]
    labels[1][3, 4] = 9
    with pytest.raises(InputError) as refusal:
        refine(net, example.images, labels, SHORT, names=["a.png", "b.png"])
    assert_one_sentence(refusal, "b.png", "9")


@pytest.mark.parametrize("case", ["none", "counts", "shapes", "channels", "unlabelled"])
def test_images_and_labels_that_do_not_fit_are_refused(net, example, case):
    images, labels = list(example.images), list(example.labels)
    unfit = {
        "none": ([], []),
        "counts": (images, labels[:1]),
        "shapes": (images, [labels[0], labels[1][:-1]]),
        "channels": ([np.stack([image] * 3, axis=-1) for image in images], labels),
        "unlabelled": (images, [labels[0], np.full_like(labels[1], 255)]),
    }[case]
    for arguments, options in ((unfit, {}), ((images, labels), {"validation": unfit})):
        with pytest.raises(InputError) as refusal:
            refine(net, *arguments, SHORT, progress=silent, **options)
        assert_one_sentence(refusal)


def test_a_stack_in_place_of_its_network_is_refused(stack, example):
    with pytest.raises(HedgerowError) as refusal:
        run(stack, example)
    assert_one_sentence(refusal, "to_convnet")


# Tolerance and progress


def test_a_tolerance_leaves_out_little(net, example):
    """By SGD, since Adam makes a full step of the smallest difference."""
    config = replace(SHORT, optimiser="sgd", learning_rate=1.0, relax=1.0)
    exact, coarse = (weights(run(net, example, replace(config, tolerance=value))) for value in (0.0, 1e-3))
    for name, start in weights(net).items():
        moved, apart = (exact[name] - start).abs().max(), (exact[name] - coarse[name]).abs().max()
        assert apart <= 0.05 * moved, name
    assert any(not torch.equal(exact[name], coarse[name]) for name in exact)


def test_saving_a_refined_network_does_not_change_its_prediction(net, example, tmp_path):
    refined = run(net, example, replace(SHORT, tolerance=1e-2))
    hr.save(refined, tmp_path / "net.hedge")
    found, expected = (each.predict_proba(example.images[0]) for each in (hr.load(tmp_path / "net.hedge"), refined))
    np.testing.assert_array_equal(found, expected)


def test_progress_is_reported_at_every_step(net, example):
    reports = []
    run(net, example, progress=lambda *report: reports.append(report))
    assert [done for _, done, _ in reports] == list(range(7))
    assert {total for _, _, total in reports} == {6}
    assert all(what.startswith("refining") for what, _, _ in reports)
    assert "loss" in reports[-1][0]


def test_the_progress_of_a_run_is_one_bar(net, example, monkeypatch):
    from rich.progress import Progress

    begun = []
    add_task = Progress.add_task
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(Progress, "add_task", lambda self, *a, **b: begun.append(a) or add_task(self, *a, **b))
    refine(net, example.images, example.labels, SHORT)
    assert len(begun) == 1


def test_settings_are_the_defaults_unless_given(net, example):
    reports = []

    def once(*report):
        reports.append(report)
        raise Stopped

    with pytest.raises(Stopped):
        refine(net, example.images, example.labels, progress=once)
    assert reports == [("refining", 0, RefineConfig().n_steps)]
