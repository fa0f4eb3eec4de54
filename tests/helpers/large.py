"""Images for tests of `scale/`: written as Zarr, and results read back whole."""

import numpy as np
import zarr


def picture(shape=(150, 190), seed=0):
    """(H,W) uint8 with regions of the brightness that the small model knows, and noise."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 3, (shape[0] // 16 + 1, shape[1] // 16 + 1)).repeat(16, 0).repeat(16, 1)
    return (40 + 80 * coarse[: shape[0], : shape[1]] + rng.normal(0, 12, shape)).clip(0, 255).astype(np.uint8)


def write_zarr(path, array, chunks=(64, 64), version=3, **options):
    """A plain Zarr array; its name."""
    made = zarr.create_array(
        str(path), shape=array.shape, dtype=array.dtype, chunks=chunks, zarr_format=version, overwrite=True, **options
    )
    made[...] = array
    return str(path)


def write_ome_zarr(path, levels, axes="yx", version="0.5", size=0.5):
    """An OME-Zarr with these arrays as levels, each half as large as the one before; its name."""
    group = zarr.create_group(str(path), zarr_format=3 if version == "0.5" else 2, overwrite=True)
    datasets = []
    for k, array in enumerate(levels):
        chunks = tuple(min(64, n) for n in array.shape)
        group.create_array(str(k), shape=array.shape, dtype=array.dtype, chunks=chunks)[...] = array
        scale = [1.0 if axis == "c" else size * 2**k for axis in axes]
        datasets.append({"path": str(k), "coordinateTransformations": [{"type": "scale", "scale": scale}]})
    kinds = {"c": {"type": "channel"}}
    named = [{"name": axis, **kinds.get(axis, {"type": "space", "unit": "micrometer"})} for axis in axes]
    multiscales = [{"axes": named, "datasets": datasets, "version": version}]
    group.attrs.update(
        {"ome": {"version": version, "multiscales": multiscales}} if version == "0.5" else {"multiscales": multiscales}
    )
    return str(path)


def levels_of(path):
    """Every level of a finished result."""
    group = zarr.open_group(str(path), mode="r")
    return [np.asarray(group[one["path"]][...]) for one in group.attrs["ome"]["multiscales"][0]["datasets"]]
