"""The key below a picture."""

import numpy as np
import pytest
from PIL import Image

from hedgerow.images import picture_key
from hedgerow.images.picture_key import with_key
from hedgerow.images.pictures import class_colours

COLOURS = [tuple(map(int, colour)) for colour in class_colours(50)]


def drawn(size, names, **options):
    """(h,w,3) of a white picture of this size (H,W) with its key."""
    key = list(zip(names, COLOURS, strict=False))
    return np.asarray(with_key(Image.new("RGB", size[::-1], "white"), key, **options))


@pytest.mark.parametrize("n", [2, 22])
@pytest.mark.parametrize("size", [(40, 60), (400, 600), (2400, 1800)])
def test_every_class_has_its_square_below_the_picture(n, size):
    picture = drawn(size, [f"class {i}" for i in range(n)])
    assert (picture[: size[0], : size[1]] == 255).all()
    below = picture[size[0] :]
    squares = {int((below == colour).all(axis=2).sum()) for colour in COLOURS[:n]}
    assert len(squares) == 1
    assert squares.pop() >= (picture_key.SQUARE_PIXELS - 1) ** 2
    assert (below.sum(axis=2) < 300).any()  # letters
    assert (picture[:, -1] == 255).all()  # none is cut


def test_a_pale_class_has_an_edge():
    picture = np.asarray(with_key(Image.new("RGB", (80, 20), "white"), [("paper", (255, 255, 255))]))
    assert (picture[20:] == picture_key.EDGE_COLOUR).all(axis=2).sum() == 4 * picture_key.SQUARE_PIXELS


def test_a_narrow_picture_is_widened_for_a_name_and_a_large_one_has_larger_letters():
    assert drawn((20, 30), ["a name of a class"]).shape[1] > 30
    small, large = drawn((600, 600), ["cell"]), drawn((3600, 3600), ["cell"])
    assert (large == COLOURS[0]).all(axis=2).sum() > 8 * (small == COLOURS[0]).all(axis=2).sum()
    assert drawn((3600, 3600), ["cell"], times=1).shape[0] < large.shape[0]


def test_more_classes_than_fit_are_counted_and_none_needs_no_key():
    assert drawn((30, 400), [str(i) for i in range(50)]).shape == drawn((30, 400), [str(i) for i in range(49)]).shape
    assert drawn((30, 400), []).shape == (30, 400, 3)
