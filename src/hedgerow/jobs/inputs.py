"""Shared by the jobs: finding, reading and checking files before long work begins."""

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from hedgerow.deep.any_model import AnyModel
from hedgerow.errors import InputError
from hedgerow.files import PathLike, check_folder_writable, destination
from hedgerow.forest.level_input import dimensions_of
from hedgerow.images.file_checks import LARGE_PIXELS
from hedgerow.images.given import given_files
from hedgerow.images.label_files import legend_files
from hedgerow.images.labelled import LabelledSet, LazySequence
from hedgerow.images.pairing import Pair, labelled_files
from hedgerow.images.reading import Pages, open_image
from hedgerow.images.stored import ImageSpec
from hedgerow.images.subjects import Groups
from hedgerow.io import model_file
from hedgerow.overwrite_guard import check_overwriting, is_model
from hedgerow.predict.evaluate import labelled_by
from hedgerow.predict.protocol import Model
from hedgerow.progress import Say
from hedgerow.scale.sparse_growth import LARGE_SET_PIXELS

LARGE_IMAGE_PIXELS = LARGE_PIXELS  # images with more pixels are read and predicted in parts
MAX_PIXELS_IN_MEMORY = LARGE_SET_PIXELS  # of all images together that are trained on in memory


def checked_output(
    output: PathLike, inputs: Iterable[PathLike], example: str = "model.hedge", *, overwrite: bool = False
) -> Path:
    """The file to write; raises InputError before long work if it cannot be written.

    An input is never overwritten, and another existing file only if Hedgerow wrote it (`overwrite_guard`) or with
    `overwrite`.
    """
    output = Path(destination(output))
    if output.is_dir():
        raise InputError(f"{output} is a folder; give the name of a file to write, e.g. {output / example}.")
    if not output.parent.is_dir():
        raise InputError(f"cannot write {output}: there is no folder {output.parent}; make it first.")
    check_overwriting([output], inputs, overwrite)
    check_folder_writable(output.parent)
    return output


def save(model: AnyModel, output: Path, say: Say) -> int:
    """Save a model and return the size of its file; prints "replaced m.hedge (trained 1 hour ago)" if one was."""
    replaced = ""
    if output.is_file():
        verb = "trained" if is_model(output) else "written"
        replaced = f"replaced {output} ({verb} {_time_ago(time.time() - output.stat().st_mtime)})"
    n_bytes = model_file.save(model, output)
    if replaced:
        say(replaced)
    return n_bytes


def refuse_volumes(model: AnyModel, path: PathLike, command: str) -> None:
    """Raise InputError for a model of volumes, which this command cannot use yet."""
    if dimensions_of(model) == 3:
        raise InputError(
            f"{path} is a model of volumes, which hedgerow {command} cannot use yet; use hedgerow predict and "
            "evaluate, or train on single planes with --pages."
        )


def _time_ago(seconds: float) -> str:
    """The time since an event, in whole days, hours or minutes, as in "5 minutes ago"."""
    for unit, length in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            number = int(seconds // length)
            return f"{number} {unit}{'s' * (number != 1)} ago"
    return "less than a minute ago"


def files_of(pairs: Sequence[Pair], groups: Groups = None) -> list[Path]:
    """The files of the images and labels, those that name classes, and the table of groups if there is one."""
    tables = [Path(groups)] if isinstance(groups, str | os.PathLike) and os.path.isfile(groups) else []
    images_and_labels = [path for pair in pairs for path in (pair.image, pair.label)]
    return [*images_and_labels, *legend_files(pair.label for pair in pairs), *tables]


def images_for(model: Model, files: Sequence[Path], pages: Pages = None) -> Sequence[np.ndarray]:
    """The images or volumes as the model reads them; each file is read when its image is used."""
    model.features.check_here()  # so that it fails once, not for each image

    def image(i: int) -> np.ndarray:
        is_volume = dimensions_of(model) == 3
        with open_image(files[i], model.features.layout, pages, volumes=is_volume) as source:
            return source.array()

    return LazySequence(len(files), image)


def read_for(
    model: Model, pairs: Sequence[Pair], unlabelled: int | None = None, pages: Pages = None, axes: str = ""
) -> LabelledSet:
    """The images with their labels, all read and checked against the model.

    unlabelled: the label value that means "no label"; None: the one the model was trained with
    axes:       letters for the axes of the files, instead of their own
    """
    model.features.check_here()  # so that it fails once, not for each image
    how = ImageSpec("", model.features.layout, pages, axes=axes)
    files = labelled_files(pairs, [str(pair.image) for pair in pairs], how)
    labelled = labelled_by(model, given_files(files, model.legend or None), unlabelled)
    return replace(labelled, images=list(labelled))
