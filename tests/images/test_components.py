"""Connected parts, cleaning and splitting of label maps, against brute force and what a person would say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from hedgerow.images.cleaning import cleaned
from hedgerow.images.components import components
from hedgerow.images.splitting import split_by_distance, split_by_proba
from helpers.blobs import discs

maps = st_numpy.arrays(np.int32, st.tuples(st.integers(1, 8), st.integers(1, 8)), elements=st.integers(-1, 2))


def flooded(labels, connectivity):
    """The parts found by flooding from pixel to pixel, numbered by their first."""
    height, width = labels.shape
    steps = [(r, c) for r in (-1, 0, 1) for c in (-1, 0, 1) if (r, c) != (0, 0) and (connectivity == 8 or r * c == 0)]
    numbers = np.full(labels.shape, -1)
    n = 0
    for start in np.ndindex(labels.shape):
        if numbers[start] >= 0:
            continue
        numbers[start], todo = n, [start]
        while todo:
            row, column = todo.pop()
            for down, across in steps:
                there = row + down, column + across
                inside = 0 <= there[0] < height and 0 <= there[1] < width
                if inside and numbers[there] < 0 and labels[there] == labels[row, column]:
                    numbers[there] = n
                    todo.append(there)
        n += 1
    return numbers


@pytest.mark.parametrize("connectivity", [4, 8])
@given(labels=maps)
def test_parts_are_those_that_flooding_finds(connectivity, labels):
    numbers, values = components(labels, connectivity)
    np.testing.assert_array_equal(numbers, flooded(labels, connectivity))
    np.testing.assert_array_equal(values[numbers], labels)


@pytest.mark.parametrize("connectivity", [4, 8])
@given(labels=maps, size=st.integers(2, 12))
def test_nothing_small_remains_and_what_is_large_keeps_its_class(connectivity, labels, size):
    result = cleaned(labels, min_size=size, connectivity=connectivity)
    assert np.bincount(flooded(result, connectivity).ravel()).min() >= min(size, labels.size)
    before = flooded(labels, connectivity)
    large = np.bincount(before.ravel())[before] >= size
    np.testing.assert_array_equal(result[large], labels[large])


def grid(text):
    return np.array([[int(c) for c in line] for line in text.split()])


def test_a_small_object_takes_the_class_it_shares_most_of_its_border_with():
    labels = grid("0000222 0001222 0001222 0000222")
    np.testing.assert_array_equal(cleaned(labels, min_size=3), grid("0000222 0000222 0000222 0000222"))
    labels[1, 4:6] = 1  # the speck now reaches into the twos
    np.testing.assert_array_equal(cleaned(labels, min_size=5), grid("0000222 0002222 0002222 0000222"))


def test_specks_within_specks_go_from_outside_in():
    labels = grid("00000 01110 01210 01110 00000")
    np.testing.assert_array_equal(cleaned(labels, min_size=9), np.zeros((5, 5)))


def test_background_is_not_an_object_however_small():
    labels = grid("1111 1011 1111 2222")
    np.testing.assert_array_equal(cleaned(labels, min_size=3, background=0), labels)
    assert cleaned(labels, min_size=3)[1, 1] == 1


def test_a_map_of_small_objects_alone_takes_the_class_of_the_largest():
    np.testing.assert_array_equal(cleaned(grid("0112 0112"), min_size=100), np.ones((2, 4)))


RING = """
00000000
01111110
01000010
01022010
01000010
01111110
00000000
"""


def test_holes_are_filled_if_they_are_small_enough_and_hold_nothing_else():
    ring = grid(RING)
    empty = np.where(ring == 2, 0, ring)
    filled = np.where(np.isin(np.arange(8), range(1, 7)) & np.isin(np.arange(7), range(1, 6))[:, None], 1, 0)
    np.testing.assert_array_equal(cleaned(empty, fill_holes=12), filled)
    np.testing.assert_array_equal(cleaned(empty, fill_holes=11), empty)
    np.testing.assert_array_equal(cleaned(empty, fill_holes=12, background=0), filled)
    # With a background, another object is not a hole, and a hole with an object in it is none.
    np.testing.assert_array_equal(cleaned(ring, fill_holes=12, background=0), ring)
    np.testing.assert_array_equal(cleaned(ring, fill_holes=12), filled)


def test_a_bay_at_the_edge_of_the_image_is_no_hole():
    labels = grid("1011 1011 1111")
    np.testing.assert_array_equal(cleaned(labels, fill_holes=9), labels)


def test_between_corners_there_is_a_hole_if_objects_hang_together_there():
    diamond = grid("00100 01010 00100")
    assert cleaned(diamond, fill_holes=1, background=0, connectivity=8)[1, 2] == 1
    np.testing.assert_array_equal(cleaned(diamond, fill_holes=1, background=0, connectivity=4), diamond)


def test_discs_in_touch_are_taken_apart_at_the_neck():
    touching = discs((40, 70), [(20, 20, 12), (20, 42, 11)]).astype(np.int32)
    result = split_by_distance(touching)
    assert result[20, 20] == 1
    assert result[20, 42] == 2
    np.testing.assert_array_equal(result > 0, touching > 0)
    assert abs(int((result == 1).sum()) - np.pi * 12**2) < 30
    assert split_by_distance(touching, min_size=450).max() == 1  # the smaller disc has fewer pixels


@pytest.mark.parametrize("shape", [[(20, 20, 12)], [(20, 20, 12), (20, 24, 12)]])
def test_a_disc_and_an_oval_stay_whole(shape):
    whole = discs((40, 50), shape).astype(np.int32)
    np.testing.assert_array_equal(split_by_distance(whole), whole)


def test_different_objects_are_never_joined():
    numbers = np.repeat([[0, 1, 2, 2]], 5, axis=0).repeat(6, axis=1).astype(np.int32)
    np.testing.assert_array_equal(split_by_distance(numbers), numbers)


def test_a_valley_of_probability_separates_and_a_shallow_one_does_not():
    numbers = np.ones((20, 41), np.int32)
    columns = np.arange(41)
    deep = np.broadcast_to(np.where(abs(columns - 20) < 3, 0.5, 0.95), numbers.shape)
    result = split_by_proba(numbers, deep)
    assert result.max() == 2
    assert (result[:, :18] == result[0, 0]).all()
    assert (result[:, 23:] == result[0, 40]).all()
    shallow = np.broadcast_to(np.where(abs(columns - 20) < 3, 0.9, 0.95), numbers.shape)
    np.testing.assert_array_equal(split_by_proba(numbers, shallow), numbers)
