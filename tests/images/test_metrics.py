"""The measures against set arithmetic on pixels, and their behaviour at the edges."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.errors import InputError
from hedgerow.images.metrics import Scores, confusion, scores

CLASSES = (3, 7, 40)


def pixel_sets(maps, value, truths):
    """Labelled pixels of the given value, each as (image, row, column)."""
    return {
        (i, row, column)
        for i, one in enumerate(maps)
        for row, column in np.ndindex(one.shape)
        if one[row, column] == value and truths[i][row, column] != 255
    }


@st.composite
def truths_and_predictions(draw):
    values = st.sampled_from([*CLASSES, 255])
    shapes = draw(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=3))
    truths, predictions = [], []
    for shape in shapes:
        n = shape[0] * shape[1]
        truths.append(np.array(draw(st.lists(values, min_size=n, max_size=n))).reshape(shape))
        guesses = draw(st.lists(st.sampled_from(CLASSES), min_size=n, max_size=n))
        predictions.append(np.array(guesses).reshape(shape))
    return truths, predictions


@given(truths_and_predictions())
def test_scores_equal_set_arithmetic(maps):
    truths, predictions = maps
    result = scores(truths, predictions, CLASSES)
    dice, recall, hits, n_labelled = [], [], 0, 0
    for value in CLASSES:
        true, guessed = pixel_sets(truths, value, truths), pixel_sets(predictions, value, truths)
        dice.append(2 * len(true & guessed) / (len(true) + len(guessed)) if true or guessed else math.nan)
        recall.append(len(true & guessed) / len(true) if true else math.nan)
        hits += len(true & guessed)
        n_labelled += len(true)
    np.testing.assert_allclose(result.dice, dice, rtol=1e-12)
    np.testing.assert_allclose(result.recall, recall, rtol=1e-12)
    assert result.confusion.sum() == n_labelled
    if not n_labelled:
        assert all(math.isnan(v) for v in (result.accuracy, result.mean_dice, result.balanced_accuracy))
        return
    assert result.accuracy == pytest.approx(hits / n_labelled)
    assert result.mean_dice == pytest.approx(np.nanmean(dice))
    assert result.balanced_accuracy == pytest.approx(np.nanmean(recall))
    foreground = [r for r in recall[1:] if not math.isnan(r)]
    expected = sum(foreground) / len(foreground) if foreground else math.nan
    assert result.balanced_accuracy_without(CLASSES[0]) == pytest.approx(expected, nan_ok=True)


@given(truths_and_predictions())
def test_images_are_pooled(maps):
    truths, predictions = maps
    one_by_one = sum(scores([t], [p], CLASSES).confusion for t, p in zip(truths, predictions, strict=True))
    np.testing.assert_array_equal(one_by_one, scores(truths, predictions, CLASSES).confusion)


def test_confusion_has_truth_in_rows_and_ignores_unlabelled():
    truth = np.array([[0, 0, 1], [2, 255, 255]], np.uint8)
    predicted = np.array([[0, 1, 1], [0, 2, 255]], np.uint8)
    counts = confusion(truth, predicted, 3)
    assert counts.dtype == np.int64
    np.testing.assert_array_equal(counts, [[1, 1, 0], [0, 1, 0], [1, 0, 0]])


@pytest.mark.parametrize(
    ("truth", "predicted", "words"),
    [
        ([[0, 1]], [[0], [1]], "same"),
        ([[0, 3]], [[0, 1]], "truth has class indices"),
        ([[0, 1]], [[0, 255]], "prediction has class indices"),
    ],
)
def test_confusion_refuses(truth, predicted, words):
    with pytest.raises(InputError, match=words):
        confusion(np.array(truth, np.uint8), np.array(predicted, np.uint8), 3)


def test_scores_keep_the_order_of_the_classes():
    truth = np.array([[9, 9, 9, -1]])
    forward, backward = scores([truth], [truth], (-1, 9)), scores([truth], [truth], (9, -1))
    np.testing.assert_array_equal(forward.confusion, [[1, 0], [0, 3]])
    np.testing.assert_array_equal(backward.confusion, [[3, 0], [0, 1]])


def test_scores_refuse_unknown_values_and_unequal_lists():
    known, unknown = np.array([[3, 7]]), np.array([[3, 8]])
    with pytest.raises(InputError, match=r"prediction 2 .*8.*row 0, column 1"):
        scores([known, known], [known, unknown], CLASSES)
    with pytest.raises(InputError, match="label map 1"):
        scores([unknown], [known], CLASSES)
    with pytest.raises(InputError, match="2 label maps but 1 predictions"):
        scores([known, known], [known], CLASSES)


def test_another_unlabelled_value():
    truth, predicted = np.array([[0, 1, 255]]), np.array([[255, 1, 1]])
    result = scores([truth], [predicted], (1, 255), unlabelled=0)
    np.testing.assert_array_equal(result.confusion, [[1, 0], [1, 0]])


def test_an_unknown_background_is_refused():
    one = Scores((0, 1), np.eye(2, dtype=np.int64))
    with pytest.raises(InputError, match="background 5 is not a class"):
        one.balanced_accuracy_without(5)


def test_to_dict_is_json_with_none_for_absent_classes():
    result = Scores((0, 1, 2), np.array([[3, 1, 0], [0, 4, 0], [0, 0, 0]]))
    restored = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert restored["dice"][2] is None
    assert restored["recall"] == [0.75, 1.0, None]
    assert restored["confusion"] == [[3, 1, 0], [0, 4, 0], [0, 0, 0]]
    assert restored["mean_dice"] == pytest.approx((6 / 7 + 8 / 9) / 2)


def test_table_is_aligned_and_shows_absent_classes():
    text = str(Scores((0, 1000), np.array([[12345, 5], [0, 0]])))
    *table, last = text.splitlines()
    assert len({len(line) for line in table}) == 1
    assert table[1].split() == ["0", "12,350", "0.9998", "0.9996", "0.9996"]
    assert table[2].split() == ["1000", "0", "0.0000", "0.0000", "-"]
    assert last == ("12,350 pixels: mean Dice 0.4999, mean IoU 0.4998, pixel accuracy 0.9996, balanced accuracy 0.9996")
