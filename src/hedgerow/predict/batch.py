"""Predicting folders of images, in spite of bad ones."""

import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hedgerow.errors import HedgerowError, InputError
from hedgerow.files import PathLike, make_folder
from hedgerow.images.pairing import FilesSpec, find_files, stem_of
from hedgerow.images.reading import ending_of, read_input
from hedgerow.images.writing import scaled, write_labels, write_scaled
from hedgerow.predict.protocol import Model
from hedgerow.predict.scratch import scratch
from hedgerow.predict.tiling import class_values, predict_tiles
from hedgerow.progress import Report, reporting
from hedgerow.written import check_overwriting


@dataclass(frozen=True)
class Outputs:
    """Which files to write for an image. labels, maps: file endings; dtype: of the probability and other maps."""

    labels: str = "png"
    maps: str = "tif"
    proba: bool = False
    confidence: bool = False
    entropy: bool = False
    dtype: str = "float32"

    def paths(self, folder: Path, stem: str) -> dict[str, Path]:
        """The files to write for one image, by what they hold."""
        wanted = {"proba": self.proba, "confidence": self.confidence, "entropy": self.entropy}
        maps = {what: folder / f"{stem}_{what}.{self.maps}" for what, is_on in wanted.items() if is_on}
        return {"labels": folder / f"{stem}.{self.labels}", **maps}


@dataclass(frozen=True)
class Predicted:
    """How many images there were, and a sentence for each that failed."""

    n_images: int
    failures: tuple[str, ...] = ()


def predict_files(
    model: Model,
    images: FilesSpec,
    folder: Path,
    outputs: Outputs,
    *,
    inputs: Iterable[PathLike] = (),
    overwrite: bool = False,
    tile: int | None = None,
    say: Callable[[str], None] = lambda text: None,
    progress: Report | None = None,
) -> Predicted:
    """Predict every image of a folder, file or glob into `folder`; notes go to `say` as the images are read.

    inputs:    what must not be overwritten, besides the images
    overwrite: also existing files that Hedgerow did not write
    """
    files = find_files(images)
    written = _check_names(files, folder, outputs)
    check_overwriting(written, [*files, *inputs], overwrite)
    make_folder(folder)
    failures = []
    with reporting(progress) as report:

        def tiles(what: str, done: int, total: int) -> None:
            if total > 1:  # a large image: show how far along it is
                report("tiles of this image", done, total)

        for done, file in enumerate(files):
            report("images", done, len(files))
            try:
                image = read_input(file, model.features.layout)
                _note_other_dtype(model, image, file, say)
                _write_outputs(model, image, outputs, outputs.paths(folder, stem_of(file)), tile, tiles)
            except (HedgerowError, MemoryError) as error:
                text = str(error) if isinstance(error, HedgerowError) else "it does not fit in memory"
                failures.append(text if str(file) in text else f"{file}: {text}")
        report("images", len(files), len(files))
    return Predicted(len(files), tuple(failures))


def _check_names(files: list[Path], folder: Path, outputs: Outputs) -> list[Path]:
    """All files to write; a folder is refused in which one could be mistaken for an input or another image's."""
    if ending_of(folder):
        raise InputError(f"{folder} looks like a file; give a folder for the results, e.g. {folder.with_suffix('')}.")
    around = {
        os.path.realpath(parent) for file in files for parent in (file.parent, Path(os.path.realpath(file)).parent)
    }
    if os.path.realpath(folder) in around:
        raise InputError(f"{folder} holds the images themselves; choose another folder for the results.")
    taken: dict[Path, Path] = {}
    for file in files:
        for path in outputs.paths(folder, stem_of(file)).values():
            if path in taken:
                raise InputError(f"{taken[path]} and {file} would both be written to {path}; rename one of them.")
            taken[path] = file
    return list(taken)


def _note_other_dtype(model: Model, image: np.ndarray, file: Path, say: Callable[[str], None]) -> None:
    if model.image_dtype and str(image.dtype) != model.image_dtype:
        say(f"note: {file} is {image.dtype} but the model learned from {model.image_dtype}; values must mean the same")


def _write_outputs(
    model: Model,
    image: np.ndarray,
    outputs: Outputs,
    paths: dict[str, Path],
    tile: int | None,
    progress: Report,
) -> None:
    values, found = class_values(model), {}
    with ExitStack() as rooms:
        # Tile by tile: in addition to what is asked for, only the probabilities of one tile are in memory.
        for region, levels, size in predict_tiles(model, image, tile=tile, progress=progress):
            proba = levels[-1]
            for what, path in paths.items():
                part = values[proba.argmax(axis=0)] if what == "labels" else scaled(_MAPS[what](proba), outputs.dtype)
                if what not in found:
                    room = scratch(path.parent, (*part.shape[:-2], *size), part.dtype)
                    found[what] = rooms.enter_context(room)
                region.of(found[what])[...] = part
        names = [f"class {value}" for value in model.classes]
        for what in _MAPS:
            if what in paths:
                write_scaled(paths[what], found[what], names if what == "proba" else None)
        # Written last: if the label map exists, so does everything else.
        write_labels(paths["labels"], found["labels"])


def relative_entropy(proba: np.ndarray) -> np.ndarray:
    """(H,W) float32 entropy of class probabilities (C,H,W), relative to the largest possible: 0 sure, 1 undecided."""
    surprise = -np.log(np.where(proba > 0, proba, 1))
    entropy = np.einsum("chw,chw->hw", proba, surprise) / np.log(len(proba))
    return np.clip(entropy, 0, 1).astype(np.float32)


_MAPS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "proba": lambda proba: proba,
    "confidence": lambda proba: proba.max(axis=0),
    "entropy": relative_entropy,
}
