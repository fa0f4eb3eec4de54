"""Classes from numbered objects, and which classes are objects."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

import hedgerow as hr
from hedgerow.errors import ConfigError, InputError
from hedgerow.images.instances import Finding, classes_of_objects, kinds_of


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
