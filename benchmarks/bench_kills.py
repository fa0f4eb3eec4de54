"""kill -9 of a worker, of the scheduler, of the client, and of all of them, at random moments of a prediction.

A scheduler, two workers and the client are separate processes. What was killed is started again, and the same call is
made again where it failed. The finished result must be the same files as an undisturbed run writes, and no worker may
have lost more than one shard, which is computed again.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

import hedgerow as hr
from bench_large import NOISE, drawn, write_image
from dask_processes import Cluster, client, free_port, kill, running, wait_until_done
from hedgerow.images.regions import Region
from hedgerow.progress import silent
from measure import require, table

TITLE = "Killed"
VICTIMS = ("worker", "scheduler", "client", "all")
TIMES = {False: 20, True: 1}
SIDE, SHARD, N_SHARDS, N_WORKERS = 4096, 1024, 21, 2
MOST_TRIES = 8
IMAGE, RESULT = "image.ome.zarr", "killed.ome.zarr"


def quick_model() -> hr.ForestStack:
    """A model that needs a moment per shard; its quality does not matter here."""
    image = drawn(Region(0, 256, 0, 256))
    config = hr.StackConfig(n_levels=1, n_trees=2, max_depth=4, sigmas=(1.0,), drop_levels=False)
    return hr.fit_stack(image, (image > 150 - NOISE).astype(np.uint8), config, progress=silent)


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def one_kill(
    cluster: Cluster, victim: str, folder: Path, moment: int, expected: dict[str, bytes], shard: int
) -> list[int]:
    """Kill after this number of shards and finish; returns the number of shards that each worker lost, if any."""
    result = folder / RESULT
    shutil.rmtree(result, ignore_errors=True)
    cluster.begun.unlink(missing_ok=True)
    arguments = (cluster.address, folder, IMAGE, RESULT, shard)
    process = client(*arguments)
    wait_until_done(result, moment, process)
    if victim in ("client", "all"):
        kill(process)
    if victim in ("scheduler", "all"):
        assert cluster.scheduler is not None
        kill(cluster.scheduler)
    if victim == "worker":
        kill(cluster.workers.pop(0))
        cluster.start_worker()
    elif victim == "all":
        cluster.stop()
    elif victim == "scheduler":
        cluster.wait_for_workers()
        process.wait(timeout=120)
    if cluster.scheduler is None or cluster.scheduler.poll() is not None:
        cluster.start_scheduler()
        for _ in range(N_WORKERS):
            cluster.start_worker()
    tries = 0
    while process.wait(timeout=300) != 0:
        tries += 1
        require(tries < MOST_TRIES, f"it failed {tries} times: {(folder / 'client.log').read_text()[-500:]}")
        process = client(*arguments)
    where = f"after {victim} killed at {moment} shards"
    require(files_of(result) == expected, f"{where} the result differs.")
    lost = lost_shards(cluster.begun.read_text())
    require(max(lost, default=0) <= 1, f"{where} workers lost {lost} shards.")
    return lost


def lost_shards(begun: str) -> list[int]:
    """The number of shards that each worker lost, because they were begun again, from lines "shard worker"."""
    last, lost = dict[str, str](), Counter[str]()
    for line in begun.splitlines():
        shard, worker = line.split()
        if shard in last:
            lost[last[shard]] += 1
        last[shard] = worker
    return list(lost.values())


def run(small: bool = False) -> str:
    victims = os.environ.get("HEDGEROW_BENCH_VICTIMS", ",".join(VICTIMS)).split(",")
    times = int(os.environ.get("HEDGEROW_BENCH_KILLS", TIMES[small]))
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = quick_model()
        hr.save(model, folder / "model.hedge")
        write_image(folder / IMAGE, SIDE)
        hr.predict_large(model, folder / IMAGE, folder / "whole.ome.zarr", shard=SHARD, progress=silent)
        expected = files_of(folder / "whole.ome.zarr")
        with running(folder, N_WORKERS, free_port()) as cluster:
            for victim in victims:
                rng = np.random.default_rng(VICTIMS.index(victim))
                moments = rng.integers(0, N_SHARDS, times).tolist()
                lost = [one_kill(cluster, victim, folder, moment, expected, SHARD) for moment in moments]
                most, total = max(max(one, default=0) for one in lost), sum(map(sum, lost))
                rows.append([victim, str(times), "all", str(most), str(total)])
    heads = ["killed", "times", "same files", "shards that a worker lost, at most", "lost in all"]
    return "\n".join([f"{SIDE:,}^2 pixels, {N_SHARDS} shards, {N_WORKERS} workers:", "", table(heads, rows)])
