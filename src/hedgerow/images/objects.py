"""Finds and measures the objects of a label map: connected regions of one class."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import ndimage

from hedgerow.errors import ConfigError, InputError
from hedgerow.images.array_checks import check_pair, to_labels, to_planes
from hedgerow.images.cleaning import cleaned
from hedgerow.images.components import Connectivity, components
from hedgerow.images.legend import Legend
from hedgerow.images.regions import Region
from hedgerow.images.splitting import split_by_distance, split_by_proba
from hedgerow.images.voxel_size import VoxelSize

Split = Literal["distance", "proba"]
OBJECT_SPLITS = ("distance", "proba")
_BLOCK_PIXELS = 2**22  # pixels that are summed at once


@dataclass(frozen=True)
class Rules:
    """What counts as an object.

    background:   class value that has no objects; None: every class has
    min_size:     objects of fewer pixels take the class that they share most of their border with
    fill_holes:   holes of up to this many pixels take the class of the object around them
    split:        separate touching objects of a class, by their thickness or by the probability of the class
    connectivity: 8: pixels that share a corner belong together; 4: only pixels that share an edge
    """

    background: int | None = None
    min_size: int = 0
    fill_holes: int = 0
    split: Split | None = None
    connectivity: Connectivity = 8

    def __post_init__(self) -> None:
        for name in ("min_size", "fill_holes"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; give a number of pixels from 0.")
        if self.split not in (None, *OBJECT_SPLITS):
            raise ConfigError(f"split is {self.split!r}; choose one of {', '.join(OBJECT_SPLITS)}, or None.")
        if self.connectivity not in (4, 8):
            raise ConfigError(f"connectivity is {self.connectivity}; choose 4 or 8.")

    @property
    def cleans(self) -> bool:
        """Whether label maps are changed."""
        return self.min_size > 1 or self.fill_holes > 0

    def clean(self, labels: np.ndarray) -> np.ndarray:
        """A label map (H,W) without objects and holes that are too small; the same array if there are none."""
        return cleaned(labels, self.min_size, self.fill_holes, self.background, self.connectivity)


@dataclass(frozen=True)
class Objects:
    """The objects of an image. numbers: (H,W) int32, from 1 (0: no object); values: (N,) class of each object."""

    numbers: np.ndarray
    values: np.ndarray


def find_objects(labels: np.ndarray, rules: Rules, proba: np.ndarray | None = None) -> Objects:
    """The objects of a cleaned label map (H,W), in the order of their first pixels, row by row.

    proba: (H,W) probability of each pixel's class, for splitting
    """
    parts, values = components(labels, rules.connectivity)
    kept = np.ones(len(values), bool) if rules.background is None else values != rules.background
    rank = np.where(kept, np.cumsum(kept), 0).astype(np.int32)
    numbers, values = rank[parts], values[kept]
    if rules.split is None or not len(values):
        return Objects(numbers, values)
    if rules.split == "distance":
        split = split_by_distance(numbers, rules.min_size, rules.connectivity)
    elif proba is None:
        raise InputError("objects can be split by probability only if it is known; give the confidence as well.")
    else:
        split = split_by_proba(numbers, proba, rules.min_size, rules.connectivity)
    of_part = np.zeros(int(split.max()) + 1, values.dtype)
    inside = split > 0
    of_part[split[inside]] = values[numbers[inside] - 1]
    return Objects(split, of_part[1:])


@dataclass(frozen=True)
class MeasuredObject:
    """The measurements of an object.

    number:      counts from 1
    value, name: its class
    area:        pixels; area_um2: square micrometres, if the size of a pixel is known
    row, column: mean position; the centre of the first pixel is (0, 0)
    box:         the rows and columns that it spans, ends excluded
    major, minor: axes in pixels of the ellipse with the same second moments
    orientation: angle in radians from the rows' axis to the major axis, from -pi/2 to pi/2, counter-clockwise
    at_edge:     whether it touches the edge of the image, beyond which it may go on
    intensity:   mean of each channel of the image, if there is an image
    confidence:  mean probability of its class, if known
    """

    number: int
    value: int
    name: str
    area: int
    area_um2: float | None
    row: float
    column: float
    box: Region
    major: float
    minor: float
    orientation: float
    at_edge: bool = False
    intensity: tuple[float, ...] = ()
    confidence: float | None = None

    @property
    def eccentricity(self) -> float:
        """Of the ellipse: 0 for a circle, near 1 for a line."""
        return float(np.sqrt(1 - (self.minor / self.major) ** 2)) if self.major > 0 else 0.0

    @property
    def equivalent_diameter(self) -> float:
        """Of a disc with the same area, in pixels."""
        return float(np.sqrt(4 * self.area / np.pi))


@dataclass(frozen=True)
class ClassTotal:
    """All objects of a class in an image; fraction: their share of the pixels; other fields as in `MeasuredObject`."""

    value: int
    name: str
    n_objects: int
    area: int
    area_um2: float | None
    fraction: float
    intensity: tuple[float, ...] = ()
    confidence: float | None = None


@dataclass(frozen=True, eq=False)
class Measured:
    """The measurements of an image.

    totals:  one for each class that has objects
    labels:  (H,W) the label map after cleaning
    numbers: (H,W) int32 number of the object at each pixel; 0: no object
    """

    objects: tuple[MeasuredObject, ...]
    totals: tuple[ClassTotal, ...]
    labels: np.ndarray
    numbers: np.ndarray


def measure(
    labels: np.ndarray,
    image: np.ndarray | None = None,
    *,
    confidence: np.ndarray | None = None,
    background: int | None = None,
    min_size: int = 0,
    fill_holes: int = 0,
    split: Split | None = None,
    connectivity: Connectivity = 8,
    legend: Legend | None = None,
    pixel_size: VoxelSize | None = None,
) -> Measured:
    """Measure the area and position of each object of a label map (H,W), and its means of an image (H,W[,C]) and of a
    confidence (H,W), the probability of the class at each pixel.

    background: class value that has no objects; None: every class has
    min_size:   objects of fewer pixels take the class that they share most of their border with
    fill_holes: holes of up to this many pixels take the class of the object around them
    split:      separate touching objects of a class: "distance": where they are thin; "proba": where the probability
                of the class is low
    connectivity: 8: pixels that share a corner belong together; 4: only pixels that share an edge
    legend:     names of the classes
    pixel_size: gives areas in square micrometres

    >>> _, (labels,) = hr.synthetic.facades(n_images=1, size=(60, 80))
    >>> windows = [item for item in hr.measure(labels).objects if item.value == 1]
    >>> len(windows) > 1, all(window.area > 0 for window in windows)
    (True, True)
    """
    rules = Rules(background, min_size, fill_holes, split, connectivity)
    planes = None if image is None else to_planes(image)
    proba = None if confidence is None else to_planes(confidence, "the confidence")
    return measured(rules.clean(to_labels(labels)), rules, planes, proba, legend, pixel_size)


def measured(
    labels: np.ndarray,
    rules: Rules,
    planes: np.ndarray | None = None,
    proba: np.ndarray | None = None,
    legend: Legend | None = None,
    pixel: VoxelSize | None = None,
    name: str = "the label map",
    numbered: Objects | None = None,
) -> Measured:
    """`measure` for a cleaned label map (H,W), an image (C,H,W) and the probability (1,H,W) of each pixel's class.

    numbered: its objects; None: the connected regions of the label map
    """
    for array in (planes, proba):
        if array is not None:
            check_pair(array, labels, name)
    legend = legend or Legend()
    numbered = numbered or find_objects(labels, rules, None if proba is None else proba[0])
    n = len(numbered.values)
    area = _sums(numbered.numbers, n).astype(np.int64)
    height, width = labels.shape
    rows, columns = (
        _sums(numbered.numbers, n, np.broadcast_to(places, labels.shape))
        for places in (np.arange(height)[:, None], np.arange(width))
    )
    channels = np.array([_sums(numbered.numbers, n, plane) for plane in (() if planes is None else planes)])
    proba_sums = None if proba is None else _sums(numbered.numbers, n, proba[0])
    area_um2 = None if pixel is None else area * pixel.area
    axes = _ellipses(numbered.numbers, n, area, rows / area, columns / area)
    objects, totals = [], []
    for i, (down, across) in enumerate(ndimage.find_objects(numbered.numbers, n)):
        value, box = int(numbered.values[i]), Region(down.start, down.stop, across.start, across.stop)
        sizes = int(area[i]), None if area_um2 is None else float(area_um2[i])
        place = float(rows[i] / area[i]), float(columns[i] / area[i])
        means = tuple(float(total[i] / area[i]) for total in channels)
        confidence = None if proba_sums is None else float(proba_sums[i] / area[i])
        at_edge = box.top == 0 or box.left == 0 or box.bottom == height or box.right == width
        major, minor, angle = axes[i].tolist()
        shape = major, minor, angle
        objects.append(
            MeasuredObject(i + 1, value, legend.name(value), *sizes, *place, box, *shape, at_edge, means, confidence)
        )
    for value in np.unique(numbered.values).tolist():
        which = numbered.values == value
        whole = int(area[which].sum())
        sizes = whole, None if pixel is None else whole * pixel.area
        means = tuple(float(total[which].sum() / whole) for total in channels)
        confidence = None if proba_sums is None else float(proba_sums[which].sum() / whole)
        share = whole / labels.size
        totals.append(ClassTotal(value, legend.name(value), int(which.sum()), *sizes, share, means, confidence))
    return Measured(tuple(objects), tuple(totals), labels, numbered.numbers)


def _ellipses(numbers: np.ndarray, n: int, area: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """(n,3): axes and orientation of each object's ellipse, from its mean position."""
    if not n:
        return np.zeros((0, 3))
    height, width = numbers.shape
    means = np.concatenate([[0], rows]), np.concatenate([[0], columns])
    moments = np.zeros((3, n))
    step = max(_BLOCK_PIXELS // width, 1)
    for top in range(0, height, step):
        part = numbers[top : top + step]
        down = np.arange(top, top + len(part))[:, None] - means[0][part]
        across = np.arange(width) - means[1][part]
        for total, product in zip(moments, (down * down, across * across, down * across), strict=True):
            total += np.bincount(part.ravel(), product.ravel(), minlength=n + 1)[1:]
    down, across, both = moments / area
    middle, spread = (down + across) / 2, np.hypot((down - across) / 2, both)
    major, minor = 4 * np.sqrt(middle + spread), 4 * np.sqrt(np.maximum(middle - spread, 0))
    angle = 0.5 * np.arctan2(2 * both, down - across)
    return np.stack([major, minor, angle], axis=1)


def _sums(numbers: np.ndarray, n: int, values: np.ndarray | None = None) -> np.ndarray:
    """(n,) sum of the values (H,W) over each object, or its number of pixels; a few rows at a time, because sums take
    values as float64."""
    total, step = np.zeros(n + 1), max(_BLOCK_PIXELS // numbers.shape[1], 1)
    for top in range(0, len(numbers), step):
        rows = slice(top, top + step)
        weights = None if values is None else values[rows].ravel()
        total += np.bincount(numbers[rows].ravel(), weights, minlength=n + 1)
    return total[1:]
