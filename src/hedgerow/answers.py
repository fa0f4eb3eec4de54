"""What every model answers to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from hedgerow.predict.protocol import Model


class Predictor:
    """What a stack and a network have in common: all that the tiled prediction offers."""

    def predict(self: Model, image: np.ndarray, **options: Any) -> np.ndarray:
        """(H,W) class values of an image (H,W[,C]); options as in `tiling.predict`."""
        from hedgerow.predict import tiling

        return tiling.predict(self, image, **options)

    def predict_proba(self: Model, image: np.ndarray, **options: Any) -> np.ndarray:
        """(C,H,W) float32 class probabilities of an image (H,W[,C])."""
        from hedgerow.predict import tiling

        return tiling.predict_proba(self, image, **options)

    def level_outputs(self: Model, image: np.ndarray, **options: Any) -> list[np.ndarray]:
        """(C,H,W) float32 class probabilities after each level."""
        from hedgerow.predict import tiling

        return tiling.level_outputs(self, image, **options)
