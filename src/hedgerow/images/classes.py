"""What the values of label maps are: classes, which are counted; "no label"; or numbers of objects.

napari, Labkit and ilastik write 0 where nothing was painted, and other programs write -1; Hedgerow expects 255 by
default. A user who forgets to give the value would train on a class that holds nearly all pixels.

0 looks unpainted if all of these conditions hold:
- 0 has NEARLY_ALL of the pixels, no pixel has the value 255, and there are at least two other classes (training needs
  two).
- These classes hardly touch one another. Classes painted by hand lie apart; those of a full label map share borders.
- Their pieces are strokes, or have very few pixels, or are few enough to have been painted by hand.
- The image looks much the same on both sides of their outlines. A hand paints within an object, whereas the outline of
  an object that is labelled as a whole is an edge in the image.
If only the last condition fails, or if 0 has fewer pixels than that, training continues with a note.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal

import numpy as np
from scipy import ndimage

from hedgerow.errors import InputError, QuestionError, shown
from hedgerow.images.array_checks import MAX_CLASSES, filled_labels, nothing_labelled, to_labels
from hedgerow.images.components import components, pairs
from hedgerow.images.metrics import aligned, numbered_name
from hedgerow.images.regions import Region
from hedgerow.progress import Say

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
            raise nothing_labelled(name, unlabelled)
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
            " label a second class, or, if that value is one of your classes, set another unlabelled value such as -1."
        )
    if len(values) > MAX_CLASSES:
        raise InputError(
            f"the labels have {len(values)} values, from {values[0]} to {values[-1]}, expected at most"
            f" {MAX_CLASSES} classes; they look like images or numbered objects; for numbered objects, give labels > 0."
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


WHY_UNPAINTED = ", and the other classes look painted by hand"
UNLABELLED = 255  # by default
NEARLY_ALL = 0.9  # of the pixels: a class with more may be what nobody painted
MOST_PIXELS = 0.5  # of the pixels: a class with more deserves a note if the others look painted
TOUCHING_OUTLINE = 0.05  # of the paint's outline: classes painted by hand lie apart, classes of a full label map touch
STROKE_LENGTH = 8.0  # times the width: strokes are longer, whole objects are not (a disc has about 5 by this measure)
LITTLE_PAINT = 0.01  # of the pixels: so little paint is strokes, whatever its shape
FEW_PIECES, VERY_FEW_PIECES = 20, 3  # per class and image: at most painted by hand; a note even at edges
# Squared difference of the means across an outline, relative to the variance near it. The median over the pieces was 0
# to 0.48 for strokes and dabs, 0.5 and more for objects, in photographs and microscopy.
EDGE_CONTRAST = 0.5
RING_PIXELS = 3  # pixels on each side of an outline that are compared
MAX_PIECES, MAX_PIECE_PIXELS = 200, 2**22  # pieces whose outlines are compared, and pixels of the box around a piece

Looks = Literal["unpainted", "worth a note", "a class"]
ReadPlanes = Callable[[Region], np.ndarray]
"""Gives the planes (C,h,w) of an image in a region."""


def unlabelled_value(
    maps: Sequence[np.ndarray], images: Sequence[ReadPlanes], asked: int | str | None, say: Say
) -> int:
    """The label value that means "no label": the requested one, or the one that fits the label maps (H,W).

    images: the images of the maps, read near the outlines; empty: only the shapes of the labels decide
    asked:  a value, or None: 255, but a QuestionError is raised if another value looks unpainted; "auto": 255, or the
            value that looks unpainted
    """
    if isinstance(asked, int):
        return asked
    counts = Counter[int]()
    for labels in maps:
        counts.update(count_values(labels))
    if UNLABELLED in counts or len(counts) < 3:  # to learn anything, there must be two other classes
        return UNLABELLED
    if -1 in counts:
        part = counts[-1] / counts.total()
        return _decided(-1, part, "", "does it mean unlabelled?", asked, say)
    part = counts[0] / counts.total()
    looks = _looks_of_0(part, maps, images)
    if looks == "unpainted":
        return _decided(0, part, WHY_UNPAINTED, "was nothing painted there?", asked, say)
    if looks == "worth a note":
        say(
            f"note: {part:.1%} of all pixels have the label 0, which is learned as a class; if nothing was painted "
            "there, add --unlabelled 0 (in Python unlabelled=0)"
        )
    return UNLABELLED


def are_solid(maps: Sequence[np.ndarray]) -> bool:
    """Whether the labels of volumes (Z,H,W), other than 0, mostly go on in the next slice, as those of whole objects
    do: strokes are painted on single slices. Then 0 is a class, unless another value means that nothing was painted."""
    if maps[0].ndim != 3 or any((labels < 0).any() for labels in maps):
        return False
    painted = goes_on = 0
    for labels in maps:
        same = (labels[1:] == labels[:-1]) & (labels[1:] != 0)
        goes_on += int(same.sum())
        painted += int(np.count_nonzero(labels))
    return goes_on > painted / 2


def _decided(value: int, part: float, why: str, question: str, asked: str | None, say: Say) -> int:
    """The value, if the user requested "auto"; otherwise raise the question. part: fraction of pixels with the value"""
    if asked == "auto":
        say(f"{value} is taken for unlabelled: it has {part:.1%} of all pixels{why}")
        return value
    raise QuestionError(
        f"the labels have the value {value} at {part:.1%} of all pixels{why}: {question}",
        [
            ("If so", f"--unlabelled {value}", f"unlabelled={value}"),
            (f"if {value} is a class of its own", f"--unlabelled {UNLABELLED}", f"unlabelled={UNLABELLED}"),
        ],
    )


def _looks_of_0(part: float, maps: Sequence[np.ndarray], images: Sequence[ReadPlanes]) -> Looks:
    """What 0 looks like in label maps (H,W) with at least two other classes. part: fraction of pixels that are 0"""
    if part < MOST_PIXELS:
        return "a class"
    outlines = [_outline(labels) for labels in maps]
    outside, between = sum(edges[0] for edges in outlines), sum(edges[1] for edges in outlines)
    if between > TOUCHING_OUTLINE * (outside + between):
        return "a class"
    lengths = np.concatenate([_lengths(labels) for labels in maps])
    pieces_of_class = len(lengths) / sum(len(count_values(labels).keys() - {0}) for labels in maps)
    are_strokes = np.average(lengths[:, 0], weights=lengths[:, 1]) > STROKE_LENGTH or 1 - part < LITTLE_PAINT
    contrasts = [value for labels, read in zip(maps, images, strict=False) for value in _contrasts(labels, read)]
    if not contrasts:
        return "unpainted" if are_strokes and part >= NEARLY_ALL else "a class"
    if np.median(contrasts) < EDGE_CONTRAST:
        if not are_strokes and pieces_of_class > FEW_PIECES:
            return "a class"
        return "unpainted" if part >= NEARLY_ALL else "worth a note"
    return "worth a note" if part >= NEARLY_ALL and pieces_of_class <= VERY_FEW_PIECES else "a class"


def _outline(labels: np.ndarray) -> tuple[int, int]:
    """Pixel edges between paint and 0, and between paint of different classes."""
    outside = between = 0
    for axis in (0, 1):
        here, there = (np.moveaxis(labels, axis, 0)[part] for part in (slice(1, None), slice(-1)))
        differ = here != there
        is_painted = differ & (here != 0) & (there != 0)
        between += int(is_painted.sum())
        outside += int(differ.sum()) - int(is_painted.sum())
    return outside, between


def _lengths(labels: np.ndarray) -> np.ndarray:
    """(N,2) for each connected piece of paint: its length relative to its width, and its pixels.

    A stroke of length l and width w has an outline of about 2 l and an area of l w, so l / w is outline^2 / (4 area).
    """
    pieces, n = ndimage.label(labels != 0)
    area = np.bincount(pieces.ravel(), minlength=n + 1)[1:]
    framed = np.pad(pieces, 1)
    outline = np.zeros(n + 1)
    for axis in (0, 1):
        here, there = (np.moveaxis(framed, axis, 0)[part] for part in (slice(1, None), slice(-1)))
        differ = here != there
        outline += np.bincount(here[differ], minlength=n + 1) + np.bincount(there[differ], minlength=n + 1)
    return np.stack([outline[1:] ** 2 / (4 * np.maximum(area, 1)), area], axis=1)


def _contrasts(labels: np.ndarray, read: ReadPlanes) -> list[float]:
    """For each piece of paint, the squared difference between the image's means on both sides of its outline, relative
    to the variance there; about 0 if both sides look the same."""
    pieces, _ = ndimage.label(labels != 0)
    whole, contrasts = Region.whole(labels.shape), []
    boxes = [
        (number, Region(rows.start, rows.stop, columns.start, columns.stop).grown(RING_PIXELS + 1, whole))
        for number, (rows, columns) in enumerate(ndimage.find_objects(pieces), 1)
    ]
    boxes = [(number, box) for number, box in boxes if box.height * box.width <= MAX_PIECE_PIXELS]
    step = -(-len(boxes) // MAX_PIECES) or 1
    for number, box in boxes[::step]:
        piece = box.of(pieces) == number
        outer = ndimage.binary_dilation(piece, iterations=RING_PIXELS) & (box.of(labels) == 0)
        inner = piece & ~ndimage.binary_erosion(piece, iterations=RING_PIXELS, border_value=1)
        if inner.any() and outer.any() and inner.sum() + outer.sum() > 2:
            contrasts.append(_contrast(read(box), inner, outer))
    return contrasts


def _contrast(planes: np.ndarray, inner: np.ndarray, outer: np.ndarray) -> float:
    """The mean over the channels (C,h,w) that are not constant."""
    within, without = planes[:, inner].astype(np.float64), planes[:, outer].astype(np.float64)
    n_within, n_without = within.shape[1], without.shape[1]
    difference = (within.mean(axis=1) - without.mean(axis=1)) ** 2
    variance = (n_within * within.var(axis=1) + n_without * without.var(axis=1)) / (n_within + n_without - 2)
    ratio = np.divide(difference, variance, out=np.where(difference > 0, np.inf, 0.0), where=variance > 0)
    return float(np.minimum(ratio, 4).mean()) - 1 / n_within - 1 / n_without  # less the part that noise explains


MIN_NUMBERS = 8  # fewer values may well be classes
MAX_TORN = 0.1  # fraction of surplus pieces: an object is in several pieces if another one cuts it
MIN_ALIKE = 0.8  # fewest numbers in an image, as a fraction of the most: some parts of an animal may lie outside
MAX_TOUCHING = 0.5  # of the outlines in a single map: numbered parts of a whole touch one another, objects rarely do


def look_numbered(maps: Sequence[np.ndarray], unlabelled: int) -> bool:
    """Whether label maps (H,W) seem to hold numbers of objects: 1, 2, 3, ..., each in one connected piece, and not
    about the same numbers in all images."""
    numbers = [sorted(count_values(labels).keys() - {0, unlabelled}) for labels in maps]
    if max(map(len, numbers)) < MIN_NUMBERS or any(n and n[0] < 1 for n in numbers):
        return False
    if any(n[-1] > 2 * len(n) for n in numbers if n):  # some may have been removed, but most numbers are there
        return False
    if len(maps) > 1 and min(map(len, numbers)) >= MIN_ALIKE * max(map(len, numbers)):  # parts of an animal
        return False
    if len(maps) == 1 and _touching(maps[0]) > MAX_TOUCHING:
        return False
    n_numbers = n_pieces = 0
    for labels, of_map in zip(maps, numbers, strict=True):
        _, values = components(labels)
        n_numbers += len(of_map)
        n_pieces += int(np.isin(values, of_map).sum())
    return n_pieces <= (1 + MAX_TORN) * n_numbers


def _touching(labels: np.ndarray) -> float:
    """The fraction of the outlines between different values that is between two values other than 0."""
    between = outlines = 0
    for step in ((0, 1), (1, 0)):
        here, there = pairs(labels, step)
        differ = here != there
        outlines += int(differ.sum())
        between += int((differ & (here != 0) & (there != 0)).sum())
    return between / max(outlines, 1)
