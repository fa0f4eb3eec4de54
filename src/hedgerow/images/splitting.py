"""Separates touching objects by a watershed of their thickness, or of the probability of their class."""

from collections.abc import Callable

import numpy as np
from scipy import ndimage

from hedgerow.images.components import Connectivity, neighbours, pairs

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
    basins, peaks = _basins(numbers, heights, connectivity)
    inside = numbers > 0
    sizes = np.bincount(basins[inside], minlength=len(peaks))
    part = _joined(*_saddles(numbers, basins, heights, connectivity), peaks, sizes, is_separate, min_size)
    _, first, where = np.unique(part[basins[inside]], return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int32)
    rank[np.argsort(first)] = np.arange(1, len(first) + 1, dtype=np.int32)
    result = np.zeros(numbers.shape, np.int32)
    result[inside] = rank[where]
    return result


def _basins(numbers: np.ndarray, heights: np.ndarray, connectivity: Connectivity) -> tuple[np.ndarray, np.ndarray]:
    """The basin (H,W) of each pixel, and the height (N,) of each basin's peak, where the steepest way up ends.

    Of equally high neighbours, the way leads to the later one, so that it never goes in a circle.
    """
    size = numbers.size
    index = np.arange(size, dtype=np.int32 if size < 2**31 else np.int64).reshape(numbers.shape)
    target, best = index.copy(), heights.copy()
    for step in neighbours(connectivity):
        (here, there), (i, j) = pairs(numbers, step), pairs(index, step)
        (low, high) = pairs(heights, step)
        same = here == there
        (target_here, target_there), (best_here, best_there) = pairs(target, step), pairs(best, step)
        # Forwards to a pixel as high or higher, since its index is higher; backwards only to a higher pixel.
        for aim, at, height, goal in ((target_here, best_here, high, j), (target_there, best_there, low, i)):
            up = same & ((height > at) | ((height == at) & (goal > aim)))
            aim[up] = goal[up]
            at[up] = height[up]
    way = target.ravel()
    while not np.array_equal(further := way[way], way):
        way = further
    is_peak = way == np.arange(size)
    rank = np.cumsum(is_peak, dtype=np.int32) - 1
    return rank[way].reshape(numbers.shape), heights.ravel()[is_peak]


def _saddles(
    numbers: np.ndarray, basins: np.ndarray, heights: np.ndarray, connectivity: Connectivity
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs of touching basins (K,), (K,) of one object, and the heights (K,) of their saddles, highest first."""
    n, keys, passes = int(basins.max()) + 1, [], []
    for step in neighbours(connectivity):
        (here, there), (one, two), (a, b) = (pairs(array, step) for array in (numbers, basins, heights))
        use = (here == there) & (here > 0) & (one != two)
        low, high = np.minimum(one[use], two[use]).astype(np.int64), np.maximum(one[use], two[use])
        keys.append(low * n + high)
        passes.append(np.minimum(a[use], b[use]))
    key, height = np.concatenate(keys), np.concatenate(passes)
    order = np.lexsort((-height, key))
    key, height = key[order], height[order]
    first = np.ones(len(key), bool)
    first[1:] = key[1:] != key[:-1]
    key, height = key[first], height[first]
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
