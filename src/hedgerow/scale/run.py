"""A prediction from beginning to end: begun or gone on with, shard by shard, level by level, then finished."""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from hedgerow import __version__
from hedgerow.errors import InputError, masked
from hedgerow.overwrite_guard import note_written
from hedgerow.predict.protocol import Model
from hedgerow.progress import Report, reporting
from hedgerow.scale import bigtiff_out, ome_zarr_out
from hedgerow.scale.large_results import described
from hedgerow.scale.markers import Markers
from hedgerow.scale.opening import opened
from hedgerow.scale.remote import is_remote, is_there
from hedgerow.scale.shard_prediction import Job, work_on
from hedgerow.scale.shards import Shard

Each = Callable[[Job, Iterable[Shard]], Iterable[str]]
"""Works on shards in any order and yields the name of each that is done."""


def record_of(job: Job, model_digest: str, device: str) -> dict[str, Any]:
    """All that the pixels of the results depend on: a run goes on only with the same."""
    return {
        "hedgerow": __version__,
        "model": model_digest,
        "image": dict(opened(job.wanted).identity),
        "level": opened(job.wanted).level,
        "results": described(job.results),
        "size": list(job.grid.size),
        "side": job.grid.side,
        "region": [job.region.top, job.region.bottom, job.region.left, job.region.right],
        "mask": None if job.mask is None else job.mask.identity,
        "device": device,
    }


def begin(job: Job, record: dict[str, Any], overwrite: bool) -> int:
    """Make the empty results, or go on with those of an earlier run; returns how many shards are done."""
    found = [Markers(result.store).read_record() for result in job.results]
    # The first one's record is written last and goes last: the others may be finished.
    if found[0] == record and all(
        one == record or is_there(result.path) for one, result in zip(found, job.results, strict=True)
    ):
        return len(job.markers.done())
    other = next((one for one in found if one is not None and one != record), None)
    if other is not None and not overwrite:
        what = ", ".join(name for name in record if other.get(name) != record[name]) or "results"
        raise InputError(
            f"{job.results[0].path} is the unfinished result of another run: it differs in {what}; give the same "
            "command as then to go on with it, or add --overwrite to begin anew."
        )
    for result in job.results:
        ome_zarr_out.check_result_removable(result, overwrite)
    for result in job.results:
        ome_zarr_out.remove(result, overwrite)
    for result in job.results[::-1]:  # the first one's record comes last: with it, all are there
        Markers(result.store).claim()
        ome_zarr_out.create(result, job.grid)
        Markers(result.store).begin(record)
    return 0


def run(job: Job, model: Model, each: Each, progress: Report | None = None) -> int:
    """Compute all shards that are not done, level after level, and finish; returns how many were computed."""
    done, n_computed = job.markers.done(), 0
    with reporting(progress) as report:
        n_done, total = len(done), job.grid.n_shards
        report("shards", n_done, total)
        for level in range(job.grid.n_levels):
            left = (shard for shard in job.grid.shards(level) if shard.name not in done)
            for _ in each(job, left):
                n_done += 1
                n_computed += 1
                report("shards", n_done, total)
        finish(job, model, report)
    return n_computed


def here(model: Model) -> Each:
    """One shard after another in this process."""

    def each(job: Job, shards: Iterable[Shard]) -> Iterator[str]:
        for shard in shards:
            yield work_on(job, model, shard)

    return each


def finish(job: Job, model: Model, report: Report) -> None:
    """Write the metadata of every result, or the TIFF it becomes, and remove what says that it is unfinished."""
    image = opened(job.wanted)
    corner = (job.region.top, job.region.left)
    for result in job.results:
        if Markers(result.store).read_record() is None:
            continue  # finished before the run was stopped
        name = f"{result.what} of {Path(masked(job.wanted.path).rstrip('/')).name}"
        ome_zarr_out.finish(result, job.grid, image.pixel, corner, name, model.legend)
        if result.is_tiff:
            bigtiff_out.write(result, job.grid, image.pixel, model, report)
    for result in job.results[::-1]:  # the first one's record goes last: with it, the run can be gone on with
        if result.is_tiff:
            ome_zarr_out.remove(result)
            continue
        if not is_remote(result.path):  # before it is finished: a run that is killed in between must find it to be ours
            final = Path(os.path.realpath(result.path))
            note_written(final, final)
        Markers(result.store).finish()
