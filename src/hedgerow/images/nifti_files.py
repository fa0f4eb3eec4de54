"""Reads and writes NIfTI, the format of medical volumes, by nibabel's headers.

The first axis of a NIfTI is x, and pixels lie with x fastest: as an array of rows, its axes are (C,T,)Z,Y,X.
"""

import gzip
from contextlib import ExitStack
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from hedgerow.errors import InputError, shown
from hedgerow.extras import require
from hedgerow.images.raw_values import RawValues
from hedgerow.images.remote import is_remote
from hedgerow.images.stored import ImageSpec, Stored, array_in_file
from hedgerow.images.voxel_size import VoxelSize, voxel_size

ENDINGS = (".nii", ".nii.gz")
_AXES = "XYZTC"  # in the order of the file
_HEADER_BYTES = {1: 348, 2: 540}  # by version
_MOST_BEFORE_PIXELS = 2**26  # bytes of extensions
_UNITS = {"unknown": "mm"}  # as other programs take it


def open_nifti(spec: ImageSpec, files: ExitStack) -> Stored:
    """The image of a NIfTI file, version 1 or 2."""
    path = spec.path
    if is_remote(path):
        raise InputError(f"cannot read {path}: NIfTI is only read on this machine; copy it first.")
    header, is_gzipped = _header(path)
    shape = tuple(int(length) for length in header.get_data_shape())
    while len(shape) > 2 and shape[-1] == 1:
        shape = shape[:-1]
    if len(shape) > len(_AXES):
        raise InputError(
            f"cannot read {path}: found an array of shape {shown(shape, 200)}, expected at most the axes x, y, z, time "
            "and channels; save fewer."
        )
    stored, scale = header.get_data_dtype(), _scale(header)
    if stored.kind not in "buif":
        raise InputError(f"cannot read {path}: it holds values of type {stored}, not numbers; convert it.")
    start = header["vox_offset"].item()
    if not 0 <= start <= _MOST_BEFORE_PIXELS:
        raise InputError(f"cannot read {path}: its pixels begin at byte {start:,.0f}, so it is damaged; save it again.")
    kept = [(axis, length) for axis, length in zip(_AXES, shape, strict=False) if axis in "XY" or length > 1]
    own = "".join(axis for axis, _ in reversed(kept))
    array = RawValues(
        path, int(start), tuple(length for _, length in reversed(kept)), stored, 0 if is_gzipped else None, scale
    )
    array.check()
    zooms = header.get_zooms()
    unit = str(header.get_xyzt_units()[0])
    size = voxel_size(zooms[1], zooms[0], _UNITS.get(unit, unit), zooms[2] if len(zooms) > 2 else None)
    return array_in_file(
        path, array, spec.axes_for(array.shape, own), chunks=array.chunks, block=prod(array.chunks) * stored.itemsize,
        voxel=lambda: size,
    )  # fmt: skip


def _header(path: str) -> tuple[Any, bool]:
    """nibabel's header of a file, and whether the file is compressed. Only its fixed part is read."""
    with open(path, "rb") as file:
        is_gzipped = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        content: Any = gzip.GzipFile(fileobj=file) if is_gzipped else file
        block = content.read(max(_HEADER_BYTES.values()))
    sizes = (int.from_bytes(block[:4], "little"), int.from_bytes(block[:4], "big"))
    version = next((v for v, n in _HEADER_BYTES.items() if n in sizes), None)
    if version is None or len(block) < _HEADER_BYTES[version]:
        raise InputError(f"cannot read {path}: it does not begin with the header of a NIfTI; save it again.")
    require("nibabel", "reading NIfTI")
    import nibabel

    kinds: Any = {1: nibabel.Nifti1Header, 2: nibabel.Nifti2Header}  # nibabel has no types
    header = kinds[version](block[: _HEADER_BYTES[version]], check=False)
    if not header["magic"].item().startswith((b"n+1", b"n+2")):
        raise InputError(f"cannot read {path}: its pixels are in another file; save it as one file, NAME.nii.gz.")
    return header, is_gzipped


def _scale(header: Any) -> tuple[float, float] | None:
    """Factor and summand of the values; None if numbers stand for themselves."""
    slope, summand = (float(header[name]) for name in ("scl_slope", "scl_inter"))
    if slope == 0 or not np.isfinite(slope) or not np.isfinite(summand) or (slope, summand) == (1, 0):
        return None
    return slope, summand


def nifti_bytes(
    array: np.ndarray, axes: str, pixel: VoxelSize | None, like: Path | None = None, *, compressed: bool
) -> bytes:
    """A file with an array that has these axes, in the order TCZYX.

    like: a NIfTI file of the same place, whose affine is kept; None: voxels of the given size, from the origin
    """
    require("nibabel", "writing NIfTI")
    import nibabel

    make: Any = nibabel.Nifti1Image
    kept = [axis for axis in _AXES if axis in axes]
    values = array.transpose([axes.index(axis) for axis in kept])
    values = values.reshape(
        [values.shape[kept.index(a)] if a in kept else 1 for a in _AXES[: _AXES.index(kept[-1]) + 1]]
    )
    if like is not None and like.name.lower().endswith(ENDINGS):
        source = _header(str(like))[0]
        image = make(values, source.get_best_affine())
        for kind in ("qform", "sform"):
            image.header[f"{kind}_code"] = source[f"{kind}_code"]
        image.header.set_xyzt_units(*source.get_xyzt_units())
    else:
        size = VoxelSize(1e3, 1e3) if pixel is None else pixel
        sides = (side / 1e3 for side in (size.width, size.height, size.depth or size.height))
        image = make(values, np.diag([*sides, 1.0]))
        image.header.set_xyzt_units("mm", "sec")
    content: bytes = image.to_bytes()
    return gzip.compress(content, mtime=0) if compressed else content
