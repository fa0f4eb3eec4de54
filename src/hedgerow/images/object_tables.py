"""Tables of measured objects as CSV: one with a row per object, and one with a row per image and class."""

import csv
import io
import os
import re
from collections.abc import Sequence
from pathlib import Path

from hedgerow.files import PathLike, write_text
from hedgerow.images.objects import ClassTotal, Measured, MeasuredObject

# A spreadsheet runs a cell that begins with one of these characters as a formula, and other people choose the names of
# classes and files. Some programs accept the full-width forms too, and in many countries a semicolon begins a new cell.
_FORMULA = re.compile(r"(^|;)(?=\s*[=+\-@＝＋－＠])")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")  # a tab or line break begins a new cell, too
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")


def csv_text(rows: Sequence[Sequence[object]]) -> str:
    """Rows as CSV without the last newline. None becomes an empty cell, real numbers have seven digits, and a text that
    a spreadsheet would run as a formula gets an apostrophe before it."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue().removesuffix("\n")


def _cell(value: object) -> object:
    if value is None or value != value:  # NaN
        return ""
    if isinstance(value, float):
        return f"{value:.7g}"
    if isinstance(value, str):  # the name of a file need not be valid text
        return _plain_text(os.fsencode(value).decode("utf-8", "backslashreplace"))
    return value


def _plain_text(text: str) -> str:
    text = _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
    is_number = _NUMBER.fullmatch(text)  # a class without a name is called by its number
    return text if is_number else _FORMULA.sub(r"\1'", text)


SPECK_PIXELS = 20  # smaller objects are often noise; a hint suggests this minimum
MIN_SPECKS, MIN_SPECK_FRACTION = 20, 0.5  # number and fraction of specks from which on the hint is given


def speck_hint(n_objects: int, n_specks: int, min_size: int) -> str:
    """A hint to use --min-size if most objects are specks, or "" if they are not or it was used."""
    if min_size > 0 or n_specks < max(MIN_SPECKS, MIN_SPECK_FRACTION * n_objects):
        return ""
    return (
        f"hint: {n_specks / n_objects:.0%} of the objects have fewer than {SPECK_PIXELS} pixels; to remove them, add "
        f"--min-size {SPECK_PIXELS}"
    )


class ObjectTables:
    """Collects the measurements of images, one after another, until they are written."""

    def __init__(self) -> None:
        self._objects: list[tuple[str, MeasuredObject]] = []
        self._images: list[tuple[str, dict[int, ClassTotal]]] = []
        self._names: dict[int, str] = {}
        self._n_channels = 0
        self._knows_confidence = False

    def __len__(self) -> int:
        return len(self._images)

    @property
    def n_objects(self) -> int:
        return len(self._objects)

    def n_below(self, n_pixels: int) -> int:
        """The number of objects with fewer pixels."""
        return sum(item.area < n_pixels for _, item in self._objects)

    def expect(self, names: dict[int, str]) -> None:
        """Give these classes a row for every image, even for images without objects of that class."""
        self._names |= names

    def add(self, image: str, measured: Measured) -> None:
        self._objects += [(image, item) for item in measured.objects]
        self._images.append((image, {total.value: total for total in measured.totals}))
        self._names |= {total.value: total.name for total in measured.totals}
        for total in measured.totals:
            self._n_channels = max(self._n_channels, len(total.intensity))
            self._knows_confidence |= total.confidence is not None

    def write(self, objects: PathLike, totals: PathLike) -> None:
        write_text(objects, csv_text(self._object_rows()))
        write_text(totals, csv_text(self._total_rows()))

    def _means_head(self) -> list[str]:
        numbers = [""] if self._n_channels == 1 else [f"_{i + 1}" for i in range(self._n_channels)]
        return [f"mean_intensity{n}" for n in numbers] + ["mean_confidence"] * self._knows_confidence

    def _means(self, item: MeasuredObject | ClassTotal | None) -> list[float | None]:
        intensity = () if item is None else item.intensity
        means = [*intensity, *[None] * (self._n_channels - len(intensity))]
        return means + [None if item is None else item.confidence] * self._knows_confidence

    def _object_rows(self) -> list[list[object]]:
        head = ["image", "object", "class", "class_name", "area_pixels", "area_um2"]
        places = ["centroid_row", "centroid_column", "top", "left", "bottom", "right", "at_edge"]
        shapes = ["equivalent_diameter_area", "axis_major_length", "axis_minor_length", "eccentricity", "orientation"]
        rows: list[list[object]] = [[*head, *places, *shapes, *self._means_head()]]
        for image, item in self._objects:
            box = item.box
            place = (item.row, item.column, box.top, box.left, box.bottom, box.right, int(item.at_edge))
            sizes = (item.area, item.area_um2)
            shape = (item.equivalent_diameter, item.major, item.minor, item.eccentricity, item.orientation)
            rows.append([image, item.number, item.value, item.name, *sizes, *place, *shape, *self._means(item)])
        return rows

    def _total_rows(self) -> list[list[object]]:
        head = ["image", "class", "class_name", "objects", "area_pixels", "area_um2", "fraction"]
        rows: list[list[object]] = [[*head, *self._means_head()]]
        for image, totals in self._images:
            for value in sorted(self._names):
                item = totals.get(value)
                sizes = (0, 0, None, 0.0) if item is None else (item.n_objects, item.area, item.area_um2, item.fraction)
                rows.append([image, value, self._names[value], *sizes, *self._means(item)])
        return rows


def totals_beside(objects: Path) -> Path:
    """The default name of the second table: table_totals.csv beside table.csv."""
    return objects.with_name(f"{objects.stem}_totals{objects.suffix or '.csv'}")
