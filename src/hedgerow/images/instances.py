"""Objects as they are learned and as they are found: classes from numbered objects, and numbered objects from the
probabilities of classes.

Both directions share one convention: a class named "boundary" holds the pixels near a touching neighbour. They belong
to the objects, and separate them. It is made from numbered objects, or painted by hand.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import ndimage

from hedgerow.errors import ConfigError, InputError
from hedgerow.images.array_checks import to_planes
from hedgerow.images.cleaning import cleaned
from hedgerow.images.components import components
from hedgerow.images.legend import Legend
from hedgerow.images.objects import Objects
from hedgerow.images.splitting import split_at_dips

LabelKind = Literal["classes", "objects"]
"""Whether the values of label maps are classes, or numbers of objects with 0 for the background."""
BACKGROUND, BOUNDARY = "background", "boundary"
OBJECT_CLASSES = (BACKGROUND, "object", BOUNDARY)
OBJECT_LEGEND = Legend(dict(enumerate(OBJECT_CLASSES)), {0: (0, 0, 0), 1: (64, 160, 255), 2: (255, 160, 0)})
BOUNDARY_PIXELS = 2  # from a touching neighbour; wide enough for a forest to see, narrow enough for nuclei of 10 pixels
UNLABELLED_OBJECTS = -1  # numbered objects may have any positive number, 255 included

SMOOTHING_PIXELS = 0.7  # of the probabilities, whose pixels are noisier than their edges
IS_OBJECT, SURELY_OBJECT = 0.5, 0.8  # probabilities of all pixels of an object, and of at least one
DISTANCE_WEIGHT = 1.5  # of the distance from the edge, in radii, beside the probability of being inside
FLAT_FROM = 1.2  # radii from the edge: farther inside, the distance says nothing more
BLUR_FRACTION, MIN_BLUR_PIXELS = 0.1, 0.7  # of the diameter: heights are smoothed first
MIN_DIP = 0.1  # of the height, from 0 to about 3: a shallower dip does not separate two peaks
MIN_AREA_FRACTION = 0.06  # of a disc with the typical diameter: smaller objects are specks, smaller holes are filled


@dataclass(frozen=True)
class Finding:
    """How objects are found in probabilities.

    diameter:   of a typical object in pixels; None: estimated in each image
    min_size:   smaller objects, in pixels, are left out; 0: those below 6 % of a disc with the typical
                diameter
    max_size:   larger objects are left out; 0: none
    fill_holes: holes of up to this many pixels belong to the object around them; never fewer than the smallest object
    min_dip:    how deep the dip between touching objects must be for them to be separate: 0 splits at each bump, 3
                nowhere
    """

    diameter: float | None = None
    min_size: int = 0
    max_size: int = 0
    fill_holes: int = 0
    min_dip: float = MIN_DIP

    def __post_init__(self) -> None:
        if self.diameter is not None and not 1 <= self.diameter < 1e6:
            raise ConfigError(f"the diameter is {self.diameter:g}; give that of a typical object in pixels, from 1.")
        for name in ("min_size", "max_size", "fill_holes"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; give a number of pixels from 0.")
        if self.max_size and self.max_size < self.min_size:
            raise ConfigError(f"max_size is {self.max_size}, below min_size, {self.min_size}; no object would be left.")
        if not self.min_dip >= 0:
            raise ConfigError(f"min_dip is {self.min_dip}; give a number from 0 (split at each bump) to 3 (never).")


@dataclass(frozen=True)
class Kinds:
    """Which planes of the probabilities are objects and which is the boundary between them; values: of the objects."""

    planes: tuple[int, ...]
    values: tuple[int, ...]
    boundary: int | None = None


def kinds_of(
    classes: Sequence[int], legend: Legend, wanted: Sequence[str] = (), background: int | None = None
) -> Kinds:
    """The classes that are objects: those wanted, by name or value, or all but the background and the boundary.

    background: None: the class of that name, or 0 if there is none
    """
    named = {legend.name(value).lower(): value for value in classes} | {str(value): value for value in classes}
    boundary = named.get(BOUNDARY)
    values = []
    for name in wanted:
        if name.lower() not in named:
            known = ", ".join(legend.name(value) for value in classes)
            raise InputError(f"there is no class {name!r} to find objects of; the classes are {known}.")
        values.append(named[name.lower()])
    if not wanted:
        background = named.get(BACKGROUND, named.get("0")) if background is None else background
        if background is None:
            raise InputError(
                f"no class is called {BACKGROUND!r} or has the value 0, so it is not known which are objects; name "
                'them (--objects NAME, in Python classes=["NAME"]).'
            )
        values = [value for value in classes if value not in (background, boundary)]
    if not values or boundary in values:
        raise InputError("no class is left that could be objects; name one (--objects NAME).")
    planes = tuple(list(classes).index(value) for value in values)
    return Kinds(planes, tuple(values), None if boundary is None else list(classes).index(boundary))


def classes_of_objects(numbers: np.ndarray, unlabelled: int = UNLABELLED_OBJECTS) -> np.ndarray:
    """The class of each pixel of numbered objects (H,W): 0 background, 1 object, 2 boundary, 255 unlabelled."""
    is_object = (numbers > 0) & (numbers != unlabelled)
    classes = is_object.astype(np.int32)
    reach = BOUNDARY_PIXELS
    padded = np.pad(np.where(is_object, numbers, 0), reach)
    height, width = numbers.shape
    for down in range(-reach, reach + 1):
        for across in range(-reach, reach + 1):
            if 0 < down * down + across * across <= reach * reach:
                other = padded[reach + down : reach + down + height, reach + across : reach + across + width]
                classes[is_object & (other > 0) & (other != numbers)] = 2
    classes[numbers == unlabelled] = 255
    return classes


def find_in(proba: np.ndarray, kinds: Kinds, finding: Finding) -> Objects:
    """The objects in the probabilities (C,H,W) of classes, in the order of their first pixels, row by row.

    Touching objects of different classes are always separate; those of one class are separated at dips of a height that
    is made of the distance from the edge and the probability of being inside an object.
    """
    inside = _smoothed(proba[list(kinds.planes)])
    sure = inside.sum(axis=0, dtype=np.float32)
    within = sure if kinds.boundary is None else sure + _smoothed(proba[[kinds.boundary]])[0]
    labels = np.where(_mask(within), inside.argmax(axis=0).astype(np.int32) + 1, 0)
    diameter = finding.diameter or _typical_diameter(labels > 0)
    smallest = finding.min_size or max(round(MIN_AREA_FRACTION * np.pi / 4 * diameter**2), 1)
    labels = cleaned(labels, smallest, max(finding.fill_holes, smallest), background=0)
    heights = DISTANCE_WEIGHT * np.minimum(_distance(labels) / (diameter / 2), FLAT_FROM) + sure
    heights = ndimage.gaussian_filter(heights, max(BLUR_FRACTION * diameter, MIN_BLUR_PIXELS), mode="nearest")
    numbers = split_at_dips(_numbered(labels), heights, finding.min_dip, smallest)
    return _of_size(numbers, labels, kinds, smallest, finding.max_size)


def objects(
    proba: np.ndarray,
    *,
    classes: Sequence[str | int] = (),
    background: int | None = None,
    legend: Legend | None = None,
    diameter: float | None = None,
    min_size: int = 0,
    max_size: int = 0,
    fill_holes: int = 0,
    min_dip: float = MIN_DIP,
) -> np.ndarray:
    """The objects in probabilities, from any program, as an array (H,W) int32: 0 where there is none, and a number of
    its own for each object, from 1 in the order of their first pixels.

    proba:      (H,W) probability of being an object, or (C,H,W) with a plane for each class
    classes:    the planes that are objects, by the number of the plane from 0 or the name in the legend; empty: all but
                the background, which is plane 0 unless said otherwise, and a class named "boundary"
    legend:     names of the planes; one named "boundary" separates touching objects
    diameter:   of a typical object in pixels; None: estimated
    min_size:   smaller objects, in pixels, are left out; 0: those below 6 % of a disc with the typical
                diameter
    max_size:   larger objects are left out; 0: none
    fill_holes: holes of up to this many pixels belong to the object around them; never fewer than the smallest object
    min_dip:    how deep the dip between touching objects must be for them to be separate: 0 splits at each bump, 3
                nowhere

    >>> rows, columns = np.mgrid[:40, :60]
    >>> discs = [(rows - 20) ** 2 + (columns - x) ** 2 < 144 for x in (20, 40)]
    >>> int(hr.objects((discs[0] | discs[1]).astype(float)).max())
    2
    """
    array = np.asarray(proba)
    planes = to_planes(array, "the probabilities", "picture" if array.ndim == 2 else "planes")
    if planes.min() < -1e-3 or planes.max() > 1 + 1e-3:
        raise InputError(
            f"the probabilities have values from {planes.min():g} to {planes.max():g}, expected 0 to 1; divide whole "
            "numbers by their maximum, e.g. by 255."
        )
    if len(planes) == 1:
        planes = np.concatenate([1 - planes, planes])
    wanted = [str(name) for name in classes]
    kinds = kinds_of(range(len(planes)), legend or Legend(), wanted, background)
    return find_in(planes, kinds, Finding(diameter, min_size, max_size, fill_holes, min_dip)).numbers


def _smoothed(planes: np.ndarray) -> np.ndarray:
    """Probabilities (C,H,W), each plane smoothed a little."""
    return ndimage.gaussian_filter(planes, (0, SMOOTHING_PIXELS, SMOOTHING_PIXELS), mode="nearest")


def _mask(within: np.ndarray) -> np.ndarray:
    """The pixels (H,W) of all objects: connected regions that are likely, and somewhere surely, objects."""
    regions, n = ndimage.label(within > IS_OBJECT, np.ones((3, 3)))
    kept = np.zeros(n + 1, bool)
    kept[np.unique(regions[within > SURELY_OBJECT])] = True
    kept[0] = False
    return kept[regions]


def _numbered(labels: np.ndarray) -> np.ndarray:
    """Numbers (H,W) from 1 of the connected parts of each class; 0 where the class is 0."""
    parts, values = components(labels)
    inside = values > 0
    return np.where(inside, np.cumsum(inside), 0).astype(np.int32)[parts]


def _distance(labels: np.ndarray) -> np.ndarray:
    """(H,W) float32 distance from the edge of the class; the edge of the image is none."""
    distance = np.zeros(labels.shape, np.float32)
    for value in np.unique(labels[labels > 0]):
        own = labels == value
        if own.all():
            distance += np.float32(max(labels.shape))
        else:
            distance[own] = ndimage.distance_transform_edt(own)[own]
    return distance


def _typical_diameter(mask: np.ndarray) -> float:
    """The median thickness of the connected regions, where each pixel counts the same.

    The thickness is that of the largest disc inside, which is that of one object where several are joined.
    """
    filled = ndimage.binary_fill_holes(mask)
    parts, n = ndimage.label(filled)
    if n == 0:
        return 1.0
    thickness = 2 * ndimage.maximum(ndimage.distance_transform_edt(filled), parts, np.arange(1, n + 1))
    areas = np.bincount(parts.ravel(), minlength=n + 1)[1:]
    order = np.argsort(thickness, kind="stable")
    middle = int(np.searchsorted(np.cumsum(areas[order]), areas.sum() / 2))
    return float(max(np.asarray(thickness)[order][middle], 1.0))


def _of_size(numbers: np.ndarray, labels: np.ndarray, kinds: Kinds, smallest: int, largest: int) -> Objects:
    """The objects (H,W) of the right size, numbered again, with the value of the class of each."""
    sizes = np.bincount(numbers.ravel())
    kept = sizes >= smallest
    if largest:
        kept &= sizes <= largest
    kept[0] = False
    rank = np.where(kept, np.cumsum(kept), 0).astype(np.int32)
    result = rank[numbers]
    values = np.zeros(int(kept.sum()) + 1, np.int32)
    values[result] = np.array([0, *kinds.values], np.int32)[labels]
    return Objects(result, values[1:])
