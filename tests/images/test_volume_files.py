"""Volumes and time series in files: axes, voxel sizes, regions; files that other libraries wrote and read."""

import gzip
import json
import struct

import numpy as np
import pytest
import tifffile
import zarr

import hedgerow as hr
from hedgerow.errors import ConfigError, InputError
from hedgerow.images.axes import checked_axes, given_voxel_size
from hedgerow.images.reading import open_image, read_voxel_size
from hedgerow.images.regions import Region
from hedgerow.images.voxel_size import VoxelSize
from hedgerow.images.writing import write_labels, write_objects, write_scaled
from helpers.files import random_array
from helpers.refusals import assert_one_sentence

SIZE = VoxelSize(height=0.4, width=0.5, depth=1.5)
VALUES = random_array((5, 12, 17), "u2")  # (Z,H,W)
COLOURED = random_array((5, 12, 17, 2), "u1")  # (Z,H,W,C)
SERIES = random_array((3, 5, 12, 17), "u1")  # (T,Z,H,W)
REGION = Region(2, 9, 3, 16, 1, 4)


def near(size, depth=1.5):
    return (size.height, size.width, size.depth) == pytest.approx((0.4, 0.5, depth), rel=1e-5)


def write_imagej(path, array, axes):
    metadata = {"axes": axes, "unit": "micron", "spacing": 1.5}
    tifffile.imwrite(path, array, imagej=True, resolution=(1 / 0.5, 1 / 0.4), metadata=metadata)


def write_ome(path, array, axes):
    sizes = {f"PhysicalSize{a}": s for a, s in zip("ZYX", (1.5, 0.4, 0.5), strict=True)}
    sizes |= {f"PhysicalSize{a}Unit": "µm" for a in "ZYX"}
    tifffile.imwrite(path, array, ome=True, tile=(16, 16), compression="zlib", metadata={"axes": axes, **sizes})


def write_ome_zarr(path, array, axes):
    scale = {"Z": 1.5, "Y": 0.4, "X": 0.5}
    described = [{"name": a.lower(), "unit": "micrometer"} if a in scale else {"name": a.lower()} for a in axes]
    change = {"type": "scale", "scale": [scale.get(a, 1.0) for a in axes]}
    multiscale = {"axes": described, "datasets": [{"path": "0", "coordinateTransformations": [change]}]}
    group = zarr.create_group(path, attributes={"ome": {"version": "0.5", "multiscales": [multiscale]}})
    group.create_array("0", data=array, chunks=tuple(min(n, 4) for n in array.shape))


def write_hdf5(path, array, axes):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        data = file.create_dataset("exported_data", data=array, chunks=True, compression="gzip")
        data.attrs["axistags"] = json.dumps({"axes": [{"key": a.lower()} for a in axes]})
        data.attrs["element_size_um"] = (1.5, 0.4, 0.5)


def write_with_nibabel(path, array, axes):
    nibabel = pytest.importorskip("nibabel")
    order = [axes.index(a) for a in "XYZTC" if a in axes]
    values = array.transpose(order)
    if "C" in axes and "T" not in axes:
        values = values[:, :, :, None]
    image = nibabel.Nifti1Image(values, np.array([[0, 0.4, 0, 5], [-0.5, 0, 0, 6], [0, 0, 1.5, 7], [0, 0, 0, 1.0]]))
    image.header.set_xyzt_units("micron", "sec")
    nibabel.save(image, path)


def write_with_pynrrd(path, array, axes):
    nrrd = pytest.importorskip("nrrd")
    order = [axes.index(a) for a in "CXYZT" if a in axes]
    sides = {"X": 0.5e-3, "Y": 0.4e-3, "Z": 1.5e-3}
    kinds = [{"C": "list", "T": "time"}.get(axes[i], "domain") for i in order]
    directions = [[sides[axes[i]] * (k == "XYZ".index(axes[i])) for k in range(3)] if axes[i] in sides else None
                  for i in order]  # fmt: skip
    header = {"kinds": kinds, "space": "left-posterior-superior", "space directions": np.array(
        [[np.nan] * 3 if row is None else row for row in directions])}  # fmt: skip
    nrrd.write(str(path), array.transpose(order), header, index_order="F")


WRITERS = {
    "a.tif": write_imagej, "a.ome.tif": write_ome, "a.ome.zarr": write_ome_zarr, "a.h5": write_hdf5,
    "a.nii": write_with_nibabel, "a.nii.gz": write_with_nibabel, "a.nrrd": write_with_pynrrd,
}  # fmt: skip


@pytest.mark.parametrize("name", WRITERS)
def test_volumes_that_other_libraries_wrote(tmp_path, name):
    path = tmp_path / name
    WRITERS[name](path, VALUES, "ZYX")
    with open_image(path, volumes=True) as source:
        assert source.is_volume
        assert source.shape == (1, 5, 12, 17)
        assert source.whole.shape == (5, 12, 17)
        assert source.words.startswith("a volume of 5 z planes, voxels of 1.5 x 0.4 x 0.5 micrometres")
        assert near(source.voxel_size)
        assert source.voxel_size.anisotropy == pytest.approx(1.5 / 0.4)
        np.testing.assert_array_equal(source.read(REGION), REGION.of_volume(VALUES[None]))
        np.testing.assert_array_equal(source.read(), VALUES[None])
        assert source.read().dtype == VALUES.dtype
        np.testing.assert_array_equal(source.array(), VALUES)


@pytest.mark.parametrize("name", [name for name in WRITERS if name != "a.tif"])
def test_channels_of_volumes(tmp_path, name):
    axes = "CZYX" if name in ("a.ome.tif", "a.nii", "a.nii.gz") else "ZYXC"
    stored = COLOURED if axes == "ZYXC" else np.moveaxis(COLOURED, -1, 0)
    WRITERS[name](tmp_path / name, stored, axes)
    with open_image(tmp_path / name, volumes=True) as source:
        assert source.shape == (2, 5, 12, 17)
        np.testing.assert_array_equal(source.array(), COLOURED)
        np.testing.assert_array_equal(source.read(REGION), REGION.of_volume(np.moveaxis(COLOURED, -1, 0)))


@pytest.mark.parametrize("name", WRITERS)
def test_time_points_are_images_of_their_own(tmp_path, name):
    WRITERS[name](tmp_path / name, SERIES, "TZYX")
    with open_image(tmp_path / name, volumes=True) as source:
        frames = list(source.each_frame())
        assert len(frames) == 3
        for frame, values in zip(frames, SERIES, strict=True):
            assert frame.is_volume
            np.testing.assert_array_equal(frame.array(), values)
            np.testing.assert_array_equal(frame.read(REGION)[0], REGION.of_volume(values))


def test_a_series_of_planes(tmp_path):
    write_imagej(tmp_path / "a.tif", SERIES[:, 0], "TYX")
    with open_image(tmp_path / "a.tif", volumes=True) as source:
        assert not source.is_volume
        assert source.words == "3 time points, read as separate images"
        np.testing.assert_array_equal([frame.array() for frame in source.each_frame()], SERIES[:, 0])


@pytest.mark.parametrize("kind", ["npy", "zarr", "h5", "tif"])
def test_given_axes(tmp_path, kind):
    path = tmp_path / f"a.{kind}"
    if kind == "npy":
        np.save(path, COLOURED)
    elif kind == "zarr":
        zarr.create_array(path, data=COLOURED)
    elif kind == "h5":
        with pytest.importorskip("h5py").File(path, "w") as file:
            file["image"] = COLOURED
    else:
        tifffile.imwrite(path, COLOURED, metadata=None, photometric="minisblack", planarconfig="contig")
    with open_image(path, volumes=True, axes="ZYXC") as source:
        np.testing.assert_array_equal(source.array(), COLOURED)
    with open_image(path, volumes=True, axes="TYXC") as source:
        assert len(source.frames) == 5
    with pytest.raises(InputError) as problem:
        open_image(path, volumes=True, axes="ZYX")
    assert_one_sentence(problem, f"cannot read {path}: ", "axes are given as ZYX", "--axes")


def test_a_single_plane_with_given_axes_is_a_volume(tmp_path):
    np.save(tmp_path / "a.npy", VALUES[:1])
    with open_image(tmp_path / "a.npy", volumes=True, axes="ZYX") as source:
        assert source.shape == (1, 1, 12, 17)
    with open_image(tmp_path / "a.npy", "labels", volumes=True, axes="ZYXC") as source:
        assert source.shape == (1, 1, 12, 17)


def test_without_volumes_nothing_changes(tmp_path):
    write_imagej(tmp_path / "a.tif", VALUES, "ZYX")
    with pytest.raises(InputError, match="found a stack of 5 z planes"):
        hr.read_image(tmp_path / "a.tif")
    np.testing.assert_array_equal(hr.read_image(tmp_path / "a.tif", pages=2), VALUES[1])
    np.testing.assert_array_equal(hr.read_image(tmp_path / "a.tif", pages="2-4"), np.moveaxis(VALUES[1:4], 0, -1))


@pytest.mark.parametrize("axes", ["", "Z", "ZYXX", "ZYXQ", "ZXC", 3])
def test_axes_that_mean_nothing_are_refused(axes):
    with pytest.raises(ConfigError) as problem:
        checked_axes(axes)
    assert_one_sentence(problem, "the axes (--axes) are ")


def test_a_given_voxel_size(tmp_path):
    assert given_voxel_size(None) is None
    assert given_voxel_size("1.5,0.4,0.5") == (1.5, 0.4, 0.5)
    for text in ("", "1", "1,2", "1,2,0", "1,2,x", "1,2,inf", "nan,1,1", "-1,1,1"):
        with pytest.raises(ConfigError) as problem:
            given_voxel_size(text)
        assert_one_sentence(problem, "the voxel size (--voxel-size) is ")
    np.save(tmp_path / "a.npy", VALUES)
    with open_image(tmp_path / "a.npy", volumes=True, axes="ZYX", voxel=SIZE) as source:
        assert source.voxel_size == SIZE


# Written by Hedgerow, read by others


LABELS = (VALUES % 4).astype(np.uint8)
PROBA = random_array((2, 5, 12, 17), "f4")


def test_imagej_reads_stacks(tmp_path):
    write_labels(tmp_path / "a.tif", LABELS, pixel=SIZE, axes="ZYX")
    write_scaled(tmp_path / "p.tif", PROBA, ["a", "b"], SIZE, "CZYX")
    with tifffile.TiffFile(tmp_path / "a.tif") as tiff:
        assert (tiff.series[0].axes, tiff.series[0].shape) == ("ZYX", LABELS.shape)
        assert (tiff.imagej_metadata["spacing"], tiff.imagej_metadata["slices"]) == (1.5, 5)
        np.testing.assert_array_equal(tiff.asarray(), LABELS)
    with tifffile.TiffFile(tmp_path / "p.tif") as tiff:
        assert tiff.series[0].axes == "ZCYX"
        np.testing.assert_array_equal(tiff.asarray(), PROBA.swapaxes(0, 1))
        assert tiff.imagej_metadata["Labels"][:3] == ["a", "b", "a"]
    assert near(read_voxel_size(tmp_path / "a.tif"))


@pytest.mark.parametrize("ending", ["ome.tif", "ome.zarr", "nii.gz", "nii", "tif"])
@pytest.mark.parametrize("axes", ["ZYX", "TYX", "TZYX"])
def test_label_stacks_there_and_back(tmp_path, ending, axes):
    if "nii" in ending:
        pytest.importorskip("nibabel")
    path = tmp_path / f"a.{ending}"
    labels = {"ZYX": LABELS, "TYX": LABELS, "TZYX": SERIES % 3}[axes]
    write_labels(path, labels, pixel=SIZE, axes=axes)
    with open_image(path, "labels", volumes=True) as source:
        assert source.is_volume == ("Z" in axes)
        np.testing.assert_array_equal(np.squeeze([frame.array() for frame in source.each_frame()]), labels)
        assert "Z" not in axes or near(source.voxel_size)
    write_objects(path, labels.astype(np.int32), SIZE, axes)
    with open_image(path, "labels", volumes=True) as source:
        assert source.dtype == np.uint32


@pytest.mark.parametrize("ending", ["ome.tif", "ome.zarr", "nii.gz", "tif"])
def test_probability_stacks_there_and_back(tmp_path, ending):
    if "nii" in ending:
        pytest.importorskip("nibabel")
    path = tmp_path / f"a.{ending}"
    write_scaled(path, PROBA, ["a", "b"], SIZE, "CZYX")
    with open_image(path, volumes=True) as source:
        np.testing.assert_array_equal(source.read(), PROBA)
        assert near(source.voxel_size)


def test_ome_zarr_of_a_stack_names_its_axes_and_scale(tmp_path):
    write_labels(tmp_path / "a.ome.zarr", LABELS, pixel=SIZE, axes="ZYX")
    ome = zarr.open_group(tmp_path / "a.ome.zarr", mode="r").attrs["ome"]
    (multiscale,) = ome["multiscales"]
    assert [axis["name"] for axis in multiscale["axes"]] == ["z", "y", "x"]
    (change,) = multiscale["datasets"][0]["coordinateTransformations"]
    assert change["scale"] == [1.5, 0.4, 0.5]


def test_a_png_holds_no_stack(tmp_path):
    for write, array in ((write_labels, LABELS), (write_scaled, LABELS / np.float32(4))):
        with pytest.raises(InputError) as problem:
            write(tmp_path / "a.png", array, axes="ZYX")
        assert_one_sentence(problem, "cannot write ", "a PNG holds one plane", ".tif")


# NIfTI


@pytest.mark.parametrize("ending", ["nii", "nii.gz"])
def test_the_affine_of_a_nifti_is_kept(tmp_path, ending):
    nibabel = pytest.importorskip("nibabel")
    write_with_nibabel(tmp_path / f"in.{ending}", VALUES, "ZYX")
    write_labels(tmp_path / f"out.{ending}", LABELS, axes="ZYX", like=tmp_path / f"in.{ending}")
    before, after = (nibabel.load(tmp_path / f"{name}.{ending}") for name in ("in", "out"))
    np.testing.assert_array_equal(after.affine, before.affine)
    assert after.header.get_xyzt_units()[0] == "micron"
    assert after.shape == before.shape
    np.testing.assert_array_equal(np.asarray(after.dataobj).T, LABELS)
    assert after.get_data_dtype() == np.uint8
    assert near(read_voxel_size(tmp_path / f"out.{ending}"))


def test_values_of_a_nifti_are_scaled_as_its_header_says(tmp_path):
    nibabel = pytest.importorskip("nibabel")
    image = nibabel.Nifti1Image(VALUES.T.astype(np.int16), np.eye(4))
    image.header.set_slope_inter(0.5, 10)
    nibabel.save(image, tmp_path / "a.nii")
    stored = nibabel.load(tmp_path / "a.nii")
    with open_image(tmp_path / "a.nii", volumes=True) as source:
        assert source.dtype == np.float32
        np.testing.assert_allclose(source.array(), stored.get_fdata().T, rtol=1e-6)
        assert source.voxel_size.depth == pytest.approx(1000)  # millimetres, if the file names no unit


def test_a_nifti_of_one_plane_is_an_image(tmp_path):
    nibabel = pytest.importorskip("nibabel")
    nibabel.save(nibabel.Nifti2Image(VALUES[0].T[..., None], np.eye(4)), tmp_path / "a.nii")
    np.testing.assert_array_equal(hr.read_image(tmp_path / "a.nii"), VALUES[0])


def refused(path, *words):
    with pytest.raises(InputError) as problem, open_image(path, volumes=True) as source:
        source.read()
    assert_one_sentence(problem, f"cannot read {path}: ", *words)


def test_niftis_that_are_no_images_are_refused(tmp_path):
    nibabel = pytest.importorskip("nibabel")
    image = nibabel.Nifti1Image(VALUES.T, np.eye(4))
    whole, path = image.to_bytes(), tmp_path / "a.nii"

    def changed(at, form, *values):
        content = bytearray(whole)
        struct.pack_into(form, content, at, *values)
        path.write_bytes(content)
        return path

    path.write_bytes(whole[:400])
    refused(path, "the file ends before")
    path.write_bytes(b"no header" * 100)
    refused(path, "does not begin with the header of a NIfTI")
    refused(changed(344, "4s", b"ni1\0"), "its pixels are in another file")
    refused(changed(70, "<h", 128), "not numbers")  # RGB
    refused(changed(108, "<f", 1e12), "is damaged")
    refused(changed(42, "<hhh", 32767, 32767, 32767), "the file ends before")
    refused(changed(42, "<h", -5), "save it again")
    (tmp_path / "b.nii.gz").write_bytes(gzip.compress(bytes(changed(42, "<hh", 32767, 32767).read_bytes())))
    refused(tmp_path / "b.nii.gz", "the file ends before")
    (tmp_path / "c.nii.gz").write_bytes(gzip.compress(whole[:-50]))
    refused(tmp_path / "c.nii.gz", "it ends after")


# NRRD


@pytest.mark.parametrize("encoding", ["raw", "gzip"])
@pytest.mark.parametrize("dtype", ["u1", ">i2", "<f4", "f8"])
def test_nrrd_encodings(tmp_path, encoding, dtype):
    nrrd = pytest.importorskip("nrrd")
    values = VALUES.astype(dtype)
    nrrd.write(str(tmp_path / "a.nrrd"), values.T, {"encoding": encoding, "spacings": [0.5, 0.4, 1.5]})
    with open_image(tmp_path / "a.nrrd", volumes=True) as source:
        np.testing.assert_array_equal(source.array(), values)
        assert source.voxel_size.anisotropy == pytest.approx(1.5 / 0.4)


def test_an_nrrd_of_one_plane_is_an_image(tmp_path):
    nrrd = pytest.importorskip("nrrd")
    nrrd.write(str(tmp_path / "a.nrrd"), VALUES[0].T)
    np.testing.assert_array_equal(hr.read_image(tmp_path / "a.nrrd"), VALUES[0])


HEADER = "NRRD0004\ntype: uint8\ndimension: 3\nsizes: 4 3 2\nencoding: raw\n"


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("no header\n\n", "header of a NRRD"),
        (HEADER.replace("raw", "bzip2"), "expected whole or real numbers, raw or gzip"),
        (HEADER.replace("uint8", "block"), "expected whole or real numbers, raw or gzip"),
        (HEADER + "data file: a.raw\n", "its pixels are in another file"),
        (HEADER.replace("4 3 2", "4 3"), "found sizes"),
        (HEADER.replace("4 3 2", "4 3 0"), "found sizes"),
        (HEADER.replace("sizes", "lengths"), "names no sizes"),
        (HEADER.replace("4 3 2", "4000000 3000000 2000000"), "the file ends before"),
        (HEADER.replace("raw", "gzip").replace("4 3 2", "4000 3000 2000"), "the file ends before"),
        (HEADER + "byte skip: -2\n", "the file ends before"),
    ],
)
def test_nrrds_that_are_no_images_are_refused(tmp_path, header, words):
    path = tmp_path / "a.nrrd"
    path.write_bytes(header.encode() + b"\n" + bytes(24 if "skip" not in header else 10))
    refused(path, words)


def test_an_nrrd_with_comments_and_skipped_bytes(tmp_path):
    values = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    header = (
        HEADER + '# a comment: with colon\nkey:=value\nbyte skip: 5\nspace units: "um" "um" "um"\nspacings: 2 2 6\n'
    )
    (tmp_path / "a.nrrd").write_bytes(header.encode() + b"\n" + bytes(5) + values.tobytes())
    with open_image(tmp_path / "a.nrrd", volumes=True) as source:
        np.testing.assert_array_equal(source.array(), values)
        assert source.voxel_size == VoxelSize(2, 2, 6)
