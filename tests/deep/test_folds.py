"""Folds and weights: nobody is judged by, or learns from, what a model says of its own training pixels."""

import numpy as np
import pytest

pytest.importorskip("torch")

from hedgerow.deep.folds import folds_of
from hedgerow.deep.weighing import FEW, HANDICAP, find_weights, mean_dice
from hedgerow.images.labelled import labelled_set
from helpers.deep import pictures


def strokes(labels):
    kept = np.full(labels.shape, 255, np.uint8)
    kept[::8, 2:9], kept[5::8, 20:26] = labels[::8, 2:9], labels[5::8, 20:26]
    return kept


@pytest.mark.parametrize(("n", "thin"), [(7, False), (4, False), (2, False), (1, False), (2, True)])
def test_each_label_is_held_out_once_and_learned_from_otherwise(n, thin):
    images, labels = pictures(n)
    labelled = labelled_set(images, [strokes(one) for one in labels] if thin else labels)
    folds = folds_of(labelled, 3, seed=1)
    assert folds.n_folds == 3
    for fold in range(3):
        held = sum(int((folds.target(i, fold) != 255).sum()) for i in folds.held(fold))
        training = folds.training(fold)
        learned = sum(int((image.target != 255).sum()) for image in training)
        assert held > 0
        assert learned > 0
        assert held + learned == sum(int((image.target != 255).sum()) for image in labelled)
        if n >= 4:  # whole images: those of the fold are not there at all
            assert len(training) == n - len(folds.held(fold))


def test_there_are_no_more_folds_than_images():
    images, labels = pictures(4)
    assert folds_of(labelled_set(images, labels), 9, seed=0).n_folds == 4


def said(rng, target, how_good):
    """(C,S) probabilities that are right where a random number is below `how_good`."""
    right = rng.random(len(target)) < how_good
    shown = np.where(right, target, (target + 1) % 3)
    return (0.8 * (shown == np.arange(3)[:, None]) + 0.1).astype(np.float32)


def test_weights_are_never_worse_than_the_best_member():
    for seed in range(12):
        rng = np.random.default_rng(seed)
        target = rng.integers(0, 3, 400).astype(np.uint8)
        members = {name: said(rng, target, rng.uniform(0.3, 0.95)) for name in ("stack", "alone", "reading")}
        weights = find_weights(members, target)
        together = mean_dice(sum(weights[name] * proba for name, proba in members.items()), target)
        assert together >= max(mean_dice(proba, target) for proba in members.values())
        assert sum(weights.values()) == pytest.approx(1)


def test_weights_are_equal_where_there_is_nothing_to_tell():
    rng = np.random.default_rng(0)
    target = rng.integers(0, 3, 300).astype(np.uint8)
    one = said(rng, target, 0.7)
    assert find_weights({"stack": one, "alone": one}, target) == {"stack": 0.5, "alone": 0.5}


def test_of_few_images_only_much_better_weights_replace_the_usual_ones():
    rng = np.random.default_rng(0)
    target = rng.integers(0, 3, 4000).astype(np.uint8)
    usual = {"stack": 0.2, "alone": 0.8}
    one = said(rng, target, 0.8)
    worse = one.copy()
    worse[:, :300] = np.roll(one[:, :300], 1, axis=0)
    assert mean_dice(one, target) > mean_dice(worse, target) + 0.04, "so much may be chance"
    assert find_weights({"stack": one, "alone": worse}, target, usual, FEW) == usual
    much = {"stack": said(rng, target, 0.95), "alone": said(rng, target, 0.6)}
    assert find_weights(much, target, usual, FEW)["stack"] > 0.5
    useless = {"stack": said(rng, target, 0.4), "alone": said(rng, target, 0.05)}
    assert find_weights(useless, target, usual, HANDICAP)["stack"] > 0.5, "though all scores are low"


def test_a_member_that_only_harms_counts_little():
    rng = np.random.default_rng(0)
    target = rng.integers(0, 3, 3000).astype(np.uint8)
    sure = (3 * said(rng, target, 0.05)).astype(np.float32)  # wrong, and loudly so
    assert find_weights({"stack": said(rng, target, 0.95), "alone": sure}, target)["alone"] <= 0.2
