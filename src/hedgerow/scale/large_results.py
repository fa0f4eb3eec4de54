"""The results of a large prediction: labels, probabilities, confidence and entropy, each with its own path."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hedgerow.errors import InputError
from hedgerow.images.remote import absolute, is_remote
from hedgerow.images.writing import scaled
from hedgerow.predict.protocol import MAPS, Model
from hedgerow.scale.result_names import split_ending

CONTENTS = ("labels", *MAPS)


@dataclass(frozen=True)
class LargeResult:
    """One of the results.

    content: "labels", or one of MAPS
    path:   the user's name for it; store: the Zarr that it is computed into
    dtype:  of its values
    n_channels: None: it has no axis of channels
    names:  of the channels
    fill:   the value of pixels that are not computed
    stamp:  identifies the run, as in `ImageSpec`
    """

    content: str
    path: str
    store: str
    dtype: str
    n_channels: int | None
    names: tuple[str, ...]
    fill: int
    stamp: str = ""

    @property
    def is_tiff(self) -> bool:
        """Whether it is converted to a TIFF once it is computed."""
        return not self.path.rstrip("/").lower().endswith(".zarr")

    @property
    def bytes_per_pixel(self) -> int:
        return np.dtype(self.dtype).itemsize * (self.n_channels or 1)

    def shape(self, size: tuple[int, int]) -> tuple[int, ...]:
        return size if self.n_channels is None else (self.n_channels, *size)

    def part(self, proba: np.ndarray, values: np.ndarray) -> np.ndarray:
        """The values to store, from class probabilities (C,h,w) and the class values (C,)."""
        if self.content == "labels":
            return values[proba.argmax(axis=0)].astype(self.dtype)
        return scaled(MAPS[self.content](proba), self.dtype)


def results_for(
    model: Model, output: str, contents: Sequence[str], dtype: str, stamp: str = ""
) -> tuple[LargeResult, ...]:
    """The requested results: labels under the name itself, others as name_proba and so on."""
    unknown = [content for content in contents if content not in CONTENTS]
    if unknown or not contents:
        raise InputError(f"cannot predict {', '.join(unknown) or 'nothing'}; choose from {', '.join(CONTENTS)}.")
    stem, ending = split_ending(output)
    results = []
    for content in CONTENTS:
        if content not in contents:
            continue
        path = output if content == "labels" else f"{stem}_{content}{ending}"
        store = absolute(path if ending.lower().endswith(".zarr") else f"{path}.hedgerow-unfinished.zarr")
        # The target of a link is replaced, the link stays.
        store = store if is_remote(store) else os.path.realpath(store)
        names = tuple(model.legend.spoken(value) for value in model.classes) if content == "proba" else ()
        n_channels = model.n_classes if content == "proba" else None
        fill = model.unlabelled if content == "labels" else 0
        results.append(LargeResult(content, path, store, _dtype(model, content, dtype), n_channels, names, fill, stamp))
    return tuple(results)


def _dtype(model: Model, content: str, dtype: str) -> str:
    """The type of a result; for labels, the smallest that fits all class values and the unlabelled value."""
    if content != "labels":
        return dtype
    low, high = min(*model.classes, model.unlabelled), max(*model.classes, model.unlabelled)
    candidates = ("uint8", "uint16", "uint32", "int32", "int64")
    return next(kind for kind in candidates if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max)
