"""Tiles of a TIFF that are pictures of their own, and declare more pixels than the tile has."""

import imagecodecs
import numpy as np
import pytest
import tifffile

from hedgerow.errors import InputError
from hedgerow.images import tiff_tiles
from hedgerow.images.reading import open_image, read_image
from hedgerow.images.tiff_tiles import bound_decoding
from helpers.files import random_array
from helpers.refusals import assert_one_sentence

IMAGE = random_array((100, 130), "uint8")
COLOUR = random_array((100, 130, 3), "uint8")
LARGE = np.zeros((900, 1000), np.uint8)
ENCODERS = {
    "jpeg": imagecodecs.jpeg8_encode,
    "jpeg2000": lambda image: imagecodecs.jpeg2k_encode(image, level=0),
    "png": imagecodecs.png_encode,
    "webp": lambda image: imagecodecs.webp_encode(np.repeat(image[..., None], 3, 2), lossless=True),
}
KINDS = {**ENCODERS, "webp, lossy": lambda image: imagecodecs.webp_encode(np.repeat(image[..., None], 3, 2))}


def whole(path):
    return read_image(path)


def lazily(path):
    image = open_image(path)
    return image.read(image.whole)


READS = [whole, lazily]


def write(path, kind, side, picture):
    """A TIFF of one tile that says it has this side, whose content is the picture."""
    colour = kind.startswith("webp")
    tifffile.imwrite(
        path, iter([KINDS[kind](picture)]), shape=(side, side, 3) if colour else (side, side), dtype="u1",
        tile=(side, side), compression=kind.partition(",")[0], photometric="rgb" if colour else "minisblack",
        metadata=None,
    )  # fmt: skip
    return path


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_picture_larger_than_its_tile_is_not_decoded(tmp_path, read, kind, monkeypatch):
    path = write(tmp_path / "a.tif", kind, 64, LARGE)
    decoded, real = [], tiff_tiles._Bounded.__call__

    def watched(self, data, *given, **options):
        self.decode = lambda *ignored, **more: decoded.append(1)
        return real(self, data, *given, **options)

    monkeypatch.setattr(tiff_tiles._Bounded, "__call__", watched)
    with pytest.raises((InputError, ValueError)) as problem:
        read(path)
    assert_one_sentence(problem, "too large: a picture of 900 x 1,000 pixels")
    assert not decoded


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_picture_that_fits_is_decoded(tmp_path, read, kind):
    found = np.asarray(read(write(tmp_path / "a.tif", kind, 64, np.full((64, 64), 90, np.uint8))))
    assert found.size == 64 * 64 * (3 if kind.startswith("webp") else 1)
    assert abs(found.astype(int) - 90).max() < 6


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("compression", ["jpeg", "jpeg2000", "png", "zlib", "lzw"])
def test_what_tifffile_writes_is_read(tmp_path, read, compression):
    for name, image in (("a.tif", IMAGE), ("b.tif", COLOUR)):
        photometric = "rgb" if image.ndim == 3 else "minisblack"
        tifffile.imwrite(
            tmp_path / name, image, tile=(64, 64), compression=compression, metadata=None, photometric=photometric
        )
        assert np.asarray(read(tmp_path / name)).size == image.size


@pytest.mark.parametrize("read", READS)
def test_a_strip_with_more_bytes_than_it_can_have(tmp_path, read):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, IMAGE, rowsperstrip=10, compression="zlib", metadata=None, photometric="minisblack")
    with open(path, "r+b") as file:
        file.truncate(10**8)  # a hole, which takes no space
    with tifffile.TiffFile(path, mode="r+") as tiff:
        counts = tiff.pages.first.tags["StripByteCounts"]
        counts.overwrite([9 * 10**7, *counts.value[1:]], dtype="I")
    with pytest.raises((InputError, ValueError)) as problem:
        read(path)
    assert_one_sentence(problem, "90.00 MB", "should have at most 68.1 kB")


def test_a_page_is_bounded_once(tmp_path):
    with tifffile.TiffFile(write(tmp_path / "a.tif", "png", 64, LARGE)) as tiff:
        page = tiff.pages.first
        bound_decoding(page)
        once = page.decode
        bound_decoding(page)
        assert page.decode is once


def strips(path, changes, n_pages=1, description=None, compression="zlib"):
    """A TIFF of strips of 25 rows, of which some tags were changed: name -> (value, type)."""
    images = random_array((n_pages, 100, 130), "uint8")
    tifffile.imwrite(
        path, images, rowsperstrip=25, compression=compression, metadata=None, description=description,
        photometric="minisblack",
    )  # fmt: skip
    with tifffile.TiffFile(path, mode="r+") as tiff:
        for name, (value, kind) in changes.items():
            tiff.pages.first.tags[name].overwrite(value, dtype=kind)
    return path


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"StripOffsets": (8, "I")}, "it gives the positions of only 1 of its 4 tiles or strips"),
        ({"RowsPerStrip": (1, "H")}, "it gives the positions of only 4 of its 100 tiles or strips"),
        ({"StripOffsets": ((1.5, 2.5, 3.5, 4.5), "d")}, "not numbers of bytes"),
        ({"StripOffsets": ("text", "s")}, "not numbers of bytes"),
        ({"StripOffsets": ((8, -9, 8, 8), "i")}, "not numbers of bytes"),
        ({"StripByteCounts": ((9, 9, 2**31, 9), "I")}, "more bytes than the file"),
        ({"StripOffsets": ((9, 0, 9, 9), "I")}, "begins in the header"),
    ],
    ids=["one-offset", "low-strips", "fractions", "text", "negative", "long", "in-the-header"],
)
def test_places_of_strips_that_cannot_be_are_refused(tmp_path, read, changes, words):
    path = strips(tmp_path / "a.tif", changes)
    with pytest.raises(InputError) as problem:
        read(path)
    assert_one_sentence(problem, f"cannot read {path}: ", words, "save it again")


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("offset", [(1.5, "d"), ("text", "s")], ids=["fraction", "text"])
def test_a_place_of_all_pixels_that_cannot_be_is_refused(tmp_path, read, offset):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, IMAGE, metadata=None, photometric="minisblack")
    with tifffile.TiffFile(path, mode="r+") as tiff:
        tiff.pages.first.tags["StripOffsets"].overwrite(offset[0], dtype=offset[1])
    with pytest.raises(InputError) as problem:
        read(path)
    assert_one_sentence(problem, f"cannot read {path}: ")


def test_strips_whose_sizes_do_not_divide_the_image_are_all_there(tmp_path):
    path = tmp_path / "a.tif"
    for options in ({"rowsperstrip": 33}, {"tile": (48, 64)}, {"rowsperstrip": 33, "planarconfig": "separate"}):
        image = np.moveaxis(COLOUR, 2, 0) if "planarconfig" in options else COLOUR
        tifffile.imwrite(path, image, metadata=None, photometric="rgb", compression="zlib", **options)
        assert np.array_equal(whole(path), COLOUR), options
        assert np.array_equal(lazily(path), np.moveaxis(COLOUR, 2, 0)), options


def test_pixels_that_a_file_ends_before_are_refused_however_they_are_read(tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, IMAGE, metadata=None, photometric="minisblack")
    with tifffile.TiffFile(path, mode="r+") as tiff:
        tiff.pages.first.tags["StripOffsets"].overwrite(path.stat().st_size - 100, dtype="I")
    for read in (whole, lazily):
        with pytest.raises(InputError) as problem:
            read(path)
        assert_one_sentence(problem, f"cannot read {path}: ", "it should hold 13,000 bytes of pixels, but ends before")
