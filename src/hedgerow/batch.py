"""Folders of images: predict them all, past bad ones; write the built-in samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hedgerow.errors import HedgerowError, InputError
from hedgerow.images import find_files, read_input, stem_of, write_labels, write_planes
from hedgerow.progress import Report, progress_bar
from hedgerow.tiling import predict_proba
from hedgerow.trees import ForestStack


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
        """What -> file, for one image."""
        wanted = {"proba": self.proba, "confidence": self.confidence, "entropy": self.entropy}
        maps = {what: folder / f"{stem}_{what}.{self.maps}" for what, is_on in wanted.items() if is_on}
        return {"labels": folder / f"{stem}.{self.labels}", **maps}


def predict_files(
    model: ForestStack,
    images: str | Path,
    folder: Path,
    outputs: Outputs,
    tile: int | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> list[str]:
    """Predict every image of a folder, file or glob into `folder`; returns a sentence for each that failed."""
    files = find_files(images)
    _check_names(files, folder, outputs)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror}; choose another place.") from error
    failures = []
    with progress_bar() as report:

        def tiles(what: str, done: int, total: int) -> None:
            if total > 1:  # a large image: show how far it is
                report("tiles of this image", done, total)

        for done, file in enumerate(files):
            report("images", done, len(files))
            try:
                image = read_input(file, model.features.kind)
                _warn_of_other_scale(model, image, file, say)
                _write_outputs(model, image, outputs, outputs.paths(folder, stem_of(file)), tile, tiles)
            except (HedgerowError, MemoryError) as error:
                text = str(error) or "it does not fit in memory"
                failures.append(text if str(file) in text else f"{file}: {text}")
        report("images", len(files), len(files))
    say(f"{len(files) - len(failures)} of {len(files)} image(s) predicted into {folder}")
    return failures


def _check_names(files: list[Path], folder: Path, outputs: Outputs) -> None:
    """No result may take the place of an input, or of another image's result."""
    inputs = {file.resolve() for file in files}
    taken: dict[Path, Path] = {}
    for file in files:
        for path in outputs.paths(folder, stem_of(file)).values():
            if path.resolve() in inputs:
                raise InputError(f"the result {path} would replace an input image; choose another folder.")
            if path in taken:
                raise InputError(f"{taken[path]} and {file} would both be written to {path}; rename one of them.")
            taken[path] = file


def _warn_of_other_scale(model: ForestStack, image: np.ndarray, file: Path, say: Callable[[str], None]) -> None:
    if model.image_dtype and str(image.dtype) != model.image_dtype:
        say(f"note: {file} is {image.dtype} but the model learned from {model.image_dtype}; values must mean the same")


def _write_outputs(
    model: ForestStack,
    image: np.ndarray,
    outputs: Outputs,
    paths: dict[str, Path],
    tile: int | None,
    progress: Report,
) -> None:
    if paths.keys() == {"labels"}:
        write_labels(paths["labels"], model.predict(image, tile=tile, progress=progress))
        return
    proba = predict_proba(model, image, tile=tile, progress=progress)
    names = [f"class {value}" for value in model.classes]
    if "proba" in paths:
        write_planes(paths["proba"], proba, outputs.dtype, names)
    if "confidence" in paths:
        write_planes(paths["confidence"], proba.max(axis=0), outputs.dtype)
    if "entropy" in paths:
        write_planes(paths["entropy"], relative_entropy(proba), outputs.dtype)
    # Last: where the label map exists, everything else does too.
    write_labels(paths["labels"], np.array(model.classes)[proba.argmax(axis=0)])


def relative_entropy(proba: np.ndarray) -> np.ndarray:
    """(H,W) float32 entropy of class probabilities (C,H,W), as a part of the largest possible: 0 sure, 1 open."""
    surprise = -np.log(np.where(proba > 0, proba, 1))
    entropy = np.einsum("chw,chw->hw", proba, surprise) / np.log(len(proba))
    return np.clip(entropy, 0, 1).astype(np.float32)


def write_sample(kind: str, folder: Path, n_images: int, seed: int) -> None:
    """Images and labels of a built-in generator, as PNG files in folder/images and folder/labels."""
    from hedgerow import synthetic

    images, labels = getattr(synthetic, kind)(n_images=n_images, seed=seed)
    for name in ("images", "labels"):
        try:
            (folder / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot make the folder {folder / name}: {error.strerror}.") from error
    for i, (image, label) in enumerate(zip(images, labels, strict=True)):
        write_labels(folder / "images" / f"{kind}_{i:03d}.png", image)
        write_labels(folder / "labels" / f"{kind}_{i:03d}.png", label)
