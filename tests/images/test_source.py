"""Regions of files, read when asked for, are those of the whole image."""

import numpy as np
import pytest
import tifffile
import zarr

from hedgerow.errors import InputError
from hedgerow.images.reading import open_image, read_image
from hedgerow.images.regions import Region

GREY = np.random.default_rng(0).integers(0, 255, (130, 170)).astype(np.uint8)
COLOUR = np.random.default_rng(1).integers(0, 60000, (130, 170, 3)).astype(np.uint16)


def write_pyramid(path):
    with tifffile.TiffWriter(path) as file:
        tiled = {"tile": (64, 64), "photometric": "rgb", "metadata": None}
        file.write(COLOUR, subifds=1, **tiled)
        file.write(COLOUR[::2, ::2].copy(), subfiletype=1, **tiled)


def write_zarr(path):
    zarr.create_array(str(path), shape=GREY.shape, chunks=(64, 64), dtype=GREY.dtype)[...] = GREY


WRITTEN = {
    "plain.tif": lambda path: tifffile.imwrite(path, GREY),
    "strips.tif": lambda path: tifffile.imwrite(path, GREY, compression="zlib", rowsperstrip=16, metadata=None),
    "tiled.tif": lambda path: tifffile.imwrite(path, COLOUR, tile=(64, 64), compression="zlib", photometric="rgb"),
    "other.tif": lambda path: tifffile.imwrite(path, COLOUR.astype(">u2"), byteorder=">", photometric="rgb"),
    "axes.ome.tif": lambda path: tifffile.imwrite(
        path, np.moveaxis(COLOUR, 2, 0), tile=(64, 64), metadata={"axes": "CYX"}, photometric="minisblack"
    ),
    "pyramid.tif": write_pyramid,
    "grey.npy": lambda path: np.save(path, GREY),
    "fortran.npy": lambda path: np.save(path, np.asfortranarray(COLOUR)),
    "chunks.zarr": write_zarr,
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_region_is_that_of_the_whole(tmp_path, name):
    path = tmp_path / name
    WRITTEN[name](path)
    whole = read_image(path)
    planes = whole[None] if whole.ndim == 2 else np.moveaxis(whole, 2, 0)
    source = open_image(path)
    assert source.by_region
    assert (source.shape, source.dtype) == (planes.shape, planes.dtype)
    for region in (Region(0, 130, 0, 170), Region(17, 90, 65, 66), Region(129, 130, 169, 170)):
        assert np.array_equal(source.read(region), region.of(planes))
        assert source.read(region).dtype == planes.dtype
    assert np.array_equal(source.read(), planes)


def test_what_can_only_be_read_whole(tmp_path):
    from PIL import Image

    Image.fromarray(GREY).save(tmp_path / "a.png")
    source, inside = open_image(tmp_path / "a.png"), Region(17, 90, 65, 66)
    assert not source.by_region
    assert np.array_equal(source.read(inside)[0], inside.of(GREY))
    assert np.array_equal(source.read(source.whole)[0], GREY)
    assert np.array_equal(source.array(), GREY)
    with tifffile.TiffWriter(tmp_path / "pages.tif") as file:
        file.write(GREY, photometric="minisblack", metadata=None)
        file.write(GREY, photometric="minisblack", metadata=None, compression="zlib")
    assert not open_image(tmp_path / "pages.tif", pages="all").by_region


@pytest.mark.parametrize("options", [{}, {"compression": "zlib"}, {"tile": (32, 48)}], ids=str)
def test_plain_pages_are_read_by_region(tmp_path, options):
    pages, path, inside = np.stack([GREY, GREY[::-1], GREY // 2]), tmp_path / "pages.tif", Region(17, 90, 65, 66)
    tifffile.imwrite(path, pages, photometric="minisblack", metadata=None, **options)
    source = open_image(path, pages="all")
    assert (source.by_region, source.axes, source.n_pages) == (True, "IYX", 3)
    assert np.array_equal(source.read(inside), inside.of(pages))
    assert np.array_equal(open_image(path, pages="3,1").read(), pages[[2, 0]])


def test_the_first_pages_of_a_cut_file_are_read(tmp_path):
    path = tmp_path / "cut.tif"
    with tifffile.TiffWriter(path) as file:
        for page in (GREY, GREY[::-1]):
            file.write(page, photometric="minisblack", metadata=None)
        last = file.filehandle.tell()
    with open(path, "r+b") as file:
        file.truncate(last - 100)
    assert np.array_equal(read_image(path, pages=1), GREY)
    for pages in (2, "all"):
        with pytest.raises(InputError, match="ends before"):
            read_image(path, pages=pages)


def test_an_image_is_described_without_its_pixels(tmp_path):
    np.save(tmp_path / "c.npy", COLOUR)
    source = open_image(tmp_path / "c.npy")
    assert (source.shape, source.dtype) == ((3, 130, 170), np.dtype(np.uint16))


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_a_photograph_on_its_side_is_described_as_it_is_read(tmp_path, orientation):
    from PIL import Image

    picture = Image.fromarray((COLOUR >> 8).astype(np.uint8))
    exif = picture.getexif()
    exif[0x0112] = orientation
    picture.save(tmp_path / "p.jpg", exif=exif)
    with open_image(tmp_path / "p.jpg") as source:
        assert (*source.size, source.shape[0]) == read_image(tmp_path / "p.jpg").shape


def test_the_planes_of_a_long_stack_are_not_listed(tmp_path, monkeypatch):
    """tifffile takes much time for each page that is asked for."""
    planes = np.random.default_rng(2).integers(0, 255, (500, 6, 8)).astype(np.uint8)
    tifffile.imwrite(tmp_path / "a.tif", planes, imagej=True, metadata={"axes": "ZYX"})
    monkeypatch.setattr(tifffile.TiffPageSeries, "__iter__", lambda series: pytest.fail("pages are listed"))
    source, inside = open_image(tmp_path / "a.tif", pages="3,400"), Region(1, 5, 2, 7)
    assert np.array_equal(source.read(inside), inside.of(planes[[2, 399]]))
    assert np.array_equal(source.read(), planes[[2, 399]])
