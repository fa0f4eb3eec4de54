"""HDF5 files: those of ilastik with the names of their axes, and what is refused."""

import json

import numpy as np
import pytest

import hedgerow as hr
from hedgerow.errors import InputError
from hedgerow.images.reading import open_image
from hedgerow.images.regions import Region

h5py = pytest.importorskip("h5py")

PLANES = np.random.default_rng(0).random((3, 20, 30)).astype(np.float32)


def write(path, arrays, axes=None):
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            data = file.create_dataset(name, data=array, chunks=True, compression="gzip")
            if axes:
                data.attrs["axistags"] = json.dumps({"axes": [{"key": key, "typeFlags": 2} for key in axes]})
    return path


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (2, 1, 0)])
def test_ilastiks_axes_are_known_by_their_names(tmp_path, order):
    axes = "".join("cyx"[i] for i in order)
    path = write(tmp_path / "a.h5", {"other": PLANES, "exported_data": PLANES.transpose(order)}, axes)
    np.testing.assert_array_equal(hr.read_image(path), np.moveaxis(PLANES, 0, -1))


def test_a_region_is_read_without_the_rest(tmp_path):
    path = write(tmp_path / "a.h5", {"exported_data": np.moveaxis(PLANES, 0, -1)[None, None]}, "tzyxc")
    with open_image(path) as source:
        assert source.shape == (3, 20, 30)
        assert source.by_region
        np.testing.assert_array_equal(source.read(Region(3, 9, 4, 11)), PLANES[:, 3:9, 4:11])


def test_objects_are_found_in_what_ilastik_exports(tmp_path, hedgerow):
    inside = np.zeros((30, 60), np.float32)
    inside[5:20, 5:20] = inside[5:20, 30:45] = 1
    path = write(tmp_path / "cells_Probabilities.h5", {"exported_data": np.stack([1 - inside, inside], -1)}, "yxc")
    finished = hedgerow("objects", path, "-o", tmp_path / "objects.tif")
    assert finished.code == 0, finished.err
    assert hr.read_image(tmp_path / "objects.tif").max() == 2


def test_the_only_data_set_needs_no_name(tmp_path):
    path = write(tmp_path / "a.h5", {"group/image": PLANES[0], "scalar": np.zeros(3)})
    np.testing.assert_array_equal(hr.read_image(path), PLANES[0])


def test_what_is_not_one_image_is_refused(tmp_path):
    both = write(tmp_path / "both.h5", {"a": PLANES, "b": PLANES})
    with pytest.raises(InputError, match="it holds 2: 'a', 'b'; export the image alone"):
        hr.read_image(both)
    (tmp_path / "no.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    with pytest.raises(InputError, match=r"cannot read .*no.h5"):
        hr.read_image(tmp_path / "no.h5")
    with h5py.File(tmp_path / "text.h5", "w") as file:
        file["exported_data"] = np.array([[b"a", b"b"]])
    with pytest.raises(InputError, match="not numbers"):
        hr.read_image(tmp_path / "text.h5")


def test_other_files_are_never_opened(tmp_path):
    write(tmp_path / "secret.h5", {"image": PLANES})
    np.zeros(600, np.float32).tofile(tmp_path / "raw")
    with h5py.File(tmp_path / "link.h5", "w") as file:
        file["exported_data"] = h5py.ExternalLink(str(tmp_path / "secret.h5"), "image")
    with pytest.raises(InputError, match="holds none"):
        hr.read_image(tmp_path / "link.h5")
    with h5py.File(tmp_path / "external.h5", "w") as file:
        file.create_dataset("image", (20, 30), "f4", external=[(str(tmp_path / "raw"), 0, 2400)])
    layout = h5py.VirtualLayout((3, 20, 30), "f4")
    layout[...] = h5py.VirtualSource(str(tmp_path / "secret.h5"), "image", (3, 20, 30))
    with h5py.File(tmp_path / "virtual.h5", "w") as file:
        file.create_virtual_dataset("image", layout)
    for name in ("external", "virtual"):
        with pytest.raises(InputError, match="in other files"):
            hr.read_image(tmp_path / f"{name}.h5")


def test_a_size_that_no_file_can_hold_is_refused(tmp_path):
    with h5py.File(tmp_path / "huge.h5", "w") as file:
        file.create_dataset("image", (10**9, 10**9), "u1", chunks=(1024, 1024))
    with pytest.raises(InputError):
        hr.read_image(tmp_path / "huge.h5")
