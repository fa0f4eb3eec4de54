"""One scale of the filter bank in a volume: computed slice by slice, in memory for a few slices."""

from dataclasses import dataclass

import numpy as np

from hedgerow.images.regions import Region
from hedgerow.kernels.buffers import empty
from hedgerow.kernels.cpu import volume_filters as kernels

VOLUME_FILTERS = (
    "gaussian",
    "laplacian",
    "gradient",
    "dog",
    "structure_1",
    "structure_2",
    "structure_3",
    "hessian_1",
    "hessian_2",
    "hessian_3",
)
"""Filters at each scale that looks into other slices; eigenvalues are numbered from high to low."""
BATCH = 8  # slices that are filtered together, since they read nearly the same ones


@dataclass(frozen=True)
class SeparableFilter:
    """A Gaussian and its derivatives in a volume.

    across, along: (3, 1+R) weights across slices, and along rows and columns
    reach:         how far it looks in z, y and x; weights beyond are padding
    """

    across: np.ndarray
    along: np.ndarray
    reach: tuple[int, int, int]


@dataclass(frozen=True)
class FilterScale:
    """The filters of a scale: that of the derivatives, the narrower one of `dog`, and that of the structure tensor."""

    gaussian: SeparableFilter
    narrow: SeparableFilter
    outer: SeparableFilter

    @property
    def halo(self) -> tuple[int, int, int]:
        """How far the scale looks in z, y and x."""
        (a, b, c), (d, e, f) = self.gaussian.reach, self.outer.reach
        return a + d, b + e, c + f


def volume_channels(
    part: np.ndarray, seen: Region, whole: Region, region: Region, scale: FilterScale, out: np.ndarray, first: int = 0
) -> None:
    """Fill slices of out (10,D,h,w), from `first` on, with VOLUME_FILTERS in a region of an image channel. Borders
    mirror, edge voxel included.

    part: (d,H,W) the channel in `seen`: the region grown by the scale's halo, clipped to the whole volume

    Of the derivatives, only products that the structure tensor smooths across slices are in memory for several slices.
    """
    gaussian, narrow, outer = scale.gaussian, scale.narrow, scale.outer
    needed = region.grown(outer.reach, whole)  # where products of derivatives are needed
    margin, outer_margin = gaussian.along.shape[1] - 1, outer.along.shape[1] - 1
    source = _padded(part, needed, seen, whole, margin)
    _, height, stride = source.shape
    source, size = source.ravel(), height * stride
    places, narrow_places = (size * _around(needed, each.across, seen, whole) for each in (gaussian, narrow))
    top, left = region.top - needed.top, region.left - needed.left
    own = np.arange(needed.depth) + needed.front - region.front
    is_inside = (own >= 0) & (own < region.depth)

    planes, products = empty((min(BATCH, needed.depth), 4, size)), empty((6, *needed.shape[1:]))
    rows, columns = _mirrored_places(region, needed, whole, outer_margin)
    padded, shift = empty((len(rows), len(columns))), needed.left - region.left + outer_margin
    n_slots = min(2 * outer.reach[0] + BATCH, needed.depth)
    tensor = empty((6, n_slots, region.height, region.width))
    slots, last = _slots(region, needed, whole, outer, n_slots)
    slots *= region.height * region.width
    flat_tensor, flat_out, n_done = tensor.reshape(6, -1), out.reshape(*out.shape[:2], -1), 0
    for begin in range(0, needed.depth, BATCH):
        end = min(begin + BATCH, needed.depth)
        batch = slice(begin, end)
        around = places[batch], narrow_places[batch]
        kernels.filter_across(source, *around, gaussian.across, narrow.across, is_inside[batch], planes[: end - begin])
        for i in range(begin, end):
            z = first + own[i] if is_inside[i] else -1
            weights = gaussian.along, narrow.along
            kernels.slice_derivatives(planes[i - begin], *weights, stride, products, top, left, out, z)
            kernels.smooth_products(products, rows, columns, shift, outer.along, padded, tensor, i % n_slots)
        n_complete = int(np.searchsorted(last, end))
        for done in range(n_done, n_complete, BATCH):
            around_done = slots[done : min(done + BATCH, n_complete)]
            kernels.structure_eigenvalues(flat_tensor, around_done, outer.across, flat_out, first + done)
        n_done = n_complete


def _padded(part: np.ndarray, needed: Region, seen: Region, whole: Region, margin: int) -> np.ndarray:
    """(D,H,W): the slices of `part`, in the plane the needed region with a margin."""
    rows, columns = _mirrored_places(needed, seen, whole, margin)
    padded = empty((len(part), len(rows), len(columns)))
    for plane, out in zip(part, padded, strict=True):
        kernels.mirrored(np.ascontiguousarray(plane), rows, columns, seen.left - needed.left + margin, out)
    return padded


def _mirrored_places(of: Region, seen: Region, whole: Region, margin: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the rows and columns of a region with a margin are in the region `seen`."""
    return (
        _mirrored(np.arange(of.top - margin, of.bottom + margin), whole.height, seen.top, seen.bottom),
        _mirrored(np.arange(of.left - margin, of.right + margin), whole.width, seen.left, seen.right),
    )


def _around(of: Region, weights: np.ndarray, seen: Region, whole: Region) -> np.ndarray:
    """(d, 1+2R): for each slice of a region, where the slices around it are in the region `seen`."""
    radius = weights.shape[1] - 1
    slices = np.arange(of.front, of.back)[:, None] + np.arange(-radius, radius + 1)
    return _mirrored(slices, whole.depth, seen.front, seen.back)


def _slots(
    region: Region, needed: Region, whole: Region, outer: SeparableFilter, n_slots: int
) -> tuple[np.ndarray, np.ndarray]:
    """(d, 1+2R): for each slice of the region, the slots of the slices around it; and the last needed slice (d,)."""
    slices, reach = np.arange(region.front, region.back)[:, None], outer.reach[0]
    radius = outer.across.shape[1] - 1
    first = np.maximum(slices - reach, needed.front)
    last = np.minimum(slices + reach, needed.back - 1)
    around = _mirrored(slices + np.arange(-radius, radius + 1), whole.depth, first, last + 1)
    return (around + first - needed.front) % n_slots, last[:, 0] - needed.front


def _mirrored(places: np.ndarray, length: int, first: int | np.ndarray, end: int | np.ndarray) -> np.ndarray:
    """Places on an axis of this length, mirrored as often as it takes, relative to `first`. Those not in first..end are
    moved to its ends: their weights are 0."""
    places = places % (2 * length)
    return np.clip(np.minimum(places, 2 * length - 1 - places), first, end - 1) - first
