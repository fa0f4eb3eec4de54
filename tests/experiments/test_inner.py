"""The measures of inner layers, on maps whose answers are known."""

import numpy as np
import pytest

pytest.importorskip("torch")

from experiments.inner import LayerMeasures, class_distance
from hedgerow.images.array_checks import UNLABELLED_INDEX

STRIPES = np.repeat(np.arange(4, dtype=np.uint8), 30)[None].repeat(40, axis=0)  # classes side by side, (40,120)


def one_hot(target, n_classes=4):
    return np.stack([target == c for c in range(n_classes)]).astype(np.float32)


def measured(activation, target=STRIPES, background=None):
    measures = LayerMeasures(class_distance([target], len(activation), background))
    measures.add(activation, target, background)
    return measures.result()


def test_classes_are_as_far_apart_as_the_chain_of_those_that_touch():
    np.testing.assert_array_equal(
        class_distance([STRIPES], 4, None), [[0, 1, 2, 3], [1, 0, 1, 2], [2, 1, 0, 1], [3, 2, 1, 0]]
    )
    without = class_distance([STRIPES], 4, 1)
    assert (without[0, 2], without[0, 1], without[2, 3]) == (4, 4, 1)
    hidden = np.where(STRIPES == 1, UNLABELLED_INDEX, STRIPES)
    assert class_distance([hidden], 4, None)[0, 2] == 4


def test_sharp_maps_respond_to_nothing_beside_them():
    result = measured(one_hot(STRIPES))
    assert result["strongest_share"] == 1
    assert result["negative_share"] == 0
    assert (result["response_1"], result["response_2"]) == (0, 0)


def test_smoothed_maps_correlate_more_and_respond_to_neighbours():
    noise = np.random.default_rng(0).random((4, *STRIPES.shape)) < 0.1
    sharp = np.abs(one_hot(STRIPES) - noise)
    kernel = np.ones(31) / 31
    smooth = np.apply_along_axis(lambda line: np.convolve(line, kernel, "same"), 2, sharp)
    sharp, smooth = measured(sharp), measured(smooth)
    assert smooth["neighbour_correlation"] > 0.9 > sharp["neighbour_correlation"]
    assert smooth["response_1"] > 2 * sharp["response_1"]
    assert smooth["response_1"] > 2 * smooth["response_2"]
    assert smooth["strongest_share"] < sharp["strongest_share"]


def test_a_correlation_is_that_of_numpy_and_negative_values_are_counted():
    values = np.random.default_rng(1).normal(0, 1, (4, 7, 9))
    target = np.zeros((7, 9), np.uint8)
    result = measured(values, target)
    x = np.concatenate([values[:, 1:].ravel(), values[:, :, 1:].ravel()])
    y = np.concatenate([values[:, :-1].ravel(), values[:, :, :-1].ravel()])
    assert result["neighbour_correlation"] == pytest.approx(np.corrcoef(x, y)[0, 1], rel=1e-9)
    assert result["negative_share"] == pytest.approx((values < -1e-3).mean())


def test_background_and_unlabelled_pixels_are_left_out():
    maps = one_hot(STRIPES)
    maps[:, STRIPES == 0] = 5  # of the background
    target = STRIPES.copy()
    target[:10] = UNLABELLED_INDEX
    maps[:, :10] = -3
    result = measured(maps, target, background=0)
    assert result["strongest_share"] == 1
    assert result["response_1"] == 0
