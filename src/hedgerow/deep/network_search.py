"""A search for the convolutional network with the best mean Dice on held-out images: how its channels are normalised,
how many channels it has, and how large its training crops are.
"""

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from hedgerow.config import ConvConfig, DeepConfig
from hedgerow.deep.ensemble_weights import mean_dice
from hedgerow.deep.folds import search_folds
from hedgerow.deep.member_kinds import ALONE
from hedgerow.deep.member_training import MemberTraining, no_probabilities
from hedgerow.deep.recipe import Recipe, Task, for_number
from hedgerow.deep.unet import NORMS, Norm
from hedgerow.encoders.torch_devices import OneThread
from hedgerow.images.labelled import LabelledSet
from hedgerow.memory import ran_out
from hedgerow.network.stacknet import StackNet
from hedgerow.progress import Report, reporting
from hedgerow.work_folder import WorkFolder

TRIED_SIZES = (16, 32)  # channels at full resolution that are tried
LARGE_IMAGE_CROPS = 1.5  # larger crops are tried if the shorter side of images is at least this many crops
Tried = Mapping[tuple[int, Norm, int], float | None]
"""Mean Dice by size, normalisation and side of the crops; None: the network did not fit into memory."""


def crops_for(conv: ConvConfig, labelled: LabelledSet) -> tuple[int, ...]:
    """Sides of the crops to try: the usual one, and twice that if images are clearly larger.

    If classes differ by position, a crop must show enough to recognise its place: on drawn somites of 800 x 950 pixels,
    U-Nets learnt nothing from crops of 256. On electron microscopy, smaller crops are better (docs/measurements)."""
    shorter = min(max(image.size[axis] for image in labelled) for axis in range(2))
    return (conv.crop,) if shorter < LARGE_IMAGE_CROPS * conv.crop else (conv.crop, 2 * conv.crop)


def choose(
    conv: ConvConfig,
    n_images: int,
    sizes: Sequence[int],
    norms: Sequence[Norm],
    crops: Sequence[int],
    dice: Callable[[ConvConfig], float | None],
) -> tuple[ConvConfig, Tried]:
    """The best settings for this number of images, and what was tried: normalisations with the first size, then sizes
    with the best normalisation, then crops with the best of both.

    dice: the score of a network with these settings, None if it does not fit into memory; not called if there is no
          choice
    """

    def settings(base: int, norm: Norm, crop: int) -> ConvConfig:
        return for_number(replace(conv, base=base, norm=norm, crop=crop), n_images)

    tried: dict[tuple[int, Norm, int], float | None] = {}

    def best_of(some: Sequence[tuple[int, Norm, int]]) -> tuple[int, Norm, int]:
        for candidate in some:
            if candidate not in tried:
                tried[candidate] = dice(settings(*candidate))
        return max(tried, key=lambda candidate: tried[candidate] or 0.0)

    best = (sizes[0], norms[0], crops[0])
    if len(sizes) * len(norms) * len(crops) > 1:
        best = best_of([(best[0], norm, best[2]) for norm in norms])
        best = best_of([(size, best[1], best[2]) for size in sizes])
        best = best_of([(best[0], best[1], crop) for crop in crops])
    return settings(*best), tried


def choose_network(
    net: StackNet, recipe: Recipe, device: str, is_timed: bool = False, progress: Report | None = None
) -> tuple[DeepConfig, Tried]:
    """The settings with the best size, normalisation and crops, and what was tried.

    is_timed: there is a deadline, so that larger crops are tried for fewer steps
    """
    config, labelled = recipe.config, recipe.labelled
    folds = search_folds(labelled, config.seed + 2)
    stack_proba = no_probabilities(net, labelled)

    def training_of(conv: ConvConfig) -> MemberTraining:
        tried_recipe = replace(recipe, config=replace(config, conv=conv), held_out=folds)
        return MemberTraining(net, tried_recipe, stack_proba, WorkFolder(None), device)

    def dice(conv: ConvConfig) -> float | None:
        times = (conv.crop // config.conv.crop) ** 2
        if times == 1:
            return trained(training_of(conv))
        steps = max(conv.n_steps // times, 1) if is_timed else conv.n_steps
        training = training_of(replace(conv, n_steps=steps, check_every=min(conv.check_every, steps)))
        try:
            training.seconds_of_a_step(training.recipe.tasks)  # fails if a member does not fit into memory
            return trained(training)
        except RuntimeError as error:
            if not ran_out(error):
                raise
        gc.collect()  # only now, because the error refers to everything on the GPU
        torch.cuda.empty_cache()
        return None

    def trained(training: MemberTraining) -> float:
        proba = training.train([Task(ALONE, 0, 0)], report)[0].held_out
        assert proba is not None, "it holds out a fold"
        return mean_dice(proba, training.truth([(i, 0) for i in folds.held(0)]))

    with reporting(progress) as report, OneThread():
        conv, tried = choose(config.conv, len(labelled), TRIED_SIZES, NORMS, crops_for(config.conv, labelled), dice)
    return replace(config, conv=conv), tried


def n_tried(conv: ConvConfig, labelled: LabelledSet) -> int:
    """The number of networks that `choose_network` tries."""
    return len(NORMS) + len(TRIED_SIZES) + len(crops_for(conv, labelled)) - 2


def in_words(tried: Tried) -> str:
    """What was tried, in one line."""
    of = {"batch": "over the training images", "image": "over each image"}
    usual = min((crop for _, _, crop in tried), default=0)
    lines = []
    for (base, norm, crop), dice in tried.items():
        crops = "" if crop == usual else f" in crops of {crop} pixels"
        result = "did not fit into memory" if dice is None else f"{dice:.3f}"
        lines.append(f"{base} channels normalised {of[norm]}{crops} {result}")
    return ", ".join(lines)
