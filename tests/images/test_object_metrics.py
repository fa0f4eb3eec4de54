"""Scores of objects: numbers that can be counted by hand, and a slow form of the definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

import hedgerow as hr
from hedgerow.errors import InputError
from hedgerow.images.object_metrics import OVERLAPS

small_maps = st_numpy.arrays(np.int32, (5, 6), elements=st.integers(0, 4))


@given(small_maps, small_maps)
def test_scores_follow_the_definition(truth, predicted):
    matched, overlap = dict.fromkeys(OVERLAPS, 0), 0.0
    true_numbers, own_numbers = set(np.unique(truth)) - {0}, set(np.unique(predicted)) - {0}
    for a in true_numbers:
        for b in own_numbers:
            iou = ((truth == a) & (predicted == b)).sum() / ((truth == a) | (predicted == b)).sum()
            for beyond in OVERLAPS:
                matched[beyond] += int(iou > beyond)
            overlap += iou if iou > 0.5 else 0
    scores = hr.object_scores([truth], [predicted])
    n = len(true_numbers) + len(own_numbers)
    for beyond in OVERLAPS:
        expected = matched[beyond] / (n - matched[beyond]) if n else float("nan")
        assert scores.average_precision[beyond] == pytest.approx(expected, nan_ok=True)
    assert scores.panoptic_quality == pytest.approx(2 * overlap / n if n else float("nan"), nan_ok=True)
    assert (scores.n_true, scores.n_found) == (len(true_numbers), len(own_numbers))


def test_splits_and_merges_are_counted():
    truth, predicted = np.zeros((10, 30), int), np.zeros((10, 30), int)
    truth[2:8, 1:11] = 1
    predicted[2:8, 1:6], predicted[2:8, 6:11] = 7, 8  # one object, split in two
    truth[2:8, 14:20], truth[2:8, 20:26] = 2, 3
    predicted[2:8, 14:26] = 9  # two objects, merged into one
    scores = hr.object_scores([truth], [predicted])
    assert (scores.n_split, scores.n_merged) == (1, 1)
    assert scores.n_matched[0] == 0  # halves overlap by exactly one half, which is not beyond it
    assert scores.to_dict()["split"] == 1


def test_scores_of_images_are_added():
    truth = np.array([[1, 1, 0, 2]])
    both = hr.object_scores([truth, truth], [truth, np.zeros_like(truth)])
    assert (both.n_true, both.n_found, both.n_matched[0]) == (4, 2, 2)
    assert both.average_precision[0.5] == 0.5
    assert "panoptic quality 0.6667; 4 true objects, 2 found, 2 matched" in str(both)


def test_numbers_beyond_sixteen_bits_and_volumes():
    truth = np.zeros((2, 3, 4), np.int64)
    truth[0, 0, 0], truth[1, 2, 3] = 70_000, 4_000_000_000
    assert hr.object_scores([truth], [(truth > 0) * np.arange(24).reshape(2, 3, 4) + (truth > 0)]).mean_precision == 1


def test_maps_that_are_not_objects_are_refused():
    with pytest.raises(InputError, match="shape \\(2, 2\\) and that of found objects \\(2, 3\\)"):
        hr.object_scores([np.zeros((2, 2), int)], [np.zeros((2, 3), int)])
    with pytest.raises(InputError, match="1 maps of true objects but 0 of found ones"):
        hr.object_scores([np.zeros((2, 2), int)], [])
    with pytest.raises(InputError, match="not whole"):
        hr.object_scores([np.full((2, 2), 0.5)], [np.zeros((2, 2), int)])
    with pytest.raises(InputError, match="from -1 to 0"):
        hr.object_scores([np.array([[-1, 0]])], [np.zeros((1, 2), int)])
