"""The user's own channels as features, e.g. embeddings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from hedgerow.config import StackConfig
from hedgerow.features.protocol import FeatureSet, check_features, unfitted
from hedgerow.images.array_checks import Layout


@dataclass(frozen=True)
class Channels(FeatureSet):
    """The image's channels, as they are."""

    kind: ClassVar[str] = "channels"
    layout: ClassVar[Layout] = "planes"

    n_inputs: int
    mean: np.ndarray
    std: np.ndarray

    @classmethod
    def from_images(cls, images: Sequence[np.ndarray], config: StackConfig) -> Self:
        return cls(len(images[0]), **unfitted(len(images[0])))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"channel {c}" for c in range(self.n_inputs))

    @property
    def n_features(self) -> int:
        return self.n_inputs

    def raw(self, image: np.ndarray) -> np.ndarray:
        return np.array(image, np.float32)

    def validate(self) -> None:
        check_features(self.mean.shape == (self.n_inputs,))  # before a name is made for each
        super().validate()
