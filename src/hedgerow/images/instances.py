"""Objects as they are learned and as they are found: classes from numbered objects, and numbered objects from the
probabilities of classes.

Both directions share one convention: a class named "boundary" holds the pixels near a touching neighbour. They belong
to the objects, and separate them. It is made from numbered objects, or painted by hand.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hedgerow.errors import ConfigError, InputError
from hedgerow.images.legend import Legend

LabelKind = Literal["classes", "objects"]
"""Whether the values of label maps are classes, or numbers of objects with 0 for the background."""
BACKGROUND, BOUNDARY = "background", "boundary"
OBJECT_CLASSES = (BACKGROUND, "object", BOUNDARY)
OBJECT_LEGEND = Legend(dict(enumerate(OBJECT_CLASSES)), {0: (0, 0, 0), 1: (64, 160, 255), 2: (255, 160, 0)})
BOUNDARY_PIXELS = 2  # from a touching neighbour; wide enough for a forest to see, narrow enough for nuclei of 10 pixels
UNLABELLED_OBJECTS = -1  # numbered objects may have any positive number, 255 included

MIN_DIP = 0.1  # of the height, from 0 to about 3: a shallower dip does not separate two peaks


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
    spacing:    how far neighbours along z, y and x are apart, in pixels along x
    """

    diameter: float | None = None
    min_size: int = 0
    max_size: int = 0
    fill_holes: int = 0
    min_dip: float = MIN_DIP
    spacing: tuple[float, float, float] = (1.0, 1.0, 1.0)

    def __post_init__(self) -> None:
        if self.diameter is not None and not 1 <= self.diameter < 1e6:
            raise ConfigError(f"the diameter is {self.diameter:g}; give that of a typical object in pixels, from 1.")
        for name in ("min_size", "max_size", "fill_holes"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; give a number of pixels from 0.")
        if self.max_size and self.max_size < self.min_size:
            raise ConfigError(f"max_size is {self.max_size}, below min_size, {self.min_size}; no object would be left.")
        if not all(0.01 <= far <= 100 for far in self.spacing):
            raise ConfigError(
                f"the spacing of pixels is {self.spacing}; each must be from 0.01 to 100 of that along x."
            )
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
