"""Reading image files: PNG, JPEG, TIFF, NPY and Zarr.

Pillow, tifffile and zarr are imported where they are used: importing Hedgerow stays fast, and a machine
without one of them can still use the other formats.
"""

import logging
import os
import struct
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from hedgerow.errors import InputError
from hedgerow.files import PathLike, one_line
from hedgerow.images.arrays import Layout, to_labels

ENDINGS = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".npy", ".zarr")

_ZARR_METADATA = ("zarr.json", ".zarray", ".zgroup", ".zattrs")


def is_zarr_folder(path: PathLike) -> bool:
    """Whether the folder is one Zarr image, by its name or by the metadata inside."""
    if not os.path.isdir(path):
        return False
    named = os.fspath(path).lower().endswith(".zarr")
    return named or any(os.path.exists(os.path.join(path, name)) for name in _ZARR_METADATA)


def ending_of(path: PathLike) -> str:
    """The supported ending of a path in lower case, ".zarr" for a Zarr folder of any name, else ""."""
    if is_zarr_folder(path):
        return ".zarr"
    ending = Path(path).suffix.lower()
    return ending if ending in ENDINGS else ""


def unnamed_axes(shape: Sequence[int]) -> str:
    """Axis letters of an unnamed 2-D or 3-D array: channels are the smaller of the first and last axes."""
    if len(shape) == 2:
        return "YX"
    return "YXC" if shape[2] <= shape[0] else "CYX"


def read_image(path: PathLike) -> np.ndarray:
    """Read one 2-D image: (H,W) or (H,W,C), in the dtype of the file and native byte order.

    Alpha of a PNG is dropped and a palette becomes its colours; TIFF samples are all kept, since writers
    often call a fourth channel alpha when it is not.
    """
    return _read(Path(path), as_labels=False)


def read_channels(path: PathLike) -> np.ndarray:
    """Read a user's own channels, (F,H,W): an array file exactly as stored, other images channel by channel."""
    path = Path(path)
    if ending_of(path) == ".npy":
        with _reading(path):
            array = _load_npy(path)
            return array[None] if array.ndim == 2 else array
    image = read_image(path)
    return image[None] if image.ndim == 2 else np.moveaxis(image, -1, 0)


def read_label_file(path: PathLike) -> np.ndarray:
    """Read one label map, (H,W), in the dtype of the file; a palette gives its indices, not its colours."""
    path = Path(path)
    if ending_of(path) in (".jpg", ".jpeg"):
        raise InputError(
            f"cannot use {path} as labels: JPEG compression changes class values; save the labels as PNG or TIFF"
        )
    labels = _read(path, as_labels=True)
    if labels.ndim == 2:
        return labels
    grey = labels[..., 0]
    if labels.shape[2] in (3, 4) and all(np.array_equal(grey, labels[..., i]) for i in (1, 2)):
        return np.ascontiguousarray(grey)
    raise InputError(
        f"cannot use {path} as labels: found {labels.shape[2]} differing channels (a colour picture?),"
        " expected one class value per pixel; save the labels as a grey or palette PNG, or a one-channel TIFF"
    )


def _read(path: Path, as_labels: bool) -> np.ndarray:
    ending = ending_of(path)
    if not ending and os.path.exists(path):
        raise InputError(f"cannot read {path}: its ending is not one of {', '.join(ENDINGS)}; convert the file")
    with _reading(path), naming_missing_package(path):
        array = _READERS[ending](path, as_labels)
        return array.astype(array.dtype.newbyteorder("="), copy=False)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn whatever a reader raises into one sentence that names the file, and mute its warnings."""
    if not os.path.exists(path):
        raise InputError(f"cannot read {path}: there is no such file; check its name and folder")
    if os.path.isfile(path) and os.path.getsize(path) == 0:
        raise InputError(f"cannot read {path}: the file is empty (0 bytes); copy or save it again")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except InputError:
        raise
    except Exception as problem:
        raise InputError(
            f"cannot read {path}: {one_line(problem)}; expected a complete {ending_of(path)} file, so check"
            " that other programs open it, and save it again"
        ) from problem


@contextmanager
def naming_missing_package(path: Path) -> Iterator[None]:
    """Say which package this kind of file needs, if it is not installed."""
    try:
        yield
    except ModuleNotFoundError as missing:
        raise InputError(
            f"{path} needs the Python package {missing.name}, which is not installed; run pip install"
            f" {missing.name} or choose another format"
        ) from missing


def _read_png(path: Path, as_labels: bool) -> np.ndarray:
    from PIL.PngImagePlugin import PngImageFile

    # Not Image.open: it refuses large images unless a process-wide setting is changed.
    with open(path, "rb") as file, PngImageFile(file) as image:
        stored = _png_pixels(file)
        # Pillow would quietly keep only the upper 8 of these bits.
        if stored.bit_depth == 16 and image.mode not in ("I", "I;16", "I;16B"):
            raise InputError(
                f"cannot read {path}: found a PNG of several channels with 16 bits each, which would be cut"
                " to 8 bits; save it as TIFF"
            )
        array = np.array(image if as_labels and stored.is_palette else _without_alpha(image))
    if stored.bit_depth == 16:
        return array.astype(np.uint16, copy=False)  # older Pillow widens to int32
    if as_labels and stored.is_grey and stored.bit_depth in (2, 4):
        # Pillow stretches 2- and 4-bit greys to 0..255; class values must come back as stored.
        return array // (255 // (2**stored.bit_depth - 1))
    return array


@dataclass(frozen=True)
class _PngPixels:
    """How a PNG file stores a pixel, which Pillow's modes do not fully tell."""

    bit_depth: int
    is_grey: bool
    is_palette: bool


def _png_pixels(file: BinaryIO) -> _PngPixels:
    position = file.tell()
    file.seek(24)  # the header chunk always comes first
    bit_depth, colour_type = struct.unpack("BB", file.read(2))
    file.seek(position)
    return _PngPixels(bit_depth, is_grey=colour_type == 0, is_palette=colour_type == 3)


def _read_jpeg(path: Path, as_labels: bool) -> np.ndarray:
    from PIL.ImageOps import exif_transpose
    from PIL.JpegImagePlugin import JpegImageFile

    with open(path, "rb") as file, JpegImageFile(file) as image:
        return np.array(_without_alpha(exif_transpose(image)))


def _without_alpha(image: Any) -> Any:
    """A Pillow image as grey or RGB."""
    if image.mode in ("1", "L", "RGB") or image.mode.startswith("I"):
        return image
    return image.convert("L" if image.mode == "LA" else "RGB")


def _read_tiff(path: Path, as_labels: bool) -> np.ndarray:
    import tifffile

    with _tifffile_errors(tifffile.logger()) as errors, tifffile.TiffFile(path) as tiff:
        found = _main_series(tiff, path)
        # ImageJ stores a display table as a palette: there, the indices are the intensities.
        colours = None if as_labels or tiff.is_imagej else tiff.pages.first.colormap
    if errors:
        raise ValueError(errors[0])
    # Q is an axis of unknown meaning: often an (H,W,C) array was saved without naming its axes.
    array = _channels_last(found.data, "" if found.axes == "QYX" else found.axes, path)
    if colours is not None and array.ndim == 2:
        return np.moveaxis(colours[:, array], 0, -1)
    return array


@dataclass(frozen=True)
class _NamedArray:
    """An array (or a Zarr array still on disk) and its axis letters, "" where the file does not name them."""

    data: Any
    axes: str


def _main_series(tiff: Any, path: Path) -> _NamedArray:
    """The one image of a TIFF file; thumbnails and the smaller levels of a pyramid are ignored."""
    first, *others = tiff.series
    if others and not tiff.is_ome and all((s.axes, s.shape) == ("YX", first.shape) for s in tiff.series):
        return _NamedArray(np.stack([series.asarray() for series in tiff.series]), "CYX")
    if any(series.size >= first.size for series in others):
        raise InputError(
            f"cannot read {path}: found {1 + len(others)} images in one file, expected one; save one image per file"
        )
    return _NamedArray(first.asarray(), first.axes)


@contextmanager
def _tifffile_errors(logger: logging.Logger) -> Iterator[list[str]]:
    """Keep tifffile's messages off the screen and collect its errors.

    It merely logs that pages are missing from a truncated file, and returns the rest as if it were the image.
    """
    errors: list[str] = []
    reader = threading.get_ident()

    def keep_quiet(record: logging.LogRecord) -> bool:
        if record.thread == reader and record.levelno >= logging.ERROR:
            errors.append(record.getMessage())
        return False

    logger.addFilter(keep_quiet)
    try:
        yield errors
    finally:
        logger.removeFilter(keep_quiet)


def _load_npy(path: Path) -> np.ndarray:
    with open(path, "rb") as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _read_npy(path: Path, as_labels: bool) -> np.ndarray:
    return _channels_last(_load_npy(path), "", path)


def _read_zarr(path: Path, as_labels: bool) -> np.ndarray:
    import zarr

    found = _zarr_level_0(zarr.open(path, mode="r"), path)
    return _channels_last(np.asarray(found.data[...]), found.axes, path)


def _zarr_level_0(node: Any, path: Path) -> _NamedArray:
    """The full-size array of a Zarr array or an OME-Zarr (0.4, 0.5) group."""
    if hasattr(node, "shape"):
        names = getattr(node.metadata, "dimension_names", None) or ()
        return _NamedArray(node, _axis_letters(names))
    attributes = dict(node.attrs)
    multiscales = attributes.get("ome", attributes).get("multiscales")
    if multiscales:
        axes = [axis["name"] if isinstance(axis, dict) else axis for axis in multiscales[0].get("axes", ())]
        return _NamedArray(node[multiscales[0]["datasets"][0]["path"]], _axis_letters(axes))
    if "0" in node:  # converters often put the image one folder down
        return _zarr_level_0(node["0"], path)
    raise InputError(
        f"cannot read {path}: found a Zarr group without an OME multiscales entry, expected a Zarr array or"
        " OME-Zarr; give the path of the array inside it"
    )


def _axis_letters(names: Sequence[str | None]) -> str:
    """Axis names as letters, or "" if they do not say which axes are rows and columns."""
    letters = "".join((name or "?")[0].upper() for name in names)
    return letters if letters.count("Y") == letters.count("X") == 1 else ""


def _channels_last(array: np.ndarray, axes: str, path: Path) -> np.ndarray:
    """(H,W) or (H,W,C) from an array with the given axis letters ("" where the file does not name them)."""
    if not axes and array.ndim in (2, 3):
        axes = unnamed_axes(array.shape)
    if len(axes) != array.ndim or axes.count("Y") != 1 or axes.count("X") != 1:
        raise InputError(
            f"cannot read {path}: found an array of shape {array.shape}, expected one 2-D image, (H,W),"
            " (H,W,C) or (C,H,W); save one image per file"
        )
    lengths = {axis: length for axis, length in zip(axes, array.shape, strict=True) if axis not in "YX"}
    stacked = [f"{axis}={length}" for axis, length in lengths.items() if length > 1 and axis not in "CSQI"]
    if stacked or (len(axes) > 3 and axes.count("Q") + axes.count("I") > 1):
        raise InputError(
            f"cannot read {path}: found a stack with axes {axes} of shape {array.shape}, expected one 2-D"
            " image; save one plane per file, or name the axis C if it holds channels"
        )
    image = np.moveaxis(array, (axes.index("Y"), axes.index("X")), (0, 1))
    height, width = image.shape[:2]
    n_channels = int(np.prod(image.shape[2:]))
    return image.reshape(height, width) if n_channels == 1 else image.reshape(height, width, n_channels)


_READERS: dict[str, Callable[[Path, bool], np.ndarray]] = {
    ".png": _read_png,
    ".jpg": _read_jpeg,
    ".jpeg": _read_jpeg,
    ".tif": _read_tiff,
    ".tiff": _read_tiff,
    ".npy": _read_npy,
    ".zarr": _read_zarr,
}


def read_input(path: PathLike, layout: Layout) -> np.ndarray:
    """Read an image as planes (F,H,W), the user's own channels, or as a picture (H,W[,C])."""
    return read_channels(path) if layout == "planes" else read_image(path)


def read_labels(path: PathLike) -> np.ndarray:
    """Read a label map, (H,W) integers as in the file; whole numbers stored as floats become int32."""
    labels = read_label_file(path)
    if labels.dtype.kind == "b":
        return labels.astype(np.uint8)
    if labels.dtype.kind in "ui" and labels.size:
        return labels
    return to_labels(labels, os.fspath(path))
