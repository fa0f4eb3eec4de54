"""Writing files from a project: label maps for `hedgerow train`, in which 255 means unpainted; the model that
`hedgerow train` would make; and predictions for the images. Label maps of large images are written tile by tile."""

from __future__ import annotations

import os
import shlex
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hedgerow import jobs
from hedgerow.files import atomic_path, make_folder
from hedgerow.images.array_checks import UNLABELLED_INDEX as UNPAINTED
from hedgerow.images.legend import FILE as LEGEND
from hedgerow.images.legend import write_legend
from hedgerow.images.pairing import find_files, stem_of
from hedgerow.images.regions import Region
from hedgerow.images.writing import write_labels
from hedgerow.overwrite_guard import check_overwriting, remove_recorded, writing_as
from hedgerow.paint.labels import TILE, Labels
from hedgerow.paint.messages import Refused
from hedgerow.paint.project import EXPORTS, LABELS, Project
from hedgerow.paint.project_file import ImageFile
from hedgerow.predict.batch import Predicted
from hedgerow.progress import Report
from hedgerow.temporary import temporary_folder

PAGE = "page"  # recorded as the writer of label maps and models: the page does not overwrite files of commands
MODEL = "model.hedge"  # of an export
PREDICTIONS = ("segmentation", "probabilities", "overlays", "table")  # exports that need predictions
LARGE_PREDICTIONS = ("segmentation", "probabilities")  # the ones that are possible for large images
EXPORT_ENDINGS = {"segmentation": ".png", "probabilities": "_proba.tif", "overlays": "_overlay.png"}
TABLE_FILES = ("objects.csv", "objects_totals.csv")


def is_large(image: ImageFile) -> bool:
    """Whether an image is too large to be predicted in memory."""
    n_pixels: int = image.size[0] * image.size[1]
    return n_pixels > jobs.LARGE_IMAGE_PIXELS


def label_file(project: Project, image: ImageFile) -> Path:
    """The file of an image's label map."""
    return project.folder / LABELS / f"{stem_of(image.path)}.{'tif' if is_large(image) else 'png'}"


def write_label_maps(project: Project, also: Sequence[Path] = ()) -> list[ImageFile]:
    """Write the label maps of all painted images and the names of the classes; returns those images.

    also: further files that the caller is about to write; nothing is written unless all of them may be written
    """
    painted = check_label_maps(project, also)
    with project.lock:
        legend, classes = project.legend, [a_class.id for a_class in project.classes]
    make_folder(project.folder / LABELS)
    with writing_as(PAGE):
        for i, image in enumerate(project.images):
            path = label_file(project, image)
            if i not in painted:
                remove_recorded(path)  # all of its paint was undone, or it cannot be read and is left out
            elif is_large(image):
                _write_tiles(path, project, project.labels[i])
            else:
                with project.lock:
                    labels = project.labels[i].whole()
                write_labels(path, labels, legend.palette(classes))
        write_legend(project.folder / LABELS / LEGEND, legend)
    return [project.images[i] for i in painted]


def check_label_maps(project: Project, also: Sequence[Path] = ()) -> list[int]:
    """The numbers of the painted images. Raises InputError if writing their label maps, or removing those of images
    without paint, would overwrite or delete a file that this page did not write."""
    painted = project.painted_images()
    if not painted:
        raise Refused("nothing is painted yet; paint with two classes first.")
    with writing_as(PAGE):
        check_overwriting(
            [*(label_file(project, image) for image in project.images), project.folder / LABELS / LEGEND, *also],
            [image.path for image in project.images],
            overwrite=False,
            done="overwritten or deleted",
            remedy="move it away, or start the page with another project folder (--project).",
        )
    return painted


def _write_tiles(path: Path, project: Project, labels: Labels) -> None:
    import tifffile

    with atomic_path(path) as temporary:
        tifffile.imwrite(
            temporary, _tiles(project, labels), shape=labels.size, dtype=np.uint8, tile=(TILE, TILE),
            compression="zlib", photometric="minisblack", bigtiff=True, metadata=None,
        )  # fmt: skip


def _tiles(project: Project, labels: Labels) -> Iterator[np.ndarray]:
    """(TILE,TILE): all tiles, row by row."""
    for region in Region.whole(labels.size).tiles(TILE):
        with project.lock:
            part = labels.region(region)
        tile = np.full((TILE, TILE), UNPAINTED, np.uint8)
        tile[: part.shape[0], : part.shape[1]] = part
        yield tile


def train(project: Project, output: Path, report: Report, also: Sequence[Path] = (), **options: Any) -> Any:
    """Train on the label maps, to the same file as `hedgerow train`, byte for byte; returns the result of `jobs.train`.

    also:    further files that training may write
    options: of the request
    """
    images = write_label_maps(project, [output, *also])
    if len(painted_values(project)) < 2:
        raise Refused("only one class is painted; paint with two classes first.")
    request = jobs.TrainRequest([image.path for image in images], project.folder / LABELS, output, **options)
    with writing_as(PAGE):
        return jobs.train(request, progress=report)


def painted_values(project: Project) -> set[int]:
    """The values of the classes that are painted: those of a model trained on this paint."""
    return {value for i in project.painted_images() for value in project.labels[i].pixels}


def readable(project: Project) -> list[ImageFile]:
    """The images that can be read."""
    return [image for i, image in enumerate(project.images) if i not in project.problems]


def commands(project: Project, model: Path, options: Sequence[str] | None = ()) -> list[str]:
    """The commands that train the same model, to a new file, and predict the same on the command line.

    options: with which the model was trained; None: no command trains it
    """
    painted = [str(project.images[i].path) for i in project.painted_images()]
    in_memory = [str(image.path) for image in readable(project) if not is_large(image)]
    predict, folder = ("hedgerow", "predict", str(model)), project.folder / "predicted"
    lines = []
    if options is not None:
        again = model.with_name(f"{model.stem}-again.hedge")
        train = ["hedgerow", "train", *_shortest(painted), str(project.folder / LABELS), *options, "-o", str(again)]
        lines.append(shlex.join(train))
    if in_memory:
        lines.append(shlex.join([*predict, *_shortest(in_memory), "-o", str(folder)]))
    for image in filter(is_large, readable(project)):
        lines.append(shlex.join([*predict, str(image.path), "-o", f"{folder}-{stem_of(image.path)}.ome.tif"]))
    return lines


def _shortest(files: Sequence[str]) -> list[str]:
    """The files, or their folder if it has no other image."""
    folders = {os.path.dirname(file) for file in files}
    if len(folders) == 1 and len(files) > 1:
        folder = folders.pop() or "."
        if {str(path) for path in find_files(folder)} == {str(Path(file)) for file in files}:
            return [folder]
    return list(files)


def exported_file(project: Project, number: int, name: str) -> Path | None:
    """A file of the export with this number, or a model if it is 0; None: there is no such file."""
    if not number:
        return next((path for path in map(project.model_file, _numbers(project)) if path.name == name), None)
    folder = project.folder / EXPORTS / str(number)
    names = os.listdir(folder) if os.path.isdir(folder) else ()
    return folder / name if name in names and (folder / name).is_file() else None


def _numbers(project: Project) -> list[int]:
    return [model.number for model in project.models]


def offers(number: int, files: Iterable[Path]) -> list[dict[str, Any]]:
    """Descriptions for the page of files to download."""
    return [
        {"name": path.name, "address": f"api/exports/{number}/{path.name}", "bytes": path.stat().st_size}
        for path in files
    ]


def new_folder(project: Project) -> tuple[int, Path]:
    """A folder for another export, with its number."""
    base = project.folder / EXPORTS
    make_folder(base)
    number = max((int(path.name) for path in base.iterdir() if path.name.isdecimal()), default=0) + 1
    folder = base / str(number)
    folder.mkdir()
    return number, folder


def write_exports(
    project: Project, kinds: Sequence[str], folder: Path, model: Path | None, report: Report
) -> list[Path]:
    """Write the requested exports into a folder. model: needed for all but label maps"""
    written = []
    if "labels" in kinds:
        maps = [label_file(project, image) for image in write_label_maps(project)]
        written.append(zipped(folder / "labels.zip", [*maps, project.folder / LABELS / LEGEND]))
    if model is None:
        return written
    if set(kinds).intersection(PREDICTIONS):
        written += _predict(project, kinds, folder, model, report)
        written += _predict_large(project, kinds, folder, model, report)
    if "model" in kinds:
        written.append(_copy(model, folder / MODEL))
    if "report" in kinds:
        images = [image.path for image in write_label_maps(project)]
        title = f"{project.folder.name}: on the strokes that it was trained on"
        labels, file = project.folder / LABELS, folder / "report.html"
        jobs.report(jobs.ReportRequest([model], images, labels, file, title=title), progress=report)
        written.append(file)
    return written


def skipped(project: Project, kinds: Sequence[str]) -> str:
    """A note on exports that are not possible for large images, and on images that cannot be read; empty: nothing is
    skipped."""
    n_large = sum(map(is_large, readable(project)))
    skipped = [kind for kind in PREDICTIONS if kind in kinds and kind not in LARGE_PREDICTIONS]
    notes = []
    if n_large and skipped:
        notes.append(f"{n_large} image(s) are too large for {' and '.join(skipped)}; see the commands")
    return "; ".join([*notes, *filter(None, [unreadable(project)])])


def unreadable(project: Project) -> str:
    """A note on the images that cannot be read; empty: all can."""
    names = [project.images[i].name for i in sorted(project.problems)]
    return f"left out, since unreadable: {', '.join(names)}" if names else ""


def _predict(project: Project, kinds: Sequence[str], folder: Path, model: Path, report: Report) -> list[Path]:
    """Predictions for the images that fit in memory, packed into files to download."""
    images = [image.path for image in readable(project) if not is_large(image)]
    if not images:
        return []
    background = next((c.id for c in project.classes if c.name.lower() == "background"), None)
    with temporary_folder(folder) as inside:
        request = jobs.PredictRequest(
            model,
            images,
            inside,
            proba="probabilities" in kinds,
            overlay="overlays" in kinds,
            measure="table" in kinds,
            background=background if background in painted_values(project) else None,
        )
        predicted = jobs.predict(request, progress=report)
        assert isinstance(predicted, Predicted)  # into a folder
        if len(predicted.failures) == predicted.n_images:
            raise Refused(f"none of the images can be segmented; the first error is: {predicted.failures[0]}")
        written = []
        for kind, ending in EXPORT_ENDINGS.items():
            if kind in kinds:
                files = {inside / f"{stem_of(path)}{ending}" for path in images}
                written.append(zipped(folder / f"{kind}.zip", sorted(filter(Path.is_file, files))))
        if "table" in kinds:
            written += [_copy(inside / name, folder / name) for name in TABLE_FILES]
        return written


def _predict_large(project: Project, kinds: Sequence[str], folder: Path, model: Path, report: Report) -> list[Path]:
    """Labels and probabilities of images too large for memory, each in a file of its own."""
    labels, proba = (kind in kinds for kind in LARGE_PREDICTIONS)
    written: list[Path] = []
    if labels or proba:
        for image in filter(is_large, readable(project)):
            output = folder / f"{stem_of(image.path)}.ome.tif"
            request = jobs.PredictRequest(model, image.path, output, labels=labels, proba=proba, dtype="uint8")
            predicted = jobs.predict(request, progress=report)
            assert isinstance(predicted, jobs.PredictedLarge)  # into one file
            written += map(Path, predicted.results.values())
    return written


def _copy(source: Path, path: Path) -> Path:
    with atomic_path(path, noted=False) as temporary:
        shutil.copyfile(source, temporary)
    return path


def zipped(path: Path, files: Iterable[Path]) -> Path:
    """A zip of files, without their folders."""
    with atomic_path(path, noted=False) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            archive.write(file, file.name)
    return path
