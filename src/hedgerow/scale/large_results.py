"""The results of a large prediction: labels, probabilities, confidence and entropy, each with its own path."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hedgerow.errors import InputError
from hedgerow.images.writing import scaled
from hedgerow.predict.protocol import MAPS, Model, class_values
from hedgerow.scale.remote import absolute, is_remote
from hedgerow.scale.result_names import split_ending

WHATS = ("labels", *MAPS)


@dataclass(frozen=True)
class LargeResult:
    """One of the results.

    path:   where it ends up, as it was given; store: the Zarr that it is computed into
    dtype:  of its numbers
    n_channels: None: it has no axis of channels
    names:  of the channels
    fill:   what pixels have that were not computed
    stamp:  of a run, as in `Wanted`
    """

    what: str
    path: str
    store: str
    dtype: str
    n_channels: int | None
    names: tuple[str, ...]
    fill: int
    stamp: str = ""

    @property
    def is_tiff(self) -> bool:
        """Whether it becomes a TIFF once it is computed."""
        return not self.path.rstrip("/").lower().endswith(".zarr")

    @property
    def bytes_per_pixel(self) -> int:
        return np.dtype(self.dtype).itemsize * (self.n_channels or 1)

    def shape(self, size: tuple[int, int]) -> tuple[int, ...]:
        return size if self.n_channels is None else (self.n_channels, *size)

    def part(self, proba: np.ndarray, values: np.ndarray) -> np.ndarray:
        """What is stored, from class probabilities (C,h,w) and the class values (C,)."""
        if self.what == "labels":
            return values[proba.argmax(axis=0)].astype(self.dtype)
        return scaled(MAPS[self.what](proba), self.dtype)


def results_for(
    model: Model, output: str, whats: Sequence[str], dtype: str, stamp: str = ""
) -> tuple[LargeResult, ...]:
    """The results that are asked for: labels under the name itself, others as name_proba and so on."""
    unknown = [what for what in whats if what not in WHATS]
    if unknown or not whats:
        raise InputError(f"asked for {', '.join(unknown) or 'nothing'}; choose from {', '.join(WHATS)}.")
    stem, ending = split_ending(output)
    found = []
    for what in WHATS:
        if what not in whats:
            continue
        path = output if what == "labels" else f"{stem}_{what}{ending}"
        store = absolute(path if ending.lower().endswith(".zarr") else f"{path}.hedgerow-unfinished.zarr")
        store = store if is_remote(store) else os.path.realpath(store)  # a link stays, what it points to is replaced
        names = tuple(model.legend.spoken(value) for value in model.classes) if what == "proba" else ()
        n_channels = model.n_classes if what == "proba" else None
        fill = model.unlabelled if what == "labels" else 0
        found.append(LargeResult(what, path, store, _dtype(model, what, dtype), n_channels, names, fill, stamp))
    return tuple(found)


def _dtype(model: Model, what: str, dtype: str) -> str:
    """Of labels: the smallest that holds the classes, and the value of what was not computed."""
    if what != "labels":
        return dtype
    low, high = min(*model.classes, model.unlabelled), max(*model.classes, model.unlabelled)
    candidates = ("uint8", "uint16", "uint32", "int32", "int64")
    return next(kind for kind in candidates if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max)


def parts(results: Sequence[LargeResult], proba: np.ndarray, model: Model) -> dict[str, np.ndarray]:
    """By result, what is stored."""
    values = class_values(model)
    return {result.what: result.part(proba, values) for result in results}


def described(results: Sequence[LargeResult]) -> list[dict[str, Any]]:
    """For the record of a run."""
    return [{"what": one.what, "path": absolute(one.path), "dtype": one.dtype, "fill": one.fill} for one in results]
