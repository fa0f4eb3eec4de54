"""What is written for one predicted image: its label map, maps of probabilities, and pictures."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hedgerow.images.arrays import to_planes
from hedgerow.images.pictures import grey_picture, overlay, write_picture
from hedgerow.images.writing import scaled, write_labels, write_scaled
from hedgerow.predict.protocol import Model
from hedgerow.predict.scratch import scratch
from hedgerow.predict.tiling import class_values, predict_tiles
from hedgerow.progress import Report


@dataclass(frozen=True)
class Outputs:
    """Which files to write for an image. labels, maps: file endings; dtype: of the probability and other maps."""

    labels: str = "png"
    maps: str = "tif"
    proba: bool = False
    confidence: bool = False
    entropy: bool = False
    overlay: bool = False
    dtype: str = "float32"

    def paths(self, folder: Path, stem: str) -> dict[str, Path]:
        """The files to write for one image, by what they hold."""
        paths = {"labels": folder / f"{stem}.{self.labels}"}
        paths |= {what: folder / f"{stem}_{what}.{self.maps}" for what in MAPS if getattr(self, what)}
        return paths | ({"overlay": folder / f"{stem}_overlay.png"} if self.overlay else {})


def write_outputs(
    model: Model,
    image: np.ndarray,
    outputs: Outputs,
    paths: dict[str, Path],
    tile: int | None,
    progress: Report,
) -> None:
    """Predict an image (H,W[,C]), or planes (F,H,W), tile by tile, and write what is asked for to its paths.

    In addition to what is asked for, only the probabilities of one tile are in memory.
    """
    values, found = class_values(model), {}
    with ExitStack() as rooms:
        for region, levels, size in predict_tiles(model, image, tile=tile, progress=progress):
            proba = levels[-1]
            parts = {"labels": values[proba.argmax(axis=0)]}
            parts |= {what: scaled(MAPS[what](proba), outputs.dtype) for what in MAPS if what in paths}
            for what, part in parts.items():
                if what not in found:
                    room = scratch(paths[what].parent, (*part.shape[:-2], *size), part.dtype)
                    found[what] = rooms.enter_context(room)
                region.of(found[what])[...] = part
        for what in MAPS:
            if what in paths:
                names = [model.legend.spoken(value) for value in model.classes] if what == "proba" else None
                write_scaled(paths[what], found[what], names)
        palette = model.legend.palette(model.classes)
        if "overlay" in paths:
            picture = grey_picture(to_planes(image, layout=model.features.layout))
            write_picture(paths["overlay"], overlay(picture, found["labels"], palette))
        # Written last: if the label map exists, so does everything else.
        write_labels(paths["labels"], found["labels"], palette)


def relative_entropy(proba: np.ndarray) -> np.ndarray:
    """(H,W) float32 entropy of class probabilities (C,H,W), relative to the largest possible: 0 sure, 1 undecided."""
    surprise = -np.log(np.where(proba > 0, proba, 1))
    entropy = np.einsum("chw,chw->hw", proba, surprise) / np.log(len(proba))
    return np.clip(entropy, 0, 1).astype(np.float32)


MAPS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "proba": lambda proba: proba,
    "confidence": lambda proba: proba.max(axis=0),
    "entropy": relative_entropy,
}
