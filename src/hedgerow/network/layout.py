"""The input of a level of the network in one flat array: planes of features and of the level before, and their places.

A level is computed on a grid of pixels: a whole image, a part of it, or a lattice (every step-th row and column of each
slice). On a lattice the features are still read at their exact places, but the level before is known only on the
lattice and is read at the nearest point. A plane holds what one probe reads at all pixels of the grid: a channel,
averaged over a box, shifted by less than one step. So neighbours on the grid are neighbours in memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from hedgerow.images.array_checks import refuse_volume
from hedgerow.images.regions import Region, Steps
from hedgerow.kernels.buffers import empty
from hedgerow.kernels.constants import NO_PLANE, UNUSED
from hedgerow.kernels.cpu.plane_ops import box_averaged, spread
from hedgerow.kernels.weak_cache import WeakCache
from hedgerow.kernels.wiring import Reads, Wiring
from hedgerow.threads import map_threads

if TYPE_CHECKING:
    from hedgerow.forest.arrays import Forest


@dataclass(frozen=True)
class Grid:
    """The pixels (front + z, top + step * i, left + step * k) of an image, z < depth, i < height, k < width."""

    top: int
    left: int
    height: int
    width: int
    step: int = 1
    front: int = 0
    depth: int = 1

    @property
    def size(self) -> tuple[int, int, int]:
        """(Z,h,w)"""
        return self.depth, self.height, self.width

    @property
    def rows(self) -> np.ndarray:
        """(height,) int64"""
        return self.top + self.step * np.arange(self.height)

    @property
    def columns(self) -> np.ndarray:
        """(width,) int64"""
        return self.left + self.step * np.arange(self.width)

    def grown(self, margin: Steps, within: Region) -> Grid:
        """The lattice extended by at least this margin of pixels on each side, but not beyond the image."""
        step = self.step
        lattice = Region(0, self.height, 0, self.width, 0, self.depth)  # in steps, from its first pixel
        whole = Region(
            -((self.top - within.top) // step), (within.bottom - 1 - self.top) // step + 1,
            -((self.left - within.left) // step), (within.right - 1 - self.left) // step + 1,
            within.front - self.front, within.back - self.front,
        )  # fmt: skip
        by = (margin,) * 3 if isinstance(margin, int) else margin
        wide = lattice.grown((by[0], -(-by[1] // step), -(-by[2] // step)), whole)
        top, left = self.top + step * wide.top, self.left + step * wide.left
        return Grid(top, left, wide.height, wide.width, step, self.front + wide.front, wide.depth)

    def of(self, array: np.ndarray) -> np.ndarray:
        """The grid's pixels in the last two axes of an array over the image."""
        return array[..., self.top :: self.step, self.left :: self.step][..., : self.height, : self.width]

    def of_volume(self, array: np.ndarray) -> np.ndarray:
        """The grid's pixels in the last three axes of an array over the volume."""
        return self.of(array[..., self.front : self.front + self.depth, :, :])


def region_grid(region: Region) -> Grid:
    """The grid of all pixels of a region."""
    return Grid(region.top, region.left, region.height, region.width, 1, region.front, region.depth)


def lattice(height: int, width: int, step: int, top: int = 0, left: int = 0, depth: int = 1) -> Grid:
    """Every step-th row and column of an image from (top, left) on, in each slice of a volume."""
    return Grid(top, left, -(-(height - top) // step), -(-(width - left) // step), step, 0, depth)


@dataclass(frozen=True)
class Source:
    """The channels of an image: features (F,Z,H,W), and from the second level on the output of the level before.

    before:  (C,z,h,w), on the grid `known`; None for the first level
    stretch: (H,W) float32 factor for the offsets at each pixel of an image, or None; outside: (F+C,) constants, or None
    """

    features: Tensor
    before: Tensor | None = None
    known: Grid | None = None
    stretch: np.ndarray | None = None
    outside: np.ndarray | None = None

    def __post_init__(self) -> None:
        refuse_volume(self.extent[0], self.stretch, self.outside)

    @property
    def extent(self) -> tuple[int, int, int]:
        """(Z,H,W)"""
        _, depth, height, width = self.features.shape
        return depth, height, width

    def detached(self) -> Source:
        """The same without gradients."""
        before = None if self.before is None else self.before.detach()
        return replace(self, features=self.features.detach(), before=before)


def lay_out(forest: Forest, wiring: Wiring, source: Source, grid: Grid) -> tuple[Tensor, Reads]:
    """The values (V,) that the probes of a level read on a grid, and where each probe reads.

    Gradients of the values pass to the level before, and to the features if they need one.
    wiring: of this forest and no other, since the places of its probes are cached with it
    """
    if not torch.is_grad_enabled():
        source = source.detached()
    if source.stretch is not None or source.outside is not None:
        plan = _STRETCHED.get(wiring, None, lambda: _plan_stretched(forest, wiring))
        return _stretched(*plan, source, grid)
    depth, height, width = source.extent
    farthest = depth - 1, max(height, width), max(height, width)
    key = (len(source.features), farthest, grid.size, grid.step, source.features.requires_grad)
    return _fixed(*_PLANS.get(wiring, key, lambda: _plan_fixed(forest, wiring, *key)), source, grid)


# Grids of one size share their places, wherever they begin. The lattices of a whole image, which begin somewhere else
# in each step of training, have four sizes.
_PLANS = WeakCache(8)
_STRETCHED = WeakCache()
CHANNELS_PER_TASK = 8  # channels that a thread lays out in one task


def _plan_fixed(
    forest: Forest,
    wiring: Wiring,
    n_features: int,
    farthest: tuple[int, int, int],
    size: tuple[int, int, int],
    step: int,
    features_train: bool,
) -> tuple[np.ndarray, tuple[int, int], Reads]:
    """The planes (P,4) that are read, as channel, radius and shift; their padding in slices and steps; the places."""
    splits = wiring.node_split
    channel, radius, used = forest.channel[splits], forest.radius[splits], forest.weight[splits] != 0
    offset = np.floor(forest.offset[splits] + np.float32(0.5)).astype(np.int64)
    # Longer offsets than the image end at its edge anyway.
    offset = np.clip(offset, np.negative(farthest), farthest)
    back, offset = offset[..., 0], offset[..., 1:]
    is_before = (channel >= n_features)[..., None]
    shift = np.where(is_before, (offset + step // 2) // step, offset // step)
    phase = np.where(is_before, 0, offset % step)
    pad, pad_z = int(np.abs(shift[used]).max(initial=0)), int(np.abs(back[used]).max(initial=0))
    n_slices, n_rows, stride = size[0] + 2 * pad_z, size[1] + 2 * pad, size[2] + 2 * pad

    key = np.concatenate([channel[..., None], radius[..., None], phase], axis=-1)
    planes, plane = np.unique(key[used], axis=0, return_inverse=True)
    place = np.full(channel.shape, UNUSED, np.int64)
    row = (plane.reshape(-1) * n_slices + back[used] + pad_z) * n_rows + shift[used][:, 0] + pad
    place[used] = row * stride + shift[used][:, 1] + pad
    carried = int((planes[:, 0] < n_features).sum()) * n_slices * n_rows * stride
    return planes, (pad_z, pad), Reads(size, place, stride, n_rows * stride, carried, features_train=features_train)


def _fixed(planes: np.ndarray, pads: tuple[int, int], reads: Reads, source: Source, grid: Grid) -> tuple[Tensor, Reads]:
    # The planes' grid, which may extend beyond the image.
    step, (pad_z, pad) = grid.step, pads
    wide = Grid(
        grid.top - step * pad, grid.left - step * pad, grid.height + 2 * pad, grid.width + 2 * pad, step,
        grid.front - pad_z, grid.depth + 2 * pad_z,
    )  # fmt: skip
    channels = _Channels(source, step)
    n_fixed = int((planes[:, 0] < len(source.features)).sum())
    if _is_for_numpy(source.features) and source.features.device.type == "cpu" and len(planes):
        return _planes_in_room(planes.tolist(), n_fixed, channels, wide), reads
    parts = [part.tolist() for part in (planes[:n_fixed], planes[n_fixed:]) if len(part)]
    return _flat([_planes(part, channels, wide) for part in parts], source.features), reads


def _planes(planes: list[list[int]], channels: _Channels, wide: Grid) -> Tensor:
    """The planes (channel, radius, row shift, column shift) of the features, or of the level before, flat.

    Each channel is read once for all shifts, as (row, shift, column, shift), and planes are parts of that. All channels
    are read in a few calls: when thousands of planes were read one by one, a GPU waited.
    """
    kinds = sorted({(c, r) for c, r, _, _ in planes})
    arrays, grids = zip(*(channels.averaged(c, r) for c, r in kinds), strict=True)
    known, device = grids[0], arrays[0].device
    assert wide.step % known.step == 0
    n_shifts = wide.step // known.step  # 1 for the level before, which is known on the lattice
    rows = (wide.top - known.top) // known.step + np.arange(wide.height * n_shifts)
    columns = (wide.left - known.left) // known.step + np.arange(wide.width * n_shifts)
    taken = torch.stack(arrays)
    if (wide.front, wide.depth) != (known.front, known.depth):
        slices = (wide.front - known.front + np.arange(wide.depth)).clip(0, known.depth - 1)
        taken = taken.index_select(1, torch.as_tensor(slices, device=device))
    taken = taken.index_select(2, torch.as_tensor(rows.clip(0, known.height - 1), device=device))
    taken = taken.index_select(3, torch.as_tensor(columns.clip(0, known.width - 1), device=device))
    if n_shifts == 1:
        return taken.reshape(-1)  # planes are sorted and unique, so they are the kinds
    numbers = {kind: number for number, kind in enumerate(kinds)}
    index = torch.as_tensor([[numbers[c, r], down, right] for c, r, down, right in planes], device=device)
    apart = taken.reshape(len(kinds), wide.depth, wide.height, n_shifts, wide.width, n_shifts)
    shifted = apart.permute(0, 3, 5, 1, 2, 4)
    return shifted[index.unbind(1)].reshape(-1)


def _planes_in_room(planes: list[list[int]], n_fixed: int, channels: _Channels, wide: Grid) -> Tensor:
    """As `_planes`, on a CPU, for n_fixed planes of features that do not train, followed by those of the level before.

    They lie in memory that is reused, and those without a gradient are filled by several threads.
    """
    size = math.prod(wide.size)
    kinds = [list(same) for _, same in groupby(range(len(planes)), key=lambda k: planes[k][:2])]
    has_slope = n_fixed < len(planes) and not _is_for_numpy(channels.averaged(*planes[-1][:2])[0])
    if has_slope:
        kinds = [same for same in kinds if same[0] < n_fixed]
    room = empty((len(planes) * size,))
    out, shifts = room.reshape(-1, *wide.size), np.array([plane[2:] for plane in planes], np.int64)

    def fill(some: list[list[int]]) -> None:
        for same in some:
            array, known = channels.averaged(*planes[same[0]][:2])
            rows, step = slice(same[0], same[-1] + 1), wide.step // known.step
            top, left = (wide.top - known.top) // known.step, (wide.left - known.left) // known.step
            spread(array.numpy(), shifts[rows], wide.front - known.front, top, left, step, out[rows])

    list(map_threads(fill, [kinds[k : k + CHANNELS_PER_TASK] for k in range(0, len(kinds), CHANNELS_PER_TASK)]))
    if not has_slope:
        return torch.from_numpy(room)
    return _Behind.apply(_planes(planes[n_fixed:], channels, wide), torch.from_numpy(room))  # type: ignore[no-untyped-call]


class _Behind(torch.autograd.Function):
    """Writes values into an array behind others that have no gradient."""

    @staticmethod
    def forward(context: Any, values: Tensor, room: Tensor) -> Tensor:
        context.first = len(room) - len(values)
        room[context.first :] = values
        context.mark_dirty(room)
        return room

    @staticmethod
    def backward(context: Any, *slopes: Tensor) -> Any:
        return slopes[0][context.first :], None


def _plan_stretched(forest: Forest, wiring: Wiring) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The planes (P,2) that are read, as channel and radius; the plane of each probe; and the offsets of the probes."""
    splits = wiring.node_split
    pairs, used = np.stack([forest.channel, forest.radius], axis=-1)[splits], forest.weight[splits] != 0
    planes, plane = np.unique(pairs[used], axis=0, return_inverse=True)
    place = np.full(used.shape, UNUSED, np.int64)
    place[used] = plane.reshape(-1)
    return planes, place, np.ascontiguousarray(forest.offset[splits, :, 1:])


def _stretched(
    planes: np.ndarray, place: np.ndarray, offset: np.ndarray, source: Source, grid: Grid
) -> tuple[Tensor, Reads]:
    n_features = len(source.features)
    channels = _Channels(source, grid.step)
    values, table, start = [], [], 0
    for c, r in planes.tolist():
        array, known = channels.averaged(c, r)
        constant = 0.0 if source.outside is None else float(source.outside[c])
        values.append(torch.cat([array.reshape(-1), array.new_tensor([constant])]))
        table.append([start, known.height, known.width, known.top, known.left, known.step])
        start += known.height * known.width + 1
    carried = sum(h * w + 1 for (c, _), (_, h, w, *_) in zip(planes.tolist(), table, strict=True) if c < n_features)
    rows, columns = np.meshgrid(grid.rows, grid.columns, indexing="ij")
    stretch = np.ones(source.extent[1:], np.float32) if source.stretch is None else source.stretch
    reads = Reads(
        size=grid.size,
        place=place,
        stride=0,
        slice_stride=0,
        carried=carried,
        offset=offset,
        row=rows.ravel(),
        column=columns.ravel(),
        stretch=np.ascontiguousarray(grid.of(stretch)).ravel(),
        planes=np.array(table or [list(NO_PLANE)], np.int64),
        extent=(0, 0) if source.outside is None else source.extent[1:],
        features_train=source.features.requires_grad,
    )
    return _flat(values, source.features), reads


class _Channels:
    """A source's channels by number, averaged over boxes, with the grids on which they are known."""

    def __init__(self, source: Source, step: int) -> None:
        self._source, self._step = source, step
        # Unbound all at once: the gradient of a plane indexed by itself has the size of all planes together.
        self._features = source.features.unbind()

    def averaged(self, channel: int, radius: int) -> tuple[Tensor, Grid]:
        source = self._source
        n_features = len(source.features)
        outside = None if source.outside is None else float(source.outside[channel])
        if channel < n_features:
            return _box(self._features[channel], radius, outside), region_grid(Region.whole(source.extent))
        assert source.before is not None
        assert source.known is not None
        # On a lattice, a box contains the points of the lattice within it.
        return _box(source.before[channel - n_features], radius // self._step, outside), source.known


def _is_for_numpy(planes: Tensor) -> bool:
    """Whether the forest's code can process them, so that ties are the same: it has no gradients, and float32 only."""
    return planes.dtype == torch.float32 and not planes.requires_grad


def _box(volume: Tensor, radius: int, outside: float | None) -> Tensor:
    """(Z,H,W) mean over a box around each pixel in its slice."""
    if radius == 0:
        return volume
    if _is_for_numpy(volume):
        return torch.as_tensor(box_averaged(volume.cpu().numpy(), radius, outside), device=volume.device)
    _, height, width = volume.shape
    if outside is None:
        rows = torch.arange(-radius, height + radius, device=volume.device).clamp(0, height - 1)
        columns = torch.arange(-radius, width + radius, device=volume.device).clamp(0, width - 1)
        padded = volume[:, rows][:, :, columns][:, None]
    else:
        padded = functional.pad(volume[:, None], (radius,) * 4, value=outside)
    return functional.avg_pool2d(padded, 2 * radius + 1, stride=1)[:, 0]


def _flat(values: list[Tensor], like: Tensor) -> Tensor:
    return torch.cat(values) if values else like.new_zeros(1)  # a forest of leaves alone reads nothing
