"""The filter bank's definition: the forest's own features in PyTorch, with gradients that are right and finite."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hedgerow.features.bank import FILTERS, Proportions, scale_channels
from hedgerow.features.volume_scale import VOLUME_FILTERS, volume_channels
from hedgerow.images.regions import Region
from hedgerow.kernels.cpu import volume_filters
from hedgerow.kernels.definition import bank as definition
from hedgerow.kernels.definition.gaussian import box_weights, gaussian_weights, is_flat, volume_weights

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


def volumes(size):
    """Noise, an edge, a gentle slope, and nothing."""
    z, y, x = np.indices(size)
    planes = [noise(0, *size), x >= size[2] // 2, 0.01 * z + 0.02 * y + 0.03 * x, np.zeros(size)]
    return [plane.astype(np.float32) for plane in planes]


@pytest.mark.parametrize(("sigma", "anisotropy"), [(0.5, 1.0), (0.7, 0.8), (1.6, 2.3), (5.0, 1.0)])
@pytest.mark.parametrize("size", [(7, 17, 23), (1, 1, 1), (1, 9, 8), (2, 6, 5), (3, 1, 9), (9, 8, 1)])
def test_kernels_of_volumes_agree_with_the_definition(size, sigma, anisotropy):
    whole = Region.whole(size)
    for volume in volumes(size):
        ours = np.full((len(VOLUME_FILTERS), *size), np.nan, np.float32)
        scale = Proportions(*RATIOS).of_volume(sigma, anisotropy)
        volume_channels(volume, whole, whole, whole, scale, ours)
        exact = definition.volume_channels(torch.from_numpy(volume).double(), sigma, anisotropy, *RATIOS).numpy()
        plain32 = definition.volume_channels(torch.from_numpy(volume), sigma, anisotropy, *RATIOS).numpy()
        floor = EPS * np.abs(volume).max() / min(sigma, sigma / anisotropy, 1.0) ** 2
        for channel, name in enumerate(VOLUME_FILTERS):
            allowed = 2 * np.abs(plain32[channel] - exact[channel]).max() + floor
            assert np.abs(ours[channel] - exact[channel]).max() <= allowed, name


def symmetric(kind, n=2000):
    """(6,n) float32 entries zz, zy, zx, yy, yx, xx of symmetric matrices."""
    rng = np.random.default_rng(7)
    values = rng.standard_normal((n, 3))
    if kind in ("two high", "two low", "three"):
        values = np.sort(values)
        values[:, 1] = values[:, {"two high": 2, "two low": 0, "three": 2}[kind]]
        values[:, 0] = values[:, 2] if kind == "three" else values[:, 0]
    if kind == "nearly two":
        values[:, 1] = values[:, 0] * (1 + 1e-6 * rng.standard_normal(n))
    scale = {"huge": 1e18, "tiny": 1e-30, "mixed": 10 ** rng.uniform(-15, 15, (n, 1, 1))}.get(kind, 1)
    axes = (
        np.broadcast_to(np.eye(3), (n, 3, 3)) if kind == "diagonal" else np.linalg.qr(rng.standard_normal((n, 3, 3)))[0]
    )
    matrices = np.einsum("nij,nj,nkj->nik", axes, 0 * values if kind == "zero" else values, axes) * scale
    return np.ascontiguousarray(matrices.reshape(n, 9).T[[0, 1, 2, 4, 5, 8]], np.float32)


KINDS = ("plain", "two high", "two low", "three", "nearly two", "diagonal", "zero", "huge", "tiny", "mixed")


@pytest.mark.parametrize("kind", KINDS)
def test_eigenvalues_are_those_of_numpy(kind):
    entries = symmetric(kind)
    matrices = entries[[0, 1, 2, 1, 3, 4, 2, 4, 5]].T.reshape(-1, 3, 3)
    exact = np.linalg.eigvalsh(matrices.astype(np.float64))[:, ::-1].T
    largest = np.abs(exact).max(axis=0)
    ours = np.full_like(exact, np.nan, np.float32)
    volume_filters.eigenvalues(entries, 0, *ours)
    assert (np.diff(ours, axis=0) <= 0).all()
    # Half a unit of the last digit for rounding the result, and as much for all that comes before.
    assert (np.abs(ours - exact) <= EPS * largest).all()
    single = torch.stack(definition.eigenvalues3(*torch.from_numpy(entries))).numpy()
    assert (np.abs(single - exact) <= EPS * largest).all()
    double = torch.stack(definition.eigenvalues3(*torch.from_numpy(entries.astype(np.float64)))).numpy()
    assert (np.abs(double - exact) <= 1e-7 * largest).all()


def test_eigenvalues_of_part_of_a_line():
    entries = symmetric("plain", 40)
    whole, part = np.empty((3, 40), np.float32), np.empty((3, 17), np.float32)
    volume_filters.eigenvalues(entries, 0, *whole)
    volume_filters.eigenvalues(entries, 5, *part)
    np.testing.assert_array_equal(part, whole[:, 5:22])


def test_channels_of_volumes_follow_each_other_as_the_forest_counts_them():
    volume = torch.from_numpy(noise(1, 2, 3, 6, 7))
    channels = definition.volume_bank(volume, (0.7, 3.2), 2.0, *RATIOS)
    assert channels.shape == (2 * (1 + len(FILTERS) + len(VOLUME_FILTERS)), 3, 6, 7)
    for c in range(2):
        mine = channels[c * 19 : (c + 1) * 19]
        np.testing.assert_array_equal(mine[0], volume[c])
        for z in range(3):
            np.testing.assert_array_equal(mine[1:9, z], definition.scale_channels(volume[c, z], 0.7, *RATIOS))
        np.testing.assert_array_equal(mine[9:], definition.volume_channels(volume[c], 3.2, 2.0, *RATIOS))


@pytest.mark.parametrize("size", [(3, 4, 5), (1, 3, 2)])
def test_gradients_of_volumes_are_right(size):
    volume = torch.from_numpy(noise(2, 1, *size, dtype=np.float64)).requires_grad_()

    def bank(volume):
        return definition.volume_bank(volume, (0.7, 1.3), 1.2, *RATIOS)

    assert torch.autograd.gradcheck(bank, volume, fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_of_volumes_are_finite_where_eigenvalues_agree(dtype):
    for plane in volumes((4, 6, 5)):
        volume = torch.from_numpy(plane)[None].to(dtype).requires_grad_()
        channels = definition.volume_bank(volume, (0.7, 1.6, 5.0), 1.3, *RATIOS)
        channels.backward(torch.from_numpy(noise(3, *channels.shape)).to(dtype) * 1e6)
        assert torch.isfinite(volume.grad).all()
        assert torch.isfinite(channels).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_of_eigenvalues_are_no_longer_than_one(kind, dtype):
    """An eigenvalue changes by no more than the matrix does, also where two of them meet."""
    entries = torch.from_numpy(symmetric(kind, 200)).to(dtype).requires_grad_()
    for eigenvalue in definition.eigenvalues3(*entries):
        (gradient,) = torch.autograd.grad(eigenvalue.sum(), entries, retain_graph=True)
        off_diagonal = torch.tensor([1, 0.5, 0.5, 1, 0.5, 1], dtype=dtype)[:, None]  # which count twice in the matrix
        assert ((gradient**2 * off_diagonal).sum(0) <= 1.01).all()


def test_weights_across_slices_are_in_pixels():
    """By hand: 1, the slope of a ramp, and twice the curvature of a square, in pixels of which a slice has three."""
    weights, distance = volume_weights(6.0, 3.0, 8.0).astype(np.float64), 3 * np.arange(17.0)
    assert weights.shape == (3, 17)
    assert weights[0, 0] + 2 * weights[0, 1:].sum() == pytest.approx(1, abs=1e-6)
    assert 2 * (weights[1] * distance).sum() == pytest.approx(1, abs=1e-5)
    assert 2 * (weights[2] * distance**2).sum() == pytest.approx(2, abs=1e-4)
    np.testing.assert_allclose(volume_weights(1.6, 1.0, 5.0), gaussian_weights(1.6, 5.0), atol=1e-4)


@pytest.mark.parametrize("sigma", [0.3, 0.5, 0.7, 1.6, 10.0])
@pytest.mark.parametrize("truncate", [1.0, 4.0])
def test_a_constant_has_no_curvature_in_volumes(sigma, truncate):
    weights = volume_weights(sigma, 1.0, truncate).astype(np.float64)
    assert np.isfinite(weights).all()
    assert weights[2, 0] + 2 * weights[2, 1:].sum() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("sigma", "anisotropy", "flat"), [(0.5, 1, False), (0.49, 1, True), (5, 10, False), (5, 11, True)]
)
def test_a_scale_narrower_than_half_a_slice_is_flat(sigma, anisotropy, flat):
    assert is_flat(sigma, anisotropy) is flat
