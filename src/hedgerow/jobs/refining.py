"""Refining the network of a stack, or a network, end to end, from files to a file."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hedgerow import extras
from hedgerow.config import RefineConfig, Sharpness
from hedgerow.errors import DivergenceError, InputError
from hedgerow.files import PathLike
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.level_input import dimensions_of
from hedgerow.images.given import say_what_was_read
from hedgerow.images.pairing import FilesSpec, pair_files
from hedgerow.images.reading import Pages, what_was_read
from hedgerow.images.subjects import Groups, grouped
from hedgerow.io import model_file
from hedgerow.jobs.inputs import checked_output, files_of, read_for, save
from hedgerow.locking import locked
from hedgerow.overwrite_guard import is_checkpoint, remove_state
from hedgerow.predict.devices import check_device
from hedgerow.progress import Report, Say, quiet

if TYPE_CHECKING:
    from hedgerow.network.stacknet import StackNet


@dataclass(frozen=True)
class Refined:
    """The refined network and the size of its file."""

    net: StackNet
    n_bytes: int


@dataclass(frozen=True)
class RefineRequest:
    """A network to refine on files.

    model:      a stack, whose network is refined, or a network
    output:     the network file to write
    split, sharpness: how a stack is mapped to its network, as in `to_convnet`; None: its defaults
    validation: images and labels to score the network on, instead of a part of the training images
    unlabelled: the label value that means "no label"; None: the one the model was trained with
    groups:     which images belong together and are held out together, see `images.subjects.Groups`
    pages:      which pages of image files to read, see `read_image`
    restart:    discard an interrupted run of the same output instead of resuming it
    keep:       files that must never be overwritten, besides those that are read
    overwrite:  also overwrite an existing file that Hedgerow did not write
    """

    model: PathLike
    images: FilesSpec
    labels: FilesSpec
    output: PathLike
    config: RefineConfig | None = None
    split: str | None = None
    sharpness: Sharpness | None = None
    validation: tuple[FilesSpec, FilesSpec] | None = None
    unlabelled: int | None = None
    groups: Groups = None
    pages: Pages = None
    device: str = "cpu"
    restart: bool = False
    keep: Iterable[PathLike] = ()
    overwrite: bool = False


def refine(request: RefineRequest, *, say: Say = quiet, progress: Report | None = None) -> Refined:
    """Refine a network end to end and write it.

    A checkpoint is stored beside the output, so that the same request resumes an interrupted run. If the run diverges,
    the last good network is written before the DivergenceError is raised. Several processes started by `torchrun`
    refine one network together.
    """
    extras.require("torch", "refinement")
    from hedgerow.deep.deepstack import DeepStack
    from hedgerow.refinement import distributed
    from hedgerow.refinement.loop import refine_labelled

    check_device(request.device, is_network=True)
    loaded = model_file.load(request.model)
    if isinstance(loaded, DeepStack):
        raise InputError(
            f"{request.model} has a convolutional level, which fits its network only as it is; refine the network that "
            "the level was added to, then train the level again (`hedgerow train --effort best`)."
        )
    pairs = pair_files(request.images, request.labels, say)
    held_pairs = [] if request.validation is None else pair_files(*request.validation, say)
    inputs = [request.model, *files_of([*pairs, *held_pairs], request.groups), *request.keep]
    output = checked_output(request.output, inputs, overwrite=request.overwrite)
    with locked(output) if distributed.is_first() else nullcontext():
        checkpoint = _checkpoint_of(output)
        names = [str(pair.image) for pair in pairs]
        is_volume = dimensions_of(loaded) == 3
        words = [what_was_read(name, loaded.features.layout, request.pages, is_volume) for name in names]
        say_what_was_read(names, words, say)
        labelled = grouped(read_for(loaded, pairs, request.unlabelled, request.pages), request.groups, say)
        held = read_for(loaded, held_pairs, request.unlabelled, request.pages) if held_pairs else None
        net = _network(loaded, request)
        say(f"network of {len(net.layers()) - 1} hidden layers, {net.split} splits; sharpness {_sharpness(net)}")
        if request.restart:
            remove_state(checkpoint)
        net = net.to(distributed.own_device(request.device))
        try:
            refined = refine_labelled(
                net, labelled, request.config, validation=held, checkpoint=checkpoint,
                keep_checkpoint=True, progress=progress,
            )  # fmt: skip
        except DivergenceError as error:
            _save(error.network, output, checkpoint, say)  # type: ignore[arg-type]
            raise
        return Refined(refined, _save(refined, output, checkpoint, say))


def _checkpoint_of(output: Path) -> Path:
    """The checkpoint file; raises InputError if something else has its name."""
    checkpoint = output.with_name(output.name + ".checkpoint")
    if os.path.lexists(checkpoint) and not checkpoint.is_file():
        raise InputError(
            f"{checkpoint} is needed for the state of the run, but is not a file; move it, or choose another output."
        )
    if os.path.lexists(checkpoint) and not is_checkpoint(checkpoint):
        raise InputError(f"{checkpoint} is not a checkpoint of Hedgerow, so it is not overwritten; move it away first.")
    return checkpoint


def _network(loaded: ForestStack | StackNet, request: RefineRequest) -> StackNet:
    from hedgerow.network.mapping import to_convnet

    if isinstance(loaded, ForestStack):
        return to_convnet(loaded, request.split or "soft", request.sharpness)
    if request.split is not None or request.sharpness is not None:
        raise InputError(
            f"{request.model} is already a network; --split and --sharpness are for forests, so leave them out."
        )
    return loaded


def _sharpness(net: StackNet) -> str:
    """The sharpness of splits, leaves and votes in words; levels of equal sharpness are named once."""
    each = [net.level(k).sharpness for k in range(net.n_levels)]
    return ", ".join(dict.fromkeys(f"{alpha.split:g}/{alpha.leaf:g}/{alpha.vote:g}" for alpha in each))


def _save(net: StackNet, output: Path, checkpoint: Path, say: Say) -> int:
    """Save the network, then remove the checkpoint, so that a full disk does not lose the run.

    Of several processes, only the first one writes.
    """
    from hedgerow.refinement import distributed

    if not distributed.is_first():
        return 0
    n_bytes = save(net, output, say)
    remove_state(checkpoint)
    return n_bytes
