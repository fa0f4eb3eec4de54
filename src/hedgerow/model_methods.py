"""The methods of all models, which call functions of `predict/`, and the tables of objects in notebooks.

Models are below `predict/` and `report/` in the table of packages, so these modules are named in strings and imported
when a method is called.
"""

from importlib import import_module
from typing import Any, Self

import numpy as np


class NotebookCard:
    """Makes Jupyter show the object as a small table, see `report/cards.py`."""

    def _repr_html_(self) -> str:
        return import_module("hedgerow.report.cards").card(self)


class ModelMethods(NotebookCard):
    """The methods shared by stacks and networks."""

    def predict(self, image: np.ndarray, **options: Any) -> np.ndarray:
        """(H,W) class values of an image (H,W[,C]), or (F,H,W) for a model of the user's own channels; (Z,Y,X) of a
        volume.

        Options of this and the other predictions:
        axes:     of the array, e.g. "ZYX" or "ZYXC", or "TYX" for a series; None: an image, or a volume where that is
                  the only reading
        tile:     side of a tile in pixels, or (z, y, x) of a volume; None: the largest that fits in memory
        progress: report function; None: a bar on the terminal
        """
        return import_module("hedgerow.predict.tiling").predict(self, image, **options)

    def predict_proba(self, image: np.ndarray, **options: Any) -> np.ndarray:
        """(C,H,W) float32 class probabilities of an image (H,W[,C]), or (C,Z,Y,X) of a volume."""
        return import_module("hedgerow.predict.tiling").predict_proba(self, image, **options)

    def predict_objects(self, image: np.ndarray, **options: Any) -> np.ndarray:
        """(H,W) int32 numbers of the objects in an image (H,W[,C]), 0 where there is none; (Z,Y,X) in a volume.

        classes:    names or values of the classes that are objects; empty: all but the background and the boundary
        background: class value that is none; None: the class named "background", or 0
        diameter, min_size, max_size, fill_holes: as in `hr.objects`
        """
        return import_module("hedgerow.predict.tiling").predict_objects(self, image, **options)

    def level_outputs(self, image: np.ndarray, **options: Any) -> list[np.ndarray]:
        """(C,H,W) float32 class probabilities after each level."""
        return import_module("hedgerow.predict.tiling").level_outputs(self, image, **options)

    def run_level(self, level: int, level_input: Any) -> np.ndarray:
        """(C,Z,h,w) float32 output of one level in a region; level_input: what the level reads there."""
        return import_module("hedgerow.predict.tiling").run_level(self, level, level_input)

    def level_tile(self, level: int) -> int:
        """Side in pixels of the tiles, aligned to the image's corner, that a level computes as a whole."""
        return 1

    def to(self, device: str) -> Self:
        """A copy of the model on another device, "cpu" or "cuda"."""
        return import_module("hedgerow.predict.devices").moved(self, device)
