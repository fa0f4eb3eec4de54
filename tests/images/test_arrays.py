"""Images and labels as arrays, the table of classes, and the finding and pairing of files."""

from pathlib import Path

import numpy as np
import pytest
import zarr

from hedgerow.errors import InputError
from hedgerow.images.array_checks import UNLABELLED_INDEX, check_pair, encode_labels, to_labels, to_planes
from hedgerow.images.classes import class_table
from hedgerow.images.pairing import Pair, find_files, pair_files, stem_of
from helpers.files import assert_same, random_array, touch
from helpers.refusals import assert_one_sentence

# Arrays


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
        (np.zeros((4, 4, 3), np.uint8), "(4, 4, 3)"),
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


# Classes


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


def test_encoding_gives_indices_in_the_order_of_the_classes():
    labels = np.array([[9, -2, 255], [0, 9, 9]], np.int32)
    assert_same(encode_labels(labels, (9, -2, 0), 255), np.array([[0, 1, UNLABELLED_INDEX], [2, 0, 0]], np.uint8))
    assert_same(encode_labels(labels, (-2, 9, 255), 0)[0], np.array([1, 0, 2], np.uint8))
    with pytest.raises(InputError, match=r"2 pixel.*values -2, 0, the first at row 0, column 1; expected 9"):
        encode_labels(labels, (9,), 255)


# Finding and pairing


def test_folder_gives_supported_files_in_natural_order(tmp_path):
    touch(*(tmp_path / name for name in ("b10.png", "b9.PNG", "notes.txt", ".hidden.png", "sub/c.png")))
    (tmp_path / "folder.png").mkdir()
    zarr.create_array(tmp_path / "b1.zarr", shape=(2, 2), dtype="u1")
    zarr.create_array(tmp_path / "plain", shape=(2, 2), dtype="u1")
    assert [path.name for path in find_files(tmp_path)] == ["b1.zarr", "b9.PNG", "b10.png", "plain"]
    assert find_files(str(tmp_path / "plain")) == [tmp_path / "plain"]


def test_globs_files_and_lists_of_them(tmp_path):
    touch(tmp_path / "a[1].png", tmp_path / "a1.png", tmp_path / "c.tif", tmp_path / "d.txt")
    assert find_files(tmp_path / "a[1].png") == [tmp_path / "a[1].png"]
    assert find_files(str(tmp_path / "*.png")) == [tmp_path / "a1.png", tmp_path / "a[1].png"]
    assert find_files([tmp_path / "c.tif", str(tmp_path / "*")]) == [
        tmp_path / name for name in ("c.tif", "a1.png", "a[1].png")
    ]


@pytest.mark.parametrize("name", ["empty", "d.txt", "missing.png", "*.png", ""])
def test_nothing_found_is_one_sentence(tmp_path, name):
    (tmp_path / "empty").mkdir()
    touch(tmp_path / "d.txt")
    with pytest.raises(InputError) as problem:
        find_files(name and str(tmp_path / name))
    assert_one_sentence(problem, name)


def test_an_empty_list_of_files_is_refused():
    with pytest.raises(InputError, match="no files"):
        find_files([])


def test_unlistable_folder(tmp_path, monkeypatch):
    def refuse(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(InputError, match="Permission denied"):
        find_files(tmp_path)


@pytest.mark.parametrize(
    ("path", "stem"),
    [
        ("x/a.ome.tif", "a"),
        ("a.OME.TIFF", "a"),
        ("b.zarr", "b"),
        ("b.ome.zarr/", "b"),
        ("c.PNG", "c"),
        ("d.v2.npy", "d.v2"),
        ("e.ome.png", "e.ome"),
        ("folder", "folder"),
    ],
)
def test_stems(path, stem):
    assert stem_of(path) == stem


def test_pairs_by_stem_or_usual_suffix(tmp_path):
    images, labels = tmp_path / "images", tmp_path / "labels"
    touch(*(images / name for name in ("a1.jpg", "a2.ome.tif", "a10_seg.png", "b.png")))
    touch(*(labels / name for name in ("a1.png", "a2_labels.tif", "a10_seg.png", "b-Mask.npy")))
    assert pair_files(images, labels) == [
        Pair("a1", images / "a1.jpg", labels / "a1.png"),
        Pair("a2", images / "a2.ome.tif", labels / "a2_labels.tif"),
        Pair("a10_seg", images / "a10_seg.png", labels / "a10_seg.png"),
        Pair("b", images / "b.png", labels / "b-Mask.npy"),
    ]


def test_pairing_refusals(tmp_path):
    images, labels = tmp_path / "images", tmp_path / "labels"
    touch(*(images / f"{i}.png" for i in range(6)), labels / "0.png")
    with pytest.raises(InputError) as problem:
        pair_files(images, labels)
    assert_one_sentence(problem, "5 image(s)", images / "1.png", "and 2 more", "1.png among the labels")
    with pytest.raises(InputError, match=r"1 label\(s\) have no image.*1\.png"):
        pair_files(labels, [images / "0.png", images / "1.png"])
    with pytest.raises(InputError, match="both as image and as label"):
        pair_files(images, images)
    touch(labels / "0_mask.png")
    with pytest.raises(InputError, match=r"1 label.*0_mask\.png"):
        pair_files(images / "0.png", labels)
    touch(labels / "0.tif")
    with pytest.raises(InputError, match=r"0\.png and .*0\.tif have the same name"):
        pair_files(images / "0.png", labels)
