"""Refining: the network of a stack, or one that was refined before, trained end to end from files to a file."""

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
from hedgerow.images.pairing import FilesSpec, pair_files
from hedgerow.images.reading import Pages
from hedgerow.io import model_file
from hedgerow.jobs.inputs import Say, checked_output, files_of, read_for, say_what_was_read, unsaid
from hedgerow.locking import locked
from hedgerow.predict.devices import check_device
from hedgerow.progress import Report
from hedgerow.temporary import remove
from hedgerow.written import is_ours

if TYPE_CHECKING:
    from hedgerow.network.stacknet import StackNet


@dataclass(frozen=True)
class Refined:
    """The network, whose last refinement is this one, and the size of its file."""

    net: StackNet
    n_bytes: int


def refine(
    model: PathLike,
    images: FilesSpec,
    labels: FilesSpec,
    output: PathLike,
    config: RefineConfig | None = None,
    *,
    split: str | None = None,
    sharpness: Sharpness | None = None,
    validation: tuple[FilesSpec, FilesSpec] | None = None,
    unlabelled: int | None = None,
    pages: Pages = None,
    device: str = "cpu",
    restart: bool = False,
    keep: Iterable[PathLike] = (),
    overwrite: bool = False,
    say: Say = unsaid,
    progress: Report | None = None,
) -> Refined:
    """Refine the network of a file, or that of its forests, and write it to `output`.

    The state is kept beside the output, so a run that was interrupted goes on when the same job is called again. If
    the run diverges, the last good network is written before the DivergenceError is raised.

    split, sharpness: of the network of a stack, as in `to_convnet`; None: its defaults
    validation: images and labels that score the network, in place of a part of the training images
    unlabelled: the label value that means "no label"; None: the one the model was trained with
    pages:      which pages of image files to read, see `read_image`
    restart:    forget an interrupted run of the same output
    Several processes started by `torchrun` refine one network together, see `refinement.together`.
    keep:       files that must not be written over, beside those that are read
    overwrite:  also an existing file that Hedgerow did not write
    """
    extras.require("torch", "refinement")
    from hedgerow.deep.deepstack import DeepStack
    from hedgerow.refinement import together
    from hedgerow.refinement.loop import refine_labelled

    check_device(device, is_network=True)
    loaded = model_file.load(model)
    if isinstance(loaded, DeepStack):
        raise InputError(
            f"{model} has a convolutional level, which was trained on its network as it is; refine the network it was "
            "made from, and make the level again (`hedgerow train --effort best`)."
        )
    pairs = pair_files(images, labels)
    held_pairs = [] if validation is None else pair_files(*validation)
    output = checked_output(output, [model, *files_of([*pairs, *held_pairs]), *keep], overwrite=overwrite)
    with locked(output) if together.is_first() else nullcontext():
        checkpoint = _checkpoint_of(output, restart)
        say_what_was_read([pair.image for pair in pairs], loaded.features.layout, pages, say)
        labelled = read_for(loaded, pairs, unlabelled, pages)
        held = None if validation is None else read_for(loaded, held_pairs, unlabelled, pages)
        net = _network(loaded, model, split, sharpness)
        say(f"network of {len(net.layers()) - 1} hidden layers, {net.split} splits; sharpness {_sharpness(net)}")
        if restart:
            remove(checkpoint)
        try:
            refined = refine_labelled(
                net.to(together.own_device(device)), labelled, config, validation=held, checkpoint=checkpoint,
                keep_checkpoint=True, progress=progress,
            )  # fmt: skip
        except DivergenceError as error:
            _save(error.network, output, checkpoint)  # type: ignore[arg-type]
            raise
        return Refined(refined, _save(refined, output, checkpoint))


def _checkpoint_of(output: Path, restart: bool) -> Path:
    """Where the state of the run is kept; raises InputError if something else has that name."""
    checkpoint = output.with_name(output.name + ".checkpoint")
    if os.path.lexists(checkpoint) and not checkpoint.is_file():
        raise InputError(f"{checkpoint} would keep the state of the run, but is no file; move it, or write elsewhere.")
    if restart and checkpoint.exists() and not is_ours(checkpoint):
        raise InputError(f"{checkpoint} is not a checkpoint of Hedgerow, so it is not removed; move it away first.")
    return checkpoint


def _network(
    loaded: ForestStack | StackNet, path: PathLike, split: str | None, sharpness: Sharpness | None
) -> StackNet:
    from hedgerow.network.mapping import to_convnet

    if isinstance(loaded, ForestStack):
        return to_convnet(loaded, split or "soft", sharpness)
    if split is not None or sharpness is not None:
        raise InputError(f"{path} is a network already; split and sharpness are for a stack of forests.")
    return loaded


def _sharpness(net: StackNet) -> str:
    """Of splits, leaves and votes, each different one once."""
    each = [net.level(k).sharpness for k in range(net.n_levels)]
    return ", ".join(dict.fromkeys(f"{one.split:g}/{one.leaf:g}/{one.vote:g}" for one in each))


def _save(net: StackNet, output: Path, checkpoint: Path) -> int:
    """The checkpoint goes once the network is safe: a disk that is full must not cost the run.

    Of several processes, only the first one writes.
    """
    from hedgerow.refinement import together

    if not together.is_first():
        return 0
    n_bytes = model_file.save(net, output)
    remove(checkpoint)
    return n_bytes
