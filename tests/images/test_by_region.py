"""Lazy reading: every kind of file gives the same pixels as reading it whole, and reads only what it is asked for."""

import numpy as np
import pytest
import tifffile
import zarr

import hedgerow as hr
from hedgerow.errors import ConfigError, InputError
from hedgerow.images.reading import SourcePlanes, open_image
from hedgerow.images.regions import Region
from helpers.files import random_array, write
from helpers.large import write_ome_zarr, write_zarr

PART = Region(33, 140, 50, 171)
GREY, COLOUR = random_array((150, 190), "uint8"), random_array((150, 190, 3), "uint8", seed=1)
WIDE = random_array((150, 190), "uint16", seed=2)


def as_read(path, **options):
    """(C,H,W): what the reader of small images gives."""
    image = hr.read_image(path, **options)
    return image[None] if image.ndim == 2 else np.moveaxis(image, -1, 0)


def check(path, **options):
    image, expected = open_image(path, **options), as_read(path)
    assert image.shape == expected.shape
    assert image.dtype == expected.dtype
    np.testing.assert_array_equal(image.read(PART), PART.of(expected))
    np.testing.assert_array_equal(image.read(image.whole), expected)
    return image


@pytest.mark.parametrize(
    "array", [GREY, WIDE, COLOUR, np.asfortranarray(GREY)], ids=["grey", "wide", "colour", "fortran"]
)
def test_npy_by_memory_map(tmp_path, array):
    check(write(tmp_path / "a.npy", array))


TIFFS = {
    "tiles": {"tile": (64, 48)},
    "packed": {"tile": (64, 64), "compression": "zlib", "predictor": True},
    "strips": {"rowsperstrip": 7, "compression": "zlib"},
    "contiguous": {},
    "jpeg": {"tile": (64, 64), "compression": "jpeg"},
    "big-endian": {"tile": (64, 64), "byteorder": ">"},
}


@pytest.mark.parametrize("how", TIFFS)
@pytest.mark.parametrize("array", [GREY, COLOUR], ids=["grey", "colour"])
def test_tiff_block_by_block(tmp_path, how, array):
    photometric = "rgb" if array.ndim == 3 else "minisblack"
    tifffile.imwrite(tmp_path / "a.tif", array, metadata=None, photometric=photometric, **TIFFS[how])
    check(tmp_path / "a.tif")


def test_tiff_of_separate_planes_and_of_named_axes(tmp_path):
    planes = np.ascontiguousarray(np.moveaxis(COLOUR, -1, 0))
    tifffile.imwrite(
        tmp_path / "a.tif", planes, photometric="rgb", planarconfig="separate", tile=(64, 64), metadata=None
    )
    tifffile.imwrite(tmp_path / "b.ome.tif", planes, photometric="minisblack", tile=(64, 64), metadata={"axes": "CYX"})
    tifffile.imwrite(tmp_path / "c.tif", planes.astype("uint16"), imagej=True, metadata={"axes": "CYX"})
    for name in ("a.tif", "b.ome.tif", "c.tif"):
        check(tmp_path / name)


def test_a_tiff_with_tiles_left_out_has_nothing_there(tmp_path):
    tiles = [GREY[:64, :64], None, GREY[:64, 128:192], *[None] * 6]
    padded = [None if one is None else np.pad(one, [(0, 64 - n) for n in one.shape]) for one in tiles]
    with tifffile.TiffWriter(tmp_path / "a.tif") as tiff:
        encoded = (b"" if one is None else one.tobytes() for one in padded)
        tiff.write(encoded, shape=GREY.shape, dtype="uint8", tile=(64, 64), metadata=None, photometric="minisblack")
    check(tmp_path / "a.tif")


def test_what_can_only_be_read_whole_is(tmp_path):
    check(write(tmp_path / "a.png", GREY))
    tifffile.imwrite(tmp_path / "a.tif", GREY, photometric="palette", colormap=random_array((3, 256), "uint16"))
    check(tmp_path / "a.tif")


def test_what_is_read_whole_must_fit_in_memory(tmp_path, monkeypatch):
    path = write(tmp_path / "a.png", GREY)
    monkeypatch.setattr("hedgerow.memory.available", lambda: 1000)
    with pytest.raises(InputError, match=r"GB of memory, but only .* are available"):
        open_image(path).check_memory()


@pytest.mark.parametrize("version", [2, 3])
def test_plain_zarr(tmp_path, version):
    assert check(write_zarr(tmp_path / "a.zarr", GREY, version=version)).chunk == (64, 64)


@pytest.mark.parametrize("version", ["0.4", "0.5"])
@pytest.mark.parametrize("axes", ["yx", "cyx"])
def test_ome_zarr_and_its_levels(tmp_path, version, axes):
    full = GREY if axes == "yx" else np.ascontiguousarray(np.moveaxis(COLOUR, -1, 0))
    levels = [full[..., :: 2**k, :: 2**k] for k in range(3)]
    path = write_ome_zarr(tmp_path / "a.ome.zarr", levels, axes, version)
    image = check(path)
    assert (image.stored.n_levels, image.voxel_size.height) == (3, 0.5)
    second = open_image(path, level=1)
    np.testing.assert_array_equal(second.read(second.whole).squeeze(), levels[1])
    assert second.voxel_size.width == 1.0
    assert [open_image(path, pixel_size=size).stored.level for size in (0.1, 0.6, 0.9, 1.9, 50)] == [
        0,
        0,
        1,
        2,
        2,
    ]


@pytest.mark.parametrize("is_ome", [True, False], ids=["ome", "plain"])
def test_levels_of_a_pyramid_in_a_tiff(tmp_path, is_ome):
    path = tmp_path / "a.ome.tif"
    options = {"tile": (64, 64), "photometric": "rgb"}
    with tifffile.TiffWriter(path, ome=is_ome) as tiff:
        said = {"axes": "YXS", "PhysicalSizeX": 0.5, "PhysicalSizeY": 0.5} if is_ome else None
        tiff.write(COLOUR, metadata=said, **options, **({"subifds": 2} if is_ome else {}))
        for k in (1, 2):
            tiff.write(COLOUR[:: 2**k, :: 2**k], subfiletype=1, metadata=None, **options)
    assert check(path).stored.n_levels == 3
    second = open_image(path, level=2)
    np.testing.assert_array_equal(second.read(second.whole), np.moveaxis(COLOUR[::4, ::4], -1, 0))
    assert second.voxel_size is None or second.voxel_size.height == pytest.approx(2.0, rel=0.02)


def test_a_level_that_is_not_there(tmp_path):
    path = write_zarr(tmp_path / "a.zarr", GREY)
    with pytest.raises(InputError, match=r"its 1 level\(s\) are numbered from 0"):
        open_image(path, level=1)
    with pytest.raises(InputError, match="does not say how large its pixels are"):
        open_image(path, pixel_size=0.5)
    for wrong in (0.0, -1.0, np.nan):
        with pytest.raises(ConfigError, match="must be larger than 0"):
            open_image(path, pixel_size=wrong)


def test_only_the_chunks_that_are_needed_are_read(tmp_path):
    path = write_zarr(tmp_path / "a.zarr", GREY)
    for chunk in (tmp_path / "a.zarr" / "c").rglob("*"):
        if chunk.is_file() and chunk.parts[-2:] != ("1", "1"):
            chunk.write_bytes(b"nonsense")
    image = open_image(path)
    inside = Region(64, 128, 64, 128)
    np.testing.assert_array_equal(image.read(inside)[0], inside.of(GREY))
    with pytest.raises(InputError, match=r"a\.zarr: its chunk c/0/1 is damaged"):
        image.read(Region(63, 128, 64, 128))


def test_a_damaged_tile_of_a_tiff_is_named(tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, GREY, tile=(64, 64), compression="zlib", metadata=None)
    with tifffile.TiffFile(path) as tiff:
        offset = tiff.pages[0].dataoffsets[4]
    with open(path, "rb+") as file:
        file.seek(offset)
        file.write(b"\0" * 50)
    image = open_image(path)
    image.read(Region(0, 64, 0, 190))
    with pytest.raises(InputError, match="its tile 4, counted from 0, is damaged"):
        image.read(image.whole)


def test_a_file_that_is_cut_short(tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, GREY, tile=(64, 64), metadata=None)
    content = path.read_bytes()
    path.write_bytes(content[:-3000])
    with pytest.raises(InputError, match="cannot read"):
        open_image(path).read(Region(0, 150, 0, 190))


def test_pages_and_own_channels(tmp_path):
    stack = random_array((4, 150, 190), "uint8")
    tifffile.imwrite(tmp_path / "a.tif", stack, metadata={"axes": "ZYX"}, ome=True, photometric="minisblack")
    image = open_image(tmp_path / "a.tif", pages=(2, 4))
    np.testing.assert_array_equal(image.read(PART), PART.of(stack[[1, 3]]))
    with pytest.raises(InputError, match="found a stack of 4 z planes"):
        open_image(tmp_path / "a.tif")
    planes = open_image(write(tmp_path / "a.npy", stack), layout="planes")
    np.testing.assert_array_equal(planes.read(PART), PART.of(stack))


def test_a_missing_file_and_a_group_that_is_no_image(tmp_path):
    with pytest.raises(InputError, match="there is no such file"):
        open_image(tmp_path / "a.zarr")
    zarr.create_group(str(tmp_path / "b.zarr"))
    with pytest.raises(InputError, match="without an OME multiscales entry"):
        open_image(tmp_path / "b.zarr")


def test_a_window_answers_to_the_images_coordinates():
    planes = random_array((2, 60, 70), "float32")
    reads = []

    def read(region):
        reads.append(region)
        return region.of(planes)

    window = SourcePlanes(read, planes.shape, Region(10, 40, 20, 50))
    inside, outside = Region(12, 30, 20, 50), Region(5, 30, 20, 50)
    np.testing.assert_array_equal(inside.of(window), inside.of(planes))
    assert len(reads) == 1
    np.testing.assert_array_equal(outside.of(window), outside.of(planes))
    assert len(reads) == 2


def test_a_value_that_cannot_be_used_is_told_with_its_place(tmp_path):
    values = random_array((150, 190), "float32")
    values[100, 100] = np.nan
    image = open_image(write(tmp_path / "a.npy", values))
    image.planes(Region(0, 100, 0, 190))
    with pytest.raises(InputError, match=r"from row 90 and column 0 on, has 1 value.* at row 10, column 100"):
        image.planes(Region(90, 150, 0, 190))
