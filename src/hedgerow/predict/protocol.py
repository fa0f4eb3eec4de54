"""The protocol that every model answers to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from hedgerow.features.bank import FeatureSet
from hedgerow.images.regions import Region


class Model(Protocol):
    """What prediction needs to know of a stack or a network."""

    @property
    def features(self) -> FeatureSet: ...
    @property
    def classes(self) -> tuple[int, ...]: ...
    @property
    def unlabelled(self) -> int: ...
    @property
    def image_dtype(self) -> str: ...
    @property
    def n_levels(self) -> int: ...
    @property
    def n_classes(self) -> int: ...
    @property
    def receptive_field(self) -> int: ...
    def level_reach(self, level: int) -> int: ...
    def predict(self, image: np.ndarray, **options: Any) -> np.ndarray: ...
    def run_level(
        self,
        level: int,
        channels: np.ndarray | Sequence[np.ndarray],
        inner: Region,
        reach: np.ndarray | None,
        outside: np.ndarray | None,
    ) -> np.ndarray: ...
