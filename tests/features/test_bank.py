"""The filter bank against scipy.ndimage, its names, its statistics, and its indifference to how an image is cut."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import ndimage

from hedgerow import threads
from hedgerow.config import ContextConfig, StackConfig
from hedgerow.errors import InputError, ModelError
from hedgerow.features import bank
from hedgerow.features.bank import FILTERS, Proportions, intensity_range, scale_channels
from hedgerow.features.registry import fit_features
from hedgerow.images.reading import SourcePlanes
from hedgerow.images.regions import Region

# As in the definition of the channels; written out, so that a change of the program's constants is noticed.
DOG_RATIO, STRUCTURE_RATIO = 0.66, 0.5


def eigenvalues(rr, rc, cc):
    mean, root = (rr + cc) / 2, np.sqrt(((rr - cc) / 2) ** 2 + rc**2)
    return mean + root, mean - root


def scipy_channels(image, sigma):
    """KINDS of one image (H,W), straight from scipy.ndimage in double precision."""

    def gauss(order=(0, 0), s=sigma, of=image):
        return ndimage.gaussian_filter(of.astype(np.float64), s, order=order)

    d_r, d_c = gauss((1, 0)), gauss((0, 1))
    tensor = [gauss(s=STRUCTURE_RATIO * sigma, of=product) for product in (d_r * d_r, d_r * d_c, d_c * d_c)]
    return np.stack(
        [
            ndimage.gaussian_filter(image.astype(np.float64), sigma),
            ndimage.gaussian_laplace(image.astype(np.float64), sigma),
            ndimage.gaussian_gradient_magnitude(image.astype(np.float64), sigma),
            gauss(s=DOG_RATIO * sigma) - gauss(),
            *eigenvalues(*tensor),
            *eigenvalues(gauss((2, 0)), gauss((1, 1)), gauss((0, 2))),
        ]
    )


@pytest.mark.parametrize("sigma", [0.7, 1.0, 1.6, 3.5, 5.0, 10.0, 24.0])
@pytest.mark.parametrize("shape", [(67, 93), (1, 40), (23, 1), (5, 6)])
def test_bank_equals_scipy(sigma, shape):
    image = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    out = np.full((len(FILTERS), *shape), np.nan, np.float32)
    scale_channels(image, sigma, Proportions(), out)
    expected = scipy_channels(image, sigma)
    for kind, ours, theirs in zip(FILTERS, out, expected, strict=True):
        # Eigenvalues are differences: their scale is that of the pair.
        scale = max(np.abs(theirs).max(), np.abs(expected[4]).max() if "structure" in kind else 0, 1e-3)
        np.testing.assert_allclose(ours, theirs, atol=1e-4 * scale, rtol=0, err_msg=kind)


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (40, 50)])
def test_borders_mirror_as_often_as_it_takes(shape):
    plane = np.random.default_rng(4).random(shape).astype(np.float32)
    weights = np.zeros((3, 1 + 9), np.float32)
    np.testing.assert_array_equal(bank._padded(plane, weights), np.pad(plane, 9, mode="symmetric").ravel())


def test_every_channel_is_named_once():
    image = np.random.default_rng(0).random((3, 20, 21)).astype(np.float32)
    features = fit_features([image], StackConfig(sigmas=(0.7, 2.0)))[0]
    assert len(set(features.names)) == features.n_features == len(features.compute(image)) == 3 * (1 + 2 * 8)
    assert features.names[0] == "c0 raw"
    assert features.names[17 + 1 + 8] == "c1 gaussian 2"


def test_features_are_standardised_over_all_images():
    rng = np.random.default_rng(1)
    images = [(rng.random((1, h, w)) * 50 + 30_000).astype(np.float32) for h, w in ((30, 40), (51, 17))]
    features = fit_features(images, StackConfig(sigmas=(1.0, 3.0)))[0]
    values = np.concatenate([features.compute(i).reshape(features.n_features, -1) for i in images], axis=1)
    np.testing.assert_allclose(values.mean(axis=1), 0, atol=2e-4)
    np.testing.assert_allclose(values.std(axis=1), 1, atol=2e-4)


def test_constant_image_gives_finite_features():
    image = np.full((1, 9, 9), 7, np.float32)
    features = fit_features([image], StackConfig(sigmas=(1.0,)))[0]
    assert np.isfinite(features.compute(image)).all()


def test_a_feature_does_not_depend_on_where_the_image_was_cut():
    image = np.random.default_rng(2).random((1, 90, 120)).astype(np.float32)
    features = fit_features([image], StackConfig(sigmas=(0.7, 1.6, 3.5)))[0]
    whole, margin = features.compute(image), features.halo
    for top, bottom, left, right in ((0, 90, 13, 111), (7, 80, 0, 120), (20, 90, 31, 120)):
        part = features.compute(image[:, top:bottom, left:right])
        rows = slice(top + margin * (top > 0), bottom - margin * (bottom < 90))
        columns = slice(left + margin * (left > 0), right - margin * (right < 120))
        inner = part[:, rows.start - top : rows.stop - top, columns.start - left : columns.stop - left]
        np.testing.assert_array_equal(whole[:, rows, columns], inner)


def test_opponent_colours_are_filtered_instead_of_red_green_and_blue():
    red, green, blue = planes = np.random.default_rng(3).integers(0, 255, (3, 40, 50)).astype(np.float32)
    config = StackConfig(sigmas=(0.7, 1.6), opponent=True)
    features = fit_features([planes], config)[0]
    others = np.stack([planes.mean(0), red - green, blue - (red + green) / 2])
    plain = fit_features([others], replace(config, opponent=False))[0]
    np.testing.assert_allclose(features.compute(planes), plain.compute(others), rtol=0, atol=2e-4)
    assert [features.names[k] for k in (0, 17, 35)] == ["brightness raw", "red-green raw", "blue-yellow gaussian 0.7"]
    grey = features.raw_in(np.stack([red] * 3), Region.whole(red.shape))
    offset = grey[17, 0, 0]  # of the means of the channels
    np.testing.assert_allclose(grey[17], offset, atol=1e-5)


@pytest.mark.parametrize("n_channels", [1, 2, 4])
def test_images_without_three_channels_have_no_opponent_colours(n_channels):
    image = np.random.default_rng(3).random((n_channels, 40, 50)).astype(np.float32)
    with_them, without = (
        fit_features([image], StackConfig(sigmas=(0.7,), opponent=opponent))[0] for opponent in (True, False)
    )
    assert not with_them.opponent
    assert with_them.settings() == without.settings()


def test_a_bank_of_two_channels_cannot_be_opponent():
    features = fit_features([np.zeros((2, 9, 9), np.float32)], StackConfig(sigmas=(0.7,)))[0]
    with pytest.raises(ModelError):
        replace(features, opponent=True).validate()


def test_a_normalised_image_may_be_brighter_and_flatter():
    image = np.random.default_rng(2).random((2, 90, 120)).astype(np.float32)
    config = StackConfig(sigmas=(0.7, 1.6), normalise=True)
    features = fit_features([image], config)[0]
    other = image * np.array([[[0.25]], [[8]]], np.float32) + np.array([[[64]], [[-2]]], np.float32)
    np.testing.assert_allclose(features.compute(other), features.compute(image), atol=5e-3)
    plain = fit_features([image], replace(config, normalise=False))[0]
    assert np.abs(plain.compute(other) - plain.compute(image)).max() > 1


def test_the_darkest_and_the_brightest_pixels_do_not_set_the_range():
    ramp = np.arange(10_000, dtype=np.float32).reshape(1, 100, 100)
    assert [float(number[0]) for number in intensity_range(ramp)] == [99, 9979 - 99]
    ramp[0, 0, 0], ramp[0, 99, 99] = -1e6, 1e6
    assert [float(number[0]) for number in intensity_range(ramp)] == [99, 9979 - 99]


def test_images_without_a_range_are_normalised_all_the_same():
    nearly_blank = np.full((2, 100, 100), 7, np.float32)
    nearly_blank[0, 0, 0] = 9
    assert np.stack(intensity_range(nearly_blank), axis=1).tolist() == [[7, 2], [7, 1]]


def test_an_image_is_normalised_as_a_whole_however_it_is_read():
    image = np.random.default_rng(4).integers(0, 255, (1, 1100, 1300)).astype(np.float32)
    image[:, :, 600:] += 100
    features = fit_features([image], StackConfig(sigmas=(0.7, 1.6), normalise=True))[0]
    whole = features.compute(image)
    reads = []

    def read(region):
        reads.append(region)
        return region.of(image)

    source = Proportions()  # any object
    for region in (Region(0, 90, 13, 111), Region(1000, 1100, 1200, 1300)):
        np.testing.assert_array_equal(features.compute(image, region), region.of(whole))
        lazy = SourcePlanes(read, image.shape, region.grown(features.halo, Region.whole((1100, 1300))), source)
        np.testing.assert_array_equal(features.compute(lazy, region), region.of(whole))
    assert len(reads) == 2 + 9  # the two windows, and once the nine tiles of 512 pixels


def test_the_halo_is_as_far_as_a_filter_looks():
    features = fit_features(
        [np.random.default_rng(0).random((1, 8, 8)).astype(np.float32)], StackConfig(sigmas=(2.0,))
    )[0]
    image = np.zeros((1, 61, 61), np.float32)
    dot = image.copy()
    dot[0, 30, 30] = 1
    rows = np.nonzero((features.compute(image) != features.compute(dot)).any(axis=(0, 2)))[0]
    assert 30 - rows[0] == rows[-1] - 30 <= features.halo


def test_a_scale_is_computed_no_farther_than_it_looks(monkeypatch):
    image = np.random.default_rng(3).random((1, 90, 100)).astype(np.float32)
    features = fit_features([image], StackConfig(sigmas=(1.0, 4.0)))[0]
    sizes = []

    def noting(plane, *rest):
        sizes.append(plane.shape)
        scale_channels(plane, *rest)

    monkeypatch.setattr("hedgerow.features.bank.scale_channels", noting)
    region = Region(40, 60, 30, 55)
    found = features.raw_in(image, region)
    assert sizes == [(20 + 2 * 24, 25 + 2 * 24), (20 + 2 * 6, 25 + 2 * 6)]
    np.testing.assert_array_equal(found, region.of(features.own_raw(image)))


def test_threads_do_not_change_features():
    image = np.random.default_rng(5).random((2, 40, 50)).astype(np.float32)
    features = fit_features([image], StackConfig())[0]
    with threads.threads(1):
        one = features.compute(image)
    with threads.threads(3):
        np.testing.assert_array_equal(features.compute(image), one)


def test_own_channels_are_only_standardised():
    image = np.random.default_rng(6).random((5, 11, 12)).astype(np.float32)
    features = fit_features([image], StackConfig(features="channels"))[0]
    flat = image.reshape(5, -1)
    expected = (flat - flat.mean(axis=1, keepdims=True)) / flat.std(axis=1, keepdims=True)
    np.testing.assert_allclose(features.compute(image).reshape(5, -1), expected, atol=1e-4)
    assert features.halo == 0


def test_depth_features():
    depth = np.array([[[0, 2000, 4000], [1000, 100, 90_000]]], np.float32)
    config = StackConfig(features="depth", context=ContextConfig(nearest=0.5, background=10))
    features = fit_features([depth], config)[0]
    metres, present = features.compute(depth)
    np.testing.assert_allclose(metres * features.std[0] + features.mean[0], [[10, 2, 4], [1, 0.5, 10]], rtol=1e-6)
    np.testing.assert_array_equal(present, [[0, 1, 1], [1, 1, 1]])
    np.testing.assert_allclose(features.stretch(depth), [[0.1, 0.5, 0.25], [1, 2, 0.1]], rtol=1e-6)
    beyond = features.outside(3)
    np.testing.assert_allclose(beyond[0] * features.std[0] + features.mean[0], 10, rtol=1e-6)
    np.testing.assert_array_equal(beyond[1:], 0)


def test_wrong_number_of_channels_is_refused():
    features = fit_features(
        [np.random.default_rng(0).random((3, 8, 8)).astype(np.float32)], StackConfig(sigmas=(1.0,))
    )[0]
    with pytest.raises(InputError, match="1 channel"):
        features.compute(np.zeros((1, 8, 8), np.float32))
    with pytest.raises(InputError, match="depth features need"):
        fit_features([np.zeros((3, 8, 8), np.float32)], StackConfig(features="depth"))
