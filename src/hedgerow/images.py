"""Images and labels as checked arrays, the pairing of their files, and the table of classes.

The names for reading and writing files are at hand here too: one import serves every user of images.
"""

import glob
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hedgerow.errors import InputError
from hedgerow.image_files import (
    ENDINGS,
    PathLike,
    ending_of,
    is_zarr_folder,
    read_channels,
    read_image,
    read_label_file,
)
from hedgerow.image_writing import atomic_path, check_folder_writable, make_folder, write_labels, write_planes

__all__ = [
    "MAX_CLASSES",
    "UNLABELLED_INDEX",
    "ClassTable",
    "Pair",
    "atomic_path",
    "check_folder_writable",
    "check_pair",
    "class_table",
    "encode_labels",
    "find_files",
    "make_folder",
    "pair_files",
    "read_channels",
    "read_image",
    "read_input",
    "read_labels",
    "stem_of",
    "to_labels",
    "to_planes",
    "write_labels",
    "write_planes",
]

UNLABELLED_INDEX = 255
MAX_CLASSES = 255
MAX_VALUE = 1e15  # squares of it, and sums of them, are still float32 numbers
FilesSpec = PathLike | Sequence[PathLike]

_LABEL_SUFFIX = re.compile(r"[ ._-](labels?|masks?|seg|segmentation|annotations?|gt)$", re.IGNORECASE)
_BINCOUNT_RANGE = 2**16  # values within such a range are counted without sorting the pixels


def to_planes(image: np.ndarray, name: str = "image", features: str = "bank") -> np.ndarray:
    """Check an image and return its planes, (C,H,W) float32, contiguous and writable.

    An image is (H,W) or (H,W,C), as `read_image` gives it; with features "channels" it is (F,H,W), the user's own.
    Memory is shared where possible.
    """
    array = _numeric_array(image, name)
    own_channels = features == "channels"
    if array.ndim not in ((3,) if own_channels else (2, 3)):
        expected = "(F,H,W)" if own_channels else "(H,W) or (H,W,C)"
        raise InputError(f"{name} has shape {array.shape}, expected {expected}; pass one 2-D image at a time")
    if array.ndim == 2:
        array = array[np.newaxis]
    elif not own_channels:
        array = np.moveaxis(array, 2, 0)
    with np.errstate(over="ignore"):  # what overflows is reported below
        planes = np.require(array, np.float32, ["C", "A", "W"])
    _check_finite(planes, array, name)
    return planes


def _numeric_array(values: np.ndarray, name: str) -> np.ndarray:
    """Any array of numbers that has elements."""
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as problem:
        raise InputError(f"{name} is not an array of numbers; pass an (H,W) or (H,W,C) array") from problem
    if array.dtype.kind not in "buif":
        raise InputError(f"{name} has dtype {array.dtype}, expected whole or real numbers; convert it first")
    if array.size == 0:
        raise InputError(f"{name} has shape {array.shape} and so no pixels; leave it out or save it again")
    return array


def _check_finite(planes: np.ndarray, original: np.ndarray, name: str) -> None:
    """Refuse NaN, infinities, and values too large to compute with; say how many and where the first is."""
    if original.dtype.kind != "f":
        return
    bad = ~(np.abs(planes) <= MAX_VALUE)  # NaN is not <= anything
    n_bad = int(np.count_nonzero(bad))
    if n_bad == 0:
        return
    channel, row, column = (int(i) for i in np.unravel_index(np.argmax(bad), bad.shape))
    value = original[channel, row, column]
    kind = f"too large ({value:g}, a fill value?)" if np.isfinite(value) else "NaN or infinite"
    raise InputError(
        f"{name} has {n_bad} value(s) that cannot be used, the first {kind} at row {row}, column {column} of"
        f" channel {channel}; replace them by finite numbers or rescale the image"
    )


def to_labels(labels: np.ndarray, name: str = "labels") -> np.ndarray:
    """Check a label map, (H,W), (H,W,1) or (1,H,W) of whole numbers; returns (H,W) int32, contiguous."""
    array = _numeric_array(labels, name)
    if array.ndim == 3 and 1 in (array.shape[2], array.shape[0]):
        array = array[..., 0] if array.shape[2] == 1 else array[0]
    if array.ndim != 2:
        raise InputError(f"{name} has shape {array.shape}, expected (H,W) with one class value a pixel")
    limits = np.iinfo(np.int32)
    # As Python numbers, since float32 rounds the limit up; NaN fails the comparison too.
    low, high = array.min().item(), array.max().item()
    if not (limits.min <= low and high <= limits.max):
        raise InputError(
            f"{name} has values from {low} to {high}, expected class values that fit 32-bit integers; is it"
            " an image rather than labels?"
        )
    whole = np.ascontiguousarray(array, dtype=np.int32)
    if array.dtype.kind == "f" and not np.array_equal(whole, array):
        row, column = (int(i) for i in np.argwhere(whole != array)[0])
        raise InputError(
            f"{name} has the value {array[row, column]:g} at row {row}, column {column}, expected whole"
            " numbers; is it an image rather than labels?"
        )
    return whole


def read_input(path: PathLike, features: str) -> np.ndarray:
    """Read an image for a model with these features: its own channels (F,H,W), or a picture (H,W[,C])."""
    return read_channels(path) if features == "channels" else read_image(path)


def read_labels(path: PathLike) -> np.ndarray:
    """Read a label map, (H,W) integers as in the file; whole numbers stored as floats become int32."""
    labels = read_label_file(path)
    if labels.dtype.kind == "b":
        return labels.astype(np.uint8)
    if labels.dtype.kind in "ui" and labels.size:
        return labels
    return to_labels(labels, os.fspath(path))


def find_files(spec: FilesSpec) -> list[Path]:
    """The image files that a folder, a file, a glob, or a sequence of these stands for.

    A folder gives its files with a supported ending in natural order, neither hidden ones nor those of its
    subfolders. A Zarr folder is one file.
    """
    specs = [spec] if isinstance(spec, str | os.PathLike) else list(spec)
    if not specs:
        raise InputError("no files were given; expected a folder, a file or a glob")
    return list(dict.fromkeys(path for one in specs for path in _expand(one)))


def _expand(spec: PathLike) -> list[Path]:
    text = os.path.expanduser(os.fspath(spec))
    if not text:
        raise InputError("an empty name was given for files; expected a folder, a file or a glob")
    path = Path(text)
    if os.path.isdir(path) and not is_zarr_folder(path):
        return _supported(_entries(path), text)
    if os.path.exists(path):
        return _supported([path], text)
    if any(character in text for character in "*?["):
        return _supported([Path(match) for match in glob.glob(text, recursive=True)], text)
    raise InputError(f"cannot find {text}: there is no such file or folder; check the spelling, or quote a glob")


def _entries(folder: Path) -> list[Path]:
    try:
        return [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    except OSError as problem:
        raise InputError(f"cannot list {folder}: {problem.strerror}; check its permissions") from problem


def _supported(paths: list[Path], spec: str) -> list[Path]:
    """Those that are image files, in natural order; there must be one."""
    found = [path for path in paths if ending_of(path) and (is_zarr_folder(path) or not path.is_dir())]
    if found:
        return sorted(found, key=_natural_key)
    held = f"found {len(paths)} other file(s)" if paths else "found nothing"
    raise InputError(f"no images in {spec}: {held}, expected names that end in {', '.join(ENDINGS)}")


def _natural_key(path: Path) -> tuple[list[str | int], str]:
    """Sorts img2 before img10."""
    text = str(path)
    parts = re.split("([0-9]+)", text.lower())  # every second part is a number
    return [int(part) if i % 2 else part for i, part in enumerate(parts)], text


def stem_of(path: PathLike) -> str:
    """The name without folder and supported ending: "a" for a.ome.tif, b/a.PNG and a.ome.zarr."""
    name = unicodedata.normalize("NFC", Path(path).name)  # macOS spells accents in two characters
    ending = next((ending for ending in ENDINGS if name.lower().endswith(ending)), "")
    stem = name[: len(name) - len(ending)]
    return stem[:-4] if ending in (".tif", ".tiff", ".zarr") and stem.lower().endswith(".ome") else stem


@dataclass(frozen=True)
class Pair:
    """An image file and the label file that belongs to it."""

    stem: str
    image: Path
    label: Path


def pair_files(images_spec: FilesSpec, labels_spec: FilesSpec) -> list[Pair]:
    """Pair images with labels by stem, in the order of the images; both specs are as in `find_files`.

    A label whose own stem fits no image may carry a usual suffix: a_mask.png belongs to a.jpg.
    """
    images, labels = _by_stem(find_files(images_spec)), _by_stem(find_files(labels_spec))
    partners = {stem: path for stem, path in labels.items() if stem in images}
    strays = []
    for stem, path in labels.items():
        plain = _LABEL_SUFFIX.sub("", stem)
        if stem in images:
            continue
        if plain in images and plain not in partners:
            partners[plain] = path
        else:
            strays.append(path)
    missing = [path for stem, path in images.items() if stem not in partners]
    if missing:
        raise InputError(
            f"{len(missing)} image(s) without a label of the same name: {_first_few(missing)}; expected, for"
            f" example, {stem_of(missing[0])}.png among the labels, so add them or leave these images out"
        )
    if strays:
        raise InputError(
            f"{len(strays)} label(s) without an image of the same name, or with one already paired:"
            f" {_first_few(strays)}; add the images or leave these labels out"
        )
    pairs = [Pair(stem, path, partners[stem]) for stem, path in images.items()]
    for pair in pairs:
        if os.path.realpath(pair.image) == os.path.realpath(pair.label):
            raise InputError(f"{pair.image} is given both as image and as label; give two different places")
    return pairs


def _by_stem(paths: Iterable[Path]) -> dict[str, Path]:
    by_stem: dict[str, Path] = {}
    for path in paths:
        stem = stem_of(path)
        if stem in by_stem:
            raise InputError(f"{by_stem[stem]} and {path} have the same name but for the ending; rename or remove one")
        by_stem[stem] = path
    return by_stem


def _first_few(paths: Sequence[Path], n: int = 3) -> str:
    more = f" and {len(paths) - n} more" if len(paths) > n else ""
    return ", ".join(str(path) for path in paths[:n]) + more


@dataclass(frozen=True)
class ClassTable:
    """The class values of a set of label maps in ascending order, and how many pixels each has."""

    values: tuple[int, ...]
    pixels: tuple[int, ...]
    unlabelled: int
    unlabelled_value: int

    def __str__(self) -> str:
        """A table of value, pixels and percent of the labelled pixels, then the unlabelled pixels."""
        total = sum(self.pixels)
        rows = [("class", "pixels", "percent")]
        for value, count in zip(self.values, self.pixels, strict=True):
            rows.append((str(value), f"{count:,}", f"{100 * count / total:.2f}"))
        rows.append(("unlabelled", f"{self.unlabelled:,}", f"(value {self.unlabelled_value})"))
        first, second, third = (max(len(row[i]) for row in rows) for i in range(3))
        return "\n".join(f"{a:>{first}}  {b:>{second}}  {c:>{third}}" for a, b, c in rows)


def class_table(labels: Sequence[np.ndarray], unlabelled: int = 255, names: Sequence[str] | None = None) -> ClassTable:
    """Count the classes of label maps, each (H,W); refuse what cannot be learned from."""
    total: Counter[int] = Counter()
    for index, one in enumerate(labels):
        name = names[index] if names is not None else f"label map {index + 1}"
        checked = to_labels(one, name)
        counts = _count_values(checked)
        if set(counts) == {unlabelled}:
            raise InputError(
                f"{name} has no labelled pixel: all {checked.size:,} have the unlabelled value {unlabelled};"
                " label some pixels, leave it out, or set another unlabelled value"
            )
        total.update(counts)
    n_unlabelled = total.pop(unlabelled, 0)
    values = tuple(sorted(total))
    if len(values) < 2:
        found = f"only the class value {values[0]}" if values else "no label map"
        raise InputError(
            f"the labels have {found} besides the unlabelled value {unlabelled}, expected at least 2 classes;"
            " label a second class, or, if that value is a class of yours, set another unlabelled value such as -1"
        )
    if len(values) > MAX_CLASSES:
        raise InputError(
            f"the labels have {len(values)} values, from {values[0]} to {values[-1]}, expected at most"
            f" {MAX_CLASSES} classes; they look like images or numbered objects, so give class values instead"
        )
    return ClassTable(values, tuple(total[value] for value in values), n_unlabelled, unlabelled)


def _count_values(labels: np.ndarray) -> dict[int, int]:
    """How many pixels each value of an int32 array has."""
    low = int(labels.min())
    if int(labels.max()) - low < _BINCOUNT_RANGE:
        counts = np.bincount(labels.ravel() - low)
        return {low + int(i): int(counts[i]) for i in np.flatnonzero(counts)}
    values, counts = np.unique(labels, return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


def check_pair(planes: np.ndarray, labels: np.ndarray, name: str) -> None:
    """Refuse an image (C,H,W) and labels (H,W) of different height or width."""
    if planes.shape[-2:] != labels.shape[-2:]:
        image_size, label_size = (f"{a.shape[-2]} rows x {a.shape[-1]} columns" for a in (planes, labels))
        raise InputError(
            f"{name}: the image has {image_size} and its labels {label_size}, expected the same; check the"
            " pairing or export the labels again at full size"
        )


def encode_labels(
    labels: np.ndarray, classes: Sequence[int], unlabelled: int | None = 255, name: str = "labels"
) -> np.ndarray:
    """Class values (H,W) to uint8 indices into `classes`; the unlabelled value becomes UNLABELLED_INDEX."""
    labels = np.asarray(labels)
    order = np.argsort(classes, kind="stable")
    ordered = np.asarray(classes, dtype=np.int64)[order]
    position = np.minimum(np.searchsorted(ordered, labels), len(ordered) - 1)
    indices = order.astype(np.uint8)[position]
    known = ordered[position] == labels
    if unlabelled is not None:
        without_label = labels == unlabelled
        indices[without_label] = UNLABELLED_INDEX
        known |= without_label
    if not known.all():
        unknown = [str(value) for value in np.unique(labels[~known])[:5]]
        row, column = (int(i) for i in np.argwhere(~known)[0][-2:])
        raise InputError(
            f"{name} has {np.count_nonzero(~known):,} pixel(s) of unknown class, values {', '.join(unknown)},"
            f" the first at row {row}, column {column}; expected {', '.join(str(c) for c in classes)}, or"
            f" {unlabelled} for unlabelled"
        )
    return indices
