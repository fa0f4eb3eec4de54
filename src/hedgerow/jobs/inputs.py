"""What the jobs share: files are found, read and checked before long work."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from hedgerow.deep.any_model import AnyModel
from hedgerow.errors import InputError
from hedgerow.files import PathLike, check_folder_writable, destination
from hedgerow.images.label_files import read_labels
from hedgerow.images.labelled import LabelledSet, LazySequence
from hedgerow.images.legend import Legend
from hedgerow.images.limits import LARGE_PIXELS
from hedgerow.images.pairing import Pair
from hedgerow.images.reading import Pages, read_input
from hedgerow.io import model_file
from hedgerow.overwrite_guard import check_overwriting, is_model
from hedgerow.predict.evaluate import labelled_for
from hedgerow.predict.protocol import Model
from hedgerow.progress import Say
from hedgerow.scale.sparse_growth import LARGE_SET_PIXELS

LARGE_IMAGE_PIXELS = LARGE_PIXELS  # images with more pixels are read and predicted in parts
MAX_PIXELS_IN_MEMORY = LARGE_SET_PIXELS  # of all images together that are trained on in memory


def checked_output(
    output: PathLike, inputs: Iterable[PathLike], example: str = "model.hedge", *, overwrite: bool = False
) -> Path:
    """The file to write, if it may and can be written: else long work would end in a refusal.

    An input is never overwritten; any other existing file only if it is ours (`overwrite_guard`), or with `overwrite`.
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
    """Write a model, say what it replaces, as in "replaced m.hedge (trained 5 minutes ago)", and return its size."""
    replaced = ""
    if output.is_file():
        made = "trained" if is_model(output) else "written"
        replaced = f"replaced {output} ({made} {_ago(time.time() - output.stat().st_mtime)})"
    n_bytes = model_file.save(model, output)
    if replaced:
        say(replaced)
    return n_bytes


def _ago(seconds: float) -> str:
    """How long ago something was, in whole days, hours or minutes."""
    for unit, length in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            number = int(seconds // length)
            return f"{number} {unit}{'s' * (number != 1)} ago"
    return "less than a minute ago"


def files_of(pairs: Iterable[Pair]) -> list[Path]:
    """Images and labels."""
    return [path for pair in pairs for path in (pair.image, pair.label)]


def images_for(model: Model, files: Sequence[Path], pages: Pages = None) -> Sequence[np.ndarray]:
    """The images as the model takes them; each is read when it is asked for."""
    model.features.check_here()  # one refusal, not one for each image
    return LazySequence(len(files), lambda i: read_input(files[i], model.features.layout, pages))


def say_what_was_read(names: Sequence[str], words: Sequence[str], say: Say) -> None:
    """Say how files of several pages or channels are understood (`ImageSource.words`), one line for all alike."""
    for text in filter(None, dict.fromkeys(words)):
        alike = [name for name, own in zip(names, words, strict=True) if own == text]
        more = f" and {len(alike) - 1} more" if len(alike) > 1 else ""
        say(f"{alike[0]}{more}: {text}")


def labels_of(pairs: Sequence[Pair], legend: Legend) -> Sequence[np.ndarray]:
    """Label maps (H,W); each is read when it is asked for, its colours by a model's legend."""
    return LazySequence(len(pairs), lambda i: read_labels(pairs[i].label, legend=legend or None))


def read_for(model: Model, pairs: Sequence[Pair], unlabelled: int | None = None, pages: Pages = None) -> LabelledSet:
    """The images with their labels, all read and checked against the model.

    unlabelled: the label value that means "no label"; None: the one the model was trained with
    """
    images = images_for(model, [pair.image for pair in pairs], pages)
    labelled = labelled_for(
        model, images, labels_of(pairs, model.legend), unlabelled, [str(pair.image) for pair in pairs]
    )
    return replace(labelled, images=list(labelled))
