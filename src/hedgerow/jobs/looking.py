"""Looking: what each level of a model makes of one image, as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hedgerow.errors import InputError
from hedgerow.files import PathLike
from hedgerow.images.label_files import read_labels
from hedgerow.images.pairing import find_files
from hedgerow.images.reading import Pages, read_input
from hedgerow.io import model_file
from hedgerow.jobs.inputs import checked_output
from hedgerow.report import figures

if TYPE_CHECKING:
    from hedgerow.deep.parts import AnyModel


def look(
    model: PathLike,
    image: PathLike,
    output: PathLike,
    *,
    truth: PathLike | None = None,
    classes: Sequence[int] | None = None,
    pages: Pages = None,
    overwrite: bool = False,
) -> AnyModel:
    """Draw what the model of a file says of an image, class by class; returns the model.

    output:  a name that ends in .png, .pdf or .svg
    truth:   label map to show beside the predictions
    classes: class values to show; None: the most frequent
    pages:   which pages of the image file to read, see `read_image`
    """
    loaded = model_file.load(model)
    files = find_files(image)
    if len(files) != 1:
        raise InputError(f"{image} holds {len(files)} images; give one.")
    read = [model, *files, *([] if truth is None else [truth])]
    output = checked_output(output, read, "inside.png", overwrite=overwrite)
    labels = None if truth is None else read_labels(truth, legend=loaded.legend or None)
    picture = read_input(files[0], loaded.features.layout, pages)
    figures.look(loaded, picture, output, classes=classes, truth=labels, title=files[0].name)
    return loaded
