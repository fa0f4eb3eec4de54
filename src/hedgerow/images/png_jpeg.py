"""Reads PNG and JPEG files with Pillow."""

import os
import struct
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, BinaryIO

import numpy as np

from hedgerow.errors import InputError
from hedgerow.images.remote import open_file
from hedgerow.images.stored import ImageSpec, Page, Stored, channels_first
from hedgerow.images.voxel_size import from_density

_PNG_SIGNATURE = 8  # bytes, before the first chunk
_GREY, _INDEXED = 0, 3  # colour types of a PNG
_ORIENTATION, _ON_ITS_SIDE = 0x0112, (5, 6, 7, 8)  # EXIF tag, and its values that exchange height and width


def open_png(spec: ImageSpec, files: ExitStack) -> Stored:
    """A PNG. Indices into a palette become colours, or stay as they are in labels; alpha is dropped."""
    from PIL.PngImagePlugin import PngImageFile

    # Not Image.open, which refuses large images by a setting of the whole process; we have our own limit.
    file = files.enter_context(open_file(spec.path))
    _refuse_long_chunks(file)
    image = PngImageFile(file)
    files.callback(image.close)
    bit_depth, colour_type = _png_pixels(file)
    # Pillow would silently keep only the upper 8 of these bits.
    if bit_depth == 16 and image.mode not in ("I", "I;16", "I;16B"):
        raise InputError(
            f"cannot read {spec.path}: it is a PNG with several channels of 16 bits, which would be cut to 8 bits;"
            " save it as TIFF."
        )
    is_labels = spec.layout == "labels"
    as_indices = is_labels and colour_type == _INDEXED

    def load(chosen: Sequence[int]) -> np.ndarray:
        array = np.array(image if as_indices else _without_alpha(image))
        if bit_depth == 16:
            array = array.astype(np.uint16, copy=False)  # older Pillow widens to int32
        elif is_labels and colour_type == _GREY and bit_depth in (2, 4):
            # Pillow stretches greys of 2 and 4 bits to 0..255; class values must stay as they were stored.
            array = array // (255 // (2**bit_depth - 1))
        return channels_first(array, "YXS"[: array.ndim])

    is_grey = as_indices or image.mode in ("1", "L", "LA") or bit_depth == 16
    dtype = np.dtype(np.uint16 if bit_depth == 16 else np.uint8)
    page = Page(image.height, image.width, 1 if is_grey else 3, dtype, is_colour=not is_grey)
    palette = _palette(image) if as_indices else {}
    across, down = image.info.get("dpi", (0, 0))  # from the chunk pHYs, if it gives a unit
    return Stored((page,), load, voxel=lambda: from_density(down, across, "inch"), palette=palette)


def _refuse_long_chunks(file: BinaryIO) -> None:
    """Raise ValueError if a chunk of a PNG declares more bytes than the file has, which Pillow would allocate."""
    size = os.fstat(file.fileno()).st_size
    file.seek(_PNG_SIGNATURE)
    while len(head := file.read(8)) == 8 and head[4:] != b"IEND":
        (length,) = struct.unpack(">I", head[:4])
        if length > size:
            raise ValueError(f"one of its chunks declares {length:,} bytes, more than the file has")
        file.seek(length + 4, os.SEEK_CUR)  # to the end of the checksum
    file.seek(0)


def _png_pixels(file: BinaryIO) -> tuple[int, int]:
    """Bit depth and colour type of a PNG, which Pillow's modes do not fully describe."""
    position = file.tell()
    file.seek(24)  # the header chunk always comes first
    bit_depth, colour_type = struct.unpack("BB", file.read(2))
    file.seek(position)
    return bit_depth, colour_type


def _palette(image: Any) -> dict[int, tuple[int, int, int]]:
    """Index -> colour; empty for a ramp of greys, which nobody chose."""
    if image.palette is None:
        return {}
    # Not `getpalette`, which first makes room for all pixels, however many the file declares.
    content = bytes(image.palette.palette)
    colours = np.frombuffer(content[: len(content) // 3 * 3], np.uint8).astype(np.int64).reshape(-1, 3)
    if not (colours[:, :1] != colours[:, 1:]).any():
        return {}
    return {index: (int(r), int(g), int(b)) for index, (r, g, b) in enumerate(colours)}


def open_jpeg(spec: ImageSpec, files: ExitStack) -> Stored:
    """A JPEG, turned upright according to its camera."""
    from PIL.ImageOps import exif_transpose
    from PIL.JpegImagePlugin import JpegImageFile

    image = JpegImageFile(spec.path)
    files.callback(image.close)

    def load(chosen: Sequence[int]) -> np.ndarray:
        array = np.array(_without_alpha(exif_transpose(image)))
        return channels_first(array, "YXS"[: array.ndim])

    is_grey = image.mode == "L"
    is_turned = image.getexif().get(_ORIENTATION, 1) in _ON_ITS_SIDE
    height, width = (image.width, image.height) if is_turned else (image.height, image.width)
    page = Page(height, width, 1 if is_grey else 3, np.dtype(np.uint8), is_colour=not is_grey)
    return Stored((page,), load)


def _without_alpha(image: Any) -> Any:
    """A Pillow image as grey or RGB."""
    if image.mode in ("1", "L", "RGB") or image.mode.startswith("I"):
        return image
    return image.convert("L" if image.mode == "LA" else "RGB")
