"""Reads NRRD files with their header and pixels in one file, plain or compressed by gzip.

The format is a few lines of text before raw numbers, so this needs no package, and sizes are checked first.
"""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from math import prod
from typing import Any

import numpy as np

from hedgerow.errors import InputError, shown
from hedgerow.images.raw_values import RawValues
from hedgerow.images.remote import is_remote
from hedgerow.images.stored import ImageSpec, Stored, array_in_file
from hedgerow.images.voxel_size import VoxelSize, voxel_size

_MOST_HEADER = 2**20  # bytes
_TYPES = {
    **dict.fromkeys(("signed char", "int8", "int8_t"), "i1"),
    **dict.fromkeys(("uchar", "unsigned char", "uint8", "uint8_t"), "u1"),
    **dict.fromkeys(("short", "short int", "signed short", "signed short int", "int16", "int16_t"), "i2"),
    **dict.fromkeys(("ushort", "unsigned short", "unsigned short int", "uint16", "uint16_t"), "u2"),
    **dict.fromkeys(("int", "signed int", "int32", "int32_t"), "i4"),
    **dict.fromkeys(("uint", "unsigned int", "uint32", "uint32_t"), "u4"),
    **dict.fromkeys(("longlong", "long long", "long long int", "signed long long", "int64", "int64_t"), "i8"),
    **dict.fromkeys(("ulonglong", "unsigned long long", "unsigned long long int", "uint64", "uint64_t"), "u8"),
    "float": "f4",
    "double": "f8",
}
_RAW, _GZIP = ("raw",), ("gzip", "gz")
_SPATIAL = ("domain", "space")  # kinds of axes


def open_nrrd(spec: ImageSpec, files: ExitStack) -> Stored:
    """The image of a NRRD file."""
    path = spec.path
    if is_remote(path):
        raise InputError(f"cannot read {path}: NRRD is only read on this machine; copy it first.")
    header, end = _header(path)
    if "data file" in header or "datafile" in header:
        raise InputError(f"cannot read {path}: its pixels are in another file; save it as one file, NAME.nrrd.")
    kind, encoding = header.get("type", "").lower(), header.get("encoding", "").lower()
    if kind not in _TYPES or encoding not in _RAW + _GZIP or header.get("line skip", "0") != "0":
        raise InputError(
            f"cannot read {path}: found type {shown(kind, 40)} and encoding {shown(encoding, 40)}, expected whole or "
            "real numbers, raw or gzip; save it again as one of these."
        )
    order = ">" if header.get("endian", "little").lower() == "big" else "<"
    stored, sizes = np.dtype(order + _TYPES[kind]), [int(size) for size in header["sizes"].split()]
    if not sizes or min(sizes) < 1 or len(sizes) != int(header.get("dimension", len(sizes))):
        raise InputError(f"cannot read {path}: found sizes {shown(header['sizes'], 200)}; save it again.")
    skip = int(header.get("byte skip", header.get("byteskip", "0")))
    if encoding in _GZIP:
        array = RawValues(path, skip, tuple(reversed(sizes)), stored, gzipped=end)
    else:
        n_bytes = prod(sizes) * stored.itemsize
        start = os.path.getsize(path) - n_bytes if skip == -1 else end + skip
        array = RawValues(path, start, tuple(reversed(sizes)), stored)
    array.check()
    sides = _sides(header, len(sizes))
    own = _axes(header, sides, sizes)[::-1]
    size = _voxel_size(header, sides, own[::-1])
    return array_in_file(
        path, array, spec.axes_for(array.shape, own), chunks=array.chunks, block=prod(array.chunks) * stored.itemsize,
        voxel=lambda: size,
    )  # fmt: skip


def _header(path: str) -> tuple[dict[str, str], int]:
    """The fields of the header, and the byte after it."""
    with open(path, "rb") as file:
        begin = file.read(_MOST_HEADER)
    ends = re.search(rb"\r?\n\r?\n", begin)
    if not begin.startswith(b"NRRD") or ends is None:
        raise InputError(f"cannot read {path}: it does not begin with the header of a NRRD; save it again.")
    fields = {}
    for line in begin[: ends.start()].decode("utf-8", "replace").splitlines()[1:]:
        name, colon, value = line.partition(":")
        if colon and not line.startswith("#") and not value.startswith("="):  # not a comment, or a user's own value
            fields[name.strip().lower()] = value.strip()
    if "sizes" not in fields:
        raise InputError(f"cannot read {path}: its header names no sizes; save it again.")
    return fields, ends.end()


def _sides(header: Mapping[str, str], n_axes: int) -> list[float | None]:
    """The distance of neighbours along each axis, in the order of the file; None where it is not said."""
    sides = list[float | None]()
    with suppress(ValueError):
        if "space directions" in header:
            for vector in re.findall(r"none|\([^)]*\)", header["space directions"]):
                sides.append(None if vector == "none" else float(np.linalg.norm(_numbers(vector))))
        else:
            sides = [side if np.isfinite(side) else None for side in _numbers(header.get("spacings", ""))]
    return sides if len(sides) == n_axes else [None] * n_axes


def _numbers(text: str) -> list[float]:
    return [float(part) for part in re.split(r"[\s,]+", text.strip("() ")) if part]


def _axes(header: Mapping[str, str], sides: Sequence[float | None], sizes: Sequence[int]) -> str:
    """Letters of the axes in the order of the file: those of space are x, y and z, and another one is time or
    channels. "" if they are not clear."""
    kinds: Sequence[str] = header.get("kinds", "").lower().split()
    n_axes = len(sizes)
    if len(kinds) != n_axes or "???" in kinds:
        has_channels = n_axes == 4 or (n_axes == 3 and any(sides) and None in sides)
        if has_channels and sides.count(None) != 1:
            return ""
        kinds = ["list" if has_channels and side is None else "domain" for side in sides]
    space, letters = iter("XYZ"), ""
    for kind in kinds:
        letters += next(space, "?") if kind in _SPATIAL else "T" if kind == "time" else "C"
    return letters if len(set(letters)) == n_axes and "?" not in letters else ""


def _voxel_size(header: Mapping[str, str], sides: Sequence[float | None], axes: str) -> VoxelSize | None:
    """In the units that the file names; millimetres if it names none, as other programs take it."""
    side = dict(zip(axes, sides, strict=False))
    units: Any = ()
    with suppress(ValueError):
        units = shlex.split(header.get("space units", header.get("units", "")))
    unit = next((unit for unit in units if unit), "mm")
    return voxel_size(side.get("Y"), side.get("X"), unit, side.get("Z"))
