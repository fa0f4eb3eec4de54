"""Training: a stack of forests from images and labels."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hedgerow.config import StackConfig
from hedgerow.errors import ConfigError, InputError, QuestionError
from hedgerow.features.registry import layout_of
from hedgerow.files import PathLike
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.autocontext import GrowAll, grow_stack
from hedgerow.forest.choosing import settings_for
from hedgerow.forest.groups import GroupsOf
from hedgerow.images.arrays import Layout, to_labels
from hedgerow.images.classes import check_unlabelled
from hedgerow.images.label_files import read_label_set
from hedgerow.images.labelled import LabelledSet, labelled_set
from hedgerow.images.paint import unpainted_value
from hedgerow.images.pairing import FilesSpec, Pair, in_words, pair_files
from hedgerow.images.reading import Pages, read_input
from hedgerow.io import model_file
from hedgerow.jobs.inputs import Say, checked_output, files_of, say_what_was_read, unsaid
from hedgerow.jobs.plans import expected
from hedgerow.locking import locked
from hedgerow.predict.evaluate import score
from hedgerow.progress import Report

UNLABELLED = 255  # unless said otherwise
UNSEEN = {"images": "training images", "blocks": "blocks of the training images", "strokes": "strokes"}
MOST_KINDS = 3  # different sizes and number types that are named


@dataclass(frozen=True)
class Trained:
    """The stack, and the size of its file."""

    stack: ForestStack
    n_bytes: int

    @property
    def held_out(self) -> list[float]:
        """Mean Dice of each level on what it did not see; empty where nothing was held out. Levels beyond those of the
        stack were left out, because they did not help."""
        return [score["mean_dice"] for score in self.stack.settings["held_out"]]

    @property
    def reserved(self) -> dict[str, Any] | None:
        """Number of reserved images and mean Dice on them, "n_images" and "mean_dice"; None: there are none."""
        return self.stack.settings.get("reserved")

    @property
    def unseen(self) -> str:
        """What was held out."""
        return UNSEEN[self.stack.settings["held"]]


def train(
    images: FilesSpec,
    labels: FilesSpec,
    output: PathLike,
    config: StackConfig | None = None,
    *,
    changes: Mapping[str, Any] | None = None,
    layers: Sequence[str] = (),
    unlabelled: int | str | None = None,
    max_classes: int = 64,
    pages: Pages = None,
    keep: Iterable[PathLike] = (),
    overwrite: bool = False,
    grow_all: GrowAll | None = None,
    say: Say = unsaid,
    progress: Report | None = None,
) -> Trained:
    """Grow a stack on files and write it to `output`; says what was read before it begins, and each level's score.

    config:      None: chosen by the amount of paint, see `settings_for`
    changes:     settings to change in it, by name
    layers:      of the encoder, to read instead of those in the settings
    unlabelled:  the label value that means "no label"; None: 255, but if 0 looks like it, that is asked by a
                 QuestionError; "auto": decided by what it looks like
    max_classes: labels with more classes are refused, since they are probably no labels
    pages:       which pages of image files to read, see `read_image`
    keep:        files that must not be written over, beside those that are read
    overwrite:   also an existing file that Hedgerow did not write
    grow_all:    who grows the forests, see `grow_stack`
    """

    def scored(level: int, dice: float, held: GroupsOf) -> None:
        say(f"level {level}: mean Dice {dice:.3f} on {UNSEEN[held]} it did not see")

    with ExitStack() as locks:
        labelled, changed, output = prepared(
            images, labels, output, config, Reading(unlabelled, max_classes, pages), changes=changes, layers=layers,
            keep=keep, overwrite=overwrite, say=say, locks=locks,
        )  # fmt: skip
        say(f"effort fast: {expected(labelled, 'fast', None, 'cpu')}")
        grown = grow_stack(labelled, changed, progress=progress, scored=scored, grow_all=grow_all)
        stack = _scored(grown, labelled, progress)
        return Trained(stack, model_file.save(stack, output))


@dataclass(frozen=True)
class Reading:
    """How files are read: the label value that means "no label", or "auto"; how many classes there may be; pages."""

    unlabelled: int | str | None = None
    max_classes: int = 64
    pages: Pages = None


def prepared(
    images: FilesSpec,
    labels: FilesSpec,
    output: PathLike,
    config: StackConfig | None,
    reading: Reading,
    *,
    changes: Mapping[str, Any] | None,
    layers: Sequence[str],
    keep: Iterable[PathLike],
    overwrite: bool,
    say: Say,
    locks: ExitStack,
) -> tuple[LabelledSet, StackConfig, Path]:
    """The images with labels, the settings, and the file to write; all that can be refused is refused here.

    locks: holds the lock of the output from before the images are read
    """
    unlabelled = reading.unlabelled
    if unlabelled is not None and not (isinstance(unlabelled, str) and unlabelled == "auto"):
        unlabelled = check_unlabelled(unlabelled)
    changed = _changed(config or StackConfig(), changes, layers)  # refuses bad settings before anything is read
    layout = layout_of(changed.features)
    pairs = pair_files(images, labels)
    final = checked_output(output, [*files_of(pairs), *keep], overwrite=overwrite)
    locks.enter_context(locked(final))
    labelled = _read(pairs, labels, layout, unlabelled, reading.max_classes, reading.pages, say)
    if config is None:
        changed = _changed(settings_for(labelled, say, has_features="features" in (changes or {})), changes, layers)
    return labelled, changed, final


def _changed(config: StackConfig, changes: Mapping[str, Any] | None, layers: Sequence[str]) -> StackConfig:
    changed = replace(config, **(changes or {}))
    if not layers:
        return changed
    if "encoder" not in changed.features:
        raise ConfigError("layers were named, but no encoder is among the features; add --features encoder.")
    return replace(changed, encoder=replace(changed.encoder, layers=tuple(layers)))


def _scored(stack: ForestStack, labelled: LabelledSet, progress: Report | None) -> ForestStack:
    """The stack, with its score on the images that were kept from it."""
    kept = [image for image in labelled if image.mark in stack.known.reserved]
    if not kept:
        return stack
    scores = score(stack, replace(labelled, images=kept), progress)
    return replace(
        stack,
        settings={**stack.settings, "reserved": {"n_images": len(kept), "mean_dice": float(scores.mean_dice)}},
    )


def _read(
    pairs: Sequence[Pair],
    labels: FilesSpec,
    layout: Layout,
    unlabelled: int | str | None,
    max_classes: int,
    pages: Pages,
    say: Say,
) -> LabelledSet:
    pictures = [read_input(pair.image, layout, pages) for pair in pairs]
    maps, legend = read_label_set([pair.label for pair in pairs])
    names = [str(pair.image) for pair in pairs]
    value = unlabelled_value(maps, unlabelled, say)
    try:
        labelled = labelled_set(pictures, maps, layout=layout, unlabelled=value, names=names, legend=legend)
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


def unlabelled_value(maps: Sequence[np.ndarray], asked: int | str | None, say: Say) -> int:
    """The label value that means "no label"."""
    if isinstance(asked, int):
        return asked
    found = unpainted_value([to_labels(labels) for labels in maps], UNLABELLED)
    if found is None:
        return UNLABELLED
    if asked == "auto":
        say(f"{found} is taken for unlabelled: it has nearly all pixels, and the other classes look like strokes")
        return found
    part = sum(int((labels == found).sum()) for labels in maps) / sum(labels.size for labels in maps)
    raise QuestionError(
        f"the labels have the value {found} at {part:.1%} of all pixels, and the other classes look like strokes: was"
        " nothing painted there?",
        [
            (f"If so, {found} means unlabelled", f"--unlabelled {found}", f"unlabelled={found}"),
            (f"if {found} is a class of its own", f"--unlabelled {UNLABELLED}", f"unlabelled={UNLABELLED}"),
        ],
    )


def _kinds(pictures: Sequence[np.ndarray]) -> str:
    """Sizes and number types."""
    seen = list(dict.fromkeys(f"{' x '.join(map(str, picture.shape))} {picture.dtype}" for picture in pictures))
    more = f" and {len(seen) - MOST_KINDS} more kinds" if len(seen) > MOST_KINDS else ""
    return ", ".join(seen[:MOST_KINDS]) + more
