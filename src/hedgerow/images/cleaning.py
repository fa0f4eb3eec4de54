"""Removes specks and holes from label maps: removed pixels take the class that surrounds them."""

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

    If there is a background, only other classes have objects, and only background can be a hole.
    """
    if min_size > 1:
        labels = _without_small(labels, min_size, background, connectivity)
    if fill_holes > 0:
        labels = _without_holes(labels, fill_holes, background, connectivity)
    return labels


def _without_small(labels: np.ndarray, min_size: int, background: int | None, connectivity: Connectivity) -> np.ndarray:
    """Small objects take the class with which they share most of their border; specks within specks, from outside in.

    Only the borders with objects that stay count, so that nothing small remains. If all objects are small, the largest
    stays.
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
        # Every object that touches one that stays: there is at least one, since all pixels are connected.
        use = ~stays[small] & stays[other]
        values, done = _most_common(values, small[use], other[use], length[use])
        stays[done] = True
    return values[numbers]


def _borders(numbers: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Wanted objects (K,), their neighbours (K,), and the number of edges (K,) that they share."""
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
    """The values of all objects, in which each of `small` has taken the value with which it shares the longest border
    (of equally long borders, the lowest value); and the objects that changed."""
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

    A hole is a connected region of one class that touches only one object and not the edge of the image. Where objects
    are connected at corners, regions are connected at edges only, and the other way round: otherwise an object and the
    region inside it could cross.
    """
    dual: Connectivity = 4 if connectivity == 8 else 8
    while True:  # the innermost holes first; each round joins regions, so the loop ends
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
    """The object (N,) that each wanted region touches; -1 if it touches several or none."""
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
