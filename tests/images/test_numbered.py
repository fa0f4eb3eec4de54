"""Numbers of objects that are given as classes are noticed; classes in one piece each are not."""

import logging

import numpy as np
import pytest

import hedgerow as hr
from hedgerow import synthetic
from hedgerow.errors import InputError
from hedgerow.images.classes import check_n_classes, class_table, look_numbered
from hedgerow.images.given import labelled_set

rows, columns = np.mgrid[:200, :300]


def cells(n, seed=0):
    """n numbered discs, of which some overlap."""
    numbers, rng = np.zeros((200, 300), np.int32), np.random.default_rng(seed)
    places = [(r, c) for r in range(15, 190, 22) for c in range(15, 290, 22)]
    for number, k in enumerate(rng.permutation(len(places))[:n], 1):
        row, column = places[k] + rng.integers(-3, 4, 2)
        numbers[(rows - row) ** 2 + (columns - column) ** 2 < 81] = number
    return numbers


def test_numbered_cells_are_noticed():
    assert look_numbered([cells(30)], 255)
    assert look_numbered([cells(30), cells(42, 1), cells(9, 2)], 255)
    assert look_numbered([np.where(cells(30) == 7, 0, cells(30))], 255)


@pytest.mark.parametrize(
    "maps",
    [
        pytest.param([cells(5)], id="few"),
        pytest.param([1 + cells(30) % 9], id="classes of cells"),
        pytest.param([cells(30) % 10], id="classes of cells on 0"),
        pytest.param([cells(30) * 7], id="values far apart"),
        pytest.param([cells(12), np.flipud(cells(12))], id="the same parts in each image"),
        pytest.param([1 + columns // 20 + 0 * rows], id="parts of a whole"),
    ],
)
def test_classes_are_not_taken_for_numbers(maps):
    assert not look_numbered([values.astype(np.int32) for values in maps], 255)


def test_parts_of_animals_and_people_are_not_taken_for_numbers():
    for draw in (synthetic.somites, synthetic.bodies):
        for n, size in ((1, (200, 260)), (3, (200, 260)), (16, (256, 256)), (8, (96, 96))):
            _, labels = draw(n_images=n, size=size)
            assert not look_numbered([one.astype(np.int32) for one in labels], 255)


def test_python_is_told_what_to_give_instead(caplog):
    image = np.random.default_rng(0).random((200, 300))
    with caplog.at_level(logging.WARNING, "hedgerow"):
        assert labelled_set([image], [cells(30)]).n_classes == 31
    assert "look like numbered objects" in caplog.text
    assert "labels > 0" in caplog.text
    assert "label_kind='objects'" in caplog.text


def test_who_names_classes_is_not_told_of_objects(caplog):
    image = np.random.default_rng(0).random((200, 300))
    with caplog.at_level(logging.WARNING, "hedgerow"):
        labelled_set([image], [cells(30)], legend=hr.Legend(names={1: "somite 1", 2: "somite 2"}))
    assert "numbered objects" not in caplog.text


def test_too_many_for_classes_are_refused_with_the_same_remedy():
    with pytest.raises(InputError, match="numbered objects; for numbered objects, give labels > 0"):
        class_table(np.arange(300).reshape(1, 300).repeat(2, 0))
    with pytest.raises(InputError, match="are they numbered objects"):
        check_n_classes(65, 64)
    assert hr.class_table(cells(30) > 0).values == (0, 1)
