"""What is written for one predicted image: its label map, maps of probabilities, pictures, and outlines of objects."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hedgerow.images.array_checks import to_planes
from hedgerow.images.objects import Measured, Rules, measured
from hedgerow.images.outline_files import ObjectType, write_geojson, write_rois
from hedgerow.images.pictures import grey_picture, overlay, write_picture
from hedgerow.images.pixel_size import PixelSize
from hedgerow.images.writing import scaled, write_labels, write_scaled
from hedgerow.predict.protocol import Model
from hedgerow.predict.scratch import scratch
from hedgerow.predict.tiling import class_values, predict_tiles
from hedgerow.progress import Report


@dataclass(frozen=True)
class Outputs:
    """Which files to write for an image.

    labels, maps: file endings; dtype: of the probability and other maps
    measure:      whether objects are measured, for tables of all images
    outlines:     "geojson", "roi", or both; object_type: what QuPath takes them for
    rules:        what counts as an object; what is too small is left out of the label map, too
    """

    labels: str = "png"
    maps: str = "tif"
    proba: bool = False
    confidence: bool = False
    entropy: bool = False
    overlay: bool = False
    dtype: str = "float32"
    measure: bool = False
    outlines: tuple[str, ...] = ()
    object_type: ObjectType = "annotation"
    rules: Rules = field(default_factory=Rules)

    @property
    def finds_objects(self) -> bool:
        return self.measure or bool(self.outlines)

    def paths(self, folder: Path, stem: str) -> dict[str, Path]:
        """The files to write for one image, by what they hold."""
        paths = {"labels": folder / f"{stem}.{self.labels}"}
        paths |= {what: folder / f"{stem}_{what}.{self.maps}" for what in MAPS if getattr(self, what)}
        paths |= {what: folder / f"{stem}{OUTLINES[what]}" for what in self.outlines}
        return paths | ({"overlay": folder / f"{stem}_overlay.png"} if self.overlay else {})


def write_outputs(
    model: Model,
    image: np.ndarray,
    outputs: Outputs,
    paths: dict[str, Path],
    tile: int | None,
    progress: Report,
    pixel: PixelSize | None = None,
) -> Measured | None:
    """Predict an image (H,W[,C]), or planes (F,H,W), tile by tile, and write what is asked for to its paths.

    In addition to what is asked for, only the probabilities of one tile are in memory. Returns what was measured, if
    objects are asked for.

    pixel: how large a pixel is, if known
    """
    values, found = class_values(model), {}
    # The probability of the class that a pixel has in the end: if that may change, all of them are kept.
    kept = None if not outputs.finds_objects else _everything if outputs.rules.cleans else MAPS["confidence"]
    folder = paths["labels"].parent
    with ExitStack() as rooms:
        for region, levels, size in predict_tiles(model, image, tile=tile, progress=progress):
            proba = levels[-1]
            parts = {"labels": values[proba.argmax(axis=0)]}
            parts |= {what: scaled(MAPS[what](proba), outputs.dtype) for what in MAPS if what in paths}
            parts |= {} if kept is None else {"kept": kept(proba)}
            for what, part in parts.items():
                if what not in found:
                    room = scratch(folder, (*part.shape[:-2], *size), part.dtype)
                    found[what] = rooms.enter_context(room)
                region.of(found[what])[...] = part
        for what in MAPS:
            if what in paths:
                names = [model.legend.spoken(value) for value in model.classes] if what == "proba" else None
                write_scaled(paths[what], found[what], names, pixel)
        labels = outputs.rules.clean(found["labels"])
        palette = model.legend.palette(model.classes)
        if "overlay" in paths:
            picture = grey_picture(to_planes(image, layout=model.features.layout))
            write_picture(paths["overlay"], overlay(picture, labels, palette))
        objects = None
        if outputs.finds_objects:
            sure = _of_classes(found["kept"], labels, model.classes) if outputs.rules.cleans else found["kept"]
            planes = to_planes(image, layout=model.features.layout)
            objects = measured(labels, outputs.rules, planes, sure[None], model.legend, pixel)
            if "geojson" in paths:
                write_geojson(paths["geojson"], objects, palette, outputs.object_type)
            if "roi" in paths:
                write_rois(paths["roi"], objects, palette)
        # Written last: if the label map exists, so does everything else.
        write_labels(paths["labels"], labels, palette, pixel)
        return objects


def _everything(proba: np.ndarray) -> np.ndarray:
    return proba


def _of_classes(proba: np.ndarray, labels: np.ndarray, classes: Sequence[int]) -> np.ndarray:
    """(H,W) probability, of (C,H,W), of the class value (H,W) at each pixel."""
    found = np.zeros(labels.shape, np.float32)
    for plane, value in zip(proba, classes, strict=True):
        at = labels == value
        found[at] = plane[at]
    return found


def relative_entropy(proba: np.ndarray) -> np.ndarray:
    """(H,W) float32 entropy of class probabilities (C,H,W), relative to the largest possible: 0 sure, 1 undecided."""
    surprise = -np.log(np.where(proba > 0, proba, 1))
    entropy = np.einsum("chw,chw->hw", proba, surprise) / np.log(len(proba))
    return np.clip(entropy, 0, 1).astype(np.float32)


OUTLINES = {"geojson": ".geojson", "roi": "_rois.zip"}  # endings
MAPS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "proba": lambda proba: proba,
    "confidence": lambda proba: proba.max(axis=0),
    "entropy": relative_entropy,
}
