"""Regions of files, read when asked for, are those of the whole image."""

import numpy as np
import pytest
import tifffile
import zarr

from hedgerow.images import by_region
from hedgerow.images.by_region import open_by_region
from hedgerow.images.reading import described_image, read_image
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
    found = open_by_region(path)
    assert (found.shape, found.dtype) == (planes.shape, planes.dtype)
    for region in (Region(0, 130, 0, 170), Region(17, 90, 65, 66), Region(129, 130, 169, 170)):
        assert np.array_equal(found.read(region), region.of(planes))
        assert found.read(region).dtype == planes.dtype


def test_what_must_be_read_whole_is_not_read_by_regions(tmp_path, monkeypatch):
    from PIL import Image

    Image.fromarray(GREY).save(tmp_path / "a.png")
    assert open_by_region(tmp_path / "a.png") is None
    tifffile.imwrite(
        tmp_path / "pages.tif", np.stack([GREY[:60], GREY[60:120]]), photometric="minisblack", metadata=None
    )
    assert open_by_region(tmp_path / "pages.tif") is None or read_image(tmp_path / "pages.tif").ndim == 3
    WRITTEN["strips.tif"](tmp_path / "one.tif")
    monkeypatch.setattr(by_region, "MOST_AT_ONCE", 100)
    assert open_by_region(tmp_path / "one.tif") is None


def test_an_image_is_described_without_its_pixels(tmp_path):
    np.save(tmp_path / "c.npy", COLOUR)
    page = described_image(tmp_path / "c.npy")
    assert (page.height, page.width, page.n_channels, page.dtype) == (130, 170, 3, np.dtype(np.uint16))


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_a_photograph_on_its_side_is_described_as_it_is_read(tmp_path, orientation):
    from PIL import Image

    picture = Image.fromarray((COLOUR >> 8).astype(np.uint8))
    exif = picture.getexif()
    exif[0x0112] = orientation
    picture.save(tmp_path / "p.jpg", exif=exif)
    page = described_image(tmp_path / "p.jpg")
    assert (page.height, page.width, page.n_channels) == read_image(tmp_path / "p.jpg").shape
