"""Scale-invariant depth features (Shotton et al.): depth, and whether it was measured; offsets shrink with depth."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from hedgerow.config import ContextConfig, StackConfig
from hedgerow.errors import InputError
from hedgerow.features.protocol import FeatureSet, check_features, unfitted
from hedgerow.settings import limits_of

NUMBERS = ("depth_unit", "nearest", "background")


@dataclass(frozen=True)
class Depth(FeatureSet):
    """depth_unit: image units per metre; nearest, background: the range in metres to which depths are clipped"""

    kind: ClassVar[str] = "depth"
    blank: ClassVar[float | None] = 0.0
    proposals: ClassVar[str] = "depth"
    max_offset: ClassVar[float] = np.inf  # offsets, in pixels x metres, come from a normal distribution
    offset_unit: ClassVar[str] = " at one metre"

    n_inputs: int
    depth_unit: float
    nearest: float
    background: float
    mean: np.ndarray
    std: np.ndarray

    @classmethod
    def from_images(cls, images: Sequence[np.ndarray], config: StackConfig) -> Self:
        if len(images[0]) != 1:
            raise InputError(
                f"depth features need images with one channel, but these have {len(images[0])}; "
                "give depth maps, or choose features='bank' or 'channels'."
            )
        context = config.context
        return cls(1, context.depth_unit, context.nearest, context.background, **unfitted(2))

    @property
    def names(self) -> tuple[str, ...]:
        return "depth", "present"

    def raw(self, image: np.ndarray) -> np.ndarray:
        return np.stack([self._metres(image), image[0] > 0]).astype(np.float32)

    def counted(self, raw: np.ndarray) -> np.ndarray:
        """Only pixels where depth was measured: the background would swamp the statistics of the body."""
        return raw.reshape(2, -1)[:, raw[1].ravel() > 0]

    def with_statistics(self, mean: np.ndarray, std: np.ndarray) -> Self:
        """The second feature, whether depth was measured, stays 0 or 1."""
        return replace(self, mean=np.array([mean[0], 0], np.float32), std=np.array([std[0], 1], np.float32))

    def _metres(self, image: np.ndarray) -> np.ndarray:
        metres = image[0] / np.float32(self.depth_unit)
        return np.where(image[0] > 0, np.clip(metres, self.nearest, self.background), self.background)

    def stretch(self, image: np.ndarray) -> np.ndarray:
        """One over the depth in metres."""
        return np.float32(1) / self._metres(image).astype(np.float32)

    def reach(self, offset: float) -> int:
        return int(np.ceil(offset / self.nearest + 0.5))

    def outside(self, n_proba: int) -> np.ndarray:
        """Outside depth images is background, where no class is likely."""
        beyond = (np.array([self.background, 0.0], np.float32) - self.mean) * (np.float32(1) / self.std)
        return np.concatenate([beyond, np.zeros(n_proba, np.float32)]).astype(np.float32)

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), **{name: getattr(self, name) for name in NUMBERS}}

    def validate(self) -> None:
        for name in NUMBERS:
            number, (low, high) = getattr(self, name), limits_of(ContextConfig, name)
            check_features(type(number) in (int, float) and low <= number <= high)
        check_features(self.nearest <= self.background and self.n_inputs == 1)
        super().validate()
