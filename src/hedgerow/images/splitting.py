"""Separates touching objects by a watershed of their thickness, or of the probability of their class."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from hedgerow.images.components import Connectivity, neighbours, pairs
from hedgerow.images.regions import Region

# A neck separates two sides if it is thinner than this fraction of the thinner side, and if its half-width is at least
# this many pixels smaller. No ragged ellipse up to 2.2 times as long as wide was cut; four in five touching discs were.
MAX_NECK_FRACTION, MIN_NARROWING_PIXELS = 0.9, 0.75
BLUR_SIGMA_PIXELS = 1.0  # probabilities are smoothed first
MIN_PROBA_DIP = 0.1  # between two peaks: a shallower dip does not separate them

IsSeparate = Callable[[float, float], bool]
"""Whether a peak is separate from a higher one, given its own height and the height of the saddle between them."""


def split_by_distance(numbers: np.ndarray, min_size: int = 0, connectivity: Connectivity = 8) -> np.ndarray:
    """Objects (H,W), numbered from 1 (0: no object), cut at necks that are clearly thinner than both sides.

    min_size: parts of fewer pixels stay with a neighbour
    """
    edge = np.zeros(numbers.shape, bool)
    for step in neighbours(4):
        (here, there), (one, two) = pairs(numbers, step), pairs(edge, step)
        differ = here != there
        one |= differ
        two |= differ
    if not edge.any():
        return numbers
    thickness = (ndimage.distance_transform_edt(~edge) + 0.5).astype(np.float32)
    return _split(
        numbers,
        thickness,
        lambda peak, neck: neck < MAX_NECK_FRACTION * peak and neck <= peak - MIN_NARROWING_PIXELS,
        min_size,
        connectivity,
    )


def split_by_proba(
    numbers: np.ndarray, proba: np.ndarray, min_size: int = 0, connectivity: Connectivity = 8
) -> np.ndarray:
    """Objects (H,W), numbered from 1 (0: no object), cut along valleys of the probability (H,W) of their class."""
    heights = ndimage.gaussian_filter(np.asarray(proba, np.float32), BLUR_SIGMA_PIXELS, mode="nearest")
    return split_at_dips(numbers, heights, MIN_PROBA_DIP, min_size, connectivity)


def split_at_dips(
    numbers: np.ndarray, heights: np.ndarray, min_dip: float, min_size: int = 0, connectivity: Connectivity = 8
) -> np.ndarray:
    """Objects (H,W), numbered from 1 (0: no object), cut where the heights (H,W) between two peaks are at least
    `min_dip` below the lower one."""
    return _split(numbers, heights, lambda peak, saddle: saddle <= peak - min_dip, min_size, connectivity)


def _split(
    numbers: np.ndarray, heights: np.ndarray, is_separate: IsSeparate, min_size: int, connectivity: Connectivity
) -> np.ndarray:
    """New numbers from 1, in the order of the parts' first pixels; 0 stays 0."""
    whole = Region.whole(numbers.shape)
    basins = basins_of(numbers[None], heights[None], whole, whole, whole, connectivity)
    (part,) = parts_of([basins], is_separate, min_size)
    return np.append(part, 0).astype(np.int32)[basins.ids[0]]


@dataclass(frozen=True, eq=False)
class Basins:
    """The basins of the pixels of a tile: where the steepest way up from each ends, at a peak or beyond the tile.

    ids:     (Z,H,W) int32 the basin of each pixel, from 0; -1 outside objects
    end:     (N,) the pixel at which each ends, as its place in the whole image, slice by slice and row by row
    leaves:  (N,) whether that pixel lies beyond the tile
    height:  (N,) of that pixel
    size, first: (N,) number of pixels, and the place of the first one
    edge, of_edge: (K,) the places of the pixels along the faces of the tile, and their basins
    saddles: ones (S,), others (S,) and heights (S,) of the saddles between touching basins of one object
    """

    ids: np.ndarray
    end: np.ndarray
    leaves: np.ndarray
    height: np.ndarray
    size: np.ndarray
    first: np.ndarray
    edge: np.ndarray
    of_edge: np.ndarray
    saddles: tuple[np.ndarray, np.ndarray, np.ndarray]


def basins_of(
    numbers: np.ndarray, heights: np.ndarray, region: Region, tile: Region, whole: Region, connectivity: Connectivity
) -> Basins:
    """The basins of a tile of an image, from what is known of a region around it: the objects (Z,H,W), or their
    classes, where 0 is no object, and the heights. The region holds the neighbours of all pixels of the tile.

    Of equally high neighbours, the way leads to the later one, so that it never goes in a circle.
    """
    steps = neighbours(connectivity, 3)
    index = np.arange(numbers.size, dtype=np.int64).reshape(numbers.shape)
    target, best = index.copy(), heights.copy()
    for step in steps:
        (here, there), (i, j) = pairs(numbers, step), pairs(index, step)
        (low, high) = pairs(heights, step)
        same = here == there
        (target_here, target_there), (best_here, best_there) = pairs(target, step), pairs(best, step)
        # Forwards to a pixel as high or higher, since its index is higher; backwards only to a higher pixel.
        for aim, at, height, goal in ((target_here, best_here, high, j), (target_there, best_there, low, i)):
            up = same & ((height > at) | ((height == at) & (goal > aim)))
            aim[up] = goal[up]
            at[up] = height[up]
    inner = tile.within(region)
    beyond = np.ones(numbers.shape, bool)
    inner.of_volume(beyond)[...] = False
    target[beyond] = index[beyond]
    way = target.ravel()
    while not np.array_equal(further := way[way], way):
        way = further
    inside = numbers.ravel() > 0
    ends = np.flatnonzero((way == index.ravel()) & inside)
    rank = np.full(numbers.size, -1, np.int32)
    rank[ends] = np.arange(len(ends), dtype=np.int32)
    ids = np.where(inside, rank[way], -1).reshape(numbers.shape)
    saddles = _saddles(numbers, ids, heights, steps)
    own, places = inner.of_volume(ids), _places(tile, whole)
    is_own = own >= 0
    first = np.full(len(ends), whole.depth * whole.height * whole.width)
    first[own[is_own][::-1]] = places[is_own][::-1]  # the last value assigned is that of the first pixel
    is_inner = np.zeros(own.shape, bool)  # pixels of which no other tile sees the basin
    starts, ends_of_tile = (tile.front, tile.top, tile.left), (tile.back, tile.bottom, tile.right)
    is_inner[
        tuple(
            slice(int(start > 0), size - (end < length))
            for start, end, size, length in zip(starts, ends_of_tile, own.shape, whole.shape, strict=True)
        )
    ] = True
    at_face = is_own & ~is_inner
    return Basins(
        own, _places(region, whole).ravel()[ends], beyond.ravel()[ends], heights.ravel()[ends],
        np.bincount(own[is_own], minlength=len(ends)), first, places[at_face], own[at_face], saddles,
    )  # fmt: skip


def parts_of(tiles: Sequence[Basins], is_separate: IsSeparate, min_size: int) -> list[np.ndarray]:
    """The part of each basin of each tile, numbered from 1 in the order of the parts' first pixels in the image.

    Basins that end in another tile belong to the basin there; then basins that are not separate are joined.
    """
    offsets = np.cumsum([0, *(len(tile.end) for tile in tiles)])
    end, leaves, height, size, first = (
        np.concatenate([getattr(tile, name) for tile in tiles]) for name in ("end", "leaves", "height", "size", "first")
    )
    edge = np.concatenate([tile.edge for tile in tiles])
    of_edge = np.concatenate([tile.of_edge + offset for tile, offset in zip(tiles, offsets, strict=False)])
    order = np.argsort(edge)
    way = np.arange(len(end))
    way[leaves] = of_edge[order][np.searchsorted(edge[order], end[leaves])]
    while not np.array_equal(further := way[way], way):
        way = further
    peaks = np.flatnonzero(~leaves)
    peaks = peaks[np.argsort(end[peaks])]
    rank = np.empty(len(end), np.int64)
    rank[peaks] = np.arange(len(peaks))
    basin = rank[way]
    ones, others, saddles = (np.concatenate(parts) for parts in zip(*(tile.saddles for tile in tiles), strict=True))
    shift = np.repeat(offsets[:-1], [len(tile.saddles[0]) for tile in tiles])
    sizes = np.bincount(basin, size, len(peaks)).astype(np.int64)
    links = _highest(basin[ones + shift], basin[others + shift], saddles)
    part = _joined(*links, height[peaks], sizes, is_separate, min_size)[basin]
    firsts = np.full(len(peaks), np.iinfo(np.int64).max)
    np.minimum.at(firsts, part, first)
    number = np.zeros(len(peaks), np.int32)
    roots = np.unique(part)
    number[roots[np.argsort(firsts[roots])]] = np.arange(1, len(roots) + 1)
    return np.split(number[part], offsets[1:-1])


def _places(region: Region, whole: Region) -> np.ndarray:
    """(Z,H,W) the place of each pixel of a region in the whole image, slice by slice and row by row."""
    z, y, x = np.ogrid[region.front : region.back, region.top : region.bottom, region.left : region.right]
    return (z * whole.height + y) * whole.width + x


def _saddles(
    numbers: np.ndarray, ids: np.ndarray, heights: np.ndarray, steps: Sequence[tuple[int, ...]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs of touching basins (K,), (K,) of one object, and the heights (K,) of their saddles, highest first."""
    ones, others, saddles = [], [], []
    for step in steps:
        (here, there), (one, other), (a, b) = (pairs(array, step) for array in (numbers, ids, heights))
        use = (here == there) & (here > 0) & (one != other)
        ones.append(one[use])
        others.append(other[use])
        saddles.append(np.minimum(a[use], b[use]))
    return _highest(np.concatenate(ones), np.concatenate(others), np.concatenate(saddles))


def _highest(ones: np.ndarray, others: np.ndarray, saddles: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The highest saddle of each pair of different basins, the highest first."""
    differ = ones != others
    ones, others, height = ones[differ].astype(np.int64), others[differ].astype(np.int64), saddles[differ]
    n = int(max(ones.max(initial=0), others.max(initial=0))) + 1
    key = np.minimum(ones, others) * n + np.maximum(ones, others)
    order = np.lexsort((-height, key))
    key, height = key[order], height[order]
    is_first = np.ones(len(key), bool)
    is_first[1:] = key[1:] != key[:-1]
    key, height = key[is_first], height[is_first]
    order = np.argsort(-height, kind="stable")
    return key[order] // n, key[order] % n, height[order]


def _joined(
    ones: np.ndarray, others: np.ndarray, saddles: np.ndarray, peaks: np.ndarray, sizes: np.ndarray,
    is_separate: IsSeparate, min_size: int,
) -> np.ndarray:  # fmt: skip
    """The part (N,) to which each basin belongs, after joining all basins that are not separate."""
    parent = list(range(len(peaks)))
    height, size = peaks.tolist(), sizes.tolist()

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for one, other, saddle in zip(ones.tolist(), others.tolist(), saddles.tolist(), strict=True):
        a, b = root(one), root(other)
        stay = is_separate(min(height[a], height[b]), saddle) and min(size[a], size[b]) >= min_size
        if a == b or stay:
            continue
        if height[a] < height[b]:
            a, b = b, a
        parent[b] = a
        size[a] += size[b]
    return np.array([root(i) for i in range(len(parent))], np.int32)
