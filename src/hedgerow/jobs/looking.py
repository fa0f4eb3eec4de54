"""Looking into a model: a figure of the output of each of its levels for one image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hedgerow.errors import InputError
from hedgerow.files import PathLike
from hedgerow.images.label_files import read_labels
from hedgerow.images.pairing import find_files
from hedgerow.images.reading import Pages, read_input
from hedgerow.io import model_file
from hedgerow.jobs.inputs import checked_output, refuse_volumes
from hedgerow.report import figures

if TYPE_CHECKING:
    from hedgerow.deep.any_model import AnyModel


@dataclass(frozen=True)
class LookRequest:
    """A figure of the output of each level of a model for an image, class by class.

    output:    the figure to write; its name ends in .png, .pdf or .svg
    truth:     label map to show beside the predictions
    classes:   class values to show; None: the most frequent
    pages:     which pages of the image file to read, see `read_image`
    overwrite: also overwrite an existing file that Hedgerow did not write
    """

    model: PathLike
    image: PathLike
    output: PathLike
    truth: PathLike | None = None
    classes: Sequence[int] | None = None
    pages: Pages = None
    overwrite: bool = False


def look(request: LookRequest) -> AnyModel:
    """Draw the figure; returns the model."""
    model = model_file.load(request.model)
    refuse_volumes(model, request.model, "look")
    files = find_files(request.image)
    if len(files) != 1:
        raise InputError(f"{request.image} matches {len(files)} images; give one.")
    read = [request.model, *files, *([] if request.truth is None else [request.truth])]
    output = checked_output(request.output, read, "inside.png", overwrite=request.overwrite)
    truth = None if request.truth is None else read_labels(request.truth, legend=model.legend or None)
    picture = read_input(files[0], model.features.layout, request.pages)
    title = f"{files[0].name}, read by {model.features.title}"
    figures.look(model, picture, output, classes=request.classes, truth=truth, title=title)
    return model
