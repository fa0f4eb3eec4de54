"""The work on one shard: read its part of the image, predict it tile by tile, write it, mark it done."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from hedgerow.errors import HedgerowError, InputError
from hedgerow.features.joined import Joined
from hedgerow.features.protocol import FeatureSet
from hedgerow.files import fingerprint, one_line
from hedgerow.forest.level_input import fitting_tile, needed
from hedgerow.images.regions import Region
from hedgerow.kernels import buffers
from hedgerow.predict.protocol import Model
from hedgerow.predict.run import region_outputs
from hedgerow.scale import cluster, ome_zarr_out
from hedgerow.scale.large_results import LargeResult, parts
from hedgerow.scale.lazy_image import ImageWindow, LazyImage, Wanted
from hedgerow.scale.markers import Markers
from hedgerow.scale.masks import Mask
from hedgerow.scale.model_bytes import loaded
from hedgerow.scale.opening import opened
from hedgerow.scale.shards import Shard, ShardGrid, cut

MEMORY = 3 * 2**27  # bytes that the work on one tile may take
_EVERYWHERE_ALIKE = ("bank", "channels")  # features that do not depend on where in the image a pixel is
Item = TypeVar("Item")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Job:
    """A prediction of one image; small, so that it travels with every task.

    region: the part of the image to predict; the results have its size
    run:    fingerprint of the record of the run that it is of
    tile:   side of a tile in pixels; None: as large as fits in `memory` bytes
    """

    wanted: Wanted
    results: tuple[LargeResult, ...]
    grid: ShardGrid
    region: Region
    mask: Mask | None = None
    tile: int | None = None
    memory: int = MEMORY
    run: str = ""

    @property
    def markers(self) -> Markers:
        """Those of the run lie in its first result."""
        return Markers(self.results[0].store)


def work_on(job: Job, model: Model, shard: Shard) -> str:
    """Compute and write a shard of every result; returns its name."""
    try:
        found = None if shard.level else predicted(job, model, shard)
        if fingerprint(job.markers.read_record()) != job.run:  # a worker may not know yet that the run has ended
            raise InputError(f"the run that made {job.results[0].path} was replaced by another.")
        for result in job.results:
            values = ome_zarr_out.shrunk(result, shard) if found is None else found[result.what]
            ome_zarr_out.write_shard(result, shard, values)
        job.markers.set_done(shard.name)
    except HedgerowError:
        raise
    except OSError as problem:
        key = ome_zarr_out.keys_of(job.results[0], shard)[0]
        raise InputError(
            f"cannot make {key} of {job.results[0].path}: {one_line(problem)}; check permissions and free space, then "
            "rerun the same command to resume"
        ) from problem
    finally:
        buffers.release()
    return shard.name


def predicted(job: Job, model: Model, shard: Shard) -> dict[str, np.ndarray]:
    """The content of each result in a shard, (h,w) or (C,h,w)."""
    image, region = opened(job.wanted), shard.region
    place = Region(
        region.top + job.region.top,
        region.bottom + job.region.top,
        region.left + job.region.left,
        region.right + job.region.left,
    )
    size = (region.height, region.width)
    found = {one.what: np.full(one.shape(size), one.fill, one.dtype) for one in job.results}
    allowed = None if job.mask is None else job.mask.allowed(image, place)
    tiles = (one for tile in _tiles(job, model, place) if (one := occupied(tile, place, allowed)) is not None)
    for tile, window in ahead(lambda tile: ImageWindow(image, needed(model, image.size, tile)), tiles):
        inside = tile.within(place)
        here = None if allowed is None else inside.of(allowed)
        for what, part in parts(job.results, _proba(model, image, window, tile), model).items():
            if here is None:
                inside.of(found[what])[...] = part
            else:
                inside.of(found[what])[..., here] = part[..., here]
    return found


def _proba(model: Model, image: LazyImage, window: ImageWindow, tile: Region) -> np.ndarray:
    """(C,h,w) class probabilities of a tile; if its window holds only the fill value, one pixel stands for all."""
    empty = image.fill is not None and is_alike(model) and bool((window.values == np.float32(image.fill)).all())
    if not empty:
        return region_outputs(model, window, tile)[-1]  # type: ignore[arg-type]
    one = Region(tile.top, tile.top + 1, tile.left, tile.left + 1)
    pixel = region_outputs(model, window, one)[-1]  # type: ignore[arg-type]
    return np.broadcast_to(pixel, (len(pixel), tile.height, tile.width))


def is_alike(model: Model) -> bool:
    """Whether a model predicts the same for every pixel of a constant image."""
    kinds = model.features.members if isinstance(model.features, Joined) else (model.features,)
    return all(_is_plain(kind) for kind in kinds) and all(model.level_tile(i) == 1 for i in range(model.n_levels))


def _is_plain(features: FeatureSet) -> bool:
    return features.kind in _EVERYWHERE_ALIKE


def _tiles(job: Job, model: Model, place: Region) -> Iterator[Region]:
    cell = max(model.level_tile(level) for level in range(model.n_levels))
    return cut(place, job.tile or fitting_tile(model, job.memory), cell)


def occupied(tile: Region, place: Region, allowed: np.ndarray | None) -> Region | None:
    """The part of a tile in which there is something to compute."""
    if allowed is None:
        return tile
    inside = tile.within(place)
    rows, columns = (np.flatnonzero(inside.of(allowed).any(axis=axis)) for axis in (1, 0))
    if len(rows) == 0:
        return None
    return Region(
        tile.top + int(rows[0]),
        tile.top + int(rows[-1]) + 1,
        tile.left + int(columns[0]),
        tile.left + int(columns[-1]) + 1,
    )


def ahead(make: Callable[[Item], Made], items: Iterable[Item]) -> Iterator[tuple[Item, Made]]:
    """Each item and `make(item)`, computed one item ahead of the caller: reading overlaps computing."""
    with ThreadPoolExecutor(1) as pool:
        waiting = None
        for item in items:
            coming = (item, pool.submit(make, item))
            if waiting is not None:
                yield waiting[0], waiting[1].result()
            waiting = coming
        if waiting is not None:
            yield waiting[0], waiting[1].result()


Each = Callable[[Job, Iterable[Shard]], Iterable[str]]
"""Works on shards in any order and yields the name of each that is done."""


def here(model: Model) -> Each:
    """One shard after another in this process."""

    def each(job: Job, shards: Iterable[Shard]) -> Iterator[str]:
        for shard in shards:
            yield work_on(job, model, shard)

    return each


def on_workers(client: Any, content: bytes, device: str) -> Each:
    """Works on shards with the workers of a client; the model travels to each of them once."""
    model = cluster.broadcast(client, content)

    def each(job: Job, shards: Iterable[Shard]) -> Iterator[str]:
        for _, name in cluster.side_by_side(client, _shard, shards, job, model, device):
            if isinstance(name, HedgerowError):
                raise name
            yield name

    return each


def _shard(shard: Shard, job: Job, content: bytes, device: str) -> str:
    """Work on a shard unless it is done: the worker that did it may have died before it reported."""
    if job.markers.is_done(shard.name):
        return shard.name
    return work_on(job, loaded(content, device), shard)
