"""Reads HDF5 files that hold one image, as ilastik exports them."""

import json
from contextlib import ExitStack, suppress
from math import prod
from typing import Any

from hedgerow.errors import InputError, first_few, shown
from hedgerow.images.remote import is_remote
from hedgerow.images.stored import ImageSpec, Stored, array_axes, array_in_file
from hedgerow.images.voxel_size import VoxelSize, voxel_size

ILASTIK = "exported_data"  # ilastik's name of the data set
MOST_DATA_SETS = 1000  # in a file


def open_hdf5(spec: ImageSpec, files: ExitStack) -> Stored:
    """The one data set of a file that can be an image, or ilastik's. Its axes are named by ilastik's `axistags`."""
    import h5py

    path = spec.path
    if is_remote(path):
        raise InputError(f"cannot read {path}: HDF5 is only read on this machine; copy it first.")
    file = files.enter_context(h5py.File(path, "r"))
    data = _chosen(path, file, h5py)
    if data.dtype.kind not in "buif":
        raise InputError(f"cannot read {path}: it holds values of type {data.dtype}, not numbers; convert it.")
    if data.external or data.is_virtual:
        raise InputError(f"cannot read {path}: its pixels are in other files; export it again as one file.")
    own = _axes(data)
    axes = spec.axes_for(data.shape, own or array_axes(data.shape))
    chunks, size = tuple(data.chunks or ()), _voxel_size(data)
    return array_in_file(
        path, data, axes, is_array=not (own or spec.axes or axes == spec.assumed), chunks=chunks,
        block=prod(chunks) * data.dtype.itemsize, voxel=lambda: size, identity={"data set": data.name},
    )  # fmt: skip


def _voxel_size(data: Any) -> VoxelSize | None:
    """The size that PlantSeg and the HDF5 plugin of ImageJ write: micrometres along z, y and x."""
    with suppress(KeyError, TypeError, ValueError):
        depth, height, width = data.attrs["element_size_um"]
        return voxel_size(height, width, depth=depth)
    return None


def _chosen(path: str, file: Any, h5py: Any) -> Any:
    """The data set to read. Only links within the file are followed."""
    names = list[str]()

    def note(name: str, link: Any) -> bool | None:
        if isinstance(link, h5py.HardLink) and isinstance(file.get(name), h5py.Dataset) and file[name].ndim > 1:
            names.append(name)
        return True if len(names) > MOST_DATA_SETS else None

    file.visititems_links(note)
    if ILASTIK not in names and len(names) != 1:
        held = f"holds {len(names)}: {first_few([shown(name, 60) for name in names])}" if names else "holds none"
        raise InputError(
            f"cannot read {path}: expected one data set with an image, or one called {ILASTIK!r}, but it {held}; "
            "export the image alone."
        )
    return file[ILASTIK if ILASTIK in names else names[0]]


def _axes(data: Any) -> str:
    """The letters of ilastik's axes; "" if there are none, or not one for each axis."""
    try:
        keys = [tag["key"] for tag in json.loads(data.attrs["axistags"])["axes"]]
        axes = "".join(keys).upper()
    except (KeyError, TypeError, ValueError):
        return ""
    return axes if len(axes) == len(keys) == data.ndim and len(set(axes)) == len(axes) else ""
