"""The methods that every model has: shorthands for functions in `predict/`, looked up when they are called; and how
models, scores and settings show themselves in a notebook.

A model is data and sits below `predict/` and `report/` in the table of rooms. So that `model.predict(image)` works all
the same, this module names the ones that answer instead of importing them.
"""

from importlib import import_module
from typing import Any, Self

import numpy as np


class Shown:
    """What Jupyter shows as a small table; `report/cards.py` draws it."""

    def _repr_html_(self) -> str:
        found: str = import_module("hedgerow.report.cards").card(self)
        return found


class Answers(Shown):
    """The methods shared by stacks and networks."""

    def predict(self, image: np.ndarray, **options: Any) -> np.ndarray:
        """(H,W) class values of an image (H,W[,C]); options as in `predict.tiling.predict`."""
        found: np.ndarray = import_module("hedgerow.predict.tiling").predict(self, image, **options)
        return found

    def predict_proba(self, image: np.ndarray, **options: Any) -> np.ndarray:
        """(C,H,W) float32 class probabilities of an image (H,W[,C])."""
        found: np.ndarray = import_module("hedgerow.predict.tiling").predict_proba(self, image, **options)
        return found

    def level_outputs(self, image: np.ndarray, **options: Any) -> list[np.ndarray]:
        """(C,H,W) float32 class probabilities after each level."""
        found: list[np.ndarray] = import_module("hedgerow.predict.tiling").level_outputs(self, image, **options)
        return found

    def level_cell(self, level: int) -> int:
        """A level computes whole squares of this side, in a grid from the image's corner: 1, unless it says more."""
        return 1

    def to(self, device: str) -> Self:
        """A new copy of the model on another device, "cpu" or "cuda", whatever kind of model it is."""
        moved: Self = import_module("hedgerow.predict.devices").moved(self, device)
        return moved
