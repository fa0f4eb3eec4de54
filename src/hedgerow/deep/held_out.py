"""What the network of a stack says of images that it did not see: the same stack, made again without each fold."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from hedgerow.config import RefineConfig, StackConfig
from hedgerow.deep.folds import Folds
from hedgerow.encoders.known import allowed
from hedgerow.files import fingerprint
from hedgerow.forest.autocontext import grow_stack
from hedgerow.images.labelled import LabelledSet
from hedgerow.network.mapping import to_convnet
from hedgerow.network.stacknet import StackNet
from hedgerow.predict.tiling import proba_of
from hedgerow.progress import Report
from hedgerow.refinement.loop import refine_labelled

Keep = Callable[[str, str, Callable[[], np.ndarray]], np.ndarray]
"""(name, mark, make): what is kept under this name and mark, or made now and kept."""


def held_out_proba(net: StackNet, folds: Folds, needed: Iterable[int], keep: Keep, report: Report) -> list[np.ndarray]:
    """For each image (C,H,W) float16 class probabilities, by networks made like this one without the pixel's fold.

    needed: the folds to do; elsewhere they are 0
    """
    labelled = folds.labelled
    found = [np.zeros((net.n_classes, *image.size), np.float16) for image in labelled]
    for fold in needed:
        held = folds.held(fold)

        def make(fold: int = fold, held: list[int] = held) -> np.ndarray:
            again = made_again(net, folds.training(fold), report)
            said = [proba_of(again, labelled.images[i].planes)[:, folds.parts[i] == fold] for i in held]
            return np.concatenate(said, axis=1).astype(np.float16)

        made = (net.split, net.settings["config"], [one.config for one in net.refinements])
        mark = fingerprint(*made, *_arrays(folds))
        values, start = keep(f"stack-{fold}", mark, make), 0
        for i in held:
            mine = folds.parts[i] == fold
            found[i][:, mine] = values[:, start : start + int(mine.sum())]
            start += int(mine.sum())
    return found


def made_again(net: StackNet, labelled: LabelledSet, report: Report) -> StackNet:
    """A network from other images, grown and refined as this one was."""
    config = StackConfig.from_dict(net.settings["config"])
    encoder = replace(
        config.encoder, name=allowed(config.encoder.name)
    )  # the settings of a model may come from anybody
    # These images are for learning.
    stack = grow_stack(labelled, replace(config, reserve=0.0, encoder=encoder), progress=report)
    again = to_convnet(stack, net.split).to(str(net.device))
    for refinement in net.refinements:
        again = refine_labelled(again, labelled, RefineConfig.from_dict(dict(refinement.config)), progress=report)
    return again


def _arrays(folds: Folds) -> list[np.ndarray]:
    return [array for i, image in enumerate(folds.labelled) for array in (image.planes, image.target, folds.parts[i])]
