"""Objects from probabilities, and classes from numbered objects."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

import hedgerow as hr
from hedgerow.errors import ConfigError, InputError
from hedgerow.images.instances import OBJECT_LEGEND, Finding, classes_of_objects, find_in, kinds_of
from helpers.blobs import QUICK, cells, discs, numbered_discs


def one_hot(classes, n):
    return np.stack([(classes == value).astype(np.float32) for value in range(n)])


@given(
    st_numpy.arrays(np.int32, st_numpy.array_shapes(min_dims=2, max_dims=2, max_side=9), elements=st.integers(-1, 3))
)
def test_the_boundary_is_what_lies_within_two_pixels_of_another_object(numbers):
    """Against the definition, pixel by pixel."""
    classes = classes_of_objects(numbers)
    where = np.argwhere(numbers > 0)
    for (row, column), number in np.ndenumerate(numbers):
        others = [place for place in where if numbers[tuple(place)] != number]
        is_near = any((row - y) ** 2 + (column - x) ** 2 <= 4 for y, x in others)
        expected = 255 if number == -1 else 0 if number == 0 else 2 if is_near else 1
        assert classes[row, column] == expected


def test_touching_discs_are_separated_with_and_without_a_boundary():
    truth = numbered_discs((60, 90), [(30, 25, 14), (30, 50, 14), (30, 75, 10)])
    for numbers in (
        hr.objects((truth > 0).astype(float)),
        hr.objects(one_hot(classes_of_objects(truth), 3), legend=OBJECT_LEGEND),
    ):
        assert hr.object_scores([truth], [numbers]).average_precision[0.8] == 1


def test_objects_are_numbered_in_the_order_of_their_first_pixels():
    numbers = hr.objects((discs((40, 60), [(28, 10, 7), (10, 40, 7), (28, 30, 7)]) > 0).astype(float))
    firsts = [int(np.flatnonzero(numbers.ravel() == number)[0]) for number in range(1, 4)]
    assert firsts == sorted(firsts)
    assert numbers.max() == 3
    assert numbers.dtype == np.int32


def test_touching_objects_of_two_classes_stay_apart():
    proba = np.zeros((3, 20, 40), np.float32)
    proba[0], proba[0, 5:15, 5:35] = 1, 0
    proba[1, 5:15, 5:20] = proba[2, 5:15, 20:35] = 1
    objects = find_in(proba, kinds_of((0, 4, 9), hr.Legend()), Finding())
    assert objects.values.tolist() == [4, 9]
    assert (objects.numbers[10, 6], objects.numbers[10, 33], objects.numbers[0, 0]) == (1, 2, 0)
    only = find_in(proba, kinds_of((0, 4, 9), hr.Legend({9: "cell"}), ["Cell"]), Finding())
    assert only.values.tolist() == [9]


def test_what_is_never_sure_is_no_object():
    """Pixels above one half belong to an object only if it is sure somewhere."""
    proba = np.zeros((30, 60))
    proba[5:25, 5:25], proba[5:25, 35:55] = 0.6, 0.6
    proba[13:17, 43:47] = 0.95
    numbers = hr.objects(proba)
    assert numbers.max() == 1
    assert numbers[15, 45] == 1
    assert 300 < (numbers > 0).sum() <= 400  # smoothing rounds the corners


def test_size_range_holes_and_diameter():
    proba = (discs((80, 120), [(20, 20, 12), (20, 60, 6), (60, 20, 2), (60, 80, 16)]) > 0).astype(float)
    proba[56:65, 76:85] = 0
    sizes = lambda **options: np.bincount(hr.objects(proba, **options).ravel())[1:].tolist()  # noqa: E731
    everything = sizes(min_size=1)
    assert len(everything) == 4
    assert sizes(min_size=100, max_size=500) == [size for size in everything if 100 <= size <= 500]
    with_hole, whole = (max(sizes(min_dip=3, diameter=10, fill_holes=n)) for n in (0, 100))
    assert 70 < whole - with_hole <= 81
    assert len(sizes(diameter=40)) < 4  # specks, where objects are so large


def test_an_elongated_object_stays_whole_unless_any_bump_may_split_it():
    rows, columns = np.mgrid[:60, :120]
    ellipse = (((rows - 30) / 12) ** 2 + ((columns - 60) / 26) ** 2 < 1).astype(float)
    assert hr.objects(ellipse).max() == 1
    noisy = ellipse * (0.8 + 0.2 * np.random.default_rng(0).random(ellipse.shape))
    assert hr.objects(noisy, min_dip=0, min_size=1, diameter=6).max() > 1
    assert hr.objects(noisy, min_dip=3, diameter=6).max() == 1


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (5, 1), (2, 3)])
def test_tiny_and_empty_images(shape):
    assert hr.objects(np.zeros(shape)).max() == 0
    assert hr.objects(np.ones(shape), min_size=1).max() == 1


def test_background_and_boundary_are_known_by_name_or_value():
    kinds = kinds_of((3, 5, 7), hr.Legend({3: "Boundary", 5: "nucleus", 7: "background"}))
    assert (kinds.planes, kinds.values, kinds.boundary) == ((1,), (5,), 0)
    assert kinds_of((0, 1, 2), hr.Legend()).values == (1, 2)
    assert kinds_of((1, 2), hr.Legend(), background=2).values == (1,)
    with pytest.raises(InputError, match="no class is called 'background' or has the value 0"):
        kinds_of((1, 2), hr.Legend())
    with pytest.raises(InputError, match="there is no class 'cell' to find objects of; the classes are a, 2"):
        kinds_of((1, 2), hr.Legend({1: "a"}), ["cell"])
    with pytest.raises(InputError, match="no class is left"):
        kinds_of((0, 2), hr.Legend({2: "boundary"}))


def test_impossible_settings_and_probabilities_are_refused():
    for wrong in ({"diameter": 0.5}, {"min_size": -1}, {"min_size": 9, "max_size": 8}, {"min_dip": float("nan")}):
        with pytest.raises(ConfigError):
            Finding(**wrong)
    with pytest.raises(InputError, match="from 0 to 255, expected 0 to 1; divide"):
        hr.objects(np.array([[0, 255]]))


def test_a_model_learns_objects_and_finds_them():
    images, objects = cells(3)
    model = hr.fit(images[:2], objects[:2], config=QUICK, label_kind="objects")
    assert [model.legend.name(value) for value in model.classes] == ["background", "object", "boundary"]
    numbers = model.predict_objects(images[2])
    assert hr.object_scores([objects[2]], [numbers]).average_precision[0.5] > 0.8
    fewer = model.predict_objects(images[2], min_size=10_000)
    assert fewer.max() == 0
