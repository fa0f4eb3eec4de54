"""Training: a stack of forests from images and labels."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from hedgerow.config import StackConfig
from hedgerow.errors import InputError
from hedgerow.features.registry import layout_of
from hedgerow.files import PathLike
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.autocontext import grow_stack
from hedgerow.forest.samples import FEW_IMAGES
from hedgerow.images.arrays import Layout
from hedgerow.images.classes import check_unlabelled
from hedgerow.images.label_files import read_label_set
from hedgerow.images.labelled import LabelledSet, labelled_set
from hedgerow.images.pairing import FilesSpec, Pair, in_words, pair_files
from hedgerow.images.reading import Pages, read_input
from hedgerow.io import model_file
from hedgerow.jobs.inputs import Say, checked_output, files_of, say_what_was_read, unsaid
from hedgerow.progress import Report

MOST_KINDS = 3  # different sizes and number types that are named


@dataclass(frozen=True)
class Trained:
    """The stack, and the size of its file."""

    stack: ForestStack
    n_bytes: int

    @property
    def held_out(self) -> list[float]:
        """Mean Dice of each level on what it did not see; empty where nothing was held out."""
        return [score["mean_dice"] for score in self.stack.settings["held_out"]]

    @property
    def unseen(self) -> str:
        """What was held out."""
        return _held_out_part(self.stack.settings["n_images"])


def _held_out_part(n_images: int) -> str:
    return "training images" if n_images >= FEW_IMAGES else "blocks of the training images"


def train(
    images: FilesSpec,
    labels: FilesSpec,
    output: PathLike,
    config: StackConfig | None = None,
    *,
    unlabelled: int = 255,
    max_classes: int = 64,
    pages: Pages = None,
    keep: Iterable[PathLike] = (),
    overwrite: bool = False,
    say: Say = unsaid,
    progress: Report | None = None,
) -> Trained:
    """Grow a stack on files and write it to `output`; says what was read before it begins, and each level's score.

    max_classes: labels with more classes are refused, since they are probably no labels
    pages:       which pages of image files to read, see `read_image`
    keep:        files that must not be written over, beside those that are read
    overwrite:   also an existing file that Hedgerow did not write
    """
    config, unlabelled = config or StackConfig(), check_unlabelled(unlabelled)
    layout = layout_of(config.features)
    pairs = pair_files(images, labels)
    output = checked_output(output, [*files_of(pairs), *keep], overwrite=overwrite)
    labelled = _read(pairs, labels, layout, unlabelled, max_classes, pages, say)

    def scored(level: int, dice: float) -> None:
        say(f"level {level}: mean Dice {dice:.3f} on {_held_out_part(len(labelled))} it did not see")

    stack = grow_stack(labelled, config, progress=progress, scored=scored)
    return Trained(stack, model_file.save(stack, output))


def _read(
    pairs: Sequence[Pair],
    labels: FilesSpec,
    layout: Layout,
    unlabelled: int,
    max_classes: int,
    pages: Pages,
    say: Say,
) -> LabelledSet:
    pictures = [read_input(pair.image, layout, pages) for pair in pairs]
    maps, legend = read_label_set([pair.label for pair in pairs])
    names = [str(pair.image) for pair in pairs]
    try:
        labelled = labelled_set(pictures, maps, layout=layout, unlabelled=unlabelled, names=names, legend=legend)
    except InputError as error:
        if any(name in str(error) for name in names):
            raise
        raise InputError(f"{in_words(labels)}: {error}") from error  # it is about all the label maps
    if labelled.n_classes > max_classes:
        raise InputError(
            f"the labels in {in_words(labels)} have {labelled.n_classes} different values and at most {max_classes} "
            "classes were expected: are the folders swapped, or the labels smoothed at their edges? If not, raise "
            "max_classes (--max-classes)."
        )
    say(f"{len(pairs)} image(s): {_kinds(pictures)}")
    say_what_was_read([pair.image for pair in pairs], layout, pages, say)
    if len({picture.dtype for picture in pictures}) > 1:
        say("note: the images have different number types; the same value must mean the same in all of them")
    assert labelled.table is not None  # the classes were taken from these labels
    say(labelled.table.text(labelled.legend.names))
    return labelled


def _kinds(pictures: Sequence[np.ndarray]) -> str:
    """Sizes and number types."""
    seen = list(dict.fromkeys(f"{' x '.join(map(str, picture.shape))} {picture.dtype}" for picture in pictures))
    more = f" and {len(seen) - MOST_KINDS} more kinds" if len(seen) > MOST_KINDS else ""
    return ", ".join(seen[:MOST_KINDS]) + more
