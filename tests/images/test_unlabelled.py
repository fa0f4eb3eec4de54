"""A value that really means "no label" is noticed, and real classes are not taken for it."""

from functools import partial

import numpy as np
import pytest

import hedgerow as hr
from hedgerow import synthetic
from hedgerow.errors import InputError, QuestionError
from hedgerow.images.classes import unlabelled_value
from hedgerow.images.given import labelled_set
from hedgerow.images.regions import Region

rows, columns = np.mgrid[:300, :400]


def outcome(maps, images=(), asked=None):
    """The value that was decided, "asked", or "noted"."""
    notes = []
    readers = [partial(Region.of, array=np.asarray(image, np.float32)[None]) for image in images]
    try:
        value = unlabelled_value(maps, readers, asked, notes.append)
    except QuestionError:
        return "asked"
    return value if asked else "noted" if notes else value


def strokes(background=0, width=6):
    """Three strokes of two classes on nothing."""
    labels = np.full((300, 400), background)
    labels[50 : 50 + width, 30:160] = 1
    labels[200 : 200 + width, 100:320] = 2
    labels[90:180, 350 : 350 + width] = 1
    return labels


def discs(radius, n=20, seed=0):
    """Round objects of two classes on a background 0."""
    labels, rng = np.zeros((300, 400), int), np.random.default_rng(seed)
    for i in range(n):
        row, column = rng.integers(20, 280), rng.integers(20, 380)
        labels[(rows - row) ** 2 + (columns - column) ** 2 < radius**2] = 1 + i % 2
    return labels


def dabs(radius=18):
    """Two compact dabs, 1.7 % of the image."""
    labels = np.zeros((300, 400), int)
    labels[(rows - 90) ** 2 + (columns - 100) ** 2 < radius**2] = 1
    labels[(rows - 200) ** 2 + (columns - 300) ** 2 < radius**2] = 2
    return labels


def textured(means, noise=10.0, seed=1):
    """An image with these means, and noise."""
    return means + noise * np.random.default_rng(seed).standard_normal(means.shape)


halves = textured(80.0 + 60 * (columns > 200))  # two objects, much larger than what is painted on them


def test_strokes_on_0_are_noticed_by_their_shape():
    assert outcome([strokes()]) == "asked"
    assert outcome([strokes(), strokes().T]) == "asked"
    assert outcome([strokes(width=2)]) == "asked"
    curved = np.where(np.abs(rows - 150 - 90 * np.sin(columns / 50)) < 3, 1, 0)
    curved[20:25, 50:300] = 2
    assert outcome([curved]) == "asked"


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
    assert outcome([labels]) == 255


def test_compact_dabs_are_noticed_where_the_image_is_the_same_beside_them():
    assert (dabs() > 0).mean() == pytest.approx(0.017, abs=0.001)
    assert outcome([dabs()], [halves]) == "asked"
    assert outcome([dabs()], [halves], asked="auto") == 0
    assert outcome([discs(9, n=8)], [halves]) == "asked"


def test_clicks_on_single_pixels_are_noticed():
    labels = np.zeros((300, 400), int)
    labels[40::90, 50:200:70], labels[40::90, 250::70] = 1, 2
    assert outcome([labels], [halves]) == "asked"


@pytest.mark.parametrize("noise", [1, 10, 25])
def test_cells_on_a_background_of_0_are_not_asked_about(noise):
    for radius in (3, 9):  # also where they are less than a hundredth of the pixels
        cells = discs(radius)
        assert outcome([cells], [textured(30.0 * (cells > 0), noise)]) == 255
        assert outcome([cells], [textured(30.0 * (cells > 0), noise)], asked="auto") == 255


def test_vessels_of_two_kinds_are_not_asked_about():
    assert outcome([strokes()], [textured(40.0 * (strokes() > 0))]) == "noted"  # as few as these may be painted


def test_many_compact_pieces_are_not_paint_even_if_nothing_shows_beside_them():
    assert outcome([discs(7, n=60)], [textured(np.zeros((300, 400)))]) == 255


def test_two_objects_painted_whole_are_worth_a_note_with_their_part():
    notes, labels = [], dabs()
    image = np.asarray(textured(60.0 * (labels > 0)), np.float32)[None]
    assert unlabelled_value([labels], [partial(Region.of, array=image)], None, notes.append) == 255
    (note,) = notes
    assert "98.3%" in note
    assert "--unlabelled 0 (in Python unlabelled=0)" in note


def test_large_dabs_are_worth_a_note():
    assert outcome([dabs(radius=60)], [halves]) == "noted"
    assert outcome([dabs(radius=60)], [textured(60.0 * (dabs(radius=60) > 0))]) == 255


def test_segments_of_an_animal_are_not_taken_for_paint():
    images, labels = synthetic.somites(n_images=3, size=(200, 300), seed=1)
    assert outcome([one.astype(int) for one in labels], images) == 255


def test_colours_count_as_well_as_greys():
    image = np.stack([np.zeros((300, 400)), np.zeros((300, 400)), textured(0.0 * rows, 1) + 20 * (dabs() > 0)])
    notes = []
    unlabelled_value([dabs()], [partial(Region.of, array=image.astype(np.float32))], None, notes.append)
    assert notes  # and no question


def test_minus_one_is_asked_about_unless_it_is_one_of_two_classes():
    labels = np.where(rows < 100, -1, np.where(columns < 200, 0, 1))
    assert outcome([labels]) == "asked"
    assert outcome([labels], asked="auto") == -1
    assert outcome([labels], asked=255) == 255
    assert outcome([np.where(labels < 0, -1, 1)]) == 255
    assert outcome([np.where(labels == 1, 255, labels)]) == 255


@pytest.mark.parametrize("fit", [hr.fit_stack, partial(hr.fit, effort="fast"), hr.PixelClassifier().fit])
def test_python_asks_as_the_command_does(fit):
    with pytest.raises(InputError, match=r"0 at 98\.3% of all pixels.*add unlabelled=0 .*add unlabelled=255"):
        fit([halves], [dabs()])


@pytest.mark.parametrize("asked", [0, 255, "auto"])
def test_python_takes_the_answer(asked, tiny_config):
    expected = (0, 1, 2) if asked == 255 else (1, 2)
    assert hr.fit_stack(halves, dabs(), tiny_config, unlabelled=asked).classes == expected
    model = hr.PixelClassifier(n_levels=1, n_trees=2, unlabelled=asked).fit(halves, dabs())
    assert model.model_.classes == expected
    assert 0 < model.score(halves, dabs()) <= 1


def test_python_logs_the_note(caplog):
    labelled_set([textured(60.0 * (dabs() > 0))], [dabs()], unlabelled=None)
    assert "98.3% of all pixels have the label 0" in caplog.text
