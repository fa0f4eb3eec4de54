"""Loaded by the workers of `dask_processes` (`--preload`): notes each shard that a worker begins, and which worker.

So those that are computed twice can be counted.
"""

import os
from typing import Any

from hedgerow.scale import shard_prediction
from hedgerow.scale.shard_prediction import Job, work_on
from hedgerow.scale.shards import Shard


def dask_setup(worker: Any) -> None:
    shard_prediction.work_on = _noted


def _noted(job: Job, model: Any, shard: Shard) -> str:
    with open(os.environ["HEDGEROW_SHARDS_BEGUN"], "a") as file:
        file.write(f"{shard.name} {os.getpid()}\n")
    return work_on(job, model, shard)
