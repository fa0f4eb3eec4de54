"""Draws docs/encoders.png: segmentations of photographs by strokes, with the filter bank and pretrained networks."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from hedgerow import synthetic
from hedgerow.config import EncoderConfig
from hedgerow.forest.default_settings import labelled_fraction, settings_for
from hedgerow.forest.settings_choice import fit_stack
from hedgerow.images.given import labelled_set
from hedgerow.images.metrics import scores
from hedgerow.progress import silent
from photographs import photographs

COLUMNS = {
    "filter bank": {"features": "bank"},
    "encoder (lite0)": {"features": "encoder"},
    "encoder:mobilesam, scale 2": {"features": "encoder:mobilesam", "encoder": EncoderConfig(scale=2)},
}
COLOURS = np.array(
    [[230, 90, 70], [70, 160, 90], [70, 110, 220], [240, 200, 60], [60, 200, 210], [200, 90, 200]], np.uint8
)


def blended(image: np.ndarray, labels: np.ndarray, part: float) -> np.ndarray:
    """(H,W,3) uint8: the image tinted by its labels, except where they are 255."""
    shown = image.astype(float)
    is_labelled = labels != 255
    shown[is_labelled] = (1 - part) * shown[is_labelled] + part * COLOURS[labels[is_labelled]]
    return shown.astype(np.uint8)


def main(path: Path) -> None:
    chosen = [(image, labels) for name, image, labels in photographs() if name in ("astronaut", "coffee")]
    figure, axes = plt.subplots(len(chosen), 1 + len(COLUMNS), figsize=(11, 5), constrained_layout=True)
    for row, (image, labels) in zip(axes, chosen, strict=True):
        strokes = synthetic.paint(labels, 0.01, seed=0)
        thick = strokes.copy()
        for shift in ((0, 1), (1, 0), (1, 1)):
            moved = np.roll(strokes, shift, (0, 1))
            thick = np.where(thick == 255, moved, thick)
        row[0].imshow(blended(image, thick, 1.0))
        row[0].set_title("1 % painted", fontsize=9)
        for place, (title, changes) in zip(row[1:], COLUMNS.items(), strict=True):
            config = replace(
                settings_for(labelled_fraction(labelled_set([image], [strokes])), keep_features=True), **changes
            )
            predicted = fit_stack([image], [strokes], config, progress=silent).predict(image, progress=silent)
            rest = np.where(strokes == 255, labels, 255)
            dice = scores([rest], [predicted], np.unique(labels[labels != 255]).tolist()).mean_dice
            place.imshow(blended(image, predicted, 0.55))
            place.set_title(f"{title}: {dice:.2f}", fontsize=9)
        for place in row:
            place.set_axis_off()
    figure.savefig(path, dpi=90)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/encoders.png"))
