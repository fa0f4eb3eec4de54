"""The work on one shard: read its part of the image, predict it tile by tile, write it, mark it done."""

from dataclasses import dataclass

import numpy as np

from hedgerow.errors import HedgerowError, InputError, one_line
from hedgerow.features.joined import Joined
from hedgerow.files import fingerprint
from hedgerow.forest.level_input import fitting_tile
from hedgerow.images.reading import ImageSource, SourcePlanes, opened
from hedgerow.images.regions import Region
from hedgerow.images.stored import ImageSpec
from hedgerow.kernels import buffers
from hedgerow.predict.protocol import Model, class_values
from hedgerow.predict.tiling import region_outputs
from hedgerow.scale import ome_zarr_out
from hedgerow.scale.large_results import LargeResult
from hedgerow.scale.markers import Markers
from hedgerow.scale.masks import Mask
from hedgerow.scale.shards import TILE_BYTES, Shard, ShardGrid, tiles_to_compute

_EVERYWHERE_ALIKE = ("bank", "channels")  # features that do not depend on the position of a pixel


@dataclass(frozen=True)
class Job:
    """A prediction of one image; small, so that it travels with every task.

    region: the part of the image to predict; the results have its size
    run:    fingerprint of the record of its run
    tile:   side of a tile in pixels; None: as large as fits in `memory` bytes
    """

    wanted: ImageSpec
    results: tuple[LargeResult, ...]
    grid: ShardGrid
    region: Region
    mask: Mask | None = None
    tile: int | None = None
    memory: int = TILE_BYTES
    run: str = ""

    @property
    def markers(self) -> Markers:
        """The markers of the run, which are in its first result."""
        return Markers(self.results[0].store)


def work_on(job: Job, model: Model, shard: Shard) -> str:
    """Compute and write a shard of every result; returns its name."""
    if job.markers.is_done(shard.name):  # by a worker that died before it reported
        return shard.name
    try:
        contents = None if shard.level else predicted(job, model, shard)
        if fingerprint(job.markers.read_record()) != job.run:  # this worker may not know yet that its run has ended
            raise InputError(
                f"another run has replaced the one that was writing {job.results[0].path}; wait until that run ends."
            )
        for result in job.results:
            values = ome_zarr_out.shrunk(result, shard) if contents is None else contents[result.content]
            ome_zarr_out.write_shard(result, shard, values)
        job.markers.set_done(shard.name)
    except HedgerowError:
        raise
    except OSError as problem:
        key = ome_zarr_out.keys_of(job.results[0], shard)[0]
        raise InputError(
            f"cannot write {key} of {job.results[0].path}: {one_line(problem)}; check permissions and free space, then "
            "rerun the same command to resume."
        ) from problem
    finally:
        buffers.release()
    return shard.name


def predicted(job: Job, model: Model, shard: Shard) -> dict[str, np.ndarray]:
    """The content of each result in a shard, (h,w) or (C,h,w)."""
    image, region = opened(job.wanted), shard.region.placed_in(job.region)
    size = (region.height, region.width)
    contents = {result.content: np.full(result.shape(size), result.fill, result.dtype) for result in job.results}
    allowed = None if job.mask is None else job.mask.allowed(image, region)
    values = class_values(model)
    for tile, planes in tiles_to_compute(model, image, region, job.tile or fitting_tile(model, job.memory), allowed):
        inside, proba = tile.within(region), _proba(model, image, planes, tile)
        here = slice(None) if allowed is None else inside.of(allowed)
        for result in job.results:
            inside.of(contents[result.content])[..., here] = result.part(proba, values)[..., here]
    return contents


def _proba(model: Model, image: ImageSource, planes: SourcePlanes, tile: Region) -> np.ndarray:
    """(C,h,w) class probabilities of a tile; if all that it reads has the fill value, one pixel is computed for all."""
    can_be_empty = image.stored.fill is not None and is_alike(model)
    if not (can_be_empty and np.all(planes.values == np.float32(image.stored.fill))):
        return region_outputs(model, planes, tile)[-1]  # type: ignore[arg-type]
    corner = Region(tile.top, tile.top + 1, tile.left, tile.left + 1)
    pixel = region_outputs(model, planes, corner)[-1]  # type: ignore[arg-type]
    return np.broadcast_to(pixel, (len(pixel), tile.height, tile.width))


def is_alike(model: Model) -> bool:
    """Whether a model predicts the same for every pixel of a constant image."""
    kinds = model.features.members if isinstance(model.features, Joined) else (model.features,)
    is_plain = all(features.kind in _EVERYWHERE_ALIKE for features in kinds)
    return is_plain and all(model.level_tile(level) == 1 for level in range(model.n_levels))
