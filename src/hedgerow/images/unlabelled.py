"""Whether a class is really what nobody painted.

napari, Labkit and ilastik write 0 where nothing was painted; here that value is 255 unless said otherwise. Whoever
forgets to say so would train on a class 0 that holds nearly everything.
"""

from collections.abc import Sequence

import numpy as np
from scipy import ndimage

from hedgerow.errors import QuestionError
from hedgerow.progress import Say

UNLABELLED = 255  # unless said otherwise
NEARLY_ALL = 0.9  # of the pixels: a class with more may be what nobody painted
TOUCHING = 0.05  # of the paint's outline: classes painted by hand lie apart, classes of a full label map touch
LONG = 8.0  # times as long as wide: strokes are, whole objects are not (a disc of pixels has about 5 by this measure)
LITTLE = 0.01  # of the pixels: so little paint is strokes, whatever its shape


def unlabelled_value(maps: Sequence[np.ndarray], asked: int | str | None, say: Say) -> int:
    """The label value that means "no label": as given; else by what label maps (H,W) look like, decided or asked."""
    if isinstance(asked, int):
        return asked
    value = unpainted_value(maps, UNLABELLED)
    if value is None:
        return UNLABELLED
    if asked == "auto":
        say(f"{value} is taken for unlabelled: it has nearly all pixels, and the other classes look like strokes")
        return value
    part = sum(int((labels == value).sum()) for labels in maps) / sum(labels.size for labels in maps)
    raise QuestionError(
        f"the labels have the value {value} at {part:.1%} of all pixels, and the other classes look like strokes: was"
        " nothing painted there?",
        [
            (f"If so, {value} means unlabelled", f"--unlabelled {value}", f"unlabelled={value}"),
            (f"if {value} is a class of its own", f"--unlabelled {UNLABELLED}", f"unlabelled={UNLABELLED}"),
        ],
    )


def unpainted_value(maps: Sequence[np.ndarray], unlabelled: int) -> int | None:
    """The class value that seems to mean "not painted" in label maps (H,W): 0, or None if there is no such value.

    It seems so if 0 has nearly all pixels and nothing has the unlabelled value, there are at least two other classes
    (to learn anything, one must paint two), and these look like strokes: they hardly touch each other, and are long
    and thin, or very few pixels.
    """
    n_pixels = sum(labels.size for labels in maps)
    n_zero = sum(int((labels == 0).sum()) for labels in maps)
    classes = set().union(*(np.unique(labels).tolist() for labels in maps)) - {0}
    if n_zero < NEARLY_ALL * n_pixels or len(classes) < 2 or unlabelled in classes or unlabelled == 0:
        return None
    outlines = [_outline(labels) for labels in maps]
    outside, between = sum(edges[0] for edges in outlines), sum(edges[1] for edges in outlines)
    if between > TOUCHING * (outside + between):
        return None
    if n_pixels - n_zero < LITTLE * n_pixels:
        return 0
    lengths = np.concatenate([_lengths(labels) for labels in maps])
    return 0 if np.average(lengths[:, 0], weights=lengths[:, 1]) > LONG else None


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
