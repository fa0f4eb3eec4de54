"""A class 0 that is really what nobody painted is noticed, and real classes are not taken for it."""

import numpy as np
import pytest

from hedgerow import synthetic
from hedgerow.images.unlabelled import unpainted_value

rows, columns = np.mgrid[:300, :400]


def strokes(background=0, width=6):
    """Three strokes of two classes on nothing."""
    labels = np.full((300, 400), background)
    labels[50 : 50 + width, 30:160] = 1
    labels[200 : 200 + width, 100:320] = 2
    labels[90:180, 350 : 350 + width] = 1
    return labels


def discs(radius, n=20):
    """Round objects of two classes on a background 0."""
    labels, rng = np.zeros((300, 400), int), np.random.default_rng(0)
    for i in range(n):
        row, column = rng.integers(20, 280), rng.integers(20, 380)
        labels[(rows - row) ** 2 + (columns - column) ** 2 < radius**2] = 1 + i % 2
    return labels


def test_strokes_on_0_are_noticed():
    assert unpainted_value([strokes()], 255) == 0
    assert unpainted_value([strokes(), strokes().T], 255) == 0
    assert unpainted_value([strokes(width=2)], 255) == 0
    curved = np.where(np.abs(rows - 150 - 90 * np.sin(columns / 50)) < 3, 1, 0)
    curved[20:25, 50:300] = 2
    assert unpainted_value([curved], 255) == 0


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param(discs(9), id="round objects"),
        pytest.param(np.where(strokes() == 2, 1, strokes()), id="thin objects of one class"),
        pytest.param(strokes(background=3), id="another background"),
        pytest.param(np.where(strokes() == 0, 255, strokes()), id="unpainted is 255"),
        pytest.param(np.where(columns > 100, 1, strokes()), id="a class that is large"),
        pytest.param(np.where((rows > 50) & (rows < 70), 1 + columns // 40, 0), id="segments that touch"),
    ],
)
def test_classes_are_not_taken_for_paint(labels):
    assert unpainted_value([labels], 255) is None


def test_segments_of_an_animal_are_not_taken_for_paint():
    _, labels = synthetic.somites(n_images=3, size=(200, 300), seed=1)
    assert unpainted_value([one.astype(int) for one in labels], 255) is None
