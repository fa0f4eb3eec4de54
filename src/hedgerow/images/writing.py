"""Writes image files: PNG, TIFF, NPY, Zarr and NIfTI, each whole or not at all.

Arrays have the axes TCZYX, in this order, or some of them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hedgerow.errors import InputError
from hedgerow.files import PathLike, atomic_path
from hedgerow.images.file_checks import has_zarr_metadata, naming_missing_package
from hedgerow.images.nifti_files import ENDINGS as NIFTI
from hedgerow.images.nifti_files import nifti_bytes
from hedgerow.images.voxel_size import VoxelSize

_IMAGEJ_DTYPES = ("uint8", "uint16", "float32")
_IMAGEJ_MAX_BYTES = 2**32 - 2**25  # ImageJ files have 32-bit offsets; leave room for the headers
_ZARR_CHUNK = 1024
_ZARR_CHUNK_OF_VOLUMES = {"z": 32, "y": 256, "x": 256}
_IMAGEJ_AXES = "TZCYXS"
_COLOUR_MAP, _SHORT = 320, 3  # TIFF: the tag of a table of colours, and the type of its numbers
_SCALES = {"float32": 1, "uint8": 255, "uint16": 65535}
ROUNDING_SLACK = 1e-3  # probabilities summed in float32 may leave [0, 1] by this much


Palette = Mapping[int, np.ndarray]
"""Class value -> (3,) uint8 colour."""


def write_labels(
    path: PathLike, labels: np.ndarray, palette: Palette | None = None, pixel: VoxelSize | None = None,
    axes: str = "YX", like: Path | None = None,
) -> Path:  # fmt: skip
    """Write class values (H,W) as .png, .tif, .npy, .zarr, .nii or .nii.gz, in the smallest dtype that holds them.

    palette: colours in which a PNG or TIFF of values up to 255 is shown; does not change the values
    pixel:   size of a pixel, which all formats but .npy record
    axes:    of the labels: YX, ZYX, TYX or TZYX
    like:    for .nii: the NIfTI file that was segmented, whose affine is kept
    """
    labels = np.asarray(labels)
    if labels.ndim != len(axes) or labels.dtype.kind not in "bui" or labels.size == 0:
        raise InputError(
            f"cannot write {path}: found labels of shape {labels.shape} and dtype {labels.dtype}, expected"
            f" {'(H,W)' if axes == 'YX' else axes} integers."
        )
    low, high = int(labels.min()), int(labels.max())
    is_png = Path(path).suffix.lower() == ".png"
    candidates = ("uint8", "uint16") if is_png else ("uint8", "uint16", "uint32", "int32")
    fitting = (d for d in candidates if np.iinfo(d).min <= low and high <= np.iinfo(d).max)
    dtype = next(fitting, None)
    if dtype is None:
        limit = "PNG holds 0 to 65535; write a TIFF (.tif)" if is_png else "32 bits are the limit; renumber them"
        raise InputError(f"cannot write {path}: found class values from {low} to {high}, but {limit}.")
    return _write(Path(path), labels.astype(dtype, copy=False), axes, None, palette, pixel, like)


def write_objects(
    path: PathLike, numbers: np.ndarray, pixel: VoxelSize | None = None, axes: str = "YX", like: Path | None = None
) -> Path:
    """Write numbered objects (H,W) as 32-bit .tif, .npy, .zarr or .nii; pixel, axes, like: as in `write_labels`."""
    return _write(Path(path), numbers.astype(np.int32, copy=False).view(np.uint32), axes, None, None, pixel, like)


def scaled(planes: np.ndarray, dtype: str) -> np.ndarray:
    """Maps (C,H,W) or (H,W), or those of a volume, in [0,1] as they are stored: unchanged, or multiplied by 255 or
    65535 and rounded."""
    if planes.ndim not in (2, 3, 4) or planes.size == 0 or planes.dtype.kind != "f":
        raise InputError(
            f"found an array of shape {planes.shape} and dtype {planes.dtype}, expected (C,H,W) or (H,W) floats."
        )
    if dtype not in _SCALES:
        raise InputError(f"found dtype {dtype!r}, expected one of {', '.join(_SCALES)}.")
    low, high = planes.min(), planes.max()
    if not (low >= -ROUNDING_SLACK and high <= 1 + ROUNDING_SLACK):  # also true of NaN
        raise InputError(f"found values from {low:g} to {high:g}, expected 0 to 1.")
    if dtype == "float32":
        return planes.astype(np.float32, copy=False)
    return np.rint(np.clip(planes, 0, 1).astype(np.float64) * _SCALES[dtype]).astype(dtype)


def write_scaled(
    path: PathLike, planes: np.ndarray, names: Sequence[str] | None = None, pixel: VoxelSize | None = None,
    axes: str = "", like: Path | None = None,
) -> Path:  # fmt: skip
    """Write maps (C,H,W) or (H,W) from `scaled` as .tif, .npy, .zarr or .nii; a single plane of whole numbers also as
    .png.

    names: of the channels, recorded in TIFF and Zarr
    axes:  "": CYX or YX; like: as in `write_labels`
    """
    axes = axes or "CYX"[-planes.ndim :]
    n_planes = planes.shape[axes.index("C")] if "C" in axes else 1
    if names is not None and len(names) != n_planes:
        raise InputError(f"cannot write {path}: found {len(names)} names for {n_planes} planes, expected one each.")
    if Path(path).suffix.lower() == ".png" and (planes.dtype.kind == "f" or n_planes > 1) and not is_stack(axes):
        raise InputError(
            f"cannot write {path}: found {n_planes} plane(s) of {planes.dtype}, but a PNG holds one plane of uint8 or"
            " uint16; write a .tif, .npy or .zarr, or choose uint8 or uint16 for a single plane."
        )
    return _write(Path(path), planes, axes, names, None, pixel, like)


def is_stack(axes: str) -> bool:
    """Whether an array with these axes has z planes or time points."""
    return not {*"ZT"}.isdisjoint(axes)


def _write(
    path: Path, array: np.ndarray, axes: str, names: Sequence[str] | None, palette: Palette | None,
    pixel: VoxelSize | None, like: Path | None,
) -> Path:  # fmt: skip
    ending = next((ending for ending in NIFTI if path.name.lower().endswith(ending)), path.suffix.lower())
    if ending not in (".png", ".tif", ".tiff", ".npy", ".zarr", *NIFTI):
        raise InputError(f"cannot write {path}: expected a name that ends in .png, .tif, .npy, .zarr or .nii.gz.")
    if ending == ".png" and is_stack(axes):
        raise InputError(
            f"cannot write {path}: a PNG holds one plane, and this has the axes {axes}; write a .tif, .npy, .zarr or "
            ".nii.gz."
        )
    if ending == ".zarr" and path.exists() and not has_zarr_metadata(path):
        raise InputError(f"cannot write {path}: it exists and is not a Zarr folder; choose another name.")
    with naming_missing_package(path), atomic_path(path) as temporary:
        if ending == ".png":
            _write_png(temporary, array, palette, pixel)
        elif ending == ".npy":
            with open(temporary, "wb") as file:
                np.save(file, array)
        elif ending == ".zarr":
            _write_zarr(temporary, array, axes, names, pixel)
        elif ending in NIFTI:
            temporary.write_bytes(nifti_bytes(array, axes, pixel, like, compressed=ending.endswith(".gz")))
        else:
            _write_tiff(temporary, array, axes, names, palette, pixel, ome=path.stem.lower().endswith(".ome"))
    return path


def _table_of_colours(palette: Palette) -> np.ndarray:
    """(256,3) uint8 colours of the values from 0 to 255; black for values without a colour."""
    colours = np.zeros((256, 3), np.uint8)
    for value, colour in palette.items():
        if 0 <= value <= 255:
            colours[value] = colour
    return colours


def _write_png(temporary: Path, array: np.ndarray, palette: Palette | None, pixel: VoxelSize | None) -> None:
    from PIL import Image

    image = Image.fromarray(array.reshape(array.shape[-2:]))
    if palette is not None and array.dtype == np.uint8:
        image.putpalette(_table_of_colours(palette).tobytes())  # the pixels stay as they are
    size = {} if pixel is None else {"dpi": (25400 / pixel.width, 25400 / pixel.height)}
    image.save(temporary, format="PNG", **size)


def colour_tag(palette: Palette) -> tuple[int, int, int, tuple[int, ...], bool]:
    """A table of colours in tifffile's form. Since pixels are declared to be grey, every program reads their values;
    ImageJ still shows the colours."""
    table = _table_of_colours(palette).T.astype(np.uint16) * 257
    return _COLOUR_MAP, _SHORT, table.size, tuple(table.ravel().tolist()), True


def _write_tiff(
    temporary: Path, array: np.ndarray, axes: str, names: Sequence[str] | None, palette: Palette | None,
    pixel: VoxelSize | None, ome: bool,
) -> None:  # fmt: skip
    """Write a compressed TIFF: in ImageJ's form if dtype and size allow it, else as OME-TIFF."""
    import tifffile

    settings: dict[str, Any] = {"compression": "zlib", "photometric": "minisblack"}
    if palette is not None and array.dtype == np.uint8:
        settings["extratags"] = [colour_tag(palette)]
    if ome or array.dtype.name not in _IMAGEJ_DTYPES or array.nbytes > _IMAGEJ_MAX_BYTES:
        tifffile.imwrite(temporary, array, ome=True, **settings, **ome_tiff(axes, names, pixel))
        return
    # All six axes of ImageJ are given: otherwise a last axis of length 1 would be read as colour samples.
    lengths = dict(zip(axes, array.shape, strict=True))
    order = [axes.index(axis) for axis in _IMAGEJ_AXES if axis in axes]
    hyperstack = array.transpose(order).reshape([lengths.get(axis, 1) for axis in _IMAGEJ_AXES])
    n_stacked = lengths.get("T", 1) * lengths.get("Z", 1)
    metadata: dict[str, Any] = {"axes": _IMAGEJ_AXES} | ({} if names is None else {"Labels": [*names] * n_stacked})
    if pixel is not None:
        metadata["unit"] = "micron"
        if "Z" in axes and pixel.depth is not None:
            metadata["spacing"] = pixel.depth
        settings["resolution"] = (1 / pixel.width, 1 / pixel.height)
    tifffile.imwrite(temporary, hyperstack, imagej=True, metadata=metadata, **settings)


def ome_tiff(axes: str, names: Sequence[str] | None, pixel: VoxelSize | None) -> dict[str, Any]:
    """The OME metadata and tags that describe the channels and pixels of a TIFF, as options of tifffile."""
    metadata: dict[str, Any] = {"axes": axes}
    if names:
        metadata["Channel"] = {"Name": list(names)}
    if pixel is None:
        return {"metadata": metadata}
    metadata |= {"PhysicalSizeX": pixel.width, "PhysicalSizeXUnit": "µm"}
    metadata |= {"PhysicalSizeY": pixel.height, "PhysicalSizeYUnit": "µm"}
    if "Z" in axes and pixel.depth is not None:
        metadata |= {"PhysicalSizeZ": pixel.depth, "PhysicalSizeZUnit": "µm"}
    resolution = (1e4 / pixel.width, 1e4 / pixel.height)
    return {"metadata": metadata, "resolution": resolution, "resolutionunit": "CENTIMETER"}


def _write_zarr(
    temporary: Path, array: np.ndarray, letters: str, names: Sequence[str] | None, pixel: VoxelSize | None
) -> None:
    """Write OME-Zarr 0.5: a Zarr 3 group with one full-size array, "0", and attributes that name its axes.

    Programs show numbered objects, which have 32 bits, as labels.
    """
    import zarr

    axes = letters.lower()
    sides = {"c": 1, "t": 1} | (_ZARR_CHUNK_OF_VOLUMES if "z" in axes else {})
    chunks = tuple(min(size, sides.get(axis, _ZARR_CHUNK)) for axis, size in zip(axes, array.shape, strict=True))
    attributes = {"ome": ome_attributes(axes, array.dtype.name, names, pixel)}
    if array.dtype == np.uint32:
        attributes["ome"]["image-label"] = {"version": "0.5"}
    group = zarr.create_group(temporary, zarr_format=3, attributes=attributes)
    stored = group.create_array("0", shape=array.shape, dtype=array.dtype, chunks=chunks, dimension_names=tuple(axes))
    stored[...] = array


def ome_attributes(
    axes: str, dtype: str, names: Sequence[str] | None, pixel: VoxelSize | None, n_levels: int = 1,
    corner: tuple[int, int] = (0, 0), name: str = "",
) -> dict[str, Any]:  # fmt: skip
    """The attribute "ome" of a group with the arrays "0", "1" ... of a pyramid, each half the size of the one before.

    corner: row and column of a larger image at which this one begins; name: of the image, if it has one
    """
    sides = {"y": 1.0, "x": 1.0} if pixel is None else {"y": pixel.height, "x": pixel.width}
    if pixel is not None and pixel.depth is not None:
        sides["z"] = pixel.depth
    begins = dict(zip("yx", corner, strict=True))
    unit = {} if pixel is None else {"unit": "micrometer"}
    known = {"c": {"type": "channel"}, "t": {"type": "time"}}
    kinds = {axis: known.get(axis, {"type": "space", **unit}) for axis in axes}
    datasets = []
    for level in range(n_levels):
        scale = [sides[axis] * 2**level if axis in sides else 1.0 for axis in axes]
        changes: list[dict[str, Any]] = [{"type": "scale", "scale": scale}]
        if any(corner):
            place = [begins[axis] * sides[axis] if axis in sides else 0.0 for axis in axes]
            changes.append({"type": "translation", "translation": place})
        datasets.append({"path": str(level), "coordinateTransformations": changes})
    multiscale = {"axes": [{"name": axis, **kinds[axis]} for axis in axes], "datasets": datasets}
    if name:
        multiscale |= {"name": name, "type": "nearest"}
    attributes: dict[str, Any] = {"version": "0.5", "multiscales": [multiscale]}
    if names:
        window = {"min": 0, "max": _SCALES[dtype], "start": 0, "end": _SCALES[dtype]}
        channels = [
            {"label": label, "color": "FFFFFF", "window": window, "active": i == 0} for i, label in enumerate(names)
        ]
        attributes["omero"] = {"channels": channels}
    return attributes
