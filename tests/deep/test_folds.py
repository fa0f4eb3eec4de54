"""Folds and weights: nobody is judged by, or learns from, what a model says of its own training pixels."""

import numpy as np
import pytest

pytest.importorskip("torch")

from hedgerow.deep.ensemble_weights import MIN_GAIN_FEW_IMAGES, MIN_GAIN_HANDICAPPED, find_weights, mean_dice
from hedgerow.deep.folds import folds_of
from hedgerow.errors import InputError
from hedgerow.images.given import labelled_set
from helpers.deep import pictures
from helpers.refusals import assert_one_sentence


def strokes(labels):
    drawn = np.full(labels.shape, 255, np.uint8)
    drawn[::8, 2:9], drawn[5::8, 20:26] = labels[::8, 2:9], labels[5::8, 20:26]
    return drawn


@pytest.mark.parametrize(("n", "thin"), [(7, False), (4, False), (2, False), (1, False), (2, True)])
def test_each_label_is_held_out_once_and_learned_from_otherwise(n, thin):
    images, labels = pictures(n)
    labelled = labelled_set(images, [strokes(label) for label in labels] if thin else labels)
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


def probabilities(rng, target, how_good):
    """(C,S) probabilities that are right where a random number is below `how_good`."""
    right = rng.random(len(target)) < how_good
    shown = np.where(right, target, (target + 1) % 3)
    return (0.8 * (shown == np.arange(3)[:, None]) + 0.1).astype(np.float32)


def test_weights_are_never_worse_than_the_best_member():
    for seed in range(12):
        rng = np.random.default_rng(seed)
        target = rng.integers(0, 3, 400).astype(np.uint8)
        members = {name: probabilities(rng, target, rng.uniform(0.3, 0.95)) for name in ("stack", "alone", "reading")}
        weights = find_weights(members, target)
        together = mean_dice(sum(weights[name] * proba for name, proba in members.items()), target)
        assert together >= max(mean_dice(proba, target) for proba in members.values())
        assert sum(weights.values()) == pytest.approx(1)


def test_weights_are_equal_where_there_is_nothing_to_tell():
    rng = np.random.default_rng(0)
    target = rng.integers(0, 3, 300).astype(np.uint8)
    proba = probabilities(rng, target, 0.7)
    assert find_weights({"stack": proba, "alone": proba}, target) == {"stack": 0.5, "alone": 0.5}


def test_of_few_images_only_much_better_weights_replace_the_usual_ones():
    rng = np.random.default_rng(0)
    target = rng.integers(0, 3, 4000).astype(np.uint8)
    usual = {"stack": 0.2, "alone": 0.8}
    better = probabilities(rng, target, 0.8)
    worse = better.copy()
    worse[:, :300] = np.roll(better[:, :300], 1, axis=0)
    assert mean_dice(better, target) > mean_dice(worse, target) + 0.04, "so much may be chance"
    assert find_weights({"stack": better, "alone": worse}, target, usual, MIN_GAIN_FEW_IMAGES) == usual
    much = {"stack": probabilities(rng, target, 0.95), "alone": probabilities(rng, target, 0.6)}
    assert find_weights(much, target, usual, MIN_GAIN_FEW_IMAGES)["stack"] > 0.5
    useless = {"stack": probabilities(rng, target, 0.4), "alone": probabilities(rng, target, 0.05)}
    assert find_weights(useless, target, usual, MIN_GAIN_HANDICAPPED)["stack"] > 0.5, "though all scores are low"


def test_a_member_that_only_harms_counts_little():
    rng = np.random.default_rng(0)
    target = rng.integers(0, 3, 3000).astype(np.uint8)
    sure = (3 * probabilities(rng, target, 0.05)).astype(np.float32)  # wrong, and loudly so
    assert find_weights({"stack": probabilities(rng, target, 0.95), "alone": sure}, target)["alone"] <= 0.2


def painted(size, *strokes_of):
    """One image, and labels on some of its pixels: (class, rows, columns) each."""
    labels = np.full(size, 255, np.uint8)
    for value, rows, columns in strokes_of:
        labels[rows, columns] = value
    image = np.random.default_rng(0).normal(100, 15, size).astype(np.float32)
    return labelled_set([image], [labels])


LITTLE = {
    "a stroke of each class": painted(
        (200, 300), (1, slice(20, 22), slice(10, 90)), (4, slice(150, 152), slice(200, 280))
    ),
    "a corner": painted((64, 80), (1, slice(0, 16), slice(0, 40)), (4, slice(16, 24), slice(0, 40))),
    "two pixels": painted((30, 40), (1, 3, 4), (4, 3, 9)),
}


@pytest.mark.parametrize("case", LITTLE)
@pytest.mark.parametrize("n_folds", [3, 4, 8])
def test_where_little_is_labelled_every_fold_still_has_some_and_leaves_some(case, n_folds):
    labelled = LITTLE[case]
    total = int((labelled.images[0].target != 255).sum())
    for seed in range(12):
        folds = folds_of(labelled, n_folds, seed)
        assert 2 <= folds.n_folds <= n_folds
        for fold in range(folds.n_folds):
            held = int((folds.target(0, fold) != 255).sum())
            assert folds.held(fold) == [0]
            assert 0 < held < total
            assert int((folds.training(fold).images[0].target != 255).sum()) == total - held


def test_one_stroke_of_each_class_is_cut_so_that_none_is_unknown():
    labelled = LITTLE["a stroke of each class"]
    for seed in range(12):
        folds = folds_of(labelled, 4, seed)
        known = [set(np.unique(folds.training(fold).images[0].target)) - {255} for fold in range(folds.n_folds)]
        assert known == [{0, 1}] * folds.n_folds


def test_a_single_labelled_pixel_in_each_image_is_refused():
    images = [np.zeros((9, 9), np.float32)] * 2
    labels = [np.full((9, 9), 255, np.uint8) for _ in images]
    labels[0][2, 3], labels[1][5, 6] = 1, 4
    with pytest.raises(InputError) as problem:
        folds_of(labelled_set(images, labels), 4, 0)
    assert_one_sentence(problem, "too few labels", "label more")
