"""The table of classes."""

import numpy as np
import pytest

from hedgerow.errors import InputError
from hedgerow.images.classes import class_table


def test_class_table_counts_over_all_maps():
    table = class_table([np.array([[0, 0, 255]]), np.array([[7, 0], [255, 255]])])
    assert (table.values, table.pixels) == ((0, 7), (3, 1))
    assert (table.unlabelled, table.unlabelled_value) == (3, 255)
    lines = str(table).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[1].split() == ["0", "3", "75.00"]
    assert lines[3].split() == ["unlabelled", "3", "(value", "255)"]


def test_class_table_counts_far_apart_and_negative_values():
    labels = np.array([[-(2**31), -1, 2**31 - 1, -1]])
    assert class_table([labels], unlabelled=-1).values == (-(2**31), 2**31 - 1)
    assert class_table([labels]).pixels == (1, 2, 1)


def test_class_table_refusals():
    good, blank = np.array([[0, 1]]), np.array([[255, 255]], np.uint8)
    with pytest.raises(InputError, match=r"b.png has no labelled pixel.*255"):
        class_table([good, blank], names=["a.png", "b.png"])
    with pytest.raises(InputError, match=r"only the class value 4 .*unlabelled value"):
        class_table([np.array([[4, 255]])])
    with pytest.raises(InputError, match="no label map"):
        class_table([])
    with pytest.raises(InputError, match="256 values, from 0 to 256"):
        class_table([np.delete(np.arange(257), 255).reshape(1, -1)])
    assert len(class_table([np.arange(256).reshape(16, 16)]).values) == 255
