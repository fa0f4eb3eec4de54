"""Objects in the probabilities of classes, tile by tile: the result does not depend on the tiles.

Whether a pixel belongs to an object, and how far it is from the edge, depends on its surroundings, which are read with
each tile. Only the basins of the watershed are joined across tiles.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import ndimage

from hedgerow.errors import ConfigError, InputError, shown
from hedgerow.images.array_checks import to_planes
from hedgerow.images.components import neighbours, pairs
from hedgerow.images.instances import MIN_DIP, Finding, Kinds, kinds_of
from hedgerow.images.legend import Legend
from hedgerow.images.objects import Objects
from hedgerow.images.regions import Region
from hedgerow.images.splitting import Basins, basins_of, parts_of
from hedgerow.progress import Report, silent

SMOOTHING_PIXELS = 0.7  # of the probabilities, whose pixels are noisier than their edges
IS_OBJECT, SURELY_OBJECT = 0.5, 0.8  # probabilities of all pixels of an object, and of at least one
DISTANCE_WEIGHT = 1.5  # of the distance from the edge, in radii, beside the probability of being inside
FLAT_FROM = 1.2  # radii from the edge: farther inside, the distance says nothing more
BLUR_FRACTION, MIN_BLUR_PIXELS = 0.1, 0.7  # of the diameter: heights are smoothed first
SMOOTHING_REACH = 4.0  # standard deviations: smoothing reaches no farther
MIN_AREA_FRACTION = 0.06  # of a disc with the typical diameter: smaller regions are specks, smaller holes are filled
MAX_LENGTH = 4.0  # of specks and holes, in square roots of their largest area: longer ones are lines
TILE_SIDES = (64, 1024, 1024)  # pixels along z, y and x
MOST_MEASURED_PIXELS = 2**24  # of tiles in which the typical diameter is measured
INNER_HOLE_FRACTION = 0.2  # of a disc: larger holes are gaps between objects; between touching discs they have 0.27
MOST_FILLINGS = 3  # each time with the diameter of the time before
MOST_GROWTH = 3.0  # of the diameter, when holes are filled

Spacing = tuple[float, float, float]
Read = Callable[[Region], np.ndarray]
"""Probabilities (C,Z,H,W) of a region."""


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
    voxel_size: Sequence[float] = (1, 1, 1),
) -> np.ndarray:
    """The objects in probabilities, from any program, as an array (H,W) or (Z,H,W) int32: 0 where there is none, and
    a number of its own for each object, from 1 in the order of their first pixels.

    proba:      (H,W) probability of being an object, (C,H,W) with a plane for each class, or (C,Z,H,W) of a volume
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
    voxel_size: of a volume along z, y and x, in any unit; the diameter is in pixels along x

    >>> rows, columns = np.mgrid[:40, :60]
    >>> discs = [(rows - 20) ** 2 + (columns - x) ** 2 < 144 for x in (20, 40)]
    >>> int(hr.objects((discs[0] | discs[1]).astype(float)).max())
    2
    """
    array = np.asarray(proba)
    if array.ndim == 4:
        planes = np.stack([to_planes(volume, "the probabilities", "planes") for volume in array])
    else:
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
    if len(voxel_size) != 3 or not all(size > 0 for size in voxel_size):
        raise ConfigError(f"the voxel size is {shown(voxel_size)}; give three positive numbers, along z, y and x.")
    z, y, x = (float(size) / voxel_size[2] for size in voxel_size)
    return find_in(planes, kinds, Finding(diameter, min_size, max_size, fill_holes, min_dip, (z, y, x))).numbers


def find_in(proba: np.ndarray, kinds: Kinds, finding: Finding) -> Objects:
    """The objects in the probabilities (C,H,W) or (C,Z,H,W) of classes, in the order of their first pixels, row by row.

    Touching objects of different classes are always separate; those of one class are separated at dips of a height that
    is made of the distance from the edge and the probability of being inside an object.
    """
    volume = proba[:, None] if proba.ndim == 3 else proba
    numbers = np.zeros(volume.shape[1:], np.int32)
    values = find_tiled(lambda region: region.of_volume(volume), numbers, kinds, finding)
    return Objects(numbers if proba.ndim == 4 else numbers[0], values)


def find_tiled(
    read: Read, numbers: np.ndarray, kinds: Kinds, finding: Finding, sides: tuple[int, int, int] | None = None,
    progress: Report = silent,
) -> np.ndarray:  # fmt: skip
    """Write the numbers of the objects to an array (Z,H,W) int32, and return the class (N,) of each object.

    sides: of a tile along z, y and x, which change nothing; None: TILE_SIDES, or more if a tile needs a wide margin
    """
    whole = Region.whole(numbers.shape)
    diameter = finding.diameter or typical_diameter(read, kinds, whole, finding.spacing)
    search = _Search(read, kinds, finding, whole, diameter)
    depth, height, width = (max(side, 2 * search.margin) for side in TILE_SIDES)
    tiles = whole.tiles(sides or (depth, height, width))
    searched = []
    for done, region in enumerate(tiles):
        progress("finding objects", done, len(tiles))
        tile, own = search.tile(region), region.of_volume(numbers)
        own[...] = tile.basins.ids
        searched.append(replace(tile, basins=replace(tile.basins, ids=own)))
    basins = [tile.basins for tile in searched]
    parts = parts_of(basins, lambda peak, saddle: saddle <= peak - finding.min_dip, search.smallest)
    n = max((int(part.max(initial=0)) for part in parts), default=0)
    sizes, is_sure, values = np.zeros(n + 1, np.int64), np.zeros(n + 1, bool), np.zeros(n + 1, np.int32)
    for part, tile in zip(parts, searched, strict=True):
        np.add.at(sizes, part, tile.basins.size)
        is_sure[part[tile.is_sure]] = True
        is_own = tile.basins.size > 0
        values[part[is_own]] = tile.values[is_own]
    kept = is_sure & (sizes >= max(finding.min_size, search.smallest))
    if finding.max_size:
        kept &= sizes <= finding.max_size
    kept[0] = False
    rank = np.where(kept, np.cumsum(kept), 0).astype(np.int32)
    for region, part in zip(tiles, parts, strict=True):
        own = region.of_volume(numbers)
        own[...] = np.append(rank[part], 0)[own]
    return np.array([0, *kinds.values], np.int32)[values[kept]]


def typical_diameter(read: Read, kinds: Kinds, whole: Region, spacing: Spacing = (1.0, 1.0, 1.0)) -> float:
    """The median thickness of the connected regions of objects, where each pixel counts the same.

    The thickness is that of the largest disc inside, which is that of one object where several are joined. Holes that
    are small beside such a disc are filled, but not gaps between dense objects. In images of many tiles, it is measured
    in some of them.
    """
    tiles = whole.tiles(TILE_SIDES)
    n_measured = max(MOST_MEASURED_PIXELS // (tiles[0].depth * tiles[0].height * tiles[0].width), 1)
    chosen = np.unique(np.linspace(0, len(tiles) - 1, n_measured).round().astype(int)).tolist()
    masks = [_probabilities(read(tiles[k]), kinds)[0] > IS_OBJECT for k in chosen]
    diameter = _median_thickness(masks, spacing)
    for _ in range(MOST_FILLINGS):
        masks = [_filled(mask, INNER_HOLE_FRACTION * _pixels_of_disc(diameter, whole, spacing)) for mask in masks]
        filled = _median_thickness(masks, spacing)
        if filled == diameter or filled > MOST_GROWTH * diameter:  # in the latter case, gaps were filled
            break
        diameter = filled
    return diameter


def _median_thickness(masks: Sequence[np.ndarray], spacing: Spacing) -> float:
    """Of all connected regions of masks (Z,H,W), where each pixel counts the same; 1 if there are none."""
    thickness, areas = [np.zeros(0)], [np.zeros(0, np.int64)]
    for mask in masks:
        parts, n = ndimage.label(mask)
        if n:
            thickness.append(2.0 * ndimage.maximum(_distance(mask, spacing), parts, np.arange(1, n + 1)))
            areas.append(np.bincount(parts.ravel(), minlength=n + 1)[1:])
    every, weights = np.concatenate(thickness), np.concatenate(areas)
    if not len(every):
        return 1.0
    order = np.argsort(every, kind="stable")
    middle = int(np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2))
    return float(max(every[order][middle], 1.0))


def _filled(mask: np.ndarray, largest: float) -> np.ndarray:
    """A mask (Z,H,W) without holes of up to this many pixels; what reaches an end is no hole."""
    parts, n = ndimage.label(~mask)
    is_hole = np.bincount(parts.ravel(), minlength=n + 1) <= largest
    is_hole[0] = False
    for axis in range(0 if len(mask) > 1 else 1, 3):
        for end in (0, -1):
            is_hole[parts.take(end, axis)] = False
    return mask | is_hole[parts]


def _pixels_of_disc(diameter: float, whole: Region, spacing: Spacing) -> float:
    """Of a disc, or of a ball in a volume."""
    z, y, x = spacing
    return np.pi / 4 * diameter**2 / (y * x) if whole.depth == 1 else np.pi / 6 * diameter**3 / (z * y * x)


@dataclass(frozen=True, eq=False)
class _Tile:
    """The basins of a tile; is_sure: (N,) whether each is surely an object somewhere; values: (N,) its class."""

    basins: Basins
    is_sure: np.ndarray
    values: np.ndarray


@dataclass(frozen=True)
class _Search:
    """What a tile of an image needs: how objects are found, and their typical diameter in pixels."""

    read: Read
    kinds: Kinds
    finding: Finding
    whole: Region
    diameter: float

    @property
    def smallest(self) -> int:
        """The fewest pixels of a part of an object: fewer are a speck, or stay with a neighbour."""
        fraction = MIN_AREA_FRACTION if self.whole.depth == 1 else MIN_AREA_FRACTION**1.5
        usual = max(round(fraction * _pixels_of_disc(self.diameter, self.whole, self.finding.spacing)), 1)
        return min(self.finding.min_size or usual, usual)

    @property
    def largest_hole(self) -> int:
        return max(self.finding.fill_holes, self.smallest)

    @property
    def blur(self) -> float:
        """Standard deviation in pixels along x."""
        return max(BLUR_FRACTION * self.diameter, MIN_BLUR_PIXELS)

    @property
    def margin(self) -> int:
        """How far beyond a tile the surroundings matter."""
        smoothing = SMOOTHING_REACH * SMOOTHING_PIXELS + 1
        cleaning = _longest(self.smallest) + _longest(self.largest_hole) + 2
        height = FLAT_FROM * self.diameter / 2 + SMOOTHING_REACH * self.blur + 3
        return int(min(smoothing + cleaning + height / min(self.finding.spacing), max(self.whole.shape)))

    def tile(self, tile: Region) -> _Tile:
        """The basins of a tile."""
        beside = tile.grown(1, self.whole)
        window = beside.grown(self.margin, self.whole)
        within, inside = _probabilities(self.read(window), self.kinds)
        sure = inside.sum(axis=0, dtype=np.float32)
        labels = np.where(within > IS_OBJECT, inside.argmax(axis=0).astype(np.int32) + 1, 0)
        labels = self._without_holes(self._without_specks(labels), window)
        radius = self.diameter / 2
        heights = (
            DISTANCE_WEIGHT * np.minimum(_distance(labels, self.finding.spacing) / radius, FLAT_FROM).astype(np.float32)
            + sure
        )
        heights = _blurred(heights, self.blur, self.finding.spacing)
        view = beside.within(window)
        basins = basins_of(view.of_volume(labels), view.of_volume(heights), beside, tile, self.whole, 8)
        own, n = tile.within(window), len(basins.end)
        at = basins.ids >= 0
        values, is_sure = np.zeros(n, np.int32), np.zeros(n, bool)
        values[basins.ids[at]] = own.of_volume(labels)[at]
        is_sure[basins.ids[at & (own.of_volume(within) > SURELY_OBJECT)]] = True
        return _Tile(basins, is_sure, values)

    def _without_specks(self, labels: np.ndarray) -> np.ndarray:
        """Regions of one class with too few pixels take the class, or the background, that surrounds most of them."""
        specks, n = np.zeros(labels.shape, np.int32), 0
        for value in range(1, len(self.kinds.values) + 1):
            parts, n_parts = ndimage.label(labels == value, np.ones((3, 3, 3)))
            is_speck, _ = _small(parts, n_parts, self.smallest - 1)
            number = np.where(is_speck, n + np.cumsum(is_speck), 0).astype(np.int32)
            specks = np.maximum(specks, number[parts])
            n += int(is_speck.sum())
        return _taken_over(labels, specks, n, 0)

    def _without_holes(self, labels: np.ndarray, window: Region) -> np.ndarray:
        """Small regions of background that do not reach the edge of the image take the class around them."""
        parts, n = ndimage.label(labels == 0)
        is_hole, boxes = _small(parts, n, self.largest_hole)
        starts = (window.front, window.top, window.left)
        first_axis = 0 if self.whole.depth > 1 else 1
        for label in np.flatnonzero(is_hole).tolist():
            sides = list(zip(boxes[label - 1], starts, self.whole.shape, strict=True))[first_axis:]
            is_hole[label] = all(box.start + start > 0 and box.stop + start < side for box, start, side in sides)
        number = np.where(is_hole, np.cumsum(is_hole), 0).astype(np.int32)
        return _taken_over(labels, number[parts], int(is_hole.sum()), 1)


def _longest(most_pixels: int) -> float:
    """The most pixels along an axis of a small region: a longer one is a line, and its end may not be in sight."""
    return float(MAX_LENGTH * most_pixels**0.5)


def _small(parts: np.ndarray, n: int, most_pixels: int) -> tuple[np.ndarray, list[tuple[slice, ...]]]:
    """Which (n + 1,) of the parts, numbered from 1, have few pixels and are not long; and the boxes of all parts."""
    is_small = np.bincount(parts.ravel(), minlength=n + 1) <= most_pixels
    is_small[0] = False
    boxes, longest = ndimage.find_objects(parts), _longest(most_pixels)
    for label in np.flatnonzero(is_small).tolist():
        is_small[label] = max(box.stop - box.start for box in boxes[label - 1]) <= longest
    return is_small, boxes


def _probabilities(planes: np.ndarray, kinds: Kinds) -> tuple[np.ndarray, np.ndarray]:
    """Smoothed probabilities of belonging to an object (Z,H,W), and of being inside one of each class (K,Z,H,W)."""
    inside = np.stack([_blurred(planes[k], SMOOTHING_PIXELS) for k in kinds.planes])
    within = inside.sum(axis=0, dtype=np.float32)
    return within if kinds.boundary is None else within + _blurred(planes[kinds.boundary], SMOOTHING_PIXELS), inside


def _blurred(values: np.ndarray, sigma: float, spacing: Spacing = (1.0, 1.0, 1.0)) -> np.ndarray:
    """Values (Z,H,W), smoothed along each axis that is longer than a pixel."""
    sigmas = [sigma / far if size > 1 else 0.0 for size, far in zip(values.shape, spacing, strict=True)]
    return ndimage.gaussian_filter(np.asarray(values, np.float32), sigmas, mode="nearest", truncate=SMOOTHING_REACH)


def _distance(labels: np.ndarray, spacing: Spacing) -> np.ndarray:
    """(Z,H,W) distance from the edge of the class; the edge of the image is none."""
    distance = np.zeros(labels.shape, np.float32)
    for value in np.unique(labels[labels > 0]):
        own = labels == value
        if own.all():
            distance += np.float32(max(labels.shape))
        else:
            distance[own] = ndimage.distance_transform_edt(own, spacing)[own]
    return distance


def _taken_over(labels: np.ndarray, parts: np.ndarray, n: int, lowest: int) -> np.ndarray:
    """Labels (Z,H,W) in which each part, numbered from 1 to n, has the class that most of its faces touch; of equally
    many the lowest. Classes from `lowest` on count, other parts do not."""
    if not n:
        return labels
    n_classes = int(labels.max()) + 1
    faces = np.zeros((n + 1) * n_classes, np.int64)
    for step in neighbours(4, 3):
        (here, there), (label_here, label_there) = pairs(parts, step), pairs(labels, step)
        for part, beside, value in ((here, there, label_there), (there, here, label_here)):
            at = (part > 0) & (beside == 0) & (value >= lowest)
            faces += np.bincount(part[at] * np.int64(n_classes) + value[at], minlength=len(faces))
    counts = faces.reshape(n + 1, n_classes)
    chosen = counts.argmax(axis=1).astype(labels.dtype)
    return np.where(parts > 0, chosen[parts], labels)
