"""kill -9 of a worker, of the scheduler and of the client, at random moments of a prediction on two workers.

Scheduler, workers and the command are separate processes. What was killed is started again, and the same command is
given again where it failed. The finished result must be the same files as an undisturbed run writes, and at most one
shard for each worker may have been computed twice.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import numpy as np

import hedgerow as hr
from bench_large import NOISE, drawn, write_image
from dask_processes import Cluster, command, free_port, kill, running, wait_until_done
from hedgerow.images.regions import Region
from hedgerow.progress import silent
from measure import require, table

TITLE = "Killed"
VICTIMS = ("worker", "scheduler", "client")
TIMES = {False: 20, True: 1}
SIDE, N_SHARDS, N_WORKERS = 6000, 14, 2
MOST_TRIES = 8


def quick_model() -> hr.ForestStack:
    """A model that takes a moment for a shard: what is tried here is not the model."""
    image = drawn(Region(0, 256, 0, 256))
    config = hr.StackConfig(n_levels=1, n_trees=2, max_depth=4, sigmas=(1.0,), drop_levels=False)
    return hr.fit_stack(image, (image > 150 - NOISE).astype(np.uint8), config, progress=silent)


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def one_kill(cluster: Cluster, victim: str, folder: Path, moment: int, expected: dict[str, bytes]) -> int:
    """Kill one process after so many shards, go on to the end, and return how many shards were computed twice."""
    result = folder / "killed.ome.zarr"
    shutil.rmtree(result, ignore_errors=True)
    cluster.begun.unlink(missing_ok=True)
    arguments = ("predict", "model.hedge", _image(folder), "-o", result.name, "--cluster", cluster.address, "--json")
    client = command(*arguments, folder=folder)
    wait_until_done(result, moment, client)
    if victim == "worker":
        kill(cluster.workers.pop(0))
        cluster.start_worker()
    elif victim == "scheduler":
        assert cluster.scheduler is not None
        kill(cluster.scheduler)
        for worker in cluster.workers:
            kill(worker)
        cluster.workers.clear()
        client.wait(timeout=120)
        cluster.start_scheduler()
        for _ in range(N_WORKERS):
            cluster.start_worker()
    else:
        kill(client)
    tries = 0
    while client.wait(timeout=300) != 0:
        tries += 1
        require(tries < MOST_TRIES, f"the command failed {tries} times: {(folder / 'command.log').read_text()[-500:]}")
        client = command(*arguments, folder=folder)
    require(files_of(result) == expected, f"after the {victim} was killed at {moment} shards the result differs.")
    begun = cluster.begun.read_text().split()
    twice = len(begun) - len(set(begun))
    require(
        twice <= N_WORKERS, f"after the {victim} was killed at {moment} shards, {twice} shards were computed twice."
    )
    return twice


def _image(folder: Path) -> str:
    return next(name for name in ("image.zarr", f"image{SIDE}.ome.zarr") if (folder / name).exists())


def run(small: bool = False) -> str:
    rng = np.random.default_rng(0)
    times = int(os.environ.get("HEDGEROW_BENCH_KILLS", TIMES[small]))
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = quick_model()
        hr.save(model, folder / "model.hedge")
        write_image(folder / f"image{SIDE}.ome.zarr", SIDE)
        hr.predict_large(model, folder / _image(folder), folder / "whole.ome.zarr", progress=silent)
        expected = files_of(folder / "whole.ome.zarr")
        with running(folder, N_WORKERS, free_port()) as cluster:
            for victim in VICTIMS:
                twice = [
                    one_kill(cluster, victim, folder, int(rng.integers(0, N_SHARDS + 1)), expected)
                    for _ in range(times)
                ]
                rows.append([victim, str(times), "all", str(max(twice)), str(sum(twice))])
    heads = ["killed", "times", "same files", "shards computed twice, at most", "in all"]
    return "\n".join([f"{SIDE:,}^2 pixels, {N_SHARDS} shards, {N_WORKERS} workers:", "", table(heads, rows)])
