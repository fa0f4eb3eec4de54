"""Evaluating: the model of a file against labelled files."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hedgerow.errors import InputError
from hedgerow.files import PathLike, write_text
from hedgerow.images.metrics import Scores
from hedgerow.images.object_tables import csv_text
from hedgerow.images.pairing import FilesSpec, pair_files
from hedgerow.images.reading import Pages
from hedgerow.io import model_file
from hedgerow.jobs.inputs import checked_output, files_of, read_for
from hedgerow.predict.evaluate import pooled, score_each
from hedgerow.predict.protocol import Model
from hedgerow.progress import Report


@dataclass(frozen=True)
class Evaluated:
    """The scores, and the balanced accuracy of all classes but the background; None if no background was named.

    n_known: images that the model was made from, on which scores flatter it
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


def evaluate(
    model: PathLike,
    images: FilesSpec,
    labels: FilesSpec,
    output: PathLike | None = None,
    *,
    csv: PathLike | None = None,
    background: int | None = None,
    unlabelled: int | None = None,
    pages: Pages = None,
    device: str = "cpu",
    overwrite: bool = False,
    progress: Report | None = None,
) -> Evaluated:
    """Score a model's predictions; with `output`, the scores are written there as JSON.

    csv:        also write the scores of each image here, as a table
    unlabelled: the label value that means "no label"; None: the one the model was trained with
    pages:      which pages of image files to read, see `read_image`
    """
    loaded = model_file.load(model).to(device)
    pairs = pair_files(images, labels)
    written = Written(output, csv, background).checked(model, loaded, files_of(pairs), overwrite)
    labelled = read_for(loaded, pairs, unlabelled, pages)
    n_known = sum(image.mark in loaded.known.seen for image in labelled)
    each = score_each(loaded, labelled, progress)
    return written.write(loaded, [pair.image.name for pair in pairs], each, n_known)


@dataclass(frozen=True)
class Written:
    """What is written of scores: all of them as JSON, those of each image as a table; and the class to leave out."""

    output: PathLike | None
    csv: PathLike | None
    background: int | None

    def checked(self, model: PathLike, loaded: Model, files: Sequence[PathLike], overwrite: bool) -> "Written":
        """The same, if it can be written."""
        output, csv, background = self.output, self.csv, self.background
        if output is not None:
            output = checked_output(output, [model, *files], "scores.json", overwrite=overwrite)
        if csv is not None:
            csv = checked_output(csv, [model, *files], "scores.csv", overwrite=overwrite)
            if csv == output:
                raise InputError(f"{csv} is to hold both the scores and those of each image; give two names.")
        if background is not None and background not in loaded.classes:
            known = ", ".join(map(str, loaded.classes))
            raise InputError(f"the background is {background}; it must be one of the classes of {model}: {known}.")
        return Written(output, csv, background)

    def write(self, model: Model, names: Sequence[str], each: Sequence[Scores], n_known: int) -> Evaluated:
        """The scores of images of these names, pooled and written."""
        scores = pooled(model, each)
        other = None if self.background is None else scores.balanced_accuracy_without(self.background)
        found = Evaluated(scores, n_known, other)
        if self.output is not None:
            write_text(self.output, json.dumps(found.to_dict(), indent=2))
        if self.csv is not None:
            write_text(self.csv, csv_text(_table(names, each, scores)))
        return found


def _table(images: Sequence[str], each: Sequence[Scores], all_images: Scores) -> list[list[object]]:
    """A row for each image, below the names of the columns."""
    names = [all_images.names.get(value, str(value)) for value in all_images.classes]
    # Two classes of one name are told apart by their values.
    columns = [
        f"dice_{name}" if names.count(name) == 1 else f"dice_{name}_{value}"
        for name, value in zip(names, all_images.classes, strict=True)
    ]
    rows: list[list[object]] = [["image", "pixels", "mean_dice", "mean_iou", "accuracy", *columns]]
    for image, one in zip(images, each, strict=True):
        means = (one.mean_dice, one.mean_iou, one.accuracy)
        rows.append([image, int(one.confusion.sum()), *means, *map(float, one.dice)])
    return rows
