"""Compares the metadata of a TIFF with the content of the file, before tifffile builds lists of pages from them."""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf, prod
from typing import Any
from xml.etree import ElementTree

import numpy as np

from hedgerow.errors import InputError

MOST_PLANES = 1_000_000  # of a stack over all its files; tifffile lists them
MOST_TEXT = 2**26  # bytes of metadata
MOST_MARKS = 2_500_000  # in such a text; about 20 for each plane in OME
MOST_IMAGES = 50_000  # that OME metadata describe, where they lie in other files
MOST_DEPTH = 100  # of nested elements; OME needs about 10
MOST_LEVELS = 100  # of a pyramid; about 10 are usual
_LARGE_NUMBER = 2**63
_MARKS = "<=&\r\n"  # of each, a parser makes an object or two: an element, an attribute, a piece of text
_SPARE_PLANES = 1000  # listed twice, as the colours of one page may be
_BIG_TAG = 20  # bytes of a directory's entry in a BigTIFF
# Width, length, meaning of the values, samples, rows of a strip, planes; width and length of a tile.
_SINGLE = (256, 257, 262, 277, 278, 284, 322, 323)
_VALUE_BYTES = {3: 2, 4: 4, 5: 8, 6: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}  # by type


def refuse_false_metadata(tiff: Any, path: str) -> None:
    """Raise InputError if metadata declare more planes than there can be, are too long, or are not plain text."""
    description = tiff.pages.first.tags.get("ImageDescription")
    if description is not None and description.count > MOST_TEXT:
        raise InputError(
            f"cannot read {path}: its metadata have {description.count:,} bytes, expected at most {MOST_TEXT:,};"
            " save it again without them."
        )
    _refuse_many_marks(tiff.pages.first.description, path)
    refuse_many_levels(tiff.pages.first)
    if tiff.is_ome:
        _check_ome(tiff, path)
    elif tiff.is_micromanager:
        _check_micromanager(tiff, path)


def _refuse_many_marks(text: str, path: str) -> None:
    n_marks = sum(map(text.count, _MARKS))
    if n_marks > MOST_MARKS:
        raise InputError(
            f"cannot read {path}: its metadata have {n_marks:,} elements, attributes and lines, expected at most"
            f" {MOST_MARKS:,}; save it again without them."
        )


def refuse_many_levels(page: Any) -> None:
    """Raise ValueError if a page has more smaller versions than a pyramid; tifffile reads them all at once."""
    n_levels = len(page.subifds or ())
    if n_levels > MOST_LEVELS:
        raise ValueError(f"one of its pages has {n_levels:,} smaller versions, expected at most {MOST_LEVELS}")


def bytes_of_tags(table: bytes, form: Any) -> int:
    """The number of bytes of all values of the tags in a directory, counting a sixteenth for texts, which are read as
    one value. Raises ValueError for a tag that has several values and needs one."""
    count = "Q" if form.tagsize == _BIG_TAG else "I"
    entry = struct.Struct(f"{form.byteorder}HH{count}{form.tagsize - 4 - struct.calcsize('=' + count)}x")
    n_bytes = 0
    for tag, kind, n_values in entry.iter_unpack(table[: len(table) // entry.size * entry.size]):
        if tag in _SINGLE and n_values != 1:
            raise ValueError(f"its tag {tag} has {n_values:,} values, expected one")
        n_bytes += n_values * _VALUE_BYTES[kind] if kind in _VALUE_BYTES else n_values // 16
    return n_bytes


def _check_ome(tiff: Any, path: str) -> None:
    text = tiff.ome_metadata or ""
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise InputError(
            f"cannot read {path}: its OME metadata define entities, which may expand to gigabytes; save it again."
        )
    reader = _Ome()
    try:
        parser = ElementTree.XMLParser(target=reader)
        parser.feed(text)
        parser.close()
    except (ElementTree.ParseError, ValueError) as problem:
        raise InputError(f"cannot read {path}: its OME metadata are damaged ({problem}); save it again.") from problem
    n_pages, n_images, n_listed = len(tiff.pages), len(reader.images), reader.n_listed(len(tiff.pages))
    most_images, most_listed = MOST_IMAGES, MOST_PLANES
    if not reader.has_other_files:
        n_samples = max(tiff.pages.first.samplesperpixel, 1)
        most_images, most_listed = n_pages, min(10 * n_pages * n_samples + _SPARE_PLANES, MOST_PLANES)
    if n_images > most_images:
        raise InputError(
            f"cannot read {path}: its metadata describe {n_images:,} images, expected at most {most_images:,}; save it"
            " again."
        )
    _refuse_planes(n_listed, path, most_listed)
    for image in reader.images:
        pages = [tiff.pages[i].aspage() for i in sorted(image.first_pages) if i < n_pages] or [tiff.pages.first]
        n_stacked = prod(length for axis, length in image.lengths.items() if axis not in ("SizeX", "SizeY"))
        n_planes = n_stacked // max(min(page.samplesperpixel for page in pages), 1)
        if n_planes > n_pages and not reader.has_other_files:
            raise planes_missing(path, n_planes - n_pages, n_planes)
        smallest = min(page.imagelength * page.imagewidth * page.samplesperpixel for page in pages)
        _refuse_planes(prod(image.lengths.values()) // max(smallest, 1), path)


def planes_missing(path: str, n_missing: int, n_planes: int) -> InputError:
    """The error for a stack with planes that are not in the file."""
    return InputError(
        f"cannot read {path}: {n_missing} of its {n_planes} planes are missing, perhaps because they are in other"
        " files; copy all files together, or save it again."
    )


def _refuse_planes(n_planes: float, path: str, most: int = MOST_PLANES) -> None:
    if n_planes > most:
        raise InputError(
            f"cannot read {path}: its metadata declare {n_planes:,.0f} planes, expected at most {most:,}; save"
            " it again, with fewer planes per file."
        )


@dataclass(frozen=True)
class _Image:
    """lengths: of its axes, by attributes such as SizeC; first_pages: the pages at which its runs of planes begin."""

    lengths: Mapping[str, int]
    first_pages: set[int] = field(default_factory=set)


class _Ome:
    """Counts in OME-XML, element by element, the planes that tifffile would list."""

    def __init__(self) -> None:
        self.images: list[_Image] = []
        self.has_other_files = False
        self._depth, self._own, self._listed, self._whole_files = 0, set[str](), 0.0, 0

    def n_listed(self, n_pages: int) -> float:
        """The number of planes that the metadata list; some elements list all pages of the file."""
        return self._listed + self._whole_files * n_pages

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise ValueError(f"more than {MOST_DEPTH} nested elements")
        name = tag.rpartition("}")[2]
        if name == "Pixels":
            self.images.append(_Image({key: _length(value) for key, value in attributes.items() if key[:4] == "Size"}))
        elif name == "TiffData":
            n_planes = _number(
                attributes.get("PlaneCount", attributes.get("NumPlanes", "1" if "IFD" in attributes else "0"))
            )
            self._listed += n_planes
            self._whole_files += n_planes == 0
            if self.images:
                self.images[-1].first_pages.add(_number(attributes.get("IFD", "0")))
        elif name == "UUID" and "FileName" in attributes:
            self._own.add(attributes["FileName"])
            self.has_other_files = len(self._own) > 1
        elif name[:-1].endswith("Along") and "Start" in attributes:
            step = abs(float(attributes.get("Step", 1)))
            length = abs(float(attributes["End"]) - float(attributes["Start"]))
            self._listed += length / step if step else inf

    def end(self, tag: str) -> None:
        self._depth -= 1

    def close(self) -> None:
        """Called by the parser at the end."""


def _number(text: str) -> int:
    number = int(text) if len(text) < 20 else _LARGE_NUMBER
    if not 0 <= number < _LARGE_NUMBER:
        raise ValueError(f"a count is {text[:40]}")
    return number


def _length(text: str) -> int:
    number = _number(text)
    if number < 1:
        raise ValueError("the length of an axis is 0")
    return number


def _check_micromanager(tiff: Any, path: str) -> None:
    """Check the number of planes that the summary or the largest index declares, all of which tifffile lists."""
    metadata = tiff.micromanager_metadata or {}
    summary, index = metadata.get("Summary") or {}, metadata.get("IndexMap")
    if index is None or not len(index):
        return
    largest: Iterable[int] = (np.max(index[:, :4], axis=0).astype(np.int64) + 1).tolist()
    names = ("Channels", "Slices", "Frames", "Positions")
    declared = (_number(str(summary.get(name, 1))) for name in names)
    _refuse_planes(prod(map(max, zip(largest, declared, strict=True))), path)
