"""The protocol that every model follows, and the maps that its class probabilities become."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from hedgerow.errors import InputError
from hedgerow.forest.history import Known
from hedgerow.forest.level_input import Layered, LevelInput, dimensions_of
from hedgerow.images.legend import Legend

ANISOTROPY_TOLERANCE = 0.05  # relative


class Model(Layered, Protocol):
    """A stack, a network, or any other model that computes class probabilities level by level."""

    @property
    def classes(self) -> tuple[int, ...]: ...
    @property
    def unlabelled(self) -> int: ...
    @property
    def image_dtype(self) -> str: ...
    @property
    def legend(self) -> Legend: ...
    @property
    def known(self) -> Known: ...
    @property
    def settings(self) -> dict[str, Any]: ...
    @property
    def device(self) -> Any: ...
    def run_level(self, level: int, level_input: LevelInput) -> np.ndarray: ...
    def predict(self, image: np.ndarray, **options: Any) -> np.ndarray: ...
    def predict_proba(self, image: np.ndarray, **options: Any) -> np.ndarray: ...
    def level_outputs(self, image: np.ndarray, **options: Any) -> list[np.ndarray]: ...


def note_on_dtype(model: Model, dtype: np.dtype, name: str) -> str:
    """A note about an image whose number type differs from that of the training images, or ""."""
    if not model.image_dtype or str(dtype) == model.image_dtype:
        return ""
    return (
        f"note: {name} is {dtype} but the model learned from {model.image_dtype}; check that the pixel values have the "
        "same meaning"
    )


def refuse_volumes(model: Model, work: str) -> None:
    """Raise InputError for a model of volumes; work: what is for models of images, in words"""
    if dimensions_of(model) == 3:
        raise InputError(
            f"{work} is for models of images, and this one learned from volumes, which can be predicted, evaluated, "
            "refined and mapped back."
        )


def note_on_voxel_size(model: Model, anisotropy: float, name: str) -> str:
    """A note about a volume whose slices lie at another distance, in pixels, than those of the training volumes, or
    ""."""
    known = model.settings.get("anisotropy")
    is_known = isinstance(known, int | float) and known > 0  # a model file may hold anything
    if known is None or not is_known or abs(anisotropy / known - 1) <= ANISOTROPY_TOLERANCE:
        return ""
    return (
        f"note: the slices of {name} are {anisotropy:.3g} pixels apart, but the model learned from volumes where they "
        f"are {known:.3g}; scale the volume, or expect worse results"
    )


def class_values(model: Model) -> np.ndarray:
    """(C,) class values, in the smallest sufficient integer type."""
    return np.array(model.classes, np.min_scalar_type(max(model.classes)) if min(model.classes) >= 0 else np.int64)


def relative_entropy(proba: np.ndarray) -> np.ndarray:
    """(H,W) float32 entropy of class probabilities (C,H,W), relative to the maximum: 0 certain, 1 undecided; (Z,H,W) of
    a volume (C,Z,H,W)."""
    if proba.ndim == 4:
        return relative_entropy(proba.reshape(len(proba), -1, proba.shape[-1])).reshape(proba.shape[1:])
    surprise = -np.log(np.where(proba > 0, proba, 1))
    entropy = np.einsum("chw,chw->hw", proba, surprise) / np.log(len(proba))
    return np.clip(entropy, 0, 1).astype(np.float32)


MAPS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "proba": lambda proba: proba,
    "confidence": lambda proba: proba.max(axis=0),
    "entropy": relative_entropy,
}
