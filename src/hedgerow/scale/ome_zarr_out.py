"""Results as OME-Zarr 0.5: sharded arrays with a nearest-neighbour pyramid; the metadata are written last."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from hedgerow.errors import InputError
from hedgerow.files import flush
from hedgerow.images.file_checks import has_zarr_metadata
from hedgerow.images.legend import Legend
from hedgerow.images.regions import Region
from hedgerow.images.remote import file_system, is_remote, is_there, store_of, with_retries
from hedgerow.images.voxel_size import VoxelSize
from hedgerow.images.writing import ome_attributes
from hedgerow.overwrite_guard import ELSEWHERE, check_removable, remove_folder
from hedgerow.scale.large_results import LargeResult
from hedgerow.scale.markers import MARK, Markers
from hedgerow.scale.shards import CHUNK_SIDE, Shard, ShardGrid

Result = TypeVar("Result")


def _with_retries(result: LargeResult, work: Callable[[], Result], doing: str = "write") -> Result:
    """The result of some work on the store of a result; work on another machine is retried if it fails."""
    return with_retries(work, f"cannot {doing} {result.store}", retry=is_remote(result.store))


def create(result: LargeResult, grid: ShardGrid) -> None:
    """Create empty arrays for all levels; without metadata they are not recognised as an image."""
    import zarr

    def make() -> None:
        # An earlier attempt may have created them before its answer was lost; both calls accept that.
        group = zarr.open_group(store_of(result.store), mode="a", zarr_format=3)
        leading = () if result.n_channels is None else (1,)
        axes = "yx" if result.n_channels is None else "cyx"
        for level in range(grid.n_levels):
            group.create_array(
                str(level),
                overwrite=True,
                shape=result.shape(grid.level_size(level)),
                dtype=result.dtype,
                chunks=(*leading, grid.chunk, grid.chunk),
                shards=(*leading, grid.side, grid.side),
                fill_value=result.fill,
                dimension_names=tuple(axes),
            )

    _with_retries(result, make)


@lru_cache(maxsize=64)
def array_of(result: LargeResult, level: int) -> Any:
    """The array of a level, opened for writing."""
    import zarr

    return _with_retries(result, lambda: zarr.open_array(store_of(result.store), path=str(level), mode="r+"))


def write_shard(result: LargeResult, shard: Shard, values: np.ndarray) -> None:
    """Write a whole shard, (h,w) or (C,h,w); no other task may write to it."""
    array, region = array_of(result, shard.level), shard.region
    place = (slice(region.top, region.bottom), slice(region.left, region.right))

    def write() -> None:
        if values.ndim == 2:
            array[place] = values
        else:
            for c, plane in enumerate(values):  # one shard each
                array[(slice(c, c + 1), *place)] = plane[None]

    _with_retries(result, write, f"write {keys_of(result, shard)[0]} of")
    if not is_remote(result.store):  # onto the disk now: the shard's marker must not be there first
        for path in (Path(result.store, key) for key in keys_of(result, shard)):
            if path.exists():  # nothing is written for a shard of the fill value
                flush(path)


def keys_of(result: LargeResult, shard: Shard) -> list[str]:
    """The files of a shard, one per channel, relative to the store."""
    leading = [""] if result.n_channels is None else [f"{c}/" for c in range(result.n_channels)]
    return [f"{shard.level}/c/{c}{shard.row}/{shard.column}" for c in leading]


def shrunk(result: LargeResult, shard: Shard) -> np.ndarray:
    """The values of a shard of a coarser level: every second pixel of the level before, in both directions."""
    array = array_of(result, shard.level - 1)
    region = shard.region
    values = np.empty(result.shape((region.height, region.width)), result.dtype)
    for c in range(result.n_channels or 1):
        plane = values if result.n_channels is None else values[c]
        for part in Region(0, region.height, 0, region.width).tiles(CHUNK_SIDE):
            above = part.placed_in(region)
            full = slice(2 * above.top, 2 * above.bottom - 1), slice(2 * above.left, 2 * above.right - 1)
            inside = full if result.n_channels is None else (c, *full)
            read = _with_retries(result, lambda inside=inside: np.asarray(array[inside]), "read")  # type: ignore[misc]
            part.of(plane)[...] = read[::2, ::2]
    return values


def finish(
    result: LargeResult, grid: ShardGrid, pixel: VoxelSize | None, corner: tuple[int, int], name: str, legend: Legend
) -> None:
    """Write the metadata, which make the result an image.

    pixel: the size of a pixel; corner: the pixel of the image at which the result begins
    """
    import zarr

    axes = "yx" if result.n_channels is None else "cyx"
    attributes = {"ome": ome_attributes(axes, result.dtype, result.names, pixel, grid.n_levels, corner, name)}
    if result.content == "labels" and legend:
        attributes["hedgerow"] = {"classes": legend.to_list()}

    def write() -> None:
        zarr.open_group(store_of(result.store), mode="r+").attrs.update(attributes)

    _with_retries(result, write)


def check_result_removable(result: LargeResult, overwrite: bool) -> None:
    """Refuse to remove anything that is not ours at the path of a result; `overwrite`: a Zarr image may be removed."""
    store = result.store
    if not is_remote(store):
        check_removable(Path(store), MARK, _is_asked(result, overwrite))
    elif not overwrite and is_there(store) and not Markers(store).are_there():
        raise InputError(f"{store} would be overwritten; {ELSEWHERE}")


def remove(result: LargeResult, overwrite: bool = False) -> None:
    """Remove a result if it exists; refuse if it is not ours."""
    check_result_removable(result, overwrite)
    store = result.store
    if not is_remote(store):
        remove_folder(Path(store), MARK, _is_asked(result, overwrite))
        return
    system, inside = file_system(store)

    def work() -> None:
        system.invalidate_cache()
        if system.exists(inside):
            system.rm(inside, recursive=True)

    with_retries(work, f"cannot write {store}")


def _is_asked(result: LargeResult, overwrite: bool) -> bool:
    """Whether the user asked to overwrite this folder: an image itself, not the temporary folder of a TIFF."""
    return overwrite and not result.is_tiff and has_zarr_metadata(result.store)
