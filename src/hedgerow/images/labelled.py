"""Images with labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class TrainingImage:
    """One image to learn from.

    planes: (C,H,W) float32; target: (H,W) uint8 class index, UNLABELLED where there is no label
    group:  (H,W) int32: pixels of one group are held out together (an image with its copies, or a block of it)
    copy:   whether this is an altered copy of another image
    name:   for messages
    """

    planes: np.ndarray
    target: np.ndarray
    group: np.ndarray
    copy: bool = False
    name: str = "an image"
