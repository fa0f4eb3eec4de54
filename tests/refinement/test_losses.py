"""What a refinement lowers: equal to plain NumPy, blind to unlabelled pixels, fair to classes where asked."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hedgerow.images.array_checks import UNLABELLED_INDEX
from hedgerow.refinement.losses import class_sum, class_weights, cross_entropy, weighted, with_dice

N_CLASSES, N_PIXELS = 4, 37


@pytest.fixture
def drawn():
    """Scores (C,S) float64 and a target (S,) without class 3, a quarter of it unlabelled."""
    rng = np.random.default_rng(0)
    target = rng.integers(0, N_CLASSES - 1, N_PIXELS)
    target[rng.random(N_PIXELS) < 0.25] = UNLABELLED_INDEX
    assert 0 < (target == UNLABELLED_INDEX).sum() < N_PIXELS
    return rng.normal(0, 2, (N_CLASSES, N_PIXELS)), target


def loss_of(scores, target, weight=None, dice=0.0):
    weight = None if weight is None else torch.as_tensor(weight, dtype=torch.float64)
    return float(with_dice(weighted(weight), torch.as_tensor(scores), torch.as_tensor(target), dice))


def expected_loss(scores, target, weight=None, dice=0.0):
    """The same by plain loops."""
    weight = np.ones(len(scores)) if weight is None else weight
    total, norm = 0.0, 0.0
    both, loss, true = np.zeros(len(scores)), np.zeros(len(scores)), np.zeros(len(scores))
    for s, c in enumerate(target):
        if c == UNLABELLED_INDEX:
            continue
        proba = np.exp(scores[:, s] - scores[:, s].max())
        proba /= proba.sum()
        total -= weight[c] * np.log(proba[c])
        norm += weight[c]
        both[c] += proba[c]
        loss += proba
        true[c] += 1
    overlap = [(2 * both[c] + 1) / (loss[c] + true[c] + 1) for c in range(len(scores)) if true[c]]
    return total / norm + dice * (1 - np.mean(overlap))


@pytest.mark.parametrize("weight", [None, (0.5, 1.0, 7.0, 2.0)])
@pytest.mark.parametrize("dice", [0.0, 1.0, 0.3])
def test_the_loss_is_what_numpy_says(drawn, weight, dice):
    assert loss_of(*drawn, weight, dice) == pytest.approx(expected_loss(*drawn, weight, dice), rel=1e-10)


@pytest.mark.parametrize("dice", [0.0, 1.0])
def test_unlabelled_pixels_have_no_influence_and_no_gradient(drawn, dice):
    scores, target = drawn
    unlabelled = target == UNLABELLED_INDEX
    other = scores.copy()
    other[:, unlabelled] = np.random.default_rng(1).normal(0, 50, (N_CLASSES, unlabelled.sum()))
    assert loss_of(other, target, dice=dice) == loss_of(scores, target, dice=dice)
    assert loss_of(scores[:, ~unlabelled], target[~unlabelled], dice=dice) == pytest.approx(
        loss_of(scores, target, dice=dice), rel=1e-12
    )
    arguments = torch.tensor(scores, requires_grad=True)
    with_dice(cross_entropy([], N_CLASSES), arguments, torch.as_tensor(target), dice).backward()
    assert (arguments.grad[:, unlabelled] == 0).all()
    assert (arguments.grad[:, ~unlabelled].abs().sum(0) > 0).all()


def test_class_weights_make_classes_count_the_same():
    targets = [np.repeat([0, 1, 2, UNLABELLED_INDEX], [50, 5, 1, 9]).astype(np.uint8).reshape(5, 13)]
    targets.append(np.repeat([0, 1], [40, 20]).astype(np.uint8)[None])
    weight = class_weights(targets, 3).numpy()
    count = np.array([90, 25, 1])
    np.testing.assert_allclose(weight * count, (weight * count).mean(), rtol=1e-6)
    assert (weight * count).sum() == pytest.approx(count.sum(), rel=1e-6), "the mean pixel keeps its weight"


def test_a_class_without_pixels_has_weight_one_and_leaves_the_others_alone():
    target = np.repeat([0, 2], [30, 10]).astype(np.uint8)[None]
    weight = class_weights([target], 4).numpy()
    assert weight[1] == weight[3] == 1
    np.testing.assert_allclose(weight[[0, 2]] * [30, 10], 20, rtol=1e-6)


def test_balanced_loss_is_the_mean_of_the_classes_own_losses(drawn):
    scores, target = drawn
    weight = class_weights([target.astype(np.uint8)[None]], N_CLASSES).numpy()
    own = [loss_of(scores[:, target == c], target[target == c]) for c in range(3)]
    assert loss_of(scores, target, weight) == pytest.approx(np.mean(own), rel=1e-6)
    assert loss_of(scores, target) != pytest.approx(np.mean(own), rel=1e-3)


def test_the_dice_term_is_nothing_for_a_perfect_prediction(drawn):
    _, target = drawn
    perfect = np.where(np.arange(N_CLASSES)[:, None] == target, 50.0, -50.0)
    assert abs(loss_of(perfect, target, dice=1.0)) < 1e-12
    assert loss_of(-perfect, target, dice=1.0) - loss_of(-perfect, target) > 0.7


def test_absent_classes_do_not_count_in_the_dice_term():
    """A class that no pixel has would hold the term down (softened: 1 where it is not predicted) or up."""
    scores = np.array([[3.0, -1.0, 0.5], [0.0, 2.0, 0.0], [-60.0, -60.0, -60.0]])
    target = np.array([0, 1, 1])
    assert loss_of(scores, target, dice=1.0) == pytest.approx(loss_of(scores[:2], target, dice=1.0), rel=1e-10)


def test_one_labelled_pixel_is_enough():
    scores = np.array([[1.0, 9.0], [0.0, -9.0]])
    target = np.array([1, UNLABELLED_INDEX])
    assert loss_of(scores, target, dice=1.0) == pytest.approx(expected_loss(scores, target, dice=1.0))


@pytest.mark.parametrize("dice", [0.0, 1.0])
def test_the_gradient_is_the_losses_own(drawn, dice):
    scores, target = drawn
    arguments = torch.tensor(scores, requires_grad=True)
    weight = torch.tensor([0.5, 1.0, 7.0, 2.0], dtype=torch.float64)
    target = torch.as_tensor(target)
    assert torch.autograd.gradcheck(
        lambda s: with_dice(weighted(weight), s, target, dice), (arguments,), fast_mode=True
    )


@pytest.mark.parametrize("size", [1e4, 1e30])
def test_the_loss_of_huge_scores_is_a_number(drawn, size):
    scores = torch.tensor(drawn[0] * size, dtype=torch.float32, requires_grad=True)
    loss = with_dice(cross_entropy([], N_CLASSES), scores, torch.as_tensor(drawn[1]), 1.0)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(scores.grad).all()


def test_a_sum_over_classes_is_the_mean_of_each_ones_pixels(drawn):
    scores, target = drawn
    expected = sum(expected_loss(scores, np.where(target == c, c, UNLABELLED_INDEX)) for c in range(N_CLASSES - 1))
    of_image = class_sum([target], N_CLASSES)
    assert float(of_image(torch.as_tensor(scores), torch.as_tensor(target))) == pytest.approx(expected, rel=1e-10)


def test_a_sum_over_classes_of_nothing_is_zero_with_a_gradient():
    scores = torch.zeros(N_CLASSES, 3, requires_grad=True)
    nothing = torch.full((3,), UNLABELLED_INDEX)
    loss = class_sum([], N_CLASSES)(scores, nothing)
    loss.backward()
    assert loss.item() == 0
    assert not scores.grad.any()
