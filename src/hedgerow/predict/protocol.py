"""The protocol that every model answers to."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from hedgerow.forest.level_input import Layered


class Model(Layered, Protocol):
    """A stack, a network, or whatever else says class probabilities level by level; `run` knows who runs which."""

    @property
    def classes(self) -> tuple[int, ...]: ...
    @property
    def unlabelled(self) -> int: ...
    @property
    def image_dtype(self) -> str: ...
    @property
    def settings(self) -> dict[str, Any]: ...
    @property
    def device(self) -> Any: ...
    def predict(self, image: np.ndarray, **options: Any) -> np.ndarray: ...
    def predict_proba(self, image: np.ndarray, **options: Any) -> np.ndarray: ...
    def level_outputs(self, image: np.ndarray, **options: Any) -> list[np.ndarray]: ...
