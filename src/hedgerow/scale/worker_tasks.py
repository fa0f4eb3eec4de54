"""Tasks for the workers of a cluster: predicting files, computing shards, scoring parts of images.

A model travels as the bytes of its file, and each worker loads it once.
"""

import hashlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from hedgerow.errors import HedgerowError
from hedgerow.io import model_file
from hedgerow.predict.batch import Done, EachFile, OneFile, predict_file
from hedgerow.predict.devices import no_cuda
from hedgerow.predict.protocol import Model
from hedgerow.scale import cluster

EachPart = Callable[[Any, Iterable[Any]], Iterable[Any]]
"""(a job, its parts) -> the result of the work on each part, in any order"""


def content_of(model: Any) -> bytes:
    """The bytes of a model file, or of the file that `save` would write for a model."""
    if isinstance(model, str | Path):
        model_file.load(model)  # refuses any other file with a sentence
        return Path(model).read_bytes()
    return model_file.file_content(model)


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


@lru_cache(maxsize=2)
def loaded(content: bytes, device: str) -> Model:
    """The model on a device: "cpu", "cuda", or "auto": a GPU if there is one and the model is faster on it."""
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
    is_faster = type(model).__name__ != "ForestStack" or "encoder" in kinds
    return "cuda" if is_faster and no_cuda() is None else "cpu"


def predict_files_on(client: Any, content: bytes, device: str) -> EachFile:
    """A function that predicts files on the workers of a client; content: of the model file"""
    model = cluster.broadcast(client, content)

    def each(files: Sequence[Path], how: OneFile) -> Iterator[tuple[Path, Done]]:
        there = replace(how, folder=how.folder.absolute())  # workers may have another current folder
        by_path = {file.absolute(): file for file in files}
        for path, done in cluster.side_by_side(client, _predict_file, list(by_path), there, model, device):
            yield by_path[path], _as_named(done, path, by_path[path])

    return each


def _predict_file(file: Path, how: OneFile, content: bytes, device: str) -> Done:
    try:
        return predict_file(loaded(content, device), file, how)
    except HedgerowError as problem:
        return Done(failure=str(problem))


def _as_named(done: Done, path: Path, file: Path) -> Done:
    """The outcome with the file name that the user gave instead of the absolute path."""
    failure = None if done.failure is None else done.failure.replace(str(path), str(file))
    return replace(done, note=done.note.replace(str(path), str(file)), failure=failure)


def each_here(work: Callable[[Any, Model, Any], Any], model: Model) -> EachPart:
    """Does `work(job, model, part)` for one part after another in this process."""
    return lambda job, parts: (work(job, model, part) for part in parts)


def each_on(client: Any, work: Callable[[Any, Model, Any], Any], content: bytes, device: str) -> EachPart:
    """Does `work(job, model, part)` on the workers of a client; content: of the model file"""
    model = cluster.broadcast(client, content)

    def each(job: Any, parts: Iterable[Any]) -> Iterator[Any]:
        return (result for _, result in cluster.side_by_side(client, _do, parts, work, job, model, device))

    return each


def _do(part: Any, work: Callable[[Any, Model, Any], Any], job: Any, content: bytes, device: str) -> Any:
    return work(job, loaded(content, device), part)
