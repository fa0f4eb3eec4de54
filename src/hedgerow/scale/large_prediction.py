"""Prediction of one image of any size, in this process or on the workers of a cluster."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from hedgerow import __version__
from hedgerow.errors import InputError, masked
from hedgerow.files import PathLike, check_folder_writable, fingerprint
from hedgerow.images.array_checks import check_channels
from hedgerow.images.reading import ImageSource, opened, spec_for_workers
from hedgerow.images.remote import absolute, is_remote, is_there
from hedgerow.images.stored import Pages
from hedgerow.locking import locked
from hedgerow.overwrite_guard import ELSEWHERE, check_overwriting, note_written
from hedgerow.predict.protocol import Model, note_on_dtype, refuse_volumes
from hedgerow.progress import Report, reporting
from hedgerow.scale import bigtiff_out, cluster, ome_zarr_out, shard_prediction
from hedgerow.scale.costs import refuse_endless
from hedgerow.scale.large_results import LargeResult, results_for
from hedgerow.scale.markers import Markers
from hedgerow.scale.masks import mask_of, region_of
from hedgerow.scale.shard_prediction import Job
from hedgerow.scale.shards import TILE_BYTES, grid_for
from hedgerow.scale.worker_tasks import EachPart, content_of, digest_of, each_here, each_on, loaded

if TYPE_CHECKING:
    from distributed import Client


@dataclass(frozen=True)
class PredictedLarge:
    """Paths of the results by content; n_resumed of n_shards were done by an earlier run."""

    results: dict[str, str]
    size: tuple[int, ...]
    n_shards: int
    n_resumed: int


def predict_large(
    model: Any,
    image: PathLike,
    output: PathLike,
    *,
    what: Sequence[str] = ("labels",),
    dtype: str = "float32",
    level: int = 0,
    pixel_size: float | None = None,
    pages: Pages = None,
    region: str | None = None,
    mask: str | None = None,
    tile: int | None = None,
    memory: int = TILE_BYTES,
    shard: int | None = None,
    device: str = "cpu",
    client: Client | str | int | None = None,
    overwrite: bool = False,
    say: Any = lambda text: None,
    progress: Report | None = None,
) -> PredictedLarge:
    """Predict an image of any size into OME-Zarr or BigTIFF; the values equal those of `model.predict`.

    model:  a model, or the name of its file
    image:  a file or an address (s3://, https://); read in parts if its format allows that
    output: ends in .ome.zarr or .ome.tif; if the same call was interrupted, it is resumed
    what:   of "labels", "proba", "confidence", "entropy"; all but the labels are written to output_proba and so on
    dtype:  of all but labels: "float32", "uint8" or "uint16"
    level, pixel_size: which level of a pyramid, by number or by micrometres
    region: "TOP:BOTTOM,LEFT:RIGHT"; None: all
    mask:   an image that is 0 where nothing is to be computed, or a threshold such as "> 30"
    tile:   side of a tile in pixels; None: as large as fits in `memory` bytes per worker
    shard:  side of the square that one task computes and writes, a multiple of 512; None: at most 2,048
    client: a `dask.distributed.Client`, the address of a scheduler, or a number of worker processes; None: this process

    >>> images, labels = hr.synthetic.somites(n_images=2, size=(40, 48))
    >>> stack = hr.fit_stack(images, labels, hr.StackConfig(n_levels=1, n_trees=2))
    >>> np.save("large.npy", images[0])
    >>> hr.predict_large(stack, "large.npy", "large.ome.zarr").results
    {'labels': 'large.ome.zarr'}
    >>> bool((hr.read_image("large.ome.zarr") == stack.predict(images[0])).all())
    True
    """
    content = content_of(model)
    own, stamp = loaded(content, "cpu"), uuid4().hex
    refuse_volumes(own, "prediction of an image larger than memory")
    wanted = spec_for_workers(image, own.features.layout, pages, level=level, pixel_size=pixel_size, stamp=stamp)
    lazy = opened(wanted)
    check_image(own, lazy, say)
    part = region_of(region, lazy.size)
    refuse_endless(lazy, part)
    chosen = mask_of(mask, stamp)
    if chosen is not None:
        chosen.check(lazy)
    results = results_for(own, str(output), what, dtype, stamp)
    grid = grid_for((part.height, part.width), sum(result.bytes_per_pixel for result in results), shard)
    job = Job(wanted, results, grid, part, chosen, tile, memory)
    inputs = [str(image), *([str(model)] if isinstance(model, str | Path) else [])]
    inputs += [chosen.path] if chosen is not None and chosen.path else []
    _check_places(results, inputs, overwrite)
    record = record_of(job, digest_of(content), device)
    job = replace(job, run=fingerprint(record))
    with ExitStack() as exits:
        for result in results:
            if not is_remote(result.path):  # an object store has no locks
                exits.enter_context(locked(Path(result.path)))
        n_done = begin(job, record, overwrite)
        if n_done:
            say(f"resuming: {n_done:,} of {grid.n_shards:,} shards are done")
        connection = exits.enter_context(cluster.connected(client))
        work = shard_prediction.work_on
        each = each_on(connection, work, content, device) if connection else each_here(work, loaded(content, device))
        run_shards(job, own, each, progress)
    return PredictedLarge({result.content: result.path for result in results}, grid.size, grid.n_shards, n_done)


def check_image(model: Model, image: ImageSource, say: Any) -> None:
    """Refuse an image whose channels differ from the training images', and say how it was understood."""
    check_channels(image.shape[0], model.features.n_inputs, image.name)
    if image.words:
        say(f"{image.name}: {image.words}")
    if image.stored.n_levels > 1:
        stored, (height, width) = image.stored, image.size
        say(f"{image.name}: level {stored.level} of {stored.n_levels}, {height} x {width} pixels")
    if note := note_on_dtype(model, image.dtype, image.name):
        say(note)


def _check_places(results: Sequence[LargeResult], inputs: Sequence[str], overwrite: bool) -> None:
    """Refuse to overwrite an input, or anything that Hedgerow did not write; `begin` looks at unfinished results."""
    for result in results:
        if is_remote(result.path):
            _check_kind(result)
        elif not Path(result.path).parent.is_dir():
            raise InputError(
                f"cannot write {result.path}: there is no folder {Path(result.path).parent}; make it first."
            )
        else:
            check_folder_writable(Path(result.path).parent)
        for read in inputs:
            if _overlap(absolute(result.path), absolute(read)):
                raise InputError(f"{result.path} would overwrite the input {read}; choose another name.")
    # An unfinished folder is ours; `begin` resumes or refuses it. Reading its record refuses a damaged one.
    markers = [Markers(result.store) for result in results]
    begun = [marker.read_record() is not None or marker.are_there() for marker in markers]
    left = [result for result, is_begun in zip(results, begun, strict=True) if result.is_tiff or not is_begun]
    local = [Path(result.path) for result in left if not is_remote(result.path)]
    check_overwriting(local, [path for path in inputs if not is_remote(path)], overwrite)
    for result in left:  # there is no record of files written to other machines
        if is_remote(result.path) and not overwrite and is_there(result.path):
            raise InputError(f"{result.path} would be overwritten; {ELSEWHERE}")


def _overlap(place: str, other: str) -> bool:
    """Whether two places are the same, or one lies in the other."""
    real = (place if is_remote(place) else os.path.realpath(place) for place in (place, other))
    first, second = (f"{place.rstrip('/')}/" for place in real)
    return first.startswith(second) or second.startswith(first)


def _check_kind(result: LargeResult) -> None:
    """Refuse results that cannot be written to another machine."""
    path = result.path
    if path.startswith(("http://", "https://")):
        raise InputError(f"cannot write {path}: results cannot be written to web addresses; give a folder, or s3://.")
    if result.is_tiff:
        raise InputError(
            f"cannot write {path}: only OME-Zarr can be written there; give a name that ends in .ome.zarr."
        )


def record_of(job: Job, model_digest: str, device: str) -> dict[str, Any]:
    """Everything that determines the pixels of the results: only an identical run resumes."""
    return {
        "hedgerow": __version__,
        "model": model_digest,
        "image": dict(opened(job.wanted).identity),
        "level": opened(job.wanted).stored.level,
        "results": [
            {"what": result.content, "path": absolute(result.path), "dtype": result.dtype, "fill": result.fill}
            for result in job.results
        ],
        "size": list(job.grid.size),
        "side": job.grid.side,
        "region": [job.region.top, job.region.bottom, job.region.left, job.region.right],
        "mask": None if job.mask is None else job.mask.identity,
        "device": device,
    }


def begin(job: Job, record: dict[str, Any], overwrite: bool) -> int:
    """Create empty results, or resume those of an earlier run; returns the number of shards that are done."""
    records = [Markers(result.store).read_record() for result in job.results]
    # The record of the first result is written last and removed last, so the other results may be finished already.
    if records[0] == record and all(
        there == record or is_there(result.path) for there, result in zip(records, job.results, strict=True)
    ):
        return len(job.markers.done())
    other = next((there for there in records if there is not None and there != record), None)
    if other is not None and not overwrite:
        what = ", ".join(name for name in record if other.get(name) != record[name]) or "results"
        raise InputError(
            f"{job.results[0].path} is the unfinished result of another run: it differs in {what}; rerun the "
            "original command to resume it, or add --overwrite to start over."
        )
    for result in job.results:
        ome_zarr_out.check_result_removable(result, overwrite)
    for result in job.results:
        ome_zarr_out.remove(result, overwrite)
    for result in job.results[::-1]:  # the first one comes last: its record shows that all are there
        Markers(result.store).claim()
        ome_zarr_out.create(result, job.grid)
        Markers(result.store).begin(record)
    return 0


def run_shards(job: Job, model: Model, each: EachPart, progress: Report | None = None) -> None:
    """Compute all shards that are not done, level after level, and finish."""
    done = job.markers.done()
    with reporting(progress) as report:
        n_done, total = len(done), job.grid.n_shards
        report("shards", n_done, total)
        for level in range(job.grid.n_levels):
            left = (shard for shard in job.grid.shards(level) if shard.name not in done)
            for _ in each(job, left):
                n_done += 1
                report("shards", n_done, total)
        finish(job, model, report)


def finish(job: Job, model: Model, report: Report) -> None:
    """Write the metadata of every result, or its TIFF, and remove the markers of an unfinished result."""
    image = opened(job.wanted)
    corner = (job.region.top, job.region.left)
    for result in job.results:
        if Markers(result.store).read_record() is None:
            continue  # finished before the run was stopped
        name = f"{result.content} of {Path(masked(job.wanted.path).rstrip('/')).name}"
        ome_zarr_out.finish(result, job.grid, image.voxel_size, corner, name, model.legend)
        if result.is_tiff:
            bigtiff_out.write(result, job.grid, image.voxel_size, model, report)
    for result in job.results[::-1]:  # the first record is removed last: it allows the run to be resumed
        if result.is_tiff:
            ome_zarr_out.remove(result)
            continue
        # First: if this run is killed in between, the next one must know that the result is ours.
        if not is_remote(result.path):
            final = Path(os.path.realpath(result.path))
            note_written(final, final)
        Markers(result.store).finish()
