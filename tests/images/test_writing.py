"""Writing image files: labels and planes there and back, refusals, and nothing half-written."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import tifffile

from hedgerow import files
from hedgerow.errors import InputError
from hedgerow.files import atomic_path
from hedgerow.images import writing
from hedgerow.images.label_files import read_labels
from hedgerow.images.reading import read_image
from hedgerow.images.writing import scaled, write_labels, write_scaled
from helpers.files import assert_same, listing, random_array, touch
from helpers.refusals import assert_one_sentence


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


def write_planes(path, planes, dtype="float32", names=None):
    """Maps in [0,1], written as predictions are."""
    return write_scaled(path, scaled(planes, dtype), names)


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
    monkeypatch.setattr(writing, "_IMAGEJ_MAX_BYTES", 100)
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
        ("a.tif", np.zeros((2, 4, 5), "f4"), {"names": ["one"]}, "1 names for 2 planes"),
        ("no/a.tif", np.zeros((4, 5)), {}, "there is no folder"),
    ],
)
def test_planes_that_cannot_be_written(tmp_path, name, planes, options, words):
    with pytest.raises(InputError) as problem:
        write_planes(tmp_path / name, planes, **options)
    assert_one_sentence(problem, tmp_path / name, words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("planes", "dtype", "words"),
    [
        (np.zeros((4, 5), "f4"), "int8", "int8"),
        (np.full((4, 5), 2.0), "float32", "from 2 to 2"),
        (np.full((4, 5), np.nan), "float32", "nan"),
        (np.zeros((4, 5), int), "float32", "int64"),
        (np.zeros((0, 4, 5)), "float32", "(0, 4, 5)"),
    ],
)
def test_planes_that_cannot_be_scaled(planes, dtype, words):
    with pytest.raises(InputError) as problem:
        scaled(planes, dtype)
    assert_one_sentence(problem, words)


def test_labels_that_cannot_be_written(tmp_path):
    too_wide = np.array([[-1, 2**31]])
    for labels in (np.zeros((2, 2)), np.zeros((2, 2, 2), int), np.zeros((0, 2), int), too_wide):
        with pytest.raises(InputError, match=r"a\.npy"):
            write_labels(tmp_path / "a.npy", labels)
    assert list(tmp_path.iterdir()) == []


# Atomic writes


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

    target = (np, "save") if ending == ".npy" else (writing, f"_write_{path.suffix[1:].replace('tif', 'tiff')}")
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

    monkeypatch.setattr(files, "exchanged", lambda one, other: False)  # as on a system that cannot
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
