"""How a refinement is scored, what it writes down, and which network it returns."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import hedgerow as hr
from conftest import draw
from hedgerow.config import RefineConfig
from hedgerow.images.array_checks import to_planes
from hedgerow.images.labelled import LabelledImage
from hedgerow.progress import silent
from hedgerow.refinement.loop import refine
from helpers.refinements import SHORT, assert_same_weights, record, run, run_scored


@pytest.mark.parametrize("n_images", [1, 2])
@pytest.mark.parametrize("held_out", [0.0, 0.5])
def test_images_that_the_forests_have_seen_give_no_score_and_all_train(net, example, n_images, held_out):
    images, labels, messages = example.images[:n_images], example.labels[:n_images], []
    config = replace(SHORT, held_out=held_out)
    refined = refine(net, images, labels, config, progress=lambda message, *_: messages.append(message))
    refinement = record(refined)
    assert refinement.scores == {}
    assert refinement.n_scored == 0
    assert [check.mean_dice for check in refinement.checks] == [None] * 4
    assert [check.step for check in refinement.checks] == [0, 2, 4, 6]
    assert not any("Dice" in message for message in messages), "nor does the bar show one"
    assert_same_weights(refined, refine(net, images, labels, replace(SHORT, held_out=0.0), progress=silent))


def test_a_score_that_decides_something_is_not_shown_either(net, example):
    refinement = record(run(net, example, replace(SHORT, keep="best", patience=3, held_out=0.5)))
    assert refinement.scores == {}
    assert all(check.mean_dice is None for check in refinement.checks)


def test_reserved_images_score_and_do_not_train(tiny_config):
    images, labels = zip(*(draw(seed) for seed in range(5)), strict=True)
    stack = hr.fit_stack(images, labels, replace(tiny_config, reserve=0.4))
    assert (len(stack.known.seen), len(stack.known.reserved)) == (3, 2)
    numbers = [i for i, image in enumerate(images) if mark_of(image) in stack.known.reserved]
    assert len(numbers) == 2
    others = [[part[i] for i in range(5) if i not in numbers] for part in (images, labels)]
    reserved = [[part[i] for i in numbers] for part in (images, labels)]
    alone = hr.fit_stack(*others, tiny_config)
    for level, expected in zip(stack.levels, alone.levels, strict=True):
        np.testing.assert_array_equal(level.threshold, expected.threshold)
    net = hr.to_convnet(stack)
    refined = refine(net, images, labels, SHORT, progress=silent)
    assert_same_weights(refined, refine(net, *others, SHORT, validation=reserved, progress=silent))
    expected = {name: hr.evaluate(m, *reserved).mean_dice for name, m in (("stack", stack), ("refined", refined))}
    assert expected.items() <= record(refined).scores.items()
    assert record(refined).n_scored == 2
    assert refined.known == stack.known


def test_a_new_image_of_a_reserved_subject_scores_and_does_not_train(tiny_config):
    images, labels = zip(*(draw(seed) for seed in range(6)), strict=True)
    stack = hr.fit_stack(images[:5], labels[:5], replace(tiny_config, reserve=0.2))
    (number,) = (i for i, image in enumerate(images) if mark_of(image) in stack.known.reserved)
    groups = [*"abcde", "abcde"[number]]
    refined = refine(hr.to_convnet(stack), images, labels, SHORT, groups=groups, progress=silent)
    assert record(refined).n_scored == 2
    assert mark_of(images[5]) not in refined.known.seen


def test_of_new_images_some_score_and_the_others_train(net, example):
    new = [draw(seed) for seed in range(60, 64)]
    images, labels = zip(*new, *zip(example.images, example.labels, strict=True), strict=True)
    refined = refine(net, images, labels, replace(SHORT, held_out=0.34), progress=silent)
    assert record(refined).n_scored == 2
    assert set(record(refined).scores) == {"stack", "mapped", "refined"}
    assert len(refined.known.seen) == 4, "of six images, two score"
    assert set(net.known.seen) < set(refined.known.seen)


def test_validation_images_that_the_forests_have_seen_give_no_score(net, example, unseen):
    images, labels = [*unseen[0], example.images[0]], [*unseen[1], example.labels[0]]
    refinement = record(run(net, example, validation=(images, labels)))
    assert refinement.scores == {}
    assert all(check.mean_dice is None for check in refinement.checks)


def test_what_was_seen_is_saved_and_goes_along_to_forests(net, example, tmp_path):
    refined = run(net, example)
    hr.save(refined, tmp_path / "net.hedge")
    assert hr.load(tmp_path / "net.hedge").known == refined.known == net.known
    assert hr.to_forest(refined, method="weights").known == net.known


def test_validation_images_score_the_stack_and_the_network_before_and_after(blurred_net, example, unseen):
    refined = run(blurred_net, example, replace(SHORT, learning_rate=0.05), validation=unseen)
    models = {"stack": blurred_net.stack, "mapped": blurred_net, "refined": refined}
    expected = {name: hr.evaluate(model, *unseen).mean_dice for name, model in models.items()}
    assert record(refined).scores == expected
    assert len(set(expected.values())) == 3


def test_scores_on_a_lattice_that_meets_no_label_are_unknown_and_the_network_is_saved(net, example, unseen, tmp_path):
    images, labels = unseen
    scribbles = [
        np.where(np.indices(label.shape).sum(axis=0) == 1, label, 255) for label in labels
    ]  # beside the lattice
    config = replace(SHORT, keep="best", patience=2)
    refined = run(net, example, config, validation=(images, scribbles))
    assert [check.mean_dice for check in record(refined).checks] == [None] * 4
    assert set(record(refined).scores) == {"stack", "mapped", "refined"}
    hr.save(refined, tmp_path / "net.hedge")
    assert hr.load(tmp_path / "net.hedge").refinements == refined.refinements


def mark_of(image):
    return LabelledImage(to_planes(image), np.zeros(image.shape, np.uint8)).mark


def test_validation_images_do_not_train_and_all_others_do(net, example, unseen):
    with_them = run(net, example, validation=unseen)
    assert_same_weights(with_them, run(net, example, replace(SHORT, held_out=0.0)))


def test_the_record_says_how_the_network_was_refined(net, example, unseen):
    refinement = record(run(net, example, validation=unseen))
    assert RefineConfig.from_dict(refinement.config) == SHORT
    assert [check.step for check in refinement.checks] == [0, 2, 4, 6]
    assert all(isinstance(check.loss, float) for check in refinement.checks)
    assert all(isinstance(check.mean_dice, float) for check in refinement.checks)


def test_a_refined_network_can_be_refined_again(net, example, unseen):
    once = run(net, example, validation=unseen)
    twice = run(once, example, replace(SHORT, seed=1), validation=unseen)
    assert len(once.refinements) == 1
    assert twice.refinements[0] == once.refinements[0]
    assert record(twice).config["seed"] == 1
    assert record(twice).mapped == pytest.approx(record(once).refined, abs=0.2)
    assert not torch.equal(twice.level(0).split_weight, once.level(0).split_weight)


STEADY = replace(SHORT, decay="halving", halving_steps=1e9)


@pytest.mark.parametrize(("scores", "best"), [((0.5, 0.7, 0.9, 0.8), 4), ((0.5, 0.7, 0.7, 0.6), 2)])
def test_the_best_network_is_returned_if_asked_for(net, example, unseen, scores, best):
    expected = {n: run(net, example, replace(STEADY, n_steps=n)) for n in (best, 6)}
    for keep, step in (("best", best), ("last", 6)):
        refined = run_scored(scores, net, example, replace(STEADY, keep=keep), unseen)
        assert_same_weights(refined, expected[step])


def test_the_best_network_may_be_the_one_it_began_with(net, example):
    config = replace(SHORT, keep="best", relax=1.0)
    assert_same_weights(run_scored((0.9, 0.7, 0.8, 0.6), net, example, config), net)


def test_the_best_network_with_a_running_mean_is_a_mean(net, example, unseen):
    steady = replace(STEADY, average=0.6)
    expected = run(net, example, replace(steady, n_steps=4))
    best = run_scored((0.5, 0.7, 0.9, 0.8), net, example, replace(steady, keep="best"), unseen)
    assert_same_weights(best, expected)


def test_patience_stops_a_run_that_gets_no_better(net, example, unseen):
    config = replace(SHORT, n_steps=40, patience=2)
    checks = record(run_scored((0.5, 0.6, 0.6, 0.55, 0.9), net, example, config, unseen)).checks
    assert [check.mean_dice for check in checks] == [0.5, 0.6, 0.6, 0.55]
    assert checks[-1].step == 6


def test_patience_without_scores_is_no_limit(net, example):
    refinement = record(run(net, example, replace(SHORT, held_out=0.0, patience=1)))
    assert refinement.checks[-1].step == 6
