"""The features of a stack with the image itself beside them, which its convolutional level reads."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from hedgerow.features.protocol import Arrays, FeatureSet
from hedgerow.forest.level_input import LevelInput
from hedgerow.images.array_checks import Layout
from hedgerow.images.regions import Region


@dataclass(frozen=True)
class WithImage(FeatureSet):
    """Channels: the features (F,...), then the image's own (M,...) as they are. Not for trees, nor for files."""

    kind: ClassVar[str] = "image and features"

    n_inputs: int
    mean: np.ndarray
    std: np.ndarray
    inner: FeatureSet

    @property
    def layout(self) -> Layout:  # type: ignore[override]
        return self.inner.layout

    @property
    def blank(self) -> float | None:  # type: ignore[override]
        return self.inner.blank

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.inner.names, *(f"image {c}" for c in range(self.n_inputs)))

    @property
    def n_features(self) -> int:
        return self.inner.n_features + self.n_inputs

    @property
    def halo(self) -> int:
        return self.inner.halo

    def check_here(self) -> None:
        self.inner.check_here()

    def raw(self, image: np.ndarray) -> np.ndarray:
        return np.concatenate([self.inner.raw(image), image])

    def compute(self, image: np.ndarray, region: Region | None = None) -> np.ndarray:
        own = image if region is None else region.of(image)
        return np.concatenate([self.inner.compute(image, region), np.asarray(own, np.float32)])

    def stretch(self, image: np.ndarray) -> np.ndarray | None:
        return self.inner.stretch(image)

    def reach(self, offset: float) -> int:
        return self.inner.reach(offset)

    def outside(self, n_proba: int) -> np.ndarray | None:
        inner = self.inner.outside(n_proba)
        return None if inner is None else np.insert(inner, [self.inner.n_features] * self.n_inputs, np.float32(0))

    def settings(self) -> dict[str, Any]:
        """Those of the features, by which models that read the same are known."""
        return {**super().settings(), "inner": self.inner.settings()}

    def arrays(self) -> Arrays:
        return self.inner.arrays()

    def without_image(self, level_input: LevelInput) -> LevelInput:
        """What a level of the stack reads of it."""
        first, after = self.inner.n_features, self.n_features
        channels, outside = [*level_input.channels[:first], *level_input.channels[after:]], level_input.outside
        if outside is not None:
            outside = np.concatenate([outside[:first], outside[after:]])
        return replace(level_input, channels=channels, outside=outside)


def with_image(features: FeatureSet) -> WithImage:
    """These features with the image beside them."""
    return WithImage(features.n_inputs, features.mean, features.std, features)
