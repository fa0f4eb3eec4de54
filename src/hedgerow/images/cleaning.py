"""Label maps without specks and holes: what is removed takes the class of what surrounds it."""

import numpy as np

from hedgerow.images.components import Connectivity, components, counted, neighbours, pairs


def cleaned(
    labels: np.ndarray,
    min_size: int = 0,
    fill_holes: int = 0,
    background: int | None = None,
    connectivity: Connectivity = 8,
) -> np.ndarray:
    """A label map (H,W) without objects of fewer than `min_size` pixels, then without holes of up to `fill_holes`.

    With a background, only other classes have objects to remove, and only background counts as a hole.
    """
    if min_size > 1:
        labels = _without_small(labels, min_size, background, connectivity)
    if fill_holes > 0:
        labels = _without_holes(labels, fill_holes, background, connectivity)
    return labels


def _without_small(labels: np.ndarray, min_size: int, background: int | None, connectivity: Connectivity) -> np.ndarray:
    """Small objects take the class that they share most of their border with; specks within specks, from outside in.

    Only objects that stay are counted as surroundings, so that nothing small remains; if all of them are small, the
    largest stays.
    """
    numbers, values = components(labels, connectivity)
    sizes = np.bincount(numbers.ravel())
    stays = (sizes >= min_size) | (values == background)
    if stays.all():
        return labels
    if not stays.any():
        stays[sizes.argmax()] = True
    small, other, length = _borders(numbers, ~stays)
    while not stays.all():
        # Every object that touches one that stays; there is one, since all pixels hang together.
        use = ~stays[small] & stays[other]
        values, done = _most_common(values, small[use], other[use], length[use])
        stays[done] = True
    return values[numbers]


def _borders(numbers: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Wanted objects (K,), objects (K,) beside them, and the number of edges (K,) that they share."""
    n, keys = len(wanted), []
    for step in neighbours(4):
        here, there = pairs(numbers, step)
        differ = here != there
        a, b = here[differ].astype(np.int64), there[differ].astype(np.int64)
        keys += [(a * n + b)[wanted[a]], (b * n + a)[wanted[b]]]
    borders, length = counted(np.concatenate(keys))
    return borders // n, borders % n, length


def _most_common(
    values: np.ndarray, small: np.ndarray, other: np.ndarray, length: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The values of all objects, where each of `small` has the one it shares the longest border with; and which those
    were. Of equally long ones the lowest value is taken."""
    classes, index = np.unique(values, return_inverse=True)
    key, total = counted(small * len(classes) + index[other], length)
    of, which = key // len(classes), key % len(classes)
    order = np.lexsort((which, -total, of))
    first = order[np.unique(of[order], return_index=True)[1]]
    values = values.copy()
    values[of[first]] = classes[which[first]]
    return values, of[first]


def _without_holes(labels: np.ndarray, largest: int, background: int | None, connectivity: Connectivity) -> np.ndarray:
    """Holes take the class of the object around them.

    A hole is a connected region of one class that touches nothing but one object, and not the edge of the image.
    Regions hang together by edges where objects do by corners, and the other way round: otherwise an object and what
    it encloses could cross.
    """
    dual: Connectivity = 4 if connectivity == 8 else 8
    while True:  # a hole within a hole first; every round joins regions, so there is an end
        objects, values = components(labels, connectivity)
        regions, region_values = components(labels, dual)
        is_hole = np.bincount(regions.ravel()) <= largest
        if background is not None:
            is_hole &= region_values == background
        for edge in (regions[0], regions[-1], regions[:, 0], regions[:, -1]):
            is_hole[edge] = False
        around = _only_neighbour(regions, objects, is_hole, dual)
        is_hole &= around >= 0
        if not is_hole.any():
            return labels
        region_values = np.where(is_hole, values[around], region_values)
        labels = region_values[regions]


def _only_neighbour(regions: np.ndarray, objects: np.ndarray, wanted: np.ndarray, dual: Connectivity) -> np.ndarray:
    """The object (N,) that a wanted region touches; -1 if it touches several, or none."""
    low = np.full(len(wanted), np.iinfo(np.int32).max, np.int32)
    high = np.full(len(wanted), -1, np.int32)
    for step in neighbours(dual):
        (here, there), (object_here, object_there) = pairs(regions, step), pairs(objects, step)
        differ = here != there
        for region, beside in ((here, object_there), (there, object_here)):
            at = differ & wanted[region]
            np.minimum.at(low, region[at], beside[at])
            np.maximum.at(high, region[at], beside[at])
    return np.where(low == high, high, -1)
