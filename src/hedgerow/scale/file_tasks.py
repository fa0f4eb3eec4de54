"""Prediction of many files on the workers of a cluster, one task per file."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hedgerow.errors import HedgerowError
from hedgerow.predict.batch import Done, EachFile, OneFile, predict_file
from hedgerow.scale import cluster
from hedgerow.scale.model_bytes import loaded


def on(client: Any, content: bytes, device: str) -> EachFile:
    """A function that predicts files on the workers of a client; content: of the model file"""
    model = cluster.broadcast(client, content)

    def each(files: Sequence[Path], how: OneFile) -> Iterator[tuple[Path, Done]]:
        there = replace(how, folder=how.folder.absolute())  # workers may run in other folders
        named = {file.absolute(): file for file in files}
        for path, done in cluster.side_by_side(client, _file, list(named), there, model, device):
            failed = isinstance(done, HedgerowError)
            yield named[path], _as_named(Done(failure=str(done)) if failed else done, path, named[path])

    return each


def _file(file: Path, how: OneFile, content: bytes, device: str) -> Done:
    return predict_file(loaded(content, device), file, how)


def _as_named(done: Done, path: Path, file: Path) -> Done:
    """The outcome with the name that the user gave in place of the absolute path."""
    failure = None if done.failure is None else done.failure.replace(str(path), str(file))
    return replace(done, note=done.note.replace(str(path), str(file)), failure=failure)
