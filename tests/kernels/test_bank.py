"""The filter bank's definition: the forest's own features in PyTorch, with gradients that are right and finite."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hedgerow.features.bank import FILTERS, Proportions, scale_channels
from hedgerow.kernels.definition import bank as definition
from hedgerow.kernels.definition.gaussian import box_weights, gaussian_weights

SIGMAS = (0.3, 0.7, 1.6, 5.0)
RATIOS = (0.66, 0.5, 4.0)
EPS = np.finfo(np.float32).eps


def noise(seed, *size, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(size).astype(dtype)


def images(size):
    """Noise, an edge, a gentle slope, and nothing."""
    rows, columns = np.indices(size)
    planes = [noise(0, *size), columns >= size[1] // 2, 0.01 * rows + 0.02 * columns, np.zeros(size)]
    return [plane.astype(np.float32) for plane in planes]


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("size", [(17, 23), (1, 1), (1, 9), (8, 1), (33, 6)])
def test_kernels_agree_with_the_definition(size, sigma):
    for plane in images(size):
        ours = np.empty((len(FILTERS), *size), np.float32)
        scale_channels(plane, sigma, Proportions(*RATIOS), ours)
        exact = definition.scale_channels(torch.from_numpy(plane).double(), sigma, *RATIOS).numpy()
        plain32 = definition.scale_channels(torch.from_numpy(plane), sigma, *RATIOS).numpy()
        # An image of few pixels, or a flat one, does not show how large PyTorch's errors usually are.
        floor = EPS * np.abs(plane).max() / min(sigma, 1.0) ** 2
        for channel, name in enumerate(FILTERS):
            allowed = 2 * np.abs(plain32[channel] - exact[channel]).max() + floor
            assert np.abs(ours[channel] - exact[channel]).max() <= allowed, name


def test_channels_follow_each_other_as_the_forest_counts_them():
    image = torch.from_numpy(noise(1, 2, 6, 7))
    channels = definition.bank(image, (0.7, 1.6), *RATIOS)
    assert channels.shape == (2 * (1 + 2 * len(FILTERS)), 6, 7)
    for c in range(2):
        mine = channels[c * 17 : (c + 1) * 17]
        np.testing.assert_array_equal(mine[0], image[c])
        np.testing.assert_array_equal(mine[1:9], definition.scale_channels(image[c], 0.7, *RATIOS))
        np.testing.assert_array_equal(mine[9:], definition.scale_channels(image[c], 1.6, *RATIOS))


@pytest.mark.parametrize("size", [(4, 5), (1, 3)])
def test_gradients_are_right(size):
    image = torch.from_numpy(noise(2, 1, *size, dtype=np.float64)).requires_grad_()
    assert torch.autograd.gradcheck(lambda image: definition.bank(image, (0.7, 1.3), *RATIOS), image)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_are_finite_where_roots_are_zero(dtype):
    for plane in images((9, 11)):
        image = torch.from_numpy(plane)[None].to(dtype).requires_grad_()
        channels = definition.bank(image, SIGMAS, *RATIOS)
        channels.backward(torch.from_numpy(noise(3, *channels.shape)).to(dtype) * 1e6)
        assert torch.isfinite(image.grad).all()
        assert torch.isfinite(channels).all()


def test_weights_of_the_gaussian_and_its_derivatives():
    """Sums over both sides, by hand: 1, the slope of a ramp, and twice the curvature of a square."""
    weights, distance = gaussian_weights(2.0, 8.0).astype(np.float64), np.arange(17.0)
    assert weights.shape == (3, 17)
    assert weights[0, 0] + 2 * weights[0, 1:].sum() == pytest.approx(1, abs=1e-6)
    assert 2 * (weights[1] * distance).sum() == pytest.approx(1, abs=1e-5)
    assert 2 * (weights[2] * distance**2).sum() == pytest.approx(2, abs=1e-4)


@pytest.mark.parametrize(("radius", "padded"), [(1, 4), (3, 4), (4, 4), (5, 8)])
def test_weights_of_a_box(radius, padded):
    weights = box_weights(radius)
    assert weights.shape == (1, 1 + padded)
    np.testing.assert_array_equal(weights[0, : radius + 1], np.float32(1 / (2 * radius + 1)))
    assert not weights[0, radius + 1 :].any()
