"""Cuts a result into shards, each owned by one task, at every level of its pyramid; and shards into tiles."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from hedgerow.errors import ConfigError
from hedgerow.forest.level_input import needed
from hedgerow.images.reading import ImageSource, SourcePlanes
from hedgerow.images.regions import Region
from hedgerow.predict.protocol import Model

CHUNK_SIDE = 512  # side of a chunk, the unit of reading
LARGEST_SHARD_SIDE = 4 * CHUNK_SIDE  # side of the largest shard, the unit of computing and writing
SHARD_BYTES = 2**28  # limit for all results in a shard
TILE_BYTES = 3 * 2**27  # memory limit for the work on one tile
SMALLEST_LEVEL = 1024  # both sides of the last level of a pyramid are at most this
Item = TypeVar("Item")
Prepared = TypeVar("Prepared")


@dataclass(frozen=True)
class Shard:
    """A square of one level of the result, and its position there."""

    level: int
    row: int
    column: int
    region: Region

    @property
    def name(self) -> str:
        return f"{self.level}-{self.row}-{self.column}"


@dataclass(frozen=True)
class ShardGrid:
    """A result of this size (H,W), cut into shards of this side, which consist of chunks.

    Each further level of the pyramid is half as large, rounded up, and cut into shards of the same side.
    """

    size: tuple[int, int]
    side: int
    chunk: int = CHUNK_SIDE

    @property
    def n_levels(self) -> int:
        return 1 + ((max(self.size) - 1) // SMALLEST_LEVEL).bit_length()

    def level_size(self, level: int) -> tuple[int, int]:
        """(H, W)"""
        height, width = (-(-side // 2**level) for side in self.size)
        return height, width

    def shards(self, level: int) -> Iterator[Shard]:
        """Row after row."""
        for region in Region.whole(self.level_size(level)).tiles(self.side):
            yield Shard(level, region.top // self.side, region.left // self.side, region)

    @property
    def n_shards(self) -> int:
        """Of all levels."""
        return sum(len(Region.whole(self.level_size(level)).tiles(self.side)) for level in range(self.n_levels))


def grid_for(size: tuple[int, int], bytes_per_pixel: int, side: int | None = None) -> ShardGrid:
    """Shards with this side or, if it is None, as large as fits; a shard consists of whole chunks."""
    if side is not None:
        chunk = min(side, CHUNK_SIDE)
        if side < 1 or side % chunk:
            raise ConfigError(f"the side of a shard is {side}; it must be a multiple of {CHUNK_SIDE}.")
        return ShardGrid(size, side, chunk)
    side = LARGEST_SHARD_SIDE
    while side > CHUNK_SIDE and side * side * bytes_per_pixel > SHARD_BYTES:
        side -= CHUNK_SIDE
    return ShardGrid(size, side)


def tiles_to_compute(
    model: Model, image: ImageSource, region: Region, side: int, allowed: np.ndarray | None
) -> Iterator[tuple[Region, SourcePlanes]]:
    """The tiles of a region in which there is something to compute, each with the pixels that the model reads for it.

    side: approximate side of a tile; allowed: (h,w) bool, the pixels of the region to compute; None: all
    """
    own = max(model.level_tile(level) for level in range(model.n_levels))
    tiles = (occupied(tile, region, allowed) for tile in cut(region, side, own))
    return ahead(lambda tile: image.source_planes(needed(model, image.size, tile)), filter(None, tiles))


def cut(region: Region, tile: int, own: int) -> Iterator[Region]:
    """Cut a region of an image into tiles of about this side. For a model that computes tiles of its own, with
    this side and in a grid from the image's corner, they consist of whole ones where possible."""
    if own == 1:
        down, across = -(-region.height // tile), -(-region.width // tile)
        return iter(region.tiles((1, -(-region.height // down), -(-region.width // across))))
    side = max(tile // own, 1) * own
    corner = replace(region, top=region.top // side * side, left=region.left // side * side)
    return (part.clipped(region) for part in corner.tiles(side))


def occupied(tile: Region, region: Region, allowed: np.ndarray | None) -> Region | None:
    """The part of a tile in which there is something to compute; None: nothing. allowed: (h,w) bool of the region"""
    if allowed is None:
        return tile
    part = Region.around(tile.within(region).of(allowed))
    return None if part.is_empty else part.placed_in(tile)


def ahead(prepare: Callable[[Item], Prepared], items: Iterable[Item]) -> Iterator[tuple[Item, Prepared]]:
    """Each item and `prepare(item)`, prepared one item ahead of the caller, so that reading overlaps computing."""
    with ThreadPoolExecutor(1) as pool:
        waiting = None
        for item in items:
            coming = (item, pool.submit(prepare, item))
            if waiting is not None:
                yield waiting[0], waiting[1].result()
            waiting = coming
        if waiting is not None:
            yield waiting[0], waiting[1].result()
