"""The filter bank as a definition with gradients, beside the kernels."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import hedgerow as hr
from hedgerow.features.registry import fit_features
from hedgerow.kernels.definition.bank import bank

SHAPE = (0.66, 0.5, 4.0)


@pytest.mark.parametrize("size", [(1, 1), (7, 9), (23, 1), (40, 33)])
@pytest.mark.parametrize("sigmas", [(0.7,), (1.6, 5.0)])
def test_the_kernels_compute_what_is_defined(size, sigmas):
    image = np.random.default_rng(0).standard_normal((2, *size)).astype(np.float32)
    features = fit_features([image], hr.StackConfig(sigmas=sigmas))[0]
    centred = (image - features.input_mean[:, None, None]) / features.input_std[:, None, None]
    exact = bank(torch.from_numpy(centred.astype(np.float64)), sigmas, *SHAPE).numpy()
    plain = bank(torch.from_numpy(centred), sigmas, *SHAPE).numpy()
    found = features.raw(image)
    assert found.shape == exact.shape == (features.n_features, *size)
    floor = 4 * np.finfo(np.float32).eps * max(np.abs(exact).max(), 1)
    for name, mine, theirs, truth in zip(features.names, found, plain, exact, strict=True):
        assert np.abs(mine - truth).max() <= 2 * np.abs(theirs - truth).max() + floor, name


def test_gradients_are_those_of_the_definition():
    image = torch.from_numpy(np.random.default_rng(1).standard_normal((1, 6, 5))).requires_grad_()
    assert torch.autograd.gradcheck(lambda given: bank(given, (0.7, 1.3), *SHAPE), (image,), eps=1e-6, atol=1e-5)


@pytest.mark.parametrize("value", [0.0, 3.0])
def test_gradients_of_a_flat_image_are_finite(value):
    image = torch.full((1, 9, 8), value, requires_grad=True)
    bank(image, (1.0, 3.5), *SHAPE).sum().backward()
    assert torch.isfinite(image.grad).all()
    np.testing.assert_allclose(image.grad.sum(), 9 * 8 * 3, rtol=1e-3)  # of the intensity and the two Gaussians
