"""Tasks for the workers of a cluster: files to predict, shards to compute, parts of images to score.

A model travels as the bytes of its file, and each worker loads it once.
"""

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from hedgerow.errors import HedgerowError
from hedgerow.images.regions import Region
from hedgerow.io import model_file
from hedgerow.predict.batch import Done, EachFile, OneFile, predict_file
from hedgerow.predict.devices import no_cuda
from hedgerow.predict.protocol import Model
from hedgerow.scale import cluster
from hedgerow.scale.large_pairs import LargePair
from hedgerow.scale.large_scores import Tables, table_of
from hedgerow.scale.shard_prediction import Each, Job, work_on
from hedgerow.scale.shards import Shard


def content_of(model: Any) -> bytes:
    """The bytes of the file of a model, or of what `load` returned."""
    if isinstance(model, str | Path):
        model_file.load(model)  # refuses anything else with a sentence
        return Path(model).read_bytes()
    return model_file.file_content(model)


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


@lru_cache(maxsize=2)
def loaded(content: bytes, device: str) -> Model:
    """The model on a device: "cpu", "cuda", or "auto" for a GPU if there is one and the model gains by it."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "model.hedge").write_bytes(content)
        model: Any = model_file.load(Path(folder) / "model.hedge")
    model.features.check_here()
    placed: Model = model.to(resolved(device, model))
    return placed


def resolved(device: str, model: Any) -> str:
    """The device that "auto" stands for: a GPU for networks and encoders, if there is one; forests need none."""
    if device != "auto":
        return device
    kinds = {one.kind for one in getattr(model.features, "members", (model.features,))}
    gains = type(model).__name__ != "ForestStack" or "encoder" in kinds
    return "cuda" if gains and no_cuda() is None else "cpu"


def predict_files_on(client: Any, content: bytes, device: str) -> EachFile:
    """A function that predicts files on the workers of a client; content: of the model file"""
    model = cluster.broadcast(client, content)

    def each(files: Sequence[Path], how: OneFile) -> Iterator[tuple[Path, Done]]:
        there = replace(how, folder=how.folder.absolute())  # workers may run in other folders
        named = {file.absolute(): file for file in files}
        for path, done in cluster.side_by_side(client, _predict_file, list(named), there, model, device):
            yield named[path], _as_named(done, path, named[path])

    return each


def _predict_file(file: Path, how: OneFile, content: bytes, device: str) -> Done:
    try:
        return predict_file(loaded(content, device), file, how)
    except HedgerowError as problem:
        return Done(failure=str(problem))


def _as_named(done: Done, path: Path, file: Path) -> Done:
    """The outcome with the name that the user gave in place of the absolute path."""
    failure = None if done.failure is None else done.failure.replace(str(path), str(file))
    return replace(done, note=done.note.replace(str(path), str(file)), failure=failure)


def _results_on(client: Any, content: bytes, device: str, work: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
    """A function of a job and its parts that does some work on each part, with a model, on the workers of a client."""
    model = cluster.broadcast(client, content)
    return lambda job, parts: (result for _, result in cluster.side_by_side(client, work, parts, job, model, device))


def compute_shards_on(client: Any, content: bytes, device: str) -> Each:
    """A function that computes shards on the workers of a client; content: of the model file"""
    return _results_on(client, content, device, _compute_shard)


def _compute_shard(shard: Shard, job: Job, content: bytes, device: str) -> str:
    """Work on a shard unless it is done: the worker that did it may have died before it reported."""
    if job.markers.is_done(shard.name):
        return shard.name
    return work_on(job, loaded(content, device), shard)


def score_parts_on(client: Any, content: bytes, device: str) -> Tables:
    """A function that scores parts of images on the workers of a client; content: of the model file"""
    return _results_on(client, content, device, _score_part)


def _score_part(place: Region, pair: LargePair, content: bytes, device: str) -> np.ndarray:
    return table_of(pair, loaded(content, device), place)
