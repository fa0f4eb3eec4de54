"""From a project to files: label maps as `hedgerow train` reads them, and what a model makes of the images."""

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
from hedgerow.images.legend import write_legend
from hedgerow.images.pairing import find_files, stem_of
from hedgerow.images.writing import write_labels
from hedgerow.jobs.training import Trained
from hedgerow.paint.messages import Refused
from hedgerow.paint.project import Project
from hedgerow.progress import Report

LABELS, MODEL, IMPROVED = "labels", "model.hedge", "improved.hedge"
PREDICTED = ("segmentation", "probabilities", "overlays", "table")  # what is made by predicting
TABLES = ("objects.csv", "objects_totals.csv")


def write_label_maps(project: Project) -> list[Path]:
    """Write the label maps of all images that have paint, with the names of the classes; returns those images."""
    folder = project.folder / LABELS
    make_folder(folder)
    with project.lock:
        painted = [(project.images[i].path, project.labels[i].whole()) for i in project.painted_images()]
        legend = project.legend
    if not painted:
        raise Refused("nothing is painted yet; paint with two classes first.")
    classes = [one.id for one in project.classes]
    kept = {f"{stem_of(path)}.png" for path, _ in painted}
    for old in folder.glob("*.png"):
        if old.name not in kept and any(stem_of(old) == stem_of(image.path) for image in project.images):
            old.unlink()  # all of its paint was taken back
    for path, labels in painted:
        write_labels(folder / f"{stem_of(path)}.png", labels, legend.palette(classes))
    write_legend(folder / "classes.toml", legend)
    return [path for path, _ in painted]


def train(project: Project, output: Path, report: Report, **options: Any) -> Trained:
    """What `hedgerow train` makes of the label maps: the same file, to the last byte."""
    images = write_label_maps(project)
    return jobs.train(images, project.folder / LABELS, output, progress=report, **options)


def commands(project: Project, model: Path) -> list[str]:
    """What to type to do the same on the command line."""
    painted = [str(project.images[i].path) for i in project.painted_images()]
    labels = str(project.folder / LABELS)
    return [
        shlex.join(["hedgerow", "train", *_shortest(painted), labels, "-o", str(model)]),
        shlex.join(
            [
                *("hedgerow", "predict", str(model)),
                *_shortest([str(image.path) for image in project.images]),
                *("-o", str(project.folder / "predicted")),
            ]
        ),
    ]


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
        base = self.project.folder / "exports"
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
            images = write_label_maps(self.project)
            source = self.project.folder / LABELS
            maps = [source / f"{stem_of(path)}.png" for path in images]
            made.append(zipped(folder / "labels.zip", [*maps, source / "classes.toml"]))
        if model is None:
            return made
        if any(one in PREDICTED for one in what):
            made += self._predicted(what, folder, model, report)
        if "model" in what:
            shutil.copyfile(model, folder / MODEL)
            made.append(folder / MODEL)
        if "report" in what:
            images = write_label_maps(self.project)
            title = f"{self.project.folder.name}: on the strokes that it was trained on"
            jobs.report(
                [model], images, self.project.folder / LABELS, folder / "report.html", title=title, progress=report
            )
            made.append(folder / "report.html")
        return made

    def _predicted(self, what: Sequence[str], folder: Path, model: Path, report: Report) -> list[Path]:
        inside = folder / "predicted"
        background = next((one.id for one in self.project.classes if one.name.lower() == "background"), None)
        known = set(jobs.describe(model)["classes"])
        found = jobs.predict(
            model,
            [image.path for image in self.project.images],
            inside,
            proba="probabilities" in what,
            overlay="overlays" in what,
            measure="table" in what,
            background=background if background in known else None,
            progress=report,
        )
        if len(found.failures) == found.n_images:
            raise Refused(f"none of the images can be segmented, the first since {found.failures[0]}")
        stems = {stem_of(image.path) for image in self.project.images}
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
                os.replace(inside / name, folder / name)
                made.append(folder / name)
        shutil.rmtree(inside)
        return made


def zipped(path: Path, files: Iterable[Path]) -> Path:
    """A zip of files, without their folders."""
    with atomic_path(path, noted=False) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            archive.write(file, file.name)
    return path
