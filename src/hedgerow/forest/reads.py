"""What the probes of a forest read: planes, and where in them.

A probe averages a channel over a box centred at an offset from the pixel, within one slice. Boxes are averaged once
for the whole image: a split then reads one pixel of a plane, and a plane is a (channel, radius) pair of all slices.
Outside the image a probe reads the nearest edge pixel, or a constant if the features require one (depth).
A slice of the region reads the same places as the first one, of values that begin a slice later.
"""

import math
from typing import NamedTuple

import numpy as np

from hedgerow.forest.arrays import Forest
from hedgerow.forest.level_input import LevelInput
from hedgerow.images.regions import Region
from hedgerow.kernels.buffers import empty
from hedgerow.kernels.cpu.plane_ops import box_averaged
from hedgerow.kernels.cpu.walk import Nodes, Probes, ReadPlanes
from hedgerow.threads import map_threads, slice_blocks

MAX_PLACES = 2**32  # a probe's place among the planes is a 32-bit number; larger regions are halved


def used_planes(forest: Forest) -> tuple[np.ndarray, np.ndarray]:
    """The (channel, radius) pairs that splits read, (P,2), and the plane of every probe, (N,J)."""
    base = int(forest.radius.max()) + 1
    key = forest.channel.astype(np.int64) * base + forest.radius
    key[(forest.weight == 0) | ~forest.is_split[:, None]] = key[0, 0]  # unread: any plane will do
    is_used = np.zeros(forest.n_channels * base, bool)
    is_used[key] = True
    used = np.flatnonzero(is_used)
    plane = (np.cumsum(is_used) - 1)[key].astype(np.int32)
    return np.stack([used // base, used % base], axis=1), plane


def n_places(forest: Forest, pairs: np.ndarray, level_input: LevelInput) -> int:
    """The total number of pixels in the planes of `fixed_places`."""
    sides = zip(level_input.region.shape, _margin(forest, level_input), strict=True)
    return len(pairs) * math.prod(side + 2 * margin for side, margin in sides)


def _margin(forest: Forest, level_input: LevelInput) -> tuple[int, int, int]:
    """How far a forest reads, but no farther than the image's size: beyond that, every offset ends at its edge."""
    depth, height, width = level_input.size
    reach = min(forest.reach, max(height, width))
    return min(forest.reach_z, depth - 1), reach, reach


class FixedPlaces(NamedTuple):
    """What probes read, and where.

    planes: (P,d,h,w), large enough that no probe for a pixel of the region leaves its plane
    place:  (N,J) int64, numbered through all planes: what the probes read for the first pixel; 0 at a leaf
    """

    planes: np.ndarray
    place: np.ndarray

    @property
    def stride(self) -> int:
        """From one row of a plane to the next."""
        return int(self.planes.shape[3])

    @property
    def slice_stride(self) -> int:
        return int(self.planes.shape[2] * self.planes.shape[3])

    def values(self, z: int) -> np.ndarray:
        """(V,): what slice z of the region reads at the places."""
        return self.planes.reshape(-1)[z * self.slice_stride :]


def fixed_places(forest: Forest, level_input: LevelInput, pairs: np.ndarray, plane: np.ndarray) -> FixedPlaces:
    """What the probes of a forest read for a region, at offsets that are the same for all pixels."""
    margin, inner, channels = _margin(forest, level_input), level_input.region, level_input.channels
    if _can_be_read_in_place(level_input, pairs, margin):
        planes, plane, corner = np.asarray(channels), forest.channel, (inner.front, inner.top, inner.left)
    else:
        planes, corner = _padded_planes(level_input, pairs, margin), margin
    _, depth, height, width = planes.shape
    offset = np.clip(np.floor(forest.offset + np.float32(0.5)).astype(np.int64), np.negative(margin), margin) + corner
    row = (plane.astype(np.int64) * depth + offset[..., 0]) * height + offset[..., 1]
    return FixedPlaces(planes, np.where(forest.is_split[:, None], row * width + offset[..., 2], 0))


def _can_be_read_in_place(level_input: LevelInput, pairs: np.ndarray, margin: tuple[int, int, int]) -> bool:
    """Whether the channels are the planes as they are: there is nothing to pad or to average, so nothing to copy."""
    channels, inner = level_input.channels, level_input.region
    if not (isinstance(channels, np.ndarray) and channels.flags.c_contiguous and channels.size < MAX_PLACES):
        return False
    seen = inner.grown(margin, Region.whole(level_input.size))
    is_inside = all(a == b + 2 * m for a, b, m in zip(seen.shape, inner.shape, margin, strict=True))
    return is_inside and not pairs[:, 1].any()


def _padded_planes(level_input: LevelInput, pairs: np.ndarray, margin: tuple[int, int, int]) -> np.ndarray:
    """(P, d+2m, h+2m, w+2m): the planes around the region, continued outside the image with the nearest edge pixel."""
    channels, inner = level_input.channels, level_input.region
    has = inner.grown(margin, Region.whole(level_input.size))
    shape = len(pairs), *(side + 2 * m for side, m in zip(inner.shape, margin, strict=True))
    # Where what the image has lies in the planes.
    corner = Region(inner.top - margin[1], 0, inner.left - margin[2], 0, inner.front - margin[0], 0)
    at = has.within(corner)
    top, bottom, left, right = at.top, at.bottom, at.left, at.right
    planes = empty(shape) if channels[0].dtype == np.float32 else np.empty(shape, channels[0].dtype)

    def fill(p: int, z: int) -> None:
        channel, radius = pairs[p]
        plane, known = planes[p, at.front + z], channels[channel][has.front + z]
        if radius:
            known = box_averaged(known[np.newaxis], int(radius))[0]
        plane[top:bottom, left:right] = has.of(known)
        plane[top:bottom, :left] = plane[top:bottom, left : left + 1]
        plane[top:bottom, right:] = plane[top:bottom, right - 1 : right]
        plane[:top] = plane[top]
        plane[bottom:] = plane[bottom - 1]

    def fill_some(some: tuple[int, int, int]) -> None:
        z, first, end = some
        for p in range(first, end):
            fill(p, z)

    # Several at a time: for small images, handing out hundreds of planes takes longer than filling them.
    list(map_threads(fill_some, slice_blocks(has.depth, len(pairs))))
    planes[:, : at.front] = planes[:, at.front : at.front + 1]
    planes[:, at.back :] = planes[:, at.back - 1 : at.back]
    return planes


def any_planes(
    forest: Forest, level_input: LevelInput, pairs: np.ndarray, plane: np.ndarray
) -> tuple[ReadPlanes, Probes]:
    """What probes of any kind read, and where."""
    outside, channels = level_input.outside, level_input.channels
    constants = np.zeros(0, np.float32) if outside is None else outside[pairs[:, 0]]
    planes = np.stack(
        [box_averaged(channels[c], r, None if outside is None else float(outside[c])) for c, r in pairs]
    ).astype(np.float32)
    stretch = (
        np.zeros(0, np.float32) if level_input.stretch is None else np.ascontiguousarray(level_input.stretch).ravel()
    )
    probes = Probes(plane, np.ascontiguousarray(forest.offset), np.ascontiguousarray(forest.weight))
    return ReadPlanes(planes.reshape(len(pairs), -1), level_input.size, stretch, constants), probes


def walkable(forest: Forest) -> Nodes:
    """The nodes as the kernels walk them: a leaf is its own left child, and votes are padded to a multiple of eight."""
    nodes = np.arange(forest.n_nodes, dtype=np.uint32)
    child = np.where(forest.is_split, forest.left_child, nodes).astype(np.uint32)
    # Nothing is >= NaN: whatever a pixel holds, a leaf sends it to its own left child, itself.
    threshold = np.where(forest.is_split, forest.threshold, np.nan).astype(np.float32)
    leaf = np.where(forest.is_split, 0, forest.leaf_index).astype(np.uint32)
    votes = np.pad(forest.votes.astype(np.float32), ((0, 0), (0, -forest.n_classes % 8)))
    return Nodes(forest.root.astype(np.uint32), forest.tree_depths, child, threshold, leaf, votes)
