"""Evaluating a model on labelled images, pixel by pixel or object by object."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from hedgerow.errors import InputError, masked
from hedgerow.files import PathLike, write_text
from hedgerow.images.array_checks import check_pair, to_objects
from hedgerow.images.axes import checked_axes
from hedgerow.images.classes import check_background
from hedgerow.images.given import given_files
from hedgerow.images.instances import Finding, kinds_of
from hedgerow.images.label_files import legend_files
from hedgerow.images.labelled import image_mark
from hedgerow.images.metrics import MEANS, Scores
from hedgerow.images.object_metrics import OVERLAPS, ObjectScores, compare_objects
from hedgerow.images.object_search import find_in
from hedgerow.images.object_tables import csv_text
from hedgerow.images.pairing import FilesSpec, Pair, labelled_files, pair_files
from hedgerow.images.reading import Pages, read_voxel_size
from hedgerow.images.stored import ImageSpec
from hedgerow.io import model_file
from hedgerow.jobs.inputs import checked_output, files_of, read_for
from hedgerow.predict.evaluate import pooled, score_each
from hedgerow.predict.file_outputs import checked_planes, spacing_of
from hedgerow.predict.protocol import Model
from hedgerow.predict.tiling import proba_of
from hedgerow.progress import Report, Say, quiet, reporting
from hedgerow.scale import cluster
from hedgerow.scale.cluster import Workers
from hedgerow.scale.large_pairs import has_address, large_pair, split_by_size, summed_table, table_of
from hedgerow.scale.worker_tasks import content_of, each_here, each_on


@dataclass(frozen=True)
class Evaluated:
    """The scores of a model.

    n_known: number of images that the model was trained on, whose scores are too high
    without_background: balanced accuracy of all other classes; None: no background was given
    """

    scores: Scores
    n_known: int
    without_background: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; None stands for NaN."""
        values = {**self.scores.to_dict(), "n_known": self.n_known}
        if self.without_background is not None:
            known = None if math.isnan(self.without_background) else self.without_background
            values["balanced_accuracy_without_background"] = known
        return values


@dataclass(frozen=True)
class EvaluateRequest:
    """Labelled images to score a model on.

    images, labels: folders, files or globs; or the addresses of one image and its labels
    output:      file for the scores as JSON; None: not written
    csv:         file for a table with the scores of each image; None: not written
    background:  class to leave out of a second balanced accuracy
    objects:     the labels number objects, which are compared with those that the model finds of these classes; empty:
                 of all classes but the background and the boundary; None: pixels are compared
    diameter, min_size, max_size, fill_holes: how the model's objects are found, as in `hr.objects`
    unlabelled:  the label value that means "no label"; None: the one the model was trained with
    pages:       which pages of image files to read, see `read_image`
    axes:        letters for the axes of the files, such as "ZYX"; None: those that the files name
    level, pixel_size: which level of a pyramid to read, by number or by micrometres; the labels must have a level of
                 the same size
    workers:     predict images larger than memory: a number of processes, the address of a Dask scheduler, or a client;
                 None: this process predicts them
    overwrite:   also overwrite existing files that Hedgerow did not write
    """

    model: PathLike
    images: FilesSpec
    labels: FilesSpec
    output: PathLike | None = None
    csv: PathLike | None = None
    background: int | None = None
    objects: Sequence[str] | None = None
    diameter: float | None = None
    min_size: int = 0
    max_size: int = 0
    fill_holes: int = 0
    unlabelled: int | None = None
    pages: Pages = None
    axes: str | None = None
    level: int = 0
    pixel_size: float | None = None
    device: str = "cpu"
    workers: Workers | None = None
    overwrite: bool = False

    @property
    def finding(self) -> Finding:
        """How objects are found."""
        return Finding(self.diameter, self.min_size, self.max_size, self.fill_holes)


def evaluate(request: EvaluateRequest, *, say: Say = quiet, progress: Report | None = None) -> Evaluated:
    """Score a model's predictions, pooled over all images; large images are read only where they are labelled."""
    model = model_file.load(request.model)
    names, small, large = _split_by_size(request, say)
    of_large = [path for pair in large for path in pair]
    files = [*files_of(small), *of_large, *legend_files(Path(labels) for _, labels in large)]
    output, csv = _checked_outputs(request, model, files)
    stamp = uuid4().hex
    wanted = [
        large_pair(model, *pair, request.unlabelled, request.pages, request.level, request.pixel_size, stamp)
        for pair in large
    ]
    here = model.to(request.device) if small or request.workers is None else model
    each, n_known = list[Scores](), 0
    if small:
        labelled = read_for(here, small, request.unlabelled, request.pages, checked_axes(request.axes))
        names[: len(small)] = [Path(image.name).name for image in labelled]
        n_known = sum(image.mark in model.known.seen for image in labelled)
        each = score_each(here, labelled, progress)
    with cluster.connected(request.workers if wanted else None) as client:
        each_part = each_here(table_of, here)
        if client is not None:
            each_part = each_on(client, table_of, content_of(request.model), request.device)
        for pair in wanted:
            each.append(Scores(model.classes, summed_table(pair, model, each_part, progress), model.legend.names))
    scores = pooled(model, each)
    other = None if request.background is None else scores.balanced_accuracy_without(request.background)
    evaluated = Evaluated(scores, n_known, other)
    if output is not None:
        write_text(output, json.dumps(evaluated.to_dict(), indent=2))
    if csv is not None:
        write_text(csv, csv_text(_table(names, each, scores)))
    return evaluated


@dataclass(frozen=True)
class EvaluatedObjects:
    """The scores of a model's objects; n_known: as in `Evaluated`."""

    scores: ObjectScores
    n_known: int

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; None stands for NaN."""
        return {**self.scores.to_dict(), "n_known": self.n_known}


def evaluate_objects(request: EvaluateRequest, *, say: Say = quiet, progress: Report | None = None) -> EvaluatedObjects:
    """Score the objects that a model finds against numbered ones, over all images together."""
    model = model_file.load(request.model).to(request.device)
    model.features.check_here()
    pairs = pair_files(request.images, request.labels, say)
    output, csv = _checked_outputs(request, model, files_of(pairs))
    kinds = kinds_of(model.classes, model.legend, request.objects or (), request.background)
    how = ImageSpec("", model.features.layout, request.pages, axes=checked_axes(request.axes))
    files = labelled_files(pairs, [str(pair.image) for pair in pairs], how)
    given = given_files(files, None)
    each, n_known = list[ObjectScores](), 0
    with reporting(progress) as report:
        for done, file in enumerate(files):
            report("evaluating", done, len(files))
            planes = checked_planes(model, given.images[done], given.layout, file.name)
            truth = to_objects(given.labels[done], file.labels.path)
            check_pair(planes, truth, file.name)
            finding = replace(request.finding, spacing=spacing_of(model, read_voxel_size(file.image.path)))
            if not file.is_volume:
                finding = request.finding
            each.append(compare_objects(truth, find_in(proba_of(model, planes), kinds, finding).numbers))
            n_known += image_mark(planes) in model.known.seen
        report("evaluating", len(files), len(files))
    scores = each[0]
    for more in each[1:]:
        scores += more
    evaluated = EvaluatedObjects(scores, n_known)
    if output is not None:
        write_text(output, json.dumps(evaluated.to_dict(), indent=2))
    if csv is not None:
        write_text(csv, csv_text(_object_table([Path(file.name).name for file in files], each)))
    return evaluated


def _object_table(images: Sequence[str], each: Sequence[ObjectScores]) -> list[list[object]]:
    """The names of the columns, then a row for each image."""
    precisions = [f"average_precision_{overlap}" for overlap in OVERLAPS]
    rows: list[list[object]] = [
        ["image", "true_objects", "found_objects", *precisions, "panoptic_quality", "split", "merged"]
    ]
    for image, scores in zip(images, each, strict=True):
        counts = (scores.n_true, scores.n_found)
        qualities = (*scores.average_precision.values(), scores.panoptic_quality)
        rows.append([image, *counts, *qualities, scores.n_split, scores.n_merged])
    return rows


def _split_by_size(
    request: EvaluateRequest, say: Say
) -> tuple[list[str], list[Pair], list[tuple[str | Path, str | Path]]]:
    """Names of all images, those that fit in memory, and the image and labels of each large one."""
    images, labels = request.images, request.labels
    if has_address(images, labels):
        if not (isinstance(images, str) and isinstance(labels, str)):
            raise InputError("only one image can be given by its address; give one image and its labels.")
        return [Path(masked(images)).name], [], [(images, labels)]
    pairs = pair_files(images, labels, say)
    in_parts = request.level != 0 or request.pixel_size is not None
    small, large = ([], pairs) if in_parts else split_by_size(pairs)
    return [pair.image.name for pair in (*small, *large)], small, [(pair.image, pair.label) for pair in large]


def _checked_outputs(
    request: EvaluateRequest, model: Model, files: Sequence[PathLike]
) -> tuple[Path | None, Path | None]:
    """The files for the scores, as JSON and as a table, checked."""
    inputs, overwrite = [request.model, *files], request.overwrite
    output, csv = None, None
    if request.output is not None:
        output = checked_output(request.output, inputs, "scores.json", overwrite=overwrite)
    if request.csv is not None:
        csv = checked_output(request.csv, inputs, "scores.csv", overwrite=overwrite)
        if csv == output:
            raise InputError(
                f"{csv} cannot hold both the overall scores and those per image; give two different files."
            )
    check_background(request.background, model.classes, str(request.model))
    return output, csv


def _table(images: Sequence[str], each: Sequence[Scores], all_images: Scores) -> list[list[object]]:
    """The names of the columns, then a row for each image."""
    names = [all_images.names.get(value, str(value)) for value in all_images.classes]
    # Classes with the same name are distinguished by their values.
    columns = [
        f"dice_{name}" if names.count(name) == 1 else f"dice_{name}_{value}"
        for name, value in zip(names, all_images.classes, strict=True)
    ]
    rows: list[list[object]] = [["image", "pixels", *MEANS, *columns]]
    for image, scores in zip(images, each, strict=True):
        rows.append([image, int(scores.confusion.sum()), *scores.means.values(), *map(float, scores.dice)])
    return rows
