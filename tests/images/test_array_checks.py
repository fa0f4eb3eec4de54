"""Images and label maps as checked arrays."""

import numpy as np
import pytest

from hedgerow.errors import InputError
from hedgerow.images.array_checks import UNLABELLED_INDEX, check_pair, encode_labels, to_labels, to_planes
from helpers.files import assert_same, random_array
from helpers.refusals import assert_one_sentence


@pytest.mark.parametrize("dtype", ["bool", "u1", "u2", "i4", "i8", "u8", "f2", "f4", "f8", ">u2", ">f4"])
@pytest.mark.parametrize("shape", [(4, 6), (4, 6, 3), (3, 4, 6), (4, 6, 1), (1, 1), (5, 6, 5)])
def test_planes_of_any_number_type_and_layout(dtype, shape):
    image = random_array(shape, np.dtype(dtype).newbyteorder("=")).astype(dtype)
    image.setflags(write=False)
    planes = to_planes(image)
    channels_last = image[..., np.newaxis] if len(shape) == 2 else image
    expected = channels_last.transpose(2, 0, 1)
    assert planes.dtype == np.float32
    assert planes.dtype.isnative
    assert planes.flags.c_contiguous
    assert planes.flags.writeable
    np.testing.assert_array_equal(planes, expected.astype(np.float32))


def test_planes_of_strided_views():
    image = random_array((8, 9, 4), "u2")[::2, ::-3]
    np.testing.assert_array_equal(to_planes(image), image.transpose(2, 0, 1))


def test_channels_are_last_and_own_channels_first():
    image = random_array((2, 5, 3), "f4")  # fewer rows than channels: no guessing from sizes
    np.testing.assert_array_equal(to_planes(image), image.transpose(2, 0, 1))
    own = random_array((9, 4, 3), "f4")
    np.testing.assert_array_equal(to_planes(own, layout="planes"), own)
    with pytest.raises(InputError, match="own has shape"):
        to_planes(random_array((4, 3), "f4"), "own", layout="planes")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
def test_planes_name_the_first_bad_value(bad):
    image = np.zeros((4, 5, 3))
    image[2, 3, 1] = image[3, 0, 2] = bad
    with pytest.raises(InputError) as problem:
        to_planes(image, "a.tif")
    assert_one_sentence(problem, "a.tif", "2 value(s)", "row 2, column 3 of channel 1")


@pytest.mark.parametrize(
    "image",
    [
        np.zeros(5),
        np.zeros((2, 2, 2, 2)),
        np.zeros((0, 4)),
        np.zeros((4, 4, 0)),
        np.float32(1),
        np.zeros((3, 3), complex),
        np.zeros((3, 3), object),
        np.full((3, 3), "a"),
        np.zeros((3, 3), "datetime64[s]"),
        np.zeros((3, 3), [("a", "u1")]),
        [[1, 2], [3]],
    ],
)
def test_planes_and_labels_refuse_what_is_no_image(image):
    with pytest.raises(InputError, match=r"^thing "):
        to_planes(image, "thing")
    with pytest.raises(InputError, match=r"^thing "):
        to_labels(image, "thing")


@pytest.mark.parametrize("dtype", ["bool", "u1", "i2", "u4", "i8", "f2", "f8", ">i4"])
@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 1), (1, 2, 3)])
def test_labels_of_any_whole_numbers(dtype, shape):
    values = np.array([[0, 1, 1], [1, 0, 0]])
    labels = to_labels(values.reshape(shape).astype(dtype))
    assert_same(labels, values.astype(np.int32))
    assert labels.flags.c_contiguous


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (np.array([[0, 1], [2, 1.5]]), "1.5 at row 1, column 1"),
        (np.array([[0, np.nan]]), "nan"),
        (np.array([[0, np.inf]], np.float16), "inf"),
        (np.array([[0, 2**31]]), "2147483648"),
        (np.array([[0, 2**31]], np.float32), "2147483648"),
        (np.eye(12, dtype=np.uint8).reshape(12, 4, 3), "(12, 4, 3), so it holds colours"),
        (np.zeros((2, 4, 5), np.uint8), "(2, 4, 5), expected (H,W)"),
        (np.array([[0, np.nan, np.nan]]), "2 pixel(s) that are NaN"),
        (np.array([[0, np.nan]]), "np.nan_to_num(labels, nan=255)"),
    ],
)
def test_labels_refuse(labels, words):
    with pytest.raises(InputError) as problem:
        to_labels(labels, "b.png")
    assert_one_sentence(problem, "b.png", words)


def test_check_pair_gives_both_sizes():
    check_pair(np.zeros((3, 4, 5)), np.zeros((4, 5)), "a")
    with pytest.raises(InputError) as problem:
        check_pair(np.zeros((3, 4, 5)), np.zeros((5, 4)), "a")
    assert_one_sentence(problem, "a:", "4 rows x 5 columns", "5 rows x 4 columns")


def test_encoding_gives_indices_in_the_order_of_the_classes():
    labels = np.array([[9, -2, 255], [0, 9, 9]], np.int32)
    assert_same(encode_labels(labels, (9, -2, 0), 255), np.array([[0, 1, UNLABELLED_INDEX], [2, 0, 0]], np.uint8))
    assert_same(encode_labels(labels, (-2, 9, 255), 0)[0], np.array([1, 0, 2], np.uint8))
    with pytest.raises(InputError, match=r"2 pixel.*values -2, 0, the first at row 0, column 1; expected 9"):
        encode_labels(labels, (9,), 255)
