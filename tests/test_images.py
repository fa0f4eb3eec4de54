"""Arrays, pairing and the class table; files of every format there and back; hostile files; atomic writes."""

import io
import json
import logging
import os
import re
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import tifffile
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from hedgerow import image_writing
from hedgerow.errors import InputError
from hedgerow.images import (
    UNLABELLED_INDEX,
    Pair,
    atomic_path,
    check_pair,
    class_table,
    encode_labels,
    find_files,
    pair_files,
    read_image,
    read_labels,
    stem_of,
    to_labels,
    to_planes,
    write_labels,
    write_planes,
)

ENDINGS = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".npy", ".zarr")


def random_array(shape, dtype, seed=0):
    values = np.random.default_rng(seed).random(shape)
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return values > 0.5
    return values.astype(dtype) if dtype.kind == "f" else (values * min(np.iinfo(dtype).max, 2**31)).astype(dtype)


def assert_same(found, expected):
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def assert_one_sentence(problem, *words):
    text = str(problem.value)
    assert "\n" not in text
    for word in words:
        assert str(word) in text


def image_or_sentence(path):
    """What a user of a possibly damaged file gets; any other exception fails the test."""
    try:
        return read_image(path)
    except InputError as problem:
        return str(problem)


def write_tiff(path, array, **options):
    tifffile.imwrite(path, array, **({"photometric": "minisblack"} | options))
    return path


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
    np.testing.assert_array_equal(to_planes(own, features="channels"), own)
    with pytest.raises(InputError, match="own has shape"):
        to_planes(random_array((4, 3), "f4"), "own", features="channels")


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


def touch(*paths):
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")


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


@pytest.mark.parametrize("name", ["empty", "d.txt", "missing.png", "*.png", "", "a\0b.png", "x" * 5000])
def test_nothing_found_is_one_sentence(tmp_path, name):
    (tmp_path / "empty").mkdir()
    touch(tmp_path / "d.txt")
    with pytest.raises(InputError) as problem:
        find_files(name and str(tmp_path / name))
    assert_one_sentence(problem, name)
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
    with pytest.raises(InputError, match=r"1 label\(s\) without an image.*1\.png"):
        pair_files(labels, [images / "0.png", images / "1.png"])
    with pytest.raises(InputError, match="both as image and as label"):
        pair_files(images, images)
    touch(labels / "0_mask.png")
    with pytest.raises(InputError, match=r"1 label.*0_mask\.png"):
        pair_files(images / "0.png", labels)
    touch(labels / "0.tif")
    with pytest.raises(InputError, match=r"0\.png and .*0\.tif have the same name"):
        pair_files(images / "0.png", labels)


# Reading


def save_png(path, array_or_image, **options):
    image = array_or_image if isinstance(array_or_image, Image.Image) else Image.fromarray(array_or_image)
    image.save(path, **options)
    return path


def raw_png(bit_depth, colour_type, width, height, rows, palette=b""):
    """A PNG file from packed rows, for kinds that Pillow does not write."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, bit_depth, colour_type, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows))
    chunks = chunk(b"IHDR", header) + (chunk(b"PLTE", palette) if palette else b"")
    return b"\x89PNG\r\n\x1a\n" + chunks + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    "array",
    [random_array(s, d) for s, d in [((5, 7), "u1"), ((5, 7), "u2"), ((5, 7, 3), "u1"), ((5, 7), "?")]],
)
def test_png_images(tmp_path, array):
    found = read_image(save_png(tmp_path / "a.png", array))
    assert_same(found, array)
    found[0, 0] = 0  # the array belongs to the caller


def test_png_alpha_and_palette(tmp_path):
    colour, alpha = random_array((5, 7, 3), "u1"), random_array((5, 7, 1), "u1", 1)
    assert_same(read_image(save_png(tmp_path / "a.png", np.concatenate([colour, alpha], 2))), colour)
    grey = Image.fromarray(np.concatenate([colour[..., :1], alpha], 2), "LA")
    assert_same(read_image(save_png(tmp_path / "b.png", grey)), colour[..., 0])
    indices = random_array((5, 7), "u1") % 3
    palette = Image.fromarray(indices)
    palette.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
    for options in ({}, {"transparency": bytes([0, 128, 255])}, {"bits": 2}):
        path = save_png(tmp_path / "p.png", palette, **options)
        assert_same(read_labels(path), indices)
        assert_same(read_image(path), (indices[..., None] * 30 + [10, 20, 30]).astype(np.uint8))


def test_low_bit_png_labels_keep_stored_values(tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(raw_png(2, 0, 4, 1, [bytes([0b00011011])]))
    assert_same(read_labels(path), np.array([[0, 1, 2, 3]], np.uint8))
    path.write_bytes(raw_png(4, 0, 2, 1, [bytes([0x1E])]))
    assert_same(read_labels(path), np.array([[1, 14]], np.uint8))
    path.write_bytes(raw_png(1, 0, 2, 1, [bytes([0b01000000])]))
    assert_same(read_labels(path), np.array([[0, 1]], np.uint8))


@pytest.mark.parametrize(("colour_type", "n_channels"), [(2, 3), (4, 2), (6, 4)])
def test_16_bit_colour_png_is_refused_rather_than_cut(tmp_path, colour_type, n_channels):
    path = tmp_path / "deep.png"
    path.write_bytes(raw_png(16, colour_type, 2, 1, [bytes(range(4 * n_channels))]))
    for read in (read_image, read_labels):
        with pytest.raises(InputError) as problem:
            read(path)
        assert_one_sentence(problem, path, "16 bits", "TIFF")


def test_large_images_are_read_without_touching_pillow(tmp_path, monkeypatch):
    path = save_png(tmp_path / "a.png", np.ones((40, 50), np.uint8))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    assert read_image(path).shape == (40, 50)
    assert Image.MAX_IMAGE_PIXELS == 100


def test_jpeg_images_are_turned_upright_and_refused_as_labels(tmp_path):
    image = Image.new("RGB", (30, 20), (200, 10, 10))
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / "a.JPG", format="JPEG", exif=exif)
    assert read_image(tmp_path / "a.JPG").shape == (30, 20, 3)
    image.convert("L").save(tmp_path / "b.jpeg")
    assert read_image(tmp_path / "b.jpeg").shape == (20, 30)
    image.convert("CMYK").save(tmp_path / "c.jpg")
    assert read_image(tmp_path / "c.jpg").shape == (20, 30, 3)
    with pytest.raises(InputError) as problem:
        read_labels(tmp_path / "b.jpeg")
    assert_one_sentence(problem, "b.jpeg", "JPEG", "PNG or TIFF")


def test_grey_in_colour_files_is_accepted_as_labels_and_colour_is_not(tmp_path):
    labels = random_array((5, 7), "u1") % 4
    assert_same(read_labels(save_png(tmp_path / "a.png", np.stack([labels] * 3, 2))), labels)
    assert_same(read_labels(save_png(tmp_path / "b.png", np.stack([labels] * 3 + [labels + 9], 2))), labels)
    for path in (
        save_png(tmp_path / "c.png", random_array((5, 7, 3), "u1")),
        write_tiff(tmp_path / "c.tif", random_array((2, 5, 7), "u1")),
    ):
        with pytest.raises(InputError) as problem:
            read_labels(path)
        assert_one_sentence(problem, path, "channels", "grey or palette PNG")


CYX, YX = random_array((4, 5, 7), "u2"), random_array((5, 7), "u2")
TIFFS = {
    "grey": (YX, {}, YX),
    "float64": (YX.astype("f8"), {}, YX.astype("f8")),
    "big-endian": (YX, {"byteorder": ">"}, YX),
    "bool": (YX > 9000, {}, YX > 9000),
    "rgb": (CYX[:3].transpose(1, 2, 0), {"photometric": "rgb"}, CYX[:3].transpose(1, 2, 0)),
    "rgb planes": (CYX[:3], {"photometric": "rgb", "planarconfig": "separate"}, CYX[:3].transpose(1, 2, 0)),
    "rgba": (CYX.transpose(1, 2, 0), {"photometric": "rgb"}, CYX.transpose(1, 2, 0)),
    "samples": (CYX.transpose(1, 2, 0), {"planarconfig": "contig"}, CYX.transpose(1, 2, 0)),
    "shaped, channels first": (CYX, {}, CYX.transpose(1, 2, 0)),
    "shaped, channels last": (CYX.transpose(1, 2, 0), {}, CYX.transpose(1, 2, 0)),
    "pages": (CYX, {"metadata": None}, CYX.transpose(1, 2, 0)),
    "imagej": (CYX, {"imagej": True, "metadata": {"axes": "CYX"}}, CYX.transpose(1, 2, 0)),
    "ome": (CYX, {"ome": True, "metadata": {"axes": "CYX"}}, CYX.transpose(1, 2, 0)),
    "ome 5-D": (CYX[None, None], {"ome": True, "metadata": {"axes": "TZCYX"}}, CYX.transpose(1, 2, 0)),
    "more channels than rows": (
        random_array((9, 3, 7), "f4"),
        {"imagej": True, "metadata": {"axes": "CYX"}},
        random_array((9, 3, 7), "f4").transpose(1, 2, 0),
    ),
}


@pytest.mark.parametrize("kind", TIFFS)
def test_tiff_images(tmp_path, kind):
    array, options, expected = TIFFS[kind]
    assert_same(read_image(write_tiff(tmp_path / "a.tif", array, **options)), expected)


def test_tiff_palette_gives_colours_for_images_and_indices_for_labels(tmp_path):
    indices, colours = random_array((5, 7), "u1"), random_array((3, 256), "u2")
    path = write_tiff(tmp_path / "a.tif", indices, photometric="palette", colormap=colours)
    assert_same(read_labels(path), indices)
    assert_same(read_image(path), colours[:, indices].transpose(1, 2, 0))
    options = {"metadata": None, "description": "ImageJ=1.54f\n"}  # where a palette is only for display
    write_tiff(path, indices, photometric="palette", colormap=colours, **options)
    assert_same(read_image(path), indices)


def test_tiff_pyramid_gives_its_full_size(tmp_path):
    full = random_array((3, 64, 48), "u1")
    with tifffile.TiffWriter(tmp_path / "a.ome.tif", ome=True) as tiff:
        tiff.write(full, subifds=1, metadata={"axes": "CYX"}, photometric="minisblack")
        tiff.write(full[:, ::2, ::2], subfiletype=1, photometric="minisblack")
    assert_same(read_image(tmp_path / "a.ome.tif"), full.transpose(1, 2, 0))


def test_tiff_pages_written_one_by_one_are_channels_and_unequal_ones_are_refused(tmp_path):
    def write(*pages):
        with tifffile.TiffWriter(tmp_path / "a.tif") as tiff:
            for page in pages:
                tiff.write(page)
        return tmp_path / "a.tif"

    assert_same(read_image(write(*CYX)), CYX.transpose(1, 2, 0))
    assert_same(read_image(write(YX, YX[:2])), YX)
    with pytest.raises(InputError, match="2 images in one file"):
        read_image(write(YX[:2], YX))
    with tifffile.TiffWriter(tmp_path / "fields.ome.tif", ome=True) as tiff:
        tiff.write(YX)
        tiff.write(YX)
    with pytest.raises(InputError, match="2 images in one file"):
        read_image(tmp_path / "fields.ome.tif")


@pytest.mark.parametrize("axes", ["ZYX", "TYX", "TCYX"])
def test_stacks_are_refused(tmp_path, axes):
    stack = random_array((3,) * (len(axes) - 2) + (5, 7), "u1")
    path = write_tiff(tmp_path / "a.tif", stack, ome=True, metadata={"axes": axes})
    with pytest.raises(InputError) as problem:
        read_image(path)
    assert_one_sentence(problem, path, axes, "one plane a file")
    with pytest.raises(InputError, match=r"\(2, 3, 5, 7\)"):
        read_image(write_tiff(tmp_path / "unnamed.tif", random_array((2, 3, 5, 7), "u1")))


@pytest.mark.parametrize(
    "options",
    [
        {"metadata": None},
        {"imagej": True},
        {"ome": True, "metadata": {"axes": "CYX"}},
        {"compression": "zlib"},
    ],
)
def test_truncated_tiff_never_passes_as_a_smaller_image(tmp_path, options, caplog):
    whole, cut = write_tiff(tmp_path / "whole.tif", CYX, **options).read_bytes(), tmp_path / "cut.tif"
    for length in range(1, len(whole), 41):
        cut.write_bytes(whole[:length])
        found = image_or_sentence(cut)
        if isinstance(found, str):
            assert found.startswith(f"cannot read {cut}: ")
        else:  # only something after the pixels is missing
            np.testing.assert_array_equal(found, CYX.transpose(1, 2, 0))
    assert not caplog.records
    assert not logging.getLogger("tifffile").filters


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (YX, YX),
        (CYX, CYX.transpose(1, 2, 0)),
        (CYX.transpose(1, 2, 0), CYX.transpose(1, 2, 0)),
        (YX[None], YX),
    ],
)
def test_npy_and_bare_zarr_images(tmp_path, array, expected):
    np.save(tmp_path / "a.npy", array.astype(array.dtype.newbyteorder(">")))
    assert_same(read_image(tmp_path / "a.npy"), expected)
    for zarr_format in (2, 3):
        path = tmp_path / f"a{zarr_format}.zarr"
        zarr.create_array(path, data=np.ascontiguousarray(array), zarr_format=zarr_format)
        assert_same(read_image(path), expected)


def test_npy_refuses_pickles_and_more_axes(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[{}]], dtype=object), allow_pickle=True)
    np.save(tmp_path / "b.npy", np.zeros((1, 2, 3, 4)))
    np.save(tmp_path / "c.npy", np.zeros(4))
    for name in "abc":
        with pytest.raises(InputError, match=rf"cannot read .*{name}\.npy"):
            read_image(tmp_path / f"{name}.npy")


def test_labels_stored_as_floats_or_flags(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[0.0, 2.0]]))
    assert_same(read_labels(tmp_path / "a.npy"), np.array([[0, 2]], np.int32))
    np.save(tmp_path / "a.npy", np.array([[True, False]]))
    assert_same(read_labels(tmp_path / "a.npy"), np.array([[1, 0]], np.uint8))
    np.save(tmp_path / "a.npy", np.array([[0.5, 2.0]]))
    with pytest.raises(InputError, match=r"a\.npy has the value 0\.5"):
        read_labels(tmp_path / "a.npy")


def ome_zarr(path, array, axes, version, dataset="0", wrapped=False):
    multiscales = [{"axes": [{"name": axis} for axis in axes], "datasets": [{"path": dataset}, {"path": "1"}]}]
    attributes = {"multiscales": multiscales} if version == 2 else {"ome": {"multiscales": multiscales}}
    group = zarr.create_group(path, zarr_format=version, attributes={} if wrapped else attributes)
    if wrapped:
        group = group.create_group("0", attributes=attributes)
    group.create_array(dataset, data=array)
    group.create_array("1", data=array[..., ::2, ::2])
    return path


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("wrapped", [False, True])
def test_ome_zarr_reads_level_0_by_its_axes(tmp_path, version, wrapped):
    array = random_array((1, 9, 1, 4, 6), "f4")  # more channels than rows: only the axes tell
    path = ome_zarr(tmp_path / "a.ome.zarr", array, "tczyx", version, "s0", wrapped)
    assert_same(read_image(path), array[0, :, 0].transpose(1, 2, 0))


def test_zarr_refusals(tmp_path):
    stack = ome_zarr(tmp_path / "stack.zarr", random_array((5, 4, 6), "u1"), "zyx", 3)
    zarr.create_group(tmp_path / "group.zarr")
    (tmp_path / "empty.zarr").mkdir()
    (tmp_path / "garbage.zarr").mkdir()
    (tmp_path / "garbage.zarr" / "zarr.json").write_text("{")
    for path in (stack, *(tmp_path / f"{name}.zarr" for name in ("group", "empty", "garbage"))):
        with pytest.raises(InputError) as problem:
            read_image(path)
        assert_one_sentence(problem, f"cannot read {path}")


# Hostile files


def seeds():
    """Small valid files to damage."""
    grey, colour = np.zeros((3, 4), np.uint8), np.zeros((3, 4, 3), np.uint8)
    found = {}
    for kind, ending in (("PNG", ".png"), ("JPEG", ".jpg")):
        file = io.BytesIO()
        Image.fromarray(colour).save(file, kind)
        found[ending] = file.getvalue()
    for ending, save in ((".tif", tifffile.imwrite), (".npy", np.save)):
        file = io.BytesIO()
        save(file, grey)
        found[ending] = file.getvalue()
    return found


SEEDS = seeds()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ending=st.sampled_from(ENDINGS), content=st.binary(max_size=200), start=st.booleans())
def test_garbage_is_an_input_error(tmp_path, ending, content, start):
    path = tmp_path / f"garbage{ending}"
    path.write_bytes((SEEDS.get(ending, b"")[:12] if start else b"") + content)
    for read in (read_image, read_labels):
        with pytest.raises(InputError) as problem:
            read(path)
        assert_one_sentence(problem, path)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(sorted(SEEDS)), st.integers(0, 10**4), st.integers(0, 255), st.booleans())
def test_damaged_files_are_read_or_refused(tmp_path, ending, position, byte, cut):
    content = bytearray(SEEDS[ending])
    content[position % len(content)] = byte
    path = tmp_path / f"damaged{ending}"
    path.write_bytes(content[: position % len(content)] if cut else content)
    found = image_or_sentence(path)
    assert str(path) in found if isinstance(found, str) else found.ndim in (2, 3)


@pytest.mark.parametrize("ending", ENDINGS)
def test_missing_empty_and_wrong_kind(tmp_path, ending):
    path = tmp_path / f"a{ending}"
    with pytest.raises(InputError, match="no such file"):
        read_image(path)
    path.write_bytes(b"")
    with pytest.raises(InputError, match="empty"):
        read_image(path)
    path.write_bytes(SEEDS[".npy" if ending == ".png" else ".png"])
    with pytest.raises(InputError, match=re.escape(f"cannot read {path}: ")):
        read_image(path)
    if ending != ".zarr":
        path.unlink()
        path.mkdir()
        with pytest.raises(InputError, match=re.escape(f"cannot read {path}: ")):
            read_image(path)


def test_unknown_ending_and_missing_package(tmp_path, monkeypatch):
    touch(tmp_path / "a.gif")
    with pytest.raises(InputError, match=r"a\.gif: its ending"):
        read_image(tmp_path / "a.gif")
    path = write_labels(tmp_path / "a.zarr", np.eye(2, dtype=int))
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(InputError, match="pip install zarr"):
        read_image(path)
    with pytest.raises(InputError, match="pip install zarr"):
        write_labels(path, np.eye(2, dtype=int))
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")] == []


# Writing


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([0, 255], "u1"),
        ([0, 256], "u2"),
        ([1, 65535], "u2"),
        ([0, 70000], "u4"),
        ([-1, 5], "i4"),
        ([0, 2**32 - 1], "u4"),
        ([False, True], "u1"),
    ],
)
@pytest.mark.parametrize("ending", [".png", ".tif", ".TIFF", ".ome.tif", ".npy", ".zarr", ".ome.zarr"])
def test_labels_there_and_back(tmp_path, values, dtype, ending):
    labels, path = np.array([values, values[::-1], values]), tmp_path / f"a{ending}"
    if ending == ".png" and dtype in ("u4", "i4"):
        with pytest.raises(InputError) as problem:
            write_labels(path, labels)
        assert_one_sentence(problem, path, max(values), "TIFF")
        assert list(tmp_path.iterdir()) == []
        return
    assert write_labels(path, labels) == path
    assert_same(read_labels(path), labels.astype(dtype))


@pytest.mark.parametrize("shape", [(4, 5, 6), (3, 4, 1), (3, 1, 1), (2, 1, 7), (1, 4, 5), (4, 5), (30, 2, 3)])
@pytest.mark.parametrize("dtype", ["float32", "uint8", "uint16"])
@pytest.mark.parametrize("ending", [".tif", ".ome.tif", ".npy", ".zarr"])
def test_planes_there_and_back(tmp_path, shape, dtype, ending):
    planes, path = random_array(shape, "f4"), tmp_path / f"a{ending}"
    scale = {"float32": 1, "uint8": 255, "uint16": 65535}[dtype]
    stored = planes if scale == 1 else np.floor(planes.astype("f8") * scale + 0.5).astype(dtype)
    write_planes(path, planes, dtype)
    if ending == ".npy":
        assert_same(np.load(path), stored)
        return
    expected = stored if len(shape) == 2 else stored.transpose(1, 2, 0)
    assert_same(read_image(path), expected[..., 0] if shape[0] == 1 else expected)


def test_uint8_planes_round_and_bear_slight_overshoot(tmp_path):
    planes = np.array([[0.0, 1.0, 0.5, 1.0002, -0.0002, 0.001]], np.float32)
    assert_same(
        read_image(write_planes(tmp_path / "a.png", planes, "uint8")),
        np.array([[0, 255, 128, 255, 0, 0]], np.uint8),
    )
    deep = read_image(write_planes(tmp_path / "b.png", planes[None], "uint16"))
    assert_same(deep, np.array([[0, 65535, 32768, 65535, 0, 66]], np.uint16))


def test_what_is_too_large_for_imagej_is_written_as_ome(tmp_path, monkeypatch):
    monkeypatch.setattr(image_writing, "_IMAGEJ_MAX_BYTES", 100)
    planes = random_array((3, 4, 5), "f4")
    with tifffile.TiffFile(write_planes(tmp_path / "a.tif", planes)) as tiff:
        assert tiff.is_ome
    assert_same(read_image(tmp_path / "a.tif"), planes.transpose(1, 2, 0))


def test_names_of_planes_are_stored(tmp_path):
    planes, names = random_array((3, 4, 5), "f4"), ["class 0", "class 7", "größer"]
    with tifffile.TiffFile(write_planes(tmp_path / "a.tif", planes, names=names)) as tiff:
        assert tiff.is_imagej
        assert tiff.series[0].axes == "CYX"
        assert tiff.imagej_metadata["Labels"] == names
        assert tiff.pages.first.compression == tifffile.COMPRESSION.ADOBE_DEFLATE
    with tifffile.TiffFile(write_planes(tmp_path / "a.ome.tif", planes, names=names)) as tiff:
        assert all(name in tiff.ome_metadata for name in names[:2])
    ome = json.loads((write_planes(tmp_path / "a.zarr", planes, names=names) / "zarr.json").read_text())
    assert ome["attributes"]["ome"]["version"] == "0.5"
    assert [c["label"] for c in ome["attributes"]["ome"]["omero"]["channels"]] == names
    assert [a["name"] for a in ome["attributes"]["ome"]["multiscales"][0]["axes"]] == ["c", "y", "x"]


@pytest.mark.parametrize(
    ("name", "planes", "options", "words"),
    [
        ("a.png", np.zeros((4, 5), "f4"), {}, "choose uint8"),
        ("a.png", np.zeros((2, 4, 5), "f4"), {"dtype": "uint8"}, "2 plane(s)"),
        ("a.jpg", np.zeros((4, 5), "f4"), {"dtype": "uint8"}, "ends in"),
        ("a.tif", np.zeros((4, 5), "f4"), {"dtype": "int8"}, "int8"),
        ("a.tif", np.zeros((2, 4, 5), "f4"), {"names": ["one"]}, "1 names for 2 planes"),
        ("a.tif", np.full((4, 5), 2.0), {}, "from 2 to 2"),
        ("a.tif", np.full((4, 5), np.nan), {}, "nan"),
        ("a.tif", np.zeros((4, 5), int), {}, "int64"),
        ("a.tif", np.zeros((0, 4, 5)), {}, "(0, 4, 5)"),
        ("no/a.tif", np.zeros((4, 5)), {}, "there is no folder"),
    ],
)
def test_planes_that_cannot_be_written(tmp_path, name, planes, options, words):
    with pytest.raises(InputError) as problem:
        write_planes(tmp_path / name, planes, **options)
    assert_one_sentence(problem, tmp_path / name, words)
    assert list(tmp_path.iterdir()) == []


def test_labels_that_cannot_be_written(tmp_path):
    too_wide = np.array([[-1, 2**31]])
    for labels in (np.zeros((2, 2)), np.zeros((2, 2, 2), int), np.zeros((0, 2), int), too_wide):
        with pytest.raises(InputError, match=r"a\.npy"):
            write_labels(tmp_path / "a.npy", labels)
    assert list(tmp_path.iterdir()) == []


def listing(folder):
    """Every file below a folder and its content."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt, OSError])
@pytest.mark.parametrize("ending", [".png", ".tif", ".npy", ".zarr"])
def test_a_write_that_fails_midway_keeps_the_old_file_and_leaves_nothing(tmp_path, monkeypatch, ending, failure):
    path = write_labels(tmp_path / f"a{ending}", np.eye(3, dtype=int))
    before = listing(tmp_path)

    def write_half(temporary, *_, **__):
        if ending == ".zarr":
            Path(temporary).mkdir()
            (Path(temporary) / "zarr.json").write_bytes(b"half")
        elif ending == ".npy":
            temporary.write(b"half")
        else:
            Path(temporary).write_bytes(b"half")
        raise failure(28, "No space left on device")

    target = (np, "save") if ending == ".npy" else (image_writing, f"_write_{path.suffix[1:].replace('tif', 'tiff')}")
    monkeypatch.setattr(*target, write_half)
    for name in (path, tmp_path / f"new{ending}"):
        with pytest.raises(InputError if failure is OSError else failure, match="No space left"):
            write_labels(name, 2 * np.eye(3, dtype=int))
    assert listing(tmp_path) == before


@pytest.mark.parametrize("ending", [".png", ".tif", ".npy", ".zarr"])
def test_existing_files_are_replaced_without_remains(tmp_path, ending):
    path = tmp_path / f"a{ending}"
    write_labels(path, np.full((2000, 3), 300))
    write_labels(path, np.eye(2, dtype=int))
    assert_same(read_labels(path), np.eye(2, dtype=np.uint8))
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_a_folder_that_is_no_zarr_is_never_replaced(tmp_path):
    for name in ("a.npy", "b.tif"):
        touch(tmp_path / name / "precious.txt")
        with pytest.raises(InputError, match=f"cannot write .*{name}"):
            write_labels(tmp_path / name, np.eye(2, dtype=int))
    touch(tmp_path / "c.zarr")
    with pytest.raises(InputError, match=r"not a Zarr folder"):
        write_labels(tmp_path / "c.zarr", np.eye(2, dtype=int))
    assert sorted(listing(tmp_path)) == ["a.npy/precious.txt", "b.tif/precious.txt", "c.zarr"]


def test_the_old_folder_comes_back_when_the_swap_fails(tmp_path, monkeypatch):
    path = write_labels(tmp_path / "a.zarr", np.eye(3, dtype=int))
    before = listing(tmp_path)
    replace = os.replace

    def refuse_new(source, target):
        if Path(source).suffix == ".tmp":
            raise PermissionError(13, "Permission denied")
        replace(source, target)

    monkeypatch.setattr(os, "replace", refuse_new)
    with pytest.raises(InputError, match="Permission denied"):
        write_labels(path, 2 * np.eye(3, dtype=int))
    assert listing(tmp_path) == before


def test_atomic_path_shows_the_file_only_when_complete(tmp_path):
    final = tmp_path / ("n" * 250 + ".txt")  # as long as a name may be
    with atomic_path(final) as temporary:
        temporary.write_text("whole")
        assert not final.exists()
        assert temporary.parent == tmp_path
        assert temporary.name.startswith(".")
    assert listing(tmp_path) == {final.name: b"whole"}


def test_importing_loads_no_image_library():
    code = (
        "import sys, hedgerow.images, hedgerow.metrics;"
        "assert not {'PIL', 'tifffile', 'zarr', 'imagecodecs'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
