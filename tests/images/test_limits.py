"""Images that are too large: refused by what their files declare, before anything is decoded or allocated."""

import io
import json
import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest
import tifffile
import zarr
from PIL import Image

from hedgerow import memory
from hedgerow.errors import ConfigError, InputError
from hedgerow.images.array_checks import to_labels, to_planes
from hedgerow.images.file_checks import VARIABLE
from hedgerow.images.label_files import read_labels
from hedgerow.images.reading import open_image, read_image, what_was_read
from helpers.files import random_array, read_channels, write
from helpers.refusals import assert_one_sentence, assert_refused_cheaply

KINDS = ("png", "jpg", "tif", "npy", "zarr")
SIDE = 60_000  # 3,600 megapixels


def bomb(folder, kind, height=SIDE, width=SIDE):
    """A small file that declares this many pixels."""
    path = folder / f"bomb.{kind}"
    if kind == "png":
        header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
        path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(map(_chunk, (b"IHDR", b"IDAT"), (header, zlib.compress(b"")))))
    elif kind == "jpg":
        file = io.BytesIO()
        Image.new("L", (8, 9)).save(file, "JPEG")
        size = struct.pack(">HH", 9, 8)
        path.write_bytes(file.getvalue().replace(size, struct.pack(">HH", height, width), 1))
    elif kind == "tif":
        write(path, np.zeros((8, 9), np.uint8), compression="zlib", metadata=None)
        with tifffile.TiffFile(path, mode="r+") as tiff:
            for name, value in (("ImageLength", height), ("ImageWidth", width), ("RowsPerStrip", height)):
                tiff.pages.first.tags[name].overwrite(value, dtype="I")
    elif kind == "npy":
        with open(path, "wb") as file:
            np.lib.format.write_array_header_1_0(
                file, {"descr": "|u1", "fortran_order": False, "shape": (height, width)}
            )
            file.truncate(file.tell() + height * width)  # a hole, which takes no space
    else:
        zarr.create_array(path, shape=(height, width), dtype="u1", chunks=(1000, 1000))
    return path


def _chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def refused(path, *words, read=read_image):
    """It is one sentence, and nothing of the size of the image was allocated."""
    assert_refused_cheaply(read, path, 50e6, f"cannot read {path}: ", *words)


@pytest.mark.parametrize("kind", KINDS)
def test_more_pixels_than_the_limit(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: None)
    path = bomb(tmp_path, kind)
    reads = (read_image, read_channels) if kind == "jpg" else (read_image, read_channels, read_labels)
    for read in reads:
        refused(path, "60,000 x 60,000 pixels", "3,600.0 megapixels", "limit of 1,000", VARIABLE, read=read)


@pytest.mark.parametrize("kind", KINDS)
def test_the_limit_is_set_by_the_environment(tmp_path, kind, monkeypatch):
    path = bomb(tmp_path, kind, 40, 50) if kind in ("npy", "zarr") else tmp_path / f"a.{kind}"
    if kind not in ("npy", "zarr"):
        write(path, random_array((40, 50), "u1"))
    monkeypatch.setenv(VARIABLE, "0.0019")
    refused(path, "40 x 50 pixels", "limit of 0.0019", VARIABLE)
    monkeypatch.setenv(VARIABLE, " 0.002 ")
    assert read_image(path).shape == (40, 50)
    monkeypatch.setenv(VARIABLE, "")
    assert read_image(path).shape == (40, 50)


@pytest.mark.parametrize("value", ["many", "0", "-5", "nan", "inf", "1e999", "1,000", "10 GB"])
def test_a_bad_limit_is_a_clear_error(tmp_path, value, monkeypatch):
    path = write(tmp_path / "a.png", random_array((4, 5), "u1"))
    monkeypatch.setenv(VARIABLE, value)
    for read in (read_image, read_labels):
        with pytest.raises(ConfigError) as problem:
            read(path)
        assert_one_sentence(problem, VARIABLE, repr(value), "above 0")


def test_only_pages_that_are_read_count(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, "0.001")
    with tifffile.TiffWriter(tmp_path / "a.tif") as tiff:
        for side in (20, 40):
            tiff.write(np.zeros((side, side), np.uint8), metadata=None)
    assert read_image(tmp_path / "a.tif", 1).shape == (20, 20)
    with pytest.raises(InputError, match="40 x 40 pixels"):
        read_image(tmp_path / "a.tif", 2)


# Memory


@pytest.mark.parametrize("kind", KINDS)
def test_more_memory_than_there_is(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 2_000_000_000)
    # 900 megapixels of a byte, and as many float32
    refused(bomb(tmp_path, kind, 30_000, 30_000), "4.5", "2.00 GB are available", "crop or shrink", "more memory")


def test_what_is_read_is_counted_with_its_planes(tmp_path, monkeypatch):
    array = random_array((3, 40, 50), "u2")
    needed = array.size * (2 + 4)
    paths = [write(tmp_path / name, array) for name in ("a.npy", "a.tif")]
    for path in paths:
        monkeypatch.setattr(memory, "available", lambda: needed)
        assert read_image(path).shape == (40, 50, 3)
        monkeypatch.setattr(memory, "available", lambda: needed - 1)
        refused(path, "GB of memory")
        assert read_image(path, 1).shape == (40, 50)
    monkeypatch.setattr(memory, "available", lambda: None)
    assert read_image(paths[0]).shape == (40, 50, 3)


def test_huge_blocks_of_a_small_image_count(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 10**9)
    path = tmp_path / "a.zarr"
    zarr.create_array(path, shape=(4, 5), dtype="u1", chunks=(40_000, 50_000))
    refused(path, "2.00 GB of memory")
    path = write(tmp_path / "a.tif", random_array((16, 16), "u1"), tile=(16, 16), compression="zlib")
    with tifffile.TiffFile(path, mode="r+") as tiff:
        for name in ("TileWidth", "TileLength"):
            tiff.pages.first.tags[name].overwrite(48_000, dtype="I")
    refused(path, "2.30 GB of memory")


@pytest.mark.parametrize("shape", [(1000, 1000), (3, 10**6, 10**6), (10**30, 10**30), (5, -1), (-4, -5), (1001,)])
def test_an_npy_must_hold_what_its_header_declares(tmp_path, shape, monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: None)
    path = tmp_path / "a.npy"
    for version in (np.lib.format.write_array_header_1_0, np.lib.format.write_array_header_2_0):
        with open(path, "wb") as file:
            version(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
            file.write(bytes(1000))
        for read in (read_image, read_channels, read_labels, what_was_read):
            refused(path, "its header declares", "the file holds 1,000", read=read)


def test_the_header_of_an_npy_is_not_repeated_at_length(tmp_path):
    with open(tmp_path / "a.npy", "wb") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": (10**3000, 5)}
        np.lib.format.write_array_header_2_0(file, header)
    for read in (read_image, open_image):
        with pytest.raises(InputError) as problem:
            read(tmp_path / "a.npy")
        assert len(str(problem.value)) < 600


@pytest.mark.parametrize("kind", [b"IDAT", b"tEXt"])
def test_a_chunk_of_a_png_that_is_longer_than_the_file(tmp_path, kind):
    path = tmp_path / "a.png"
    Image.fromarray(random_array((20, 30, 3), "u1")).save(path)
    content = path.read_bytes()
    at = content.index(b"IDAT") - 4
    path.write_bytes(content[:at] + struct.pack(">I", 0xFF7F0000) + kind + content[at + 8 :])
    for read in (read_image, read_labels, what_was_read):
        refused(path, "one of its chunks declares 4,286,513,152 bytes, more than the file has", read=read)


@pytest.mark.parametrize("shape", [(2**63, 1), (2**32, 2**32), (2**70, 2**70)])
def test_more_pixels_than_can_be_counted(tmp_path, shape):
    path = tmp_path / "a.zarr"
    zarr.create_array(path, shape=(4, 5), dtype="u1", chunks=(4, 5))
    metadata = path / "zarr.json"
    metadata.write_text(json.dumps(json.loads(metadata.read_text()) | {"shape": shape}))
    for read in (read_image, open_image):
        refused(path, "which no file can hold; save it again", read=read)


@pytest.mark.parametrize("length", [30_000, 2**31, 2**32 - 1])
@pytest.mark.parametrize("options", [{}, {"compression": "zlib"}, {"rowsperstrip": 1}, {"tile": (16, 16)}], ids=str)
def test_absurd_lengths_of_a_tiff(tmp_path, length, options, monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: None)
    path = write(tmp_path / "a.tif", random_array((16, 16), "u1"), metadata=None, **options)
    with tifffile.TiffFile(path, mode="r+") as tiff:
        tiff.pages.first.tags["ImageLength"].overwrite(length, dtype="I")
    refused(path)


@pytest.mark.parametrize("words", ["libXau.so: failed to map segment from shared object", "Cannot allocate memory"])
def test_a_picture_whose_reader_has_no_room_is_not_damaged(tmp_path, monkeypatch, words):
    def refuse(*arguments, **options):
        raise ImportError(words)

    path = write(tmp_path / "a.png", random_array((6, 8), "u1"))
    monkeypatch.setattr("PIL.PngImagePlugin.PngImageFile", refuse)
    with pytest.raises(InputError) as problem:
        read_image(path)
    assert_one_sentence(problem, f"{path}: it does not fit in memory: {words}", "more memory")


def test_out_of_memory_is_said_as_such(tmp_path, monkeypatch):
    def refuse(*arguments, **options):
        raise MemoryError("Unable to allocate 7.45 GiB")

    image = random_array((6, 8), "f8")
    paths = [write(tmp_path / name, image) for name in ("a.npy", "a.tif")]
    monkeypatch.setattr(np.lib.format, "read_array", refuse)
    monkeypatch.setattr(tifffile.TiffPage, "asarray", refuse)
    monkeypatch.setattr(tifffile.TiffFile, "asarray", refuse)
    for path in paths:
        with pytest.raises(InputError) as problem:
            read_image(path)
        assert_one_sentence(problem, f"{path}: it does not fit in memory: Unable to allocate 7.45 GiB", "crop")
    monkeypatch.setattr(np, "require", refuse)
    monkeypatch.setattr(np, "ascontiguousarray", refuse)
    for check in (to_planes, to_labels):
        with pytest.raises(InputError) as problem:
            check(np.round(image), "b.tif")
        assert_one_sentence(problem, "b.tif: it does not fit in memory: Unable to allocate 7.45 GiB", "crop")


SCRIPT = """
import resource, sys
from hedgerow import memory
from hedgerow.errors import InputError
from hedgerow.images.reading import read_image
with open("/proc/self/statm") as file:
    taken = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + 300_000_000,) * 2)
for available in (memory.available, lambda: None):
    memory.available = available
    try:
        read_image(sys.argv[1])
    except InputError as problem:
        print(problem)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux holds to this limit")
def test_a_process_with_a_limit_is_refused_and_lives_on(tmp_path):
    path = bomb(tmp_path, "npy", 30_000, 30_000)
    finished = subprocess.run([sys.executable, "-c", SCRIPT, str(path)], capture_output=True, text=True, timeout=300)
    assert finished.returncode == 0, finished.stderr
    first, second = finished.stdout.splitlines()
    assert "4.50 GB of memory" in first
    assert "it does not fit in memory" in second


def test_large_values_and_holes_are_still_found():
    image = np.zeros((4, 5), np.float32)
    assert to_planes(image).shape == (1, 4, 5)
    for bad in (np.nan, np.inf, -np.inf, 1.1e15, -1.1e15):
        image[1, 2] = bad
        with pytest.raises(InputError, match="row 1, column 2"):
            to_planes(image)
    image[1, 2] = np.float32(1e15)
    assert to_planes(image).max() == np.float32(1e15)


@pytest.mark.parametrize("read", [read_image, open_image])
def test_more_channels_than_a_model_can_read(tmp_path, read):
    path = tmp_path / "a.zarr"
    zarr.create_array(path, shape=(1_000_000, 10, 12), dtype="u1", chunks=(1, 10, 12), dimension_names=("c", "y", "x"))
    with pytest.raises(InputError) as problem:
        read(path)
    assert_one_sentence(problem, f"cannot read {path}: ", "1,000,000 channels", "100,000")


def test_a_palette_does_not_make_room_for_the_pixels(tmp_path):
    """Label maps with a palette are refused by their size too, before anything of that size is allocated."""
    path = tmp_path / "labels.png"
    picture = Image.fromarray(np.zeros((4, 5), np.uint8), "P")
    picture.putpalette([0, 0, 0, 230, 30, 30])
    picture.save(path)
    content = bytearray(path.read_bytes())
    content[16:24] = struct.pack(">II", 2**31 - 1, 20)
    content[29:33] = struct.pack(">I", zlib.crc32(content[12:29]))
    path.write_bytes(content)
    refused(path, "42,949.7 megapixels", read=read_labels)


def test_a_label_map_keeps_the_colours_of_its_palette(tmp_path):
    path = tmp_path / "labels.png"
    picture = Image.fromarray(np.array([[0, 1], [1, 2]], np.uint8), "P")
    picture.putpalette([0, 0, 0, 230, 30, 30, 30, 200, 60])
    picture.save(path)
    with open_image(path, "labels") as source:
        assert source.stored.palette == {0: (0, 0, 0), 1: (230, 30, 30), 2: (30, 200, 60)}
