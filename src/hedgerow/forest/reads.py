"""What the probes of a forest read: planes, and where in them.

A probe averages a channel over a box centred at an offset from the pixel. Boxes are averaged once for the whole
image: a split then reads one pixel of a plane, and a plane is a (channel, radius) pair.
Outside the image a probe reads the nearest edge pixel, or a constant if the features require one (depth).
"""

import numpy as np

from hedgerow.forest.arrays import Forest
from hedgerow.forest.level_input import LevelInput
from hedgerow.images.regions import Region
from hedgerow.kernels.cpu.boxes import box_averaged
from hedgerow.kernels.cpu.walk import Nodes, Probes, ReadPlanes
from hedgerow.kernels.reused import empty
from hedgerow.threads import get_threads, map_threads

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


def row_blocks(height: int, per_thread: int = 4) -> list[tuple[int, int]]:
    """First row and end of each part into which an image of this height is divided among threads."""
    parts = min(height, per_thread * get_threads())
    edges = np.linspace(0, height, parts + 1).astype(int)
    return list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))


def n_places(forest: Forest, pairs: np.ndarray, given: LevelInput) -> int:
    """The total number of pixels in the planes of `fixed_places`."""
    margin, inner = _margin(forest, given), given.region
    return len(pairs) * (inner.height + 2 * margin) * (inner.width + 2 * margin)


def _margin(forest: Forest, given: LevelInput) -> int:
    """How far a forest reads, but no farther than the image's size: beyond that, every offset ends at its edge."""
    return min(forest.reach, max(given.size))


def fixed_places(
    forest: Forest, given: LevelInput, pairs: np.ndarray, plane: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Planes (P,h,w) large enough that no probe for a pixel of the region leaves its plane, and the places (N,J) int64,
    numbered through all planes, that the probes read for the first pixel; 0 at a leaf."""
    margin, inner, channels = _margin(forest, given), given.region, given.channels
    if _can_be_read_in_place(given, pairs, margin):
        planes, plane, corner = np.asarray(channels), forest.channel, (inner.top, inner.left)
    else:
        planes, corner = _padded_planes(given, pairs, margin), (margin, margin)
    stride, size = planes.shape[2], planes.shape[1] * planes.shape[2]
    offset = np.clip(np.floor(forest.offset + np.float32(0.5)).astype(np.int64), -margin, margin)
    place = plane.astype(np.int64) * size + (offset[..., 0] + corner[0]) * stride + offset[..., 1] + corner[1]
    return planes, np.where(forest.is_split[:, None], place, 0)


def _can_be_read_in_place(given: LevelInput, pairs: np.ndarray, margin: int) -> bool:
    """Whether the channels are the planes as they are: there is nothing to pad or to average, so nothing to copy."""
    channels, inner = given.channels, given.region
    if not (isinstance(channels, np.ndarray) and channels.flags.c_contiguous and channels.size < MAX_PLACES):
        return False
    height, width = given.size
    within_rows = margin <= inner.top and inner.bottom + margin <= height
    return within_rows and margin <= inner.left and inner.right + margin <= width and not pairs[:, 1].any()


def _padded_planes(given: LevelInput, pairs: np.ndarray, margin: int) -> np.ndarray:
    """(P, h+2m, w+2m): the planes around the region, continued outside the image with the nearest edge pixel."""
    channels, inner = given.channels, given.region
    has = inner.grown(margin, Region.whole(given.size))
    top, left = margin - (inner.top - has.top), margin - (inner.left - has.left)
    bottom, right = top + has.height, left + has.width
    shape = len(pairs), inner.height + 2 * margin, inner.width + 2 * margin
    planes = empty(shape) if channels[0].dtype == np.float32 else np.empty(shape, channels[0].dtype)

    def fill(p: int) -> None:
        channel, radius = pairs[p]
        plane = planes[p]
        plane[top:bottom, left:right] = has.of(box_averaged(channels[channel], int(radius)))
        plane[top:bottom, :left] = plane[top:bottom, left : left + 1]
        plane[top:bottom, right:] = plane[top:bottom, right - 1 : right]
        plane[:top] = plane[top]
        plane[bottom:] = plane[bottom - 1]

    def fill_some(some: tuple[int, int]) -> None:
        for p in range(*some):
            fill(p)

    # Several at a time: for small images, handing out hundreds of planes takes longer than filling them.
    list(map_threads(fill_some, row_blocks(len(pairs))))
    return planes


def any_planes(forest: Forest, given: LevelInput, pairs: np.ndarray, plane: np.ndarray) -> tuple[ReadPlanes, Probes]:
    """What probes of any kind read, and where."""
    outside, channels = given.outside, given.channels
    constants = np.zeros(0, np.float32) if outside is None else outside[pairs[:, 0]]
    planes = np.stack(
        [box_averaged(channels[c], r, None if outside is None else float(outside[c])) for c, r in pairs]
    ).astype(np.float32)
    stretch = np.zeros(0, np.float32) if given.stretch is None else np.ascontiguousarray(given.stretch).ravel()
    probes = Probes(plane, np.ascontiguousarray(forest.offset), np.ascontiguousarray(forest.weight))
    return ReadPlanes(planes.reshape(len(pairs), -1), given.size, stretch, constants), probes


def walkable(forest: Forest) -> Nodes:
    """The nodes as the kernels walk them: a leaf is its own left child, and votes are padded to a multiple of eight."""
    nodes = np.arange(forest.n_nodes, dtype=np.uint32)
    child = np.where(forest.is_split, forest.left_child, nodes).astype(np.uint32)
    # Nothing is >= NaN: whatever a pixel holds, a leaf sends it to its own left child, itself.
    threshold = np.where(forest.is_split, forest.threshold, np.nan).astype(np.float32)
    leaf = np.where(forest.is_split, 0, forest.leaf_index).astype(np.uint32)
    votes = np.pad(forest.votes.astype(np.float32), ((0, 0), (0, -forest.n_classes % 8)))
    return Nodes(forest.root.astype(np.uint32), forest.tree_depths, child, threshold, leaf, votes)
