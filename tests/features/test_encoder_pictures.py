"""From channels to pictures of three, and planes made larger and smaller."""

import numpy as np
import pytest

from hedgerow.features.encoder_pictures import doubled, groups_of, halved, shades, to_pictures


@pytest.mark.parametrize(
    ("n_inputs", "channels", "groups"),
    [
        (1, "auto", [[0]]),
        (3, "auto", [[0, 1, 2]]),
        (2, "auto", [[0, 1]]),
        (4, "auto", [[0, 1, 2], [3]]),
        (5, "auto", [[0, 1, 2], [3, 4]]),
        (3, "each", [[0], [1], [2]]),
    ],
)
def test_channels_make_pictures(n_inputs, channels, groups):
    assert groups_of(n_inputs, channels) == groups
    planes = np.random.default_rng(0).uniform(0, 255, (n_inputs, 4, 5)).astype(np.float32)
    low, high = np.zeros(n_inputs, np.float32), np.full(n_inputs, 255, np.float32)
    pictures = to_pictures(planes, low, high, channels)
    assert [picture.shape for picture in pictures] == [(3, 4, 5)] * len(groups)
    for picture, group in zip(pictures, groups, strict=True):
        expected = {1: [0, 0, 0], 2: [0, 1, None], 3: [0, 1, 2]}[len(group)]
        for plane, which in zip(picture, expected, strict=True):
            right = planes[group].mean(axis=0) if which is None else planes[group[which]]
            np.testing.assert_allclose(plane, right, rtol=1e-5)


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [([0, 200], 0, 255), ([0, 255], 0, 255), ([0.0, 1.0], 0, 1), ([0.2, 0.4], 0, 1)],
)
def test_values_of_8_bits_and_fractions_are_shown_as_they_are(values, low, high):
    image = np.tile(np.array(values, np.float32), (1, 6, 5))
    found = shades([image])
    assert (found[0].tolist(), found[1].tolist()) == ([low], [high])


def test_values_of_16_bits_are_shown_between_their_extremes_and_colours_share_them():
    rng = np.random.default_rng(0)
    image = rng.uniform(300, 4000, (3, 60, 50)).astype(np.float32)
    image[1] *= 0.5
    image[0, 0, 0] = 65535  # one bright pixel does not make the rest dark
    low, high = shades([image])
    assert len(set(low.tolist())) == len(set(high.tolist())) == 1
    assert 3500 < high[0] < 4500
    two = shades([image[:2]])
    assert two[1][1] < 0.6 * two[1][0], "channels that are no colours have their own"
    shown = to_pictures(image, low, high, "auto")[0]
    assert shown.min() >= 0
    assert shown.max() == 255


def test_a_constant_image_can_be_shown():
    low, high = shades([np.full((1, 4, 4), -7.0, np.float32)])
    assert (high > low).all()


def plainly_doubled(plane):
    """Bilinear, with values at the centres of pixels, one value after another."""
    height, width = plane.shape
    doubled_planes = np.empty((2 * height, 2 * width))
    for row in range(2 * height):
        for column in range(2 * width):
            total = 0.0
            for place, n in (((row + 0.5) / 2 - 0.5, height), ((column + 0.5) / 2 - 0.5, width)):
                assert -0.5 <= place <= n - 0.5
            for dy, wy in _neighbours((row + 0.5) / 2 - 0.5, height):
                for dx, wx in _neighbours((column + 0.5) / 2 - 0.5, width):
                    total += wy * wx * plane[dy, dx]
            doubled_planes[row, column] = total
    return doubled_planes


def _neighbours(place, n):
    first = int(np.floor(place))
    part = place - first
    return [(min(max(first, 0), n - 1), 1 - part), (min(max(first + 1, 0), n - 1), part)]


@pytest.mark.parametrize("size", [(1, 1), (1, 4), (3, 5)])
def test_planes_are_doubled_bilinearly(size):
    planes = np.random.default_rng(1).normal(size=(2, *size)).astype(np.float32)
    found = doubled(planes)
    assert found.dtype == np.float32
    for plane, larger in zip(planes, found, strict=True):
        np.testing.assert_allclose(larger, plainly_doubled(plane), atol=1e-6)


def test_planes_are_halved_by_means():
    planes = np.arange(2 * 3 * 5, dtype=np.float32).reshape(2, 3, 5)
    half = halved(planes)
    assert half.shape == (2, 2, 3)
    assert half[0, 0, 0] == planes[0, :2, :2].mean()
    assert half[1, 1, 2] == planes[1, 2, 4], "the last row and column are taken twice"
