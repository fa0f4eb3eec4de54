"""Reading image files: every format and layout, what is refused, and files that are damaged or hostile."""

import io
import logging
import re
import struct
import sys
import zlib

import numpy as np
import pytest
import tifffile
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from hedgerow.errors import InputError
from hedgerow.images.label_files import read_labels
from hedgerow.images.reading import read_image
from hedgerow.images.writing import write_labels
from helpers.files import assert_same, random_array, touch, write
from helpers.refusals import assert_one_sentence

ENDINGS = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".npy", ".zarr")
CYX, YX = random_array((4, 5, 7), "u2"), random_array((5, 7), "u2")


def image_or_sentence(path, pages=None):
    """What a user of a possibly damaged file gets; any other exception fails the test."""
    try:
        return read_image(path, pages)
    except InputError as problem:
        return str(problem)


# PNG and JPEG


def raw_png(bit_depth, colour_type, width, height, rows):
    """A PNG file from packed rows, for kinds that Pillow does not write."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, bit_depth, colour_type, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    "array",
    [random_array(s, d) for s, d in [((5, 7), "u1"), ((5, 7), "u2"), ((5, 7, 3), "u1"), ((5, 7), "?")]],
)
def test_png_images(tmp_path, array):
    found = read_image(write(tmp_path / "a.png", array))
    assert_same(found, array)
    found[0, 0] = 0  # the array belongs to the caller


def test_png_alpha_and_palette(tmp_path):
    colour, alpha = random_array((5, 7, 3), "u1"), random_array((5, 7, 1), "u1", 1)
    assert_same(read_image(write(tmp_path / "a.png", np.concatenate([colour, alpha], 2))), colour)
    grey = Image.fromarray(np.concatenate([colour[..., :1], alpha], 2), "LA")
    assert_same(read_image(write(tmp_path / "b.png", grey)), colour[..., 0])
    indices = random_array((5, 7), "u1") % 3
    palette = Image.fromarray(indices)
    palette.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
    for options in ({}, {"transparency": bytes([0, 128, 255])}, {"bits": 2}):
        path = write(tmp_path / "p.png", palette, **options)
        assert_same(read_labels(path), indices)
        assert_same(read_image(path), (indices[..., None] * 30 + [10, 20, 30]).astype(np.uint8))


@pytest.mark.parametrize(
    ("bit_depth", "byte", "values"), [(1, 0b01000000, [0, 1]), (2, 0b00011011, [0, 1, 2, 3]), (4, 0x1E, [1, 14])]
)
def test_low_bit_png_labels_keep_stored_values(tmp_path, bit_depth, byte, values):
    path = tmp_path / "a.png"
    path.write_bytes(raw_png(bit_depth, 0, len(values), 1, [bytes([byte])]))
    assert_same(read_labels(path), np.array([values], np.uint8))


@pytest.mark.parametrize(("colour_type", "n_channels"), [(2, 3), (4, 2), (6, 4)])
def test_16_bit_colour_png_is_refused_rather_than_cut(tmp_path, colour_type, n_channels):
    path = tmp_path / "deep.png"
    path.write_bytes(raw_png(16, colour_type, 2, 1, [bytes(range(4 * n_channels))]))
    for read in (read_image, read_labels):
        with pytest.raises(InputError) as problem:
            read(path)
        assert_one_sentence(problem, path, "16 bits", "TIFF")


def test_large_images_are_read_without_touching_pillow(tmp_path, monkeypatch):
    path = write(tmp_path / "a.png", np.ones((40, 50), np.uint8))
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


def test_grey_in_colour_files_is_accepted_as_labels_and_unexplained_colours_are_not(tmp_path):
    labels = random_array((5, 7), "u1") % 4
    assert_same(read_labels(write(tmp_path / "a.png", np.stack([labels] * 3, 2))), labels)
    assert_same(read_labels(write(tmp_path / "b.png", np.stack([labels] * 3 + [labels + 9], 2))), labels)
    for path, words in (
        (write(tmp_path / "c.png", random_array((5, 7, 3), "u1")), ("colours", "classes.toml")),
        (write(tmp_path / "c.tif", random_array((2, 5, 7), "u1")), ("2 channels", "one-channel TIFF")),
    ):
        with pytest.raises(InputError) as problem:
            read_labels(path)
        assert_one_sentence(problem, path, *words)


# TIFF


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
    assert_same(read_image(write(tmp_path / "a.tif", array, **options)), expected)


def test_tiff_palette_gives_colours_for_images_and_indices_for_labels(tmp_path):
    indices, colours = random_array((5, 7), "u1"), random_array((3, 256), "u2")
    path = write(tmp_path / "a.tif", indices, photometric="palette", colormap=colours)
    assert_same(read_labels(path), indices)
    assert_same(read_image(path), colours[:, indices].transpose(1, 2, 0))
    options = {"metadata": None, "description": "ImageJ=1.54f\n"}  # where a palette is only for display
    write(path, indices, photometric="palette", colormap=colours, **options)
    assert_same(read_image(path), indices)


def test_tiff_pyramid_gives_its_full_size(tmp_path):
    full = random_array((3, 64, 48), "u1")
    with tifffile.TiffWriter(tmp_path / "a.ome.tif", ome=True) as tiff:
        tiff.write(full, subifds=1, metadata={"axes": "CYX"}, photometric="minisblack")
        tiff.write(full[:, ::2, ::2], subfiletype=1, photometric="minisblack")
    assert_same(read_image(tmp_path / "a.ome.tif"), full.transpose(1, 2, 0))


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
    whole, cut = write(tmp_path / "whole.tif", CYX, **options).read_bytes(), tmp_path / "cut.tif"
    for length in range(1, len(whole), 41):
        cut.write_bytes(whole[:length])
        outcome = image_or_sentence(cut, "all")
        if isinstance(outcome, str):
            assert outcome.startswith(f"cannot read {cut}: ")
        else:  # only something after the pixels is missing
            np.testing.assert_array_equal(outcome, CYX.transpose(1, 2, 0))
    assert not caplog.records
    assert not logging.getLogger("tifffile").filters


# NPY and Zarr


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
    files = {}
    for kind, ending in (("PNG", ".png"), ("JPEG", ".jpg")):
        file = io.BytesIO()
        Image.fromarray(colour).save(file, kind)
        files[ending] = file.getvalue()
    for ending, save in ((".tif", tifffile.imwrite), (".npy", np.save)):
        file = io.BytesIO()
        save(file, grey)
        files[ending] = file.getvalue()
    return files


SEEDS = seeds()


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ending=st.sampled_from(ENDINGS), content=st.binary(max_size=200), start=st.booleans())
def test_garbage_is_an_input_error(tmp_path, ending, content, start):
    path = tmp_path / f"garbage{ending}"
    path.write_bytes((SEEDS.get(ending, b"")[:12] if start else b"") + content)
    for read in (read_image, read_labels):
        with pytest.raises(InputError) as problem:
            read(path)
        assert_one_sentence(problem, path)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
    monkeypatch.delitem(sys.modules, "hedgerow.images.zarr_reading", raising=False)
    with pytest.raises(InputError, match="pip install zarr"):
        read_image(path)
    with pytest.raises(InputError, match="pip install zarr"):
        write_labels(path, np.eye(2, dtype=int))
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")] == []
