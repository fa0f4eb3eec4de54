"""Scores become the next level's inputs: forests and networks normalise alike, whatever the scores are."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hedgerow.kernels.cpu import walk
from hedgerow.kernels.definition import level as definition
from hedgerow.kernels.definition import outputs
from helpers.net_cases import EPS


def hostile_scores(dtype):
    """(C,n): positive, negative, cancelling, tiny and zero scores."""
    rng = np.random.default_rng(2)
    columns = [*rng.random((6, 4)), *rng.standard_normal((12, 4)), *-rng.random((3, 4))]
    columns += [[1, -1, 0, 0], [3, -2, -1, 1e-7], [1e-30] * 4, [-1e-30, 1e-30, 0, 0], [0, 0, 0, 0], [1e-6, 0, 0, 0]]
    columns += [[1e20, -1e20, 1, 0], [1e-7, 2e-7, 0, 0], [5e5, 1, 0, 0], [0, 0, 0, -2]]
    return np.array(columns, dtype).T


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_networks_normalise_as_forests_do(dtype):
    scores = hostile_scores(dtype)
    ours = definition.normalise(torch.from_numpy(scores)).numpy()
    assert ours.dtype == dtype
    np.testing.assert_allclose(
        ours, outputs.normalise(scores), rtol=8 * np.finfo(dtype).eps, atol=8 * np.finfo(dtype).eps
    )
    assert np.abs(ours).max() <= 10.3
    np.testing.assert_allclose(definition.normalise(torch.zeros(4, 1)), 0.25)


def test_votes_that_are_not_negative_are_divided_by_their_sum():
    scores = np.random.default_rng(0).integers(0, 9, (5, 300)).astype(np.float32) / 8  # sums are exact
    scores = scores[:, scores.sum(axis=0) > 0]
    expected = scores / scores.sum(axis=0)
    np.testing.assert_array_equal(definition.normalise(torch.from_numpy(scores)), expected)
    np.testing.assert_array_equal(outputs.normalise(scores), expected)
    np.testing.assert_allclose(expected.sum(axis=0), 1, atol=4 * EPS)


def by_the_kernel(scores):
    """As forests are normalised after walking: votes (h*w,C) to (C,h,w), of one row here."""
    out = np.empty((len(scores), 1, scores.shape[1]), np.float32)
    walk.finish(np.ascontiguousarray(scores.T), False, out)
    return out[:, 0]


@pytest.mark.parametrize(
    "normalise", [outputs.normalise, lambda s: definition.normalise(torch.from_numpy(s)).numpy(), by_the_kernel]
)
def test_scores_that_cancel_are_divided_by_a_tenth_of_their_sizes(normalise):
    """By hand. Sums 0, 1, 1, 2 and -2 of sizes 6, 11, 9, 10 and 2; the tenth decides in the first, second and last."""
    scores = np.array([[3, -3, 0, 0], [6, -5, 0, 0], [5, -4, 0, 0], [6, -4, 0, 0], [0, 0, 0, -2]], np.float32).T
    expected = [
        [5.25, -4.75, 0.25, 0.25],  # over 0.6, and a quarter of 1
        [5.477272, -4.522727, 0.022727, 0.022727],  # over 1.1, and a quarter of 1 - 1 / 1.1
        [5, -4, 0, 0],  # over 1, which is more than 0.9
        [3, -2, 0, 0],
        [2.75, 2.75, 2.75, -7.25],  # over 0.2, and a quarter of 1 + 10
    ]
    np.testing.assert_allclose(normalise(scores).T, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("normalise", [outputs.normalise, lambda s: definition.normalise(torch.from_numpy(s)).numpy()])
def test_normalised_scores_sum_to_one_whatever_they_were(normalise):
    np.testing.assert_allclose(normalise(hostile_scores(np.float64)).sum(axis=0), 1, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normalising_has_finite_gradients(dtype):
    scores = torch.from_numpy(hostile_scores(np.float64)).to(dtype).requires_grad_()
    slope = torch.randn(scores.shape, dtype=dtype, generator=torch.Generator().manual_seed(0))
    definition.normalise(scores).backward(slope)
    assert torch.isfinite(scores.grad).all()


def test_normalising_has_the_right_gradient():
    scores = torch.from_numpy(np.random.default_rng(4).standard_normal((3, 40)))
    assert torch.autograd.gradcheck(definition.normalise, scores.requires_grad_())
