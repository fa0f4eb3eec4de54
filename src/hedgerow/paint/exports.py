"""From a project to files: the model that `hedgerow train` makes, and what a model makes of the images."""

from __future__ import annotations

import os
import shlex
import shutil
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hedgerow import jobs
from hedgerow.files import atomic_path, make_folder
from hedgerow.images.pairing import find_files, stem_of
from hedgerow.io import model_file
from hedgerow.jobs.training import Trained
from hedgerow.overwrite_guard import writing_as
from hedgerow.paint.label_files import LEGEND, PAGE, is_large, label_file, write_label_maps
from hedgerow.paint.messages import Refused
from hedgerow.paint.project import EXPORTS, LABELS, Project
from hedgerow.predict.batch import Predicted
from hedgerow.progress import Report
from hedgerow.scale.large_prediction import predict_large
from hedgerow.temporary import temporary_folder

MODEL, IMPROVED = "model.hedge", "improved.hedge"
PREDICTED = ("segmentation", "probabilities", "overlays", "table")  # what is made by predicting
OF_LARGE = {"segmentation": "labels", "probabilities": "proba"}  # of it, what can be made of large images too
TABLES = ("objects.csv", "objects_totals.csv")


def train(project: Project, output: Path, report: Report) -> Trained:
    """What `hedgerow train` makes of the label maps: the same file, to the last byte."""
    images = write_label_maps(project, [output])
    if len({value for labels in project.labels for value in labels.pixels}) < 2:
        raise Refused("only one class is painted; paint with two classes first.")
    request = jobs.TrainRequest([image.path for image in images], project.folder / LABELS, output)
    with writing_as(PAGE):
        return jobs.train(request, progress=report)


def commands(project: Project, model: Path) -> list[str]:
    """What to type to do the same on the command line."""
    painted = [str(project.images[i].path) for i in project.painted_images()]
    usual = [str(image.path) for image in project.images if not is_large(image)]
    predict, folder = ("hedgerow", "predict", str(model)), project.folder / "predicted"
    found = [shlex.join(["hedgerow", "train", *_shortest(painted), str(project.folder / LABELS), "-o", str(model)])]
    if usual:
        found.append(shlex.join([*predict, *_shortest(usual), "-o", str(folder)]))
    for image in filter(is_large, project.images):
        found.append(shlex.join([*predict, str(image.path), "-o", f"{folder}-{stem_of(image.path)}.ome.tif"]))
    return found


def _shortest(files: Sequence[str]) -> list[str]:
    """Files, or the folder that holds them and no other image."""
    folders = {os.path.dirname(file) for file in files}
    if len(folders) == 1 and len(files) > 1:
        folder = folders.pop() or "."
        if {str(path) for path in find_files(folder)} == {str(Path(file)) for file in files}:
            return [folder]
    return list(files)


class Exports:
    """The files that exports of this session made, by the number of the export and their names."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._files: dict[tuple[int, str], Path] = {}
        self._last = 0

    def file(self, number: int, name: str) -> Path | None:
        found = self._files.get((number, name))
        return found if found is not None and found.is_file() else None

    def described(self, number: int, files: Iterable[Path]) -> list[dict[str, Any]]:
        """Files that can be fetched from now on, as a window is told of them."""
        told = []
        for path in files:
            self._files[number, path.name] = path
            address = f"/api/exports/{number}/{path.name}"
            told.append({"name": path.name, "address": address, "bytes": path.stat().st_size})
        return told

    def new_folder(self) -> tuple[int, Path]:
        """A folder for another export, with a number that none of this project has."""
        base = self.project.folder / EXPORTS
        make_folder(base)
        numbers = [int(one.name) for one in base.iterdir() if one.name.isdecimal()]
        self._last = max([self._last, *numbers], default=0) + 1
        folder = base / str(self._last)
        folder.mkdir()
        return self._last, folder

    def write(self, what: Sequence[str], folder: Path, model: Path | None, report: Report) -> list[Path]:
        """Write what is asked for into a folder. model: needed for all but label maps"""
        made = []
        if "labels" in what:
            maps = [label_file(self.project, image) for image in write_label_maps(self.project)]
            made.append(zipped(folder / "labels.zip", [*maps, self.project.folder / LABELS / LEGEND]))
        if model is None:
            return made
        if any(one in PREDICTED for one in what):
            usual = [image.path for image in self.project.images if not is_large(image)]
            made += self._predicted(what, folder, model, usual, report) if usual else []
            made += self._predicted_large(what, folder, model, report)
        if "model" in what:
            made.append(_copied(model, folder / MODEL))
        if "report" in what:
            images = [image.path for image in write_label_maps(self.project)]
            title = f"{self.project.folder.name}: on the strokes that it was trained on"
            labels, file = self.project.folder / LABELS, folder / "report.html"
            jobs.report(jobs.ReportRequest([model], images, labels, file, title=title), progress=report)
            made.append(file)
        return made

    def left_out(self, what: Sequence[str]) -> str:
        """A sentence about what is not written of large images; empty: nothing is left out."""
        n_large = sum(map(is_large, self.project.images))
        kinds = [one for one in PREDICTED if one in what and one not in OF_LARGE]
        if not (n_large and kinds):
            return ""
        return f"{n_large} image(s) are too large for {' and '.join(kinds)}; see the commands"

    def _predicted(
        self, what: Sequence[str], folder: Path, model: Path, images: list[Path], report: Report
    ) -> list[Path]:
        background = next((one.id for one in self.project.classes if one.name.lower() == "background"), None)
        known = set(model_file.load(model).classes)
        with temporary_folder(folder) as inside:
            request = jobs.PredictRequest(
                model,
                images,
                inside,
                proba="probabilities" in what,
                overlay="overlays" in what,
                measure="table" in what,
                background=background if background in known else None,
            )
            found = jobs.predict(request, progress=report)
            assert isinstance(found, Predicted)
            if len(found.failures) == found.n_images:
                raise Refused(f"none of the images can be segmented, the first since {found.failures[0]}")
            return self._packed(what, inside, folder, {stem_of(path) for path in images})

    def _packed(self, what: Sequence[str], inside: Path, folder: Path, stems: set[str]) -> list[Path]:
        """What was predicted of images of these stems, as it can be fetched."""
        kinds = {
            "segmentation": [inside / f"{stem}.png" for stem in stems],
            "probabilities": [inside / f"{stem}_proba.tif" for stem in stems],
            "overlays": [inside / f"{stem}_overlay.png" for stem in stems],
        }
        made = [
            zipped(folder / f"{kind}.zip", sorted(filter(Path.is_file, files)))
            for kind, files in kinds.items()
            if kind in what
        ]
        if "table" in what:
            for name in TABLES:
                made.append(_copied(inside / name, folder / name))
        return made

    def _predicted_large(self, what: Sequence[str], folder: Path, model: Path, report: Report) -> list[Path]:
        """Labels and probabilities of images that are never held as a whole, each in a file of its own."""
        kinds = [OF_LARGE[one] for one in PREDICTED if one in what and one in OF_LARGE]
        made: list[Path] = []
        if not kinds:
            return made
        for image in filter(is_large, self.project.images):
            output = folder / f"{stem_of(image.path)}.ome.tif"
            found = predict_large(model, image.path, output, what=kinds, dtype="uint8", progress=report)
            made += [Path(path) for path in found.results.values()]
        return made


def _copied(source: Path, path: Path) -> Path:
    with atomic_path(path, noted=False) as temporary:
        shutil.copyfile(source, temporary)
    return path


def zipped(path: Path, files: Iterable[Path]) -> Path:
    """A zip of files, without their folders."""
    with atomic_path(path, noted=False) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            archive.write(file, file.name)
    return path
