"""Finds and counts the classes of a set of label maps."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from hedgerow.errors import InputError, shown
from hedgerow.images.array_checks import MAX_CLASSES, filled_labels, to_labels

_BINCOUNT_RANGE = 2**16  # values within a range of this length are counted without sorting the pixels
_INT32 = np.iinfo(np.int32)


def is_label(value: Any) -> bool:
    """Whether a label map can hold a value: a whole number of Python or NumPy with at most 32 bits."""
    return isinstance(value, Integral) and not isinstance(value, bool) and _INT32.min <= int(value) <= _INT32.max


def check_unlabelled(value: Any) -> int:
    """The label value that means "no label"; InputError unless a label map can hold it."""
    if is_label(value):
        return int(value)
    raise InputError(
        f"the unlabelled value is {shown(value, 40)}; it must be a whole number from {_INT32.min} to"
        f" {_INT32.max}, e.g. 255 or -1."
    )


def check_unlabelled_or_ask(asked: Any) -> int | str | None:
    """The value that a caller gives for "no label", checked; None and "auto" are returned as they are."""
    if asked is None or (isinstance(asked, str) and asked == "auto"):
        return asked
    return check_unlabelled(asked)


def check_background(background: int | None, classes: Sequence[int], owner: str) -> None:
    """Raise InputError unless the background is one of the classes; owner: whose classes they are, for the message"""
    if background is not None and background not in classes:
        known = ", ".join(map(str, classes))
        raise InputError(f"the background is {background}; it must be one of the classes of {owner}: {known}.")


@dataclass(frozen=True)
class ClassTable:
    """The class values of a set of label maps in ascending order, and the number of pixels of each."""

    values: tuple[int, ...]
    pixels: tuple[int, ...]
    unlabelled: int
    unlabelled_value: int

    def __str__(self) -> str:
        return self.text()

    def text(self, names: Mapping[int, str] | None = None) -> str:
        """A table of the classes, with their pixels and percentages of labelled pixels, then the unlabelled pixels."""
        total, names = sum(self.pixels), names or {}
        rows = [("class", "pixels", "percent")]
        for value, count in zip(self.values, self.pixels, strict=True):
            rows.append((numbered_name(value, names), f"{count:,}", f"{100 * count / total:.2f}"))
        rows.append(("unlabelled", f"{self.unlabelled:,}", f"(value {self.unlabelled_value})"))
        return aligned(rows)


def numbered_name(value: int, names: Mapping[int, str]) -> str:
    """A class value, followed by its name if it has one."""
    return f"{value} {names[value]}" if value in names else str(value)


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as lines, with each column aligned at its right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.rjust, row, widths)) for row in rows)


def class_table(
    labels: Sequence[np.ndarray] | np.ndarray, unlabelled: int = 255, names: Sequence[str] | None = None
) -> ClassTable:
    """Count the classes of one label map (H,W) or of several; refuse maps from which nothing can be learned.

    >>> print(hr.class_table(np.array([[0, 0, 1], [1, 255, 1]])))
         class  pixels      percent
             0       2        40.00
             1       3        60.00
    unlabelled       1  (value 255)
    """
    unlabelled = check_unlabelled(unlabelled)
    labels = [np.asanyarray(labels)] if getattr(labels, "ndim", None) == 2 else labels
    names = names if names is not None else [f"label map {i + 1}" for i in range(len(labels))]
    maps = [to_labels(filled_labels(values, unlabelled), name) for values, name in zip(labels, names, strict=True)]
    return count_classes(maps, unlabelled, names)


def count_classes(labels: Sequence[np.ndarray], unlabelled: int, names: Sequence[str]) -> ClassTable:
    """`class_table` for label maps that `to_labels` has checked."""
    total: Counter[int] = Counter()
    for checked, name in zip(labels, names, strict=True):
        counts = count_values(checked)
        if set(counts) == {unlabelled}:
            raise InputError(
                f"{name} has no labelled pixel: all {checked.size:,} have the unlabelled value {unlabelled};"
                " label some pixels, leave it out, or set another unlabelled value"
            )
        total.update(counts)
    return table_of(total, unlabelled)


def table_of(counts: Mapping[int, int], unlabelled: int) -> ClassTable:
    """The classes of label maps whose values were counted; refuses maps from which nothing can be learned."""
    total = dict(counts)
    n_unlabelled = total.pop(unlabelled, 0)
    values = tuple(sorted(total))
    if len(values) < 2:
        content = f"only the class value {values[0]}" if values else "no label map"
        raise InputError(
            f"the labels have {content} besides the unlabelled value {unlabelled}, expected at least 2 classes;"
            " label a second class, or, if that value is one of your classes, set another unlabelled value such as -1"
        )
    if len(values) > MAX_CLASSES:
        raise InputError(
            f"the labels have {len(values)} values, from {values[0]} to {values[-1]}, expected at most"
            f" {MAX_CLASSES} classes; they look like images or numbered objects; for numbered objects, give labels > 0"
        )
    return ClassTable(values, tuple(total[value] for value in values), n_unlabelled, unlabelled)


def check_n_classes(n_classes: int, max_classes: int, labels: str = "the labels") -> None:
    """Refuse labels with so many values that they are probably not class numbers."""
    if n_classes > max_classes:
        raise InputError(
            f"{labels} have {n_classes} different values and at most {max_classes} classes were expected: are they "
            "numbered objects (give each kind of object one value), are the folders swapped, or are the edges of the "
            "labels smoothed? If not, raise max_classes (--max-classes)."
        )


def count_values(labels: np.ndarray) -> dict[int, int]:
    """The number of pixels with each value in an int32 array."""
    low = int(labels.min())
    if int(labels.max()) - low < _BINCOUNT_RANGE:
        counts = np.bincount(labels.ravel() - low)
        return {low + int(i): int(counts[i]) for i in np.flatnonzero(counts)}
    values, counts = np.unique(labels, return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))
