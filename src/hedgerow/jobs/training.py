"""Training: a model from files with labels, with effort "fast", "good" or "best"."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hedgerow.config import StackConfig
from hedgerow.encoders.catalogue import allow
from hedgerow.errors import ConfigError, InputError
from hedgerow.features.registry import layout_of
from hedgerow.files import PathLike
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.autocontext import GrowAll, grow_stack
from hedgerow.forest.default_settings import settings_for
from hedgerow.forest.groups import GroupsOf
from hedgerow.images.array_checks import Layout, to_labels
from hedgerow.images.classes import check_unlabelled
from hedgerow.images.label_files import read_label_set
from hedgerow.images.labelled import LabelledSet, labelled_set
from hedgerow.images.pairing import FilesSpec, Pair, in_words, pair_files
from hedgerow.images.reading import Pages, read_input
from hedgerow.images.unlabelled import unlabelled_value
from hedgerow.io import model_file
from hedgerow.jobs.efforts import Effort, Stage, check_effort, fit_labelled
from hedgerow.jobs.estimates import expected
from hedgerow.jobs.inputs import checked_output, files_of, say_what_was_read
from hedgerow.locking import locked
from hedgerow.predict.evaluate import score
from hedgerow.progress import Report, Say, quiet
from hedgerow.scale import cluster, tree_tasks
from hedgerow.scale.cluster import Workers
from hedgerow.scale.sparse_growth import Files, WholeInstead, files_for, grow, refuse_many_classes
from hedgerow.work_folder import remove_work_folder

if TYPE_CHECKING:
    from hedgerow.deep.deepstack import DeepStack
    from hedgerow.network.stacknet import StackNet

UNSEEN = {"images": "training images", "blocks": "blocks of the training images", "strokes": "strokes"}
N_KINDS = 3  # sizes and number types that are printed


@dataclass(frozen=True)
class TrainRequest:
    """A model to train on files.

    images, labels: folders, files or globs
    output:      the model file to write
    effort:      "fast": a stack of forests; "good": its network, refined; "best": convolutional networks as well
    config:      settings of the stack; None: chosen by the amount of paint, see `settings_for`
    changes:     settings to change in it, by name
    layers:      of the encoder, to read instead of those in the settings
    minutes:     about how long to train, for "good" and "best"; None: see `jobs.estimates`
    device:      where networks are trained
    restart:     discard an interrupted run of the same output; else it is resumed
    workers:     grow the forests of effort "fast": a number of processes, the address of a Dask scheduler, or a client
    unlabelled:  the label value that means "no label"; None: 255, but if 0 looks like it, a QuestionError asks;
                 "auto": decided by what it looks like
    max_classes: labels with more classes are refused, since they are probably no labels
    pages:       which pages of image files to read, see `read_image`
    keep:        files never to overwrite, beside those that are read
    overwrite:   also overwrite an existing file that Hedgerow did not write
    """

    images: FilesSpec
    labels: FilesSpec
    output: PathLike
    effort: Effort = "fast"
    config: StackConfig | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    layers: Sequence[str] = ()
    minutes: float | None = None
    device: str = "cpu"
    restart: bool = False
    workers: Workers | None = None
    unlabelled: int | str | None = None
    max_classes: int = 64
    pages: Pages = None
    keep: Iterable[PathLike] = ()
    overwrite: bool = False

    def __post_init__(self) -> None:
        check_effort(self.effort, self.minutes)
        if self.effort == "fast" and (self.minutes is not None or self.device != "cpu" or self.restart):
            raise ConfigError("--minutes, --device and --restart are for --effort good or best; forests take seconds.")
        if self.effort != "fast" and self.workers is not None:
            raise ConfigError("--workers and --cluster grow forests; give them without --effort.")

    def configured(self, config: StackConfig) -> StackConfig:
        """The settings with the requested changes."""
        changed = replace(config, **self.changes)
        if not self.layers:
            return changed
        if "encoder" not in changed.features:
            raise ConfigError("layers were named, but no encoder is among the features; add --features encoder.")
        return replace(changed, encoder=replace(changed.encoder, layers=tuple(self.layers)))

    @property
    def unlabelled_value(self) -> int | str | None:
        """The label value that means "no label", checked; None: unknown, "auto": to be decided."""
        asked = self.unlabelled
        return asked if asked is None or (isinstance(asked, str) and asked == "auto") else check_unlabelled(asked)


@dataclass(frozen=True)
class Trained:
    """The model, the size of its file, and what each stage of an effort gained."""

    model: ForestStack | StackNet | DeepStack
    n_bytes: int
    stages: tuple[Stage, ...] = ()

    @property
    def held_out(self) -> list[float]:
        """Held-out mean Dice of each level of forests; empty if nothing was held out. Levels beyond those of the stack
        were discarded, because they did not improve it."""
        return [score["mean_dice"] for score in self.model.settings["held_out"]]

    @property
    def reserved(self) -> dict[str, Any] | None:
        """Number of reserved images and mean Dice on them, "n_images" and "mean_dice"; None: there are none."""
        return self.model.settings.get("reserved")

    @property
    def unseen(self) -> str:
        """What was held out."""
        return UNSEEN[self.model.settings["held"]]


def train(request: TrainRequest, *, say: Say = quiet, progress: Report | None = None) -> Trained:
    """Train a model on files and write it; says what was read before the work begins, and each stage's score.

    With efforts "good" and "best" an interrupted run is resumed when the same request is made again. Of sets too large
    for memory, effort "fast" reads only what training needs; the model is the same.
    """
    unlabelled, config = request.unlabelled_value, request.configured(request.config or StackConfig())
    allow(config.encoder.name)  # a resumed run may load its stack from the work folder
    pairs = pair_files(request.images, request.labels)
    output = checked_output(request.output, [*files_of(pairs), *request.keep], overwrite=request.overwrite)
    with locked(output):
        if request.effort == "fast":
            return _forests(request, pairs, config, unlabelled, output, say, progress)
        labelled, config = _read(request, pairs, config, unlabelled, say)
        return _with_effort(request, labelled, config, output, say, progress)


def _forests(
    request: TrainRequest,
    pairs: Sequence[Pair],
    config: StackConfig,
    unlabelled: int | str | None,
    output: Path,
    say: Say,
    progress: Report | None,
) -> Trained:
    """A stack, grown on parts of the images if they exceed the memory and the settings allow it."""
    with _growers(request.workers) as grow_all:
        files = files_for(pairs, config, request.pages)
        if not request.layers and files.is_much():
            try:
                stack = _sparsely_grown(request, files, unlabelled, grow_all, say, progress)
                return Trained(stack, model_file.save(stack, output))
            except WholeInstead as reason:
                say(f"loading whole images: {reason}")
        labelled, config = _read(request, pairs, config, unlabelled, say)
        say(f"effort fast: {expected(labelled, 'fast', None, 'cpu')}")
        grown = grow_stack(labelled, config, progress=progress, scored=_level_printer(say), grow_all=grow_all)
    stack = _scored(grown, labelled, progress)
    return Trained(stack, model_file.save(stack, output))


def _with_effort(
    request: TrainRequest, labelled: LabelledSet, config: StackConfig, output: Path, say: Say, progress: Report | None
) -> Trained:
    """A model of effort "good" or "best"; a work folder beside the output holds its state until the model is saved."""
    folder = output.with_name(output.name + ".work")
    if request.restart:
        remove_work_folder(folder)
    fitted = fit_labelled(
        labelled, config, request.effort, minutes=request.minutes, device=request.device, folder=folder, say=say,
        progress=progress,
    )  # fmt: skip
    n_bytes = model_file.save(fitted.model.to("cpu"), output)
    remove_work_folder(folder)
    return Trained(fitted.model, n_bytes, tuple(fitted.stages))


@contextmanager
def _growers(workers: Workers | None) -> Iterator[GrowAll | None]:
    """The function that grows forests on workers; None: this process grows them."""
    if workers is None:
        yield None
        return
    with cluster.connected(workers) as client:
        yield tree_tasks.on(client)


def _level_printer(say: Say) -> Callable[[int, float, GroupsOf], None]:
    """Prints the score of each level."""

    def scored(level: int, dice: float, held: GroupsOf) -> None:
        say(f"level {level}: mean Dice {dice:.3f} on held-out {UNSEEN[held]}")

    return scored


def _sparsely_grown(
    request: TrainRequest,
    files: Files,
    unlabelled: int | str | None,
    grow_all: GrowAll | None,
    say: Say,
    progress: Report | None,
) -> ForestStack:
    """Grown on the labelled pixels and their surroundings alone, the same as on whole images."""
    value = unlabelled_value(files.first_labels(), unlabelled, say)
    return grow(
        files, request.config, request.changes, value, request.max_classes, say=say, progress=progress,
        scored=_level_printer(say), grow_all=grow_all,
    )  # fmt: skip


def _read(
    request: TrainRequest, pairs: Sequence[Pair], config: StackConfig, unlabelled: int | str | None, say: Say
) -> tuple[LabelledSet, StackConfig]:
    """The images with labels, and the settings, chosen for them unless they were given."""
    labelled = _read_files(request, pairs, layout_of(config.features), unlabelled, say)
    if request.config is None:
        config = request.configured(settings_for(labelled, say, has_features="features" in request.changes))
    return labelled, config


def _read_files(
    request: TrainRequest, pairs: Sequence[Pair], layout: Layout, unlabelled: int | str | None, say: Say
) -> LabelledSet:
    names = [str(pair.image) for pair in pairs]
    pictures = [read_input(pair.image, layout, request.pages) for pair in pairs]
    given, legend = read_label_set([pair.label for pair in pairs])
    maps = [to_labels(labels, f"the labels of {name}") for labels, name in zip(given, names, strict=True)]
    value = unlabelled_value(maps, unlabelled, say)
    try:
        labelled = labelled_set(pictures, maps, layout=layout, unlabelled=value, names=names, legend=legend)
    except InputError as error:
        if any(name in str(error) for name in names):
            raise
        raise InputError(f"{in_words(request.labels)}: {error}") from error  # it is about all the label maps
    refuse_many_classes(f"the labels in {in_words(request.labels)}", labelled.n_classes, request.max_classes)
    say(f"{len(pairs)} image(s): {_kinds(pictures)}")
    say_what_was_read([pair.image for pair in pairs], layout, request.pages, say)
    if len({picture.dtype for picture in pictures}) > 1:
        say("note: the images have different number types; the same value must mean the same in all of them")
    assert labelled.table is not None  # the classes were taken from these labels
    say(labelled.table.text(labelled.legend.names))
    return labelled


def _kinds(pictures: Sequence[np.ndarray]) -> str:
    """Sizes and number types."""
    seen = list(dict.fromkeys(f"{' x '.join(map(str, picture.shape))} {picture.dtype}" for picture in pictures))
    more = f" and {len(seen) - N_KINDS} more kinds" if len(seen) > N_KINDS else ""
    return ", ".join(seen[:N_KINDS]) + more


def _scored(stack: ForestStack, labelled: LabelledSet, progress: Report | None) -> ForestStack:
    """The stack, with its score on the images that were reserved from it."""
    reserved = [image for image in labelled if image.mark in stack.known.reserved]
    if not reserved:
        return stack
    scores = score(stack, replace(labelled, images=reserved), progress)
    return replace(
        stack,
        settings={**stack.settings, "reserved": {"n_images": len(reserved), "mean_dice": float(scores.mean_dice)}},
    )
