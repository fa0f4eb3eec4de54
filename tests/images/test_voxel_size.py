"""How large a pixel is: read from what other programs write, written so that they read it; and palettes of TIFFs."""

import json

import numpy as np
import pytest
import tifffile
import zarr
from PIL import Image

from hedgerow.images.label_files import read_labels
from hedgerow.images.reading import open_image, read_image, read_voxel_size
from hedgerow.images.voxel_size import VoxelSize, of_ome, voxel_size
from hedgerow.images.writing import write_labels, write_scaled
from helpers.files import assert_same, write

IMAGE = np.arange(20, dtype=np.uint8).reshape(4, 5)
SIZE = VoxelSize(height=0.25, width=0.325)
PALETTE = {0: np.array([1, 2, 3], np.uint8), 7: np.array([255, 128, 0], np.uint8), 300: np.array([9, 9, 9], np.uint8)}


def assert_size(path, height, width):
    found = read_voxel_size(path)
    assert found is not None
    assert (found.height, found.width) == pytest.approx((height, width), rel=1e-5)


@pytest.mark.parametrize("unit", ["um", "micron", "\\u00B5m", "µm"])
def test_imagej(tmp_path, unit):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, IMAGE, description=f"ImageJ=1.54f\nunit={unit}\n".encode("latin-1"), resolution=(4, 2))
    assert_size(path, 0.5, 0.25)


def test_imagej_in_other_units(tmp_path):
    for unit, factor in (("nm", 1e-3), ("mm", 1e3), ("cm", 1e4), ("inch", 25400)):
        tifffile.imwrite(tmp_path / "a.tif", IMAGE, imagej=True, resolution=(72, 72), metadata={"unit": unit})
        assert_size(tmp_path / "a.tif", factor / 72, factor / 72)
    tifffile.imwrite(tmp_path / "a.tif", IMAGE, imagej=True, resolution=(2, 2), metadata={"unit": "pixel"})
    assert read_voxel_size(tmp_path / "a.tif") is None


@pytest.mark.parametrize(("unit", "factor"), [("nm", 1e-3), ("µm", 1), ("mm", 1e3), (None, 1)])
def test_ome_tiff(tmp_path, unit, factor):
    sizes = {"PhysicalSizeX": 0.325, "PhysicalSizeY": 0.25}
    units = {} if unit is None else {"PhysicalSizeXUnit": unit, "PhysicalSizeYUnit": unit}
    tifffile.imwrite(tmp_path / "a.ome.tif", IMAGE, ome=True, metadata={"axes": "YX", **sizes, **units})
    assert_size(tmp_path / "a.ome.tif", 0.25 * factor, 0.325 * factor)


def test_tags_of_a_plain_tiff(tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, IMAGE, resolution=(20000, 40000), resolutionunit="CENTIMETER", metadata=None)
    assert_size(path, 0.25, 0.5)
    tifffile.imwrite(path, IMAGE, resolution=(1200, 1200), resolutionunit="INCH", metadata=None)
    assert_size(path, 25400 / 1200, 25400 / 1200)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"resolution": (72, 72), "resolutionunit": "INCH"},
        {"resolution": (96, 96), "resolutionunit": "INCH"},
        {"resolution": (28.3465, 28.3465), "resolutionunit": "CENTIMETER"},
        {"resolution": (0, 0), "resolutionunit": "INCH"},
        {"resolution": (3, 3), "resolutionunit": "NONE"},
        {"description": "<OME>nothing", "metadata": None},
    ],
)
def test_a_tiff_that_says_nothing_of_the_size(tmp_path, options):
    tifffile.imwrite(tmp_path / "a.tif", IMAGE, **({"metadata": None} | options))
    assert read_voxel_size(tmp_path / "a.tif") is None
    assert_same(read_image(tmp_path / "a.tif"), IMAGE)


def test_png(tmp_path):
    write(tmp_path / "a.png", IMAGE, dpi=(25400 / 0.325, 25400 / 0.25))
    assert_size(tmp_path / "a.png", 0.25, 0.325)
    for dots in (72, 96):
        write(tmp_path / "a.png", IMAGE, dpi=(dots, dots))
        assert read_voxel_size(tmp_path / "a.png") is None
    write(tmp_path / "b.png", IMAGE)
    assert read_voxel_size(tmp_path / "b.png") is None


def test_arrays_have_none(tmp_path):
    write(tmp_path / "a.npy", IMAGE)
    assert read_voxel_size(tmp_path / "a.npy") is None
    zarr.create_array(tmp_path / "a.zarr", data=IMAGE)
    assert read_voxel_size(tmp_path / "a.zarr") is None


def write_zarr_volume(path):
    axes = [{"name": name, "type": "space", "unit": "nanometer" if name == "z" else "micrometer"} for name in "zyx"]
    scale = {"type": "scale", "scale": [1500, 0.25, 0.325]}
    multiscale = {"axes": axes, "datasets": [{"path": "0", "coordinateTransformations": [scale]}]}
    group = zarr.create_group(path, attributes={"ome": {"version": "0.5", "multiscales": [multiscale]}})
    group.create_array("0", data=np.stack([IMAGE] * 3))


VOLUMES = {
    "imagej.tif": lambda path: tifffile.imwrite(
        path, np.stack([IMAGE] * 3), imagej=True, resolution=(1 / 0.325, 4),
        metadata={"axes": "ZYX", "unit": "um", "spacing": 1.5},
    ),
    "ome.ome.tif": lambda path: tifffile.imwrite(
        path, np.stack([IMAGE] * 3), ome=True,
        metadata={
            "axes": "ZYX", "PhysicalSizeX": 0.325, "PhysicalSizeY": 0.25, "PhysicalSizeZ": 1500,
            "PhysicalSizeZUnit": "nm",
        },
    ),
    "ome.zarr": write_zarr_volume,
}  # fmt: skip


@pytest.mark.parametrize("name", VOLUMES)
def test_a_source_gives_axes_pages_and_the_size_of_a_voxel(tmp_path, name):
    VOLUMES[name](tmp_path / name)
    with open_image(tmp_path / name, pages=2) as source:
        assert (source.axes, source.n_pages, source.shape) == ("ZYX", 3, (1, 4, 5))
        size = source.voxel_size
    assert (size.height, size.width, size.depth) == pytest.approx((0.25, 0.325, 1.5), rel=1e-5)
    assert size.area == pytest.approx(0.08125, rel=1e-5)


@pytest.mark.parametrize(
    "given", [(0, 1), (-1, 1), (1, float("inf")), (float("nan"), 1), ("x", 1), (None, None), (1e-200, 1e-200)]
)
def test_what_is_no_size(given):
    assert voxel_size(*given) is None
    assert voxel_size(1, 1, "parsec") is None


@pytest.mark.parametrize("n_before", [0, 2**16 - 60, 2**16, 2**17 + 5])
def test_of_ome_metadata_only_the_beginning_is_parsed(n_before):
    """Up to the first image, wherever the text is cut in pieces; a list of a million planes would take seconds."""
    pixels = '<Pixels PhysicalSizeX="0.5" PhysicalSizeY="0.25"></Pixels>'
    assert of_ome(f"<OME><a>{'x' * n_before}</a>{pixels}</OME>") == VoxelSize(0.25, 0.5)
    assert of_ome(f"<OME><a>{'x' * n_before}</a>{pixels}{'<TiffData/>' * 10_000}</broken>") == VoxelSize(0.25, 0.5)
    assert of_ome(f"<OME>{'x' * n_before}</OME>") is None


@pytest.mark.parametrize("ending", [".png", ".tif", ".ome.tif", ".zarr"])
def test_sizes_there_and_back(tmp_path, ending):
    path = write_labels(tmp_path / f"a{ending}", IMAGE, PALETTE, SIZE)
    assert_size(path, SIZE.height, SIZE.width)
    assert_same(read_labels(path), IMAGE)
    if ending != ".png":
        write_scaled(tmp_path / f"b{ending}", np.ones((3, 4, 5), np.float32), pixel=SIZE)
        assert_size(tmp_path / f"b{ending}", SIZE.height, SIZE.width)


def test_other_programs_find_the_size(tmp_path):
    with tifffile.TiffFile(write_labels(tmp_path / "a.tif", IMAGE, None, SIZE)) as tiff:
        assert tiff.imagej_metadata["unit"] == "micron"
        across, by = tiff.pages.first.tags["XResolution"].value
        assert by / across == pytest.approx(0.325)
    with tifffile.TiffFile(write_labels(tmp_path / "a.ome.tif", IMAGE, None, SIZE)) as tiff:
        assert 'PhysicalSizeX="0.325" PhysicalSizeXUnit="µm" PhysicalSizeY="0.25"' in tiff.ome_metadata
        assert tiff.pages.first.get_resolution("micrometer") == pytest.approx((1 / 0.325, 1 / 0.25))
    with Image.open(write_labels(tmp_path / "a.png", IMAGE, None, SIZE)) as image:
        assert image.info["dpi"] == pytest.approx((25400 / 0.325, 25400 / 0.25))
    ome = json.loads((write_labels(tmp_path / "a.zarr", IMAGE, None, SIZE) / "zarr.json").read_text())["attributes"][
        "ome"
    ]
    assert ome["multiscales"][0]["axes"][0]["unit"] == "micrometer"
    assert ome["multiscales"][0]["datasets"][0]["coordinateTransformations"][0]["scale"] == [0.25, 0.325]


@pytest.mark.parametrize("ending", [".tif", ".ome.tif"])
def test_a_tiff_shows_classes_in_their_colours_and_still_holds_their_values(tmp_path, ending):
    path = write_labels(tmp_path / f"a{ending}", IMAGE, PALETTE)
    with tifffile.TiffFile(path) as tiff:
        page = tiff.pages.first
        # ImageJ takes its table from this tag, if it has 768 numbers; every program takes grey values as they are.
        assert page.tags["ColorMap"].count == 768
        assert (page.colormap[:, 7] // 257).tolist() == [255, 128, 0]
        assert page.photometric == tifffile.PHOTOMETRIC.MINISBLACK
        assert_same(tiff.asarray(), IMAGE)
    with Image.open(path) as image:
        assert_same(np.array(image), IMAGE)
    for read in (read_labels, read_image):
        assert_same(read(path), IMAGE)


def test_values_beyond_a_palette_have_no_colours(tmp_path):
    path = write_labels(tmp_path / "a.tif", IMAGE.astype(int) + 290, PALETTE)
    with tifffile.TiffFile(path) as tiff:
        assert "ColorMap" not in tiff.pages.first.tags
    assert read_labels(path).max() == 309


def test_a_palette_that_stands_for_colours_is_still_read_as_colours(tmp_path):
    table = np.zeros((3, 256), np.uint16)
    table[0, 1] = 65535
    tifffile.imwrite(
        tmp_path / "a.tif", np.eye(3, dtype=np.uint8), photometric="palette", colormap=table, metadata=None
    )
    assert read_image(tmp_path / "a.tif").shape == (3, 3, 3)
    assert_same(read_labels(tmp_path / "a.tif"), np.eye(3, dtype=np.uint8))


def test_maps_without_a_size_say_none(tmp_path):
    assert read_voxel_size(write_scaled(tmp_path / "a.tif", np.zeros((2, 4, 5), np.float32))) is None
    assert read_voxel_size(write_labels(tmp_path / "a.zarr", IMAGE)) is None
