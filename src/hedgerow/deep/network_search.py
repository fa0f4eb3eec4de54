"""Which convolutional network suits some images: how its channels are normalised, how many there are, and how large the
crops are that it learns from, by mean Dice on held-out images.
"""

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from hedgerow.config import ConvConfig, DeepConfig
from hedgerow.deep.ensemble_weights import mean_dice
from hedgerow.deep.folds import SEARCH_FOLDS, folds_of
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

SIZES = (16, 32)  # channels at full resolution that are tried
LARGE_IMAGE_CROPS = 1.5  # an image whose shorter side is at least this many crops is worth larger crops
Tried = Mapping[tuple[int, Norm, int], float | None]
"""Mean Dice by size, normalisation and side of the crops; None: it did not fit into memory."""


def crops_for(conv: ConvConfig, labelled: LabelledSet) -> tuple[int, ...]:
    """Sides of the crops to try: the usual one, and where images are clearly larger, twice that.

    Where classes differ by position, a crop must show enough to recognise where it lies: on drawn somites of 800 x 950,
    U-Nets learnt nothing from crops of 256. On electron microscopy the smaller ones are better (docs/measurements)."""
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
    """The best settings for so many images, and what was tried: the normalisations in the first size, then the sizes
    with the better one, then the crops with the best of these.

    dice: of a network with these settings, None if it does not fit. It is not asked if there is nothing to choose
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
    """The settings with the size, the normalisation and the crops that suit these images, and what was tried.

    is_timed: larger crops are tried for fewer steps, since there is no more time for them
    """
    config, labelled = recipe.config, recipe.labelled
    folds = folds_of(labelled, SEARCH_FOLDS, config.seed + 2)
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
            training.seconds_of_a_step(training.recipe.tasks)  # whether those of all members fit
            return trained(training)
        except RuntimeError as error:
            if not ran_out(error):
                raise
        gc.collect()  # only now: the error holds all that was on the GPU
        torch.cuda.empty_cache()
        return None

    def trained(training: MemberTraining) -> float:
        proba = training.train([Task(ALONE, 0, 0)], report)[0].held_out
        assert proba is not None, "it holds out a fold"
        return mean_dice(proba, training.truth([(i, 0) for i in folds.held(0)]))

    with reporting(progress) as report, OneThread():
        conv, tried = choose(config.conv, len(labelled), SIZES, NORMS, crops_for(config.conv, labelled), dice)
    return replace(config, conv=conv), tried


def n_tried(conv: ConvConfig, labelled: LabelledSet) -> int:
    """How many networks are tried to choose among `SIZES`, `NORMS` and crops."""
    return len(NORMS) + len(SIZES) + len(crops_for(conv, labelled)) - 2


def in_words(tried: Tried) -> str:
    """What was tried, for a line of output."""
    of = {"batch": "over the training images", "image": "over each image"}
    usual = min((crop for _, _, crop in tried), default=0)
    lines = []
    for (base, norm, crop), dice in tried.items():
        crops = "" if crop == usual else f" in crops of {crop} pixels"
        result = "did not fit into memory" if dice is None else f"{dice:.3f}"
        lines.append(f"{base} channels normalised {of[norm]}{crops} {result}")
    return ", ".join(lines)
