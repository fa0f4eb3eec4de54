"""The two convolutional networks of the comparison, FCN and U-Net, trained from scratch on the same few images.

They are here to be beaten fairly: every step sees a newly altered image, and images held out of the training part
decide which weights are kept.
"""

import copy
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from hedgerow.config import AugmentConfig
from hedgerow.deep.convnet import InputScale, fit_scale
from hedgerow.errors import ConfigError, InputError
from hedgerow.experiments.data import scored
from hedgerow.experiments.networks import NETWORKS
from hedgerow.forest.groups import FEW_IMAGES
from hedgerow.forest.history import Check
from hedgerow.images.altering import altered, crop, labelled_corner
from hedgerow.images.arrays import UNLABELLED_INDEX
from hedgerow.images.labelled import LabelledImage, LabelledSet
from hedgerow.progress import Report, reporting
from hedgerow.refinement.losses import class_weights
from hedgerow.settings import Checked, setting

log = logging.getLogger("hedgerow")


@dataclass(frozen=True, repr=False)
class BaselineConfig(Checked):
    """A network and how it is trained."""

    network: Literal["unet", "fcn"] = setting("unet", about="which of the two")
    base: int = setting(16, 1, 1024, "channels at full resolution; each level has twice as many as the one above")
    n_down: int = setting(4, 1, 8, "levels below full resolution, each at half the resolution of the one above")
    images: Literal["plain", "depth"] = setting("plain", about="any channels, or depths, of which 0 means missing")
    steps: int = setting(2000, 1, 10**9, "training steps at most, one image each")
    crop: int | None = setting(None, 8, 100_000, "side in pixels of the random part a step sees; none: whole images")
    learning_rate: float = setting(3e-3, 1e-8, 1.0, "of the first step; it falls to 0 along a cosine")
    weight_decay: float = setting(1e-4, 0.0, 1.0, "of AdamW")
    class_balanced: bool = setting(False, about="weigh classes as if each had as many pixels")
    validation: float = setting(0.2, 0.01, 0.9, "part of the images held out to choose the weights; none of 3 or fewer")
    check_every: int = setting(50, 1, 10**9, "steps between looks at the held-out images")
    patience: int = setting(10, 1, 10**9, "stop after this many looks without a better score")
    augment: AugmentConfig = setting(AugmentConfig(rotation=15.0, scale=0.1, shift=0.1, brightness=0.2, contrast=0.2))
    seed: int = setting(0, 0, 2**63 - 1, "same seed, same network, on the same machine and number of threads")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.augment.copies:
            raise ConfigError(
                f"BaselineConfig.augment.copies is {self.augment.copies}; leave it 0: each step draws a new copy."
            )


@dataclass(frozen=True, eq=False)
class Baseline:
    """A trained network.

    classes: (C,) class values as the user's labels gave them
    checks:  of its training; mean_dice is that of the images held out
    """

    network: nn.Module
    scale: InputScale
    classes: tuple[int, ...]
    checks: list[Check]

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    def predict_indices(self, planes: np.ndarray) -> np.ndarray:
        """(H,W) class indices of an image (M,H,W)."""
        with torch.inference_mode():
            found = self.network(self.read(planes))[0].argmax(dim=0)
        return np.asarray(found.cpu().numpy(), np.uint8)

    def read(self, planes: np.ndarray) -> torch.Tensor:
        """(1,M,H,W) what the network reads of an image (M,H,W), on its device."""
        return torch.from_numpy(self.scale.apply(planes))[None].to(self.device)


def fit_baseline(
    labelled: LabelledSet, config: BaselineConfig, *, device: str = "cpu", progress: Report | None = None
) -> Baseline:
    """Train a network on labelled images.

    Part of the images is held out, and the weights that predict it best are kept; three or fewer are all trained on,
    for all the steps: one of two would be half of what there is to learn from.
    device: where it is trained, and stays; progress: report function, None for a bar on the terminal
    """
    is_depth, n = config.images == "depth", len(labelled)
    if is_depth and len(labelled.images[0].planes) != 1:
        raise InputError(
            f"depth images have one channel, and these have {len(labelled.images[0].planes)}; "
            "give depth maps, or choose images='plain'."
        )
    rng = np.random.default_rng((config.seed, 0))
    n_held = 0 if n < FEW_IMAGES else min(max(round(config.validation * n), 1), n - 1)
    order = rng.permutation(n)
    held, training = ([labelled.images[i] for i in part] for part in (order[:n_held], order[n_held:]))
    scale = fit_scale(training, 0.0 if is_depth else None)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.seed)
        network = NETWORKS[config.network](scale.n_outputs, labelled.n_classes, config.base, config.n_down)
    # A third faster on a CPU.
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if not config.class_balanced:
        # Otherwise hundreds of steps go into learning no more than that most pixels are background.
        network.class_bias.data[:, 0, 0] = _class_share(training, labelled.n_classes).log()
    network.to(device)
    model = Baseline(network, scale, labelled.classes, [])
    with reporting(progress) as report:
        _train(model, training, LabelledSet(held, labelled.classes), config, rng, report)
    network.eval().requires_grad_(False)
    return model


def _train(
    model: Baseline,
    training: list[LabelledImage],
    held: LabelledSet,
    config: BaselineConfig,
    rng: np.random.Generator,
    report: Report,
) -> None:
    """Train the model's network in place, note its checks, and leave it with the best weights."""
    network = model.network
    optimiser = torch.optim.AdamW(network.parameters(), config.learning_rate, weight_decay=config.weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, config.steps)
    targets = [image.target for image in training]
    device = model.device
    weight = class_weights(targets, held.n_classes).to(device) if config.class_balanced else None
    best_dice, best_weights, checks_since = -1.0, None, 0
    losses: list[float] = []
    for step in range(1, config.steps + 1):
        image = _next_image(training[rng.integers(len(training))], config, rng)
        target = torch.from_numpy(image.target.astype(np.int64))[None].to(device)
        found = network(model.read(image.planes))
        loss = functional.cross_entropy(found, target, weight, ignore_index=UNLABELLED_INDEX)
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
        schedule.step()
        losses.append(loss.item())
        if not math.isfinite(losses[-1]):
            raise ConfigError(f"the loss is not a number after {step} step(s); choose a lower learning_rate.")
        report(f"{config.network}: steps", step, config.steps)
        if step % config.check_every and step < config.steps:
            continue
        dice = _mean_dice(model, held) if len(held) else None
        model.checks.append(Check(step, float(np.mean(losses)), dice))
        log.info("step %d: loss %.4f, held-out mean Dice %s", step, np.mean(losses), dice)
        losses.clear()
        if dice is None:
            continue
        checks_since += 1
        if dice > best_dice:
            best_dice, best_weights, checks_since = dice, copy.deepcopy(network.state_dict()), 0
        if checks_since == config.patience:
            break
    if best_weights is not None:
        network.load_state_dict(best_weights)


def _next_image(image: LabelledImage, config: BaselineConfig, rng: np.random.Generator) -> LabelledImage:
    """A newly altered copy of the image, or a random part of it that has a labelled pixel."""
    copy = altered(image, config.augment, rng, 0.0 if config.images == "depth" else None)
    return copy if config.crop is None else crop(copy, *labelled_corner(copy.target, config.crop, rng), config.crop)


def _class_share(images: Sequence[LabelledImage], n_classes: int) -> torch.Tensor:
    """(C,) float32: part of the labelled pixels that each class has; a class without any counts as having one."""
    counts = sum(np.bincount(image.target.ravel(), minlength=UNLABELLED_INDEX + 1)[:n_classes] for image in images)
    counts = np.maximum(counts, 1)
    return torch.from_numpy((counts / counts.sum()).astype(np.float32))


def _mean_dice(model: Baseline, held: LabelledSet) -> float:
    """Mean Dice over the labelled pixels of these images, pooled."""
    return scored(held, [model.predict_indices(image.planes) for image in held]).mean_dice
