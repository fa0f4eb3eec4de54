"""The two convolutional networks of the comparison, FCN and U-Net, trained from scratch on the same few images.

    python -m hedgerow.experiments.baselines unet --data somites --seed 0 --steps 300

They are here to be beaten fairly: every step sees a newly altered image, and images held out of the training part
decide which weights are kept.
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from hedgerow.config import AugmentConfig, Checked, StackConfig, setting
from hedgerow.errors import ConfigError, HedgerowError, InputError
from hedgerow.experiments.data import load_set
from hedgerow.experiments.networks import NETWORKS
from hedgerow.forest.autocontext import prepare
from hedgerow.forest.samples import FEW_IMAGES
from hedgerow.images.altering import altered, labelled_corner
from hedgerow.images.arrays import UNLABELLED_INDEX, to_planes
from hedgerow.images.labelled import TrainingImage
from hedgerow.images.metrics import Scores, confusion, scores
from hedgerow.progress import Report, reporting
from hedgerow.refinement.losses import class_weights

log = logging.getLogger("hedgerow")


@dataclass(frozen=True)
class BaselineConfig(Checked):
    """A network and how it is trained."""

    network: Literal["unet", "fcn"] = setting("unet", about="which of the two")
    base: int = setting(16, 1, 1024, "channels at full resolution; each level has twice as many as the one above")
    depth: int = setting(4, 1, 8, "levels below full resolution, each at half the resolution of the one above")
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
class InputScale:
    """How an image's planes (M,H,W) become the network's: standardised by the training images.

    mean, std: (M,1,1) float32; depth: a depth of 0 is missing, and a second plane says where depths were measured
    """

    mean: np.ndarray
    std: np.ndarray
    depth: bool

    @property
    def n_outputs(self) -> int:
        return 2 if self.depth else len(self.mean)

    def apply(self, planes: np.ndarray) -> torch.Tensor:
        """(1,M,H,W) float32, with M of 2 for depth images."""
        scaled = (planes - self.mean) / self.std
        if self.depth:
            measured = planes != 0
            scaled = np.concatenate([np.where(measured, scaled, 0), measured]).astype(np.float32)
        return torch.from_numpy(scaled)[None]


def _fit_scale(images: Sequence[TrainingImage], depth: bool) -> InputScale:
    n_inputs = len(images[0].planes)
    values = np.concatenate([image.planes.reshape(n_inputs, -1) for image in images], axis=1)
    if depth and (values != 0).any():
        values = values[:, values[0] != 0]
    mean = values.mean(axis=1, dtype=np.float64)[:, None, None]
    std = values.std(axis=1, dtype=np.float64)[:, None, None]
    std = np.where(std > 1e-9 * np.abs(mean), std, 1.0)
    return InputScale(mean.astype(np.float32), std.astype(np.float32), depth)


@dataclass(frozen=True, eq=False)
class Baseline:
    """A trained network that answers like a ForestStack.

    classes:    (C,) class values as the user's labels gave them
    unlabelled: the label value that meant "no label"
    history:    one entry a check: step, loss (the mean since the last check), mean_dice (held out; None without)
    settings:   how it was trained: for reading, not for computing
    """

    network: nn.Module
    scale: InputScale
    classes: tuple[int, ...]
    unlabelled: int
    history: list[dict[str, Any]]
    settings: dict[str, Any]

    @property
    def n_classes(self) -> int:
        return len(self.classes)

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    @property
    def held_out_dice(self) -> float | None:
        """Mean Dice of the held-out images with the weights that were kept; None if no image was held out."""
        return max((check["mean_dice"] for check in self.history if check["mean_dice"] is not None), default=None)

    def predict_proba(self, image: np.ndarray) -> np.ndarray:
        """(C,H,W) float32 class probabilities of an image (H,W[,C])."""
        planes = to_planes(image)
        if len(planes) != len(self.scale.mean):
            raise InputError(
                f"the image has {len(planes)} channel(s) but the network was trained on {len(self.scale.mean)}; "
                "give images of the same kind."
            )
        with torch.inference_mode():
            proba = functional.softmax(self.network(self.scale.apply(planes).to(self.device))[0], dim=0)
        return np.ascontiguousarray(proba.cpu().numpy())

    def predict(self, image: np.ndarray) -> np.ndarray:
        """(H,W) class values of an image (H,W[,C])."""
        values = np.array(self.classes)
        dtype = np.min_scalar_type(values.max()) if values.min() >= 0 else values.dtype
        return values.astype(dtype)[self.predict_proba(image).argmax(axis=0)]


def fit_baseline(
    images: Sequence[np.ndarray],
    labels: Sequence[np.ndarray],
    config: BaselineConfig | None = None,
    *,
    unlabelled: int = 255,
    names: Sequence[str] | None = None,
    device: str = "cpu",
    progress: Report | None = None,
) -> Baseline:
    """Train a network on images (H,W[,C]) of any sizes and labels (H,W), `unlabelled` where there is none.

    Part of the images is held out, and the weights that predict it best are kept; three or fewer are all trained on,
    for all the steps: one of two would be half of what there is to learn from. names: of the images, for messages;
    device: where it is trained, and stays; progress: report function, None for a bar on the terminal.
    """
    config = config or BaselineConfig()
    if not isinstance(config, BaselineConfig):
        raise ConfigError(f"config is a {type(config).__name__}; give a BaselineConfig, e.g. BaselineConfig(base=16).")
    depth = config.images == "depth"
    checks = StackConfig(features="depth" if depth else "bank", augment=AugmentConfig(copies=0))
    prepared, classes = prepare(images, labels, checks, unlabelled, names)
    if depth and len(prepared[0].planes) != 1:
        raise InputError(
            f"depth images have one channel, and these have {len(prepared[0].planes)}; "
            "give depth maps, or choose images='plain'."
        )
    rng = np.random.default_rng((config.seed, 0))
    n_held = (
        0 if len(prepared) < FEW_IMAGES else min(max(round(config.validation * len(prepared)), 1), len(prepared) - 1)
    )
    order = rng.permutation(len(prepared))
    held, training = ([prepared[i] for i in part] for part in (order[:n_held], order[n_held:]))
    scale = _fit_scale(training, depth)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.seed)
        network = NETWORKS[config.network](scale.n_outputs, len(classes), config.base, config.depth)
    # A third faster on a CPU.
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if not config.class_balanced:
        # Otherwise hundreds of steps go into learning no more than that most pixels are background.
        network.class_bias.data[:, 0, 0] = _class_share(training, len(classes)).log()
    network.to(device)
    model = Baseline(network, scale, classes, unlabelled, [], {"config": config.to_dict(), "n_images": len(images)})
    with reporting(progress) as report:
        _train(model, training, held, config, rng, report)
    network.eval().requires_grad_(False)
    return model


def _train(
    model: Baseline,
    training: list[TrainingImage],
    held: list[TrainingImage],
    config: BaselineConfig,
    rng: np.random.Generator,
    report: Report,
) -> None:
    """Train the model's network in place, write its history, and leave it with the best weights."""
    network = model.network
    optimiser = torch.optim.AdamW(network.parameters(), config.learning_rate, weight_decay=config.weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, config.steps)
    targets = [image.target for image in training]
    device = model.device
    weight = class_weights(targets, model.n_classes).to(device) if config.class_balanced else None
    best_dice, best_weights, checks_since = -1.0, None, 0
    losses: list[float] = []
    for step in range(1, config.steps + 1):
        image = _next_image(training[rng.integers(len(training))], config, rng)
        target = torch.from_numpy(image.target.astype(np.int64))[None].to(device)
        found = network(model.scale.apply(image.planes).to(device))
        loss = functional.cross_entropy(found, target, weight, ignore_index=UNLABELLED_INDEX)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        losses.append(loss.item())
        if not math.isfinite(losses[-1]):
            raise ConfigError(f"the loss is not a number after {step} step(s); choose a lower learning_rate.")
        report(f"{config.network}: steps", step, config.steps)
        if step % config.check_every and step < config.steps:
            continue
        dice = _mean_dice(model, held) if held else None
        model.history.append({"step": step, "loss": float(np.mean(losses)), "mean_dice": dice})
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


def _next_image(image: TrainingImage, config: BaselineConfig, rng: np.random.Generator) -> TrainingImage:
    """A newly altered copy of the image, or a random part of it that has a labelled pixel."""
    copy = altered(image, config.augment, rng, config.images == "depth")
    if config.crop is None:
        return copy
    row, column = labelled_corner(copy.target, config.crop, rng)
    rows, columns = slice(row, row + config.crop), slice(column, column + config.crop)
    return replace(
        copy,
        planes=copy.planes[:, rows, columns],
        target=copy.target[rows, columns],
        group=copy.group[rows, columns],
    )


def _class_share(images: Sequence[TrainingImage], n_classes: int) -> torch.Tensor:
    """(C,) float32: part of the labelled pixels that each class has; a class without any counts as having one."""
    counts = sum(np.bincount(image.target.ravel(), minlength=UNLABELLED_INDEX + 1)[:n_classes] for image in images)
    counts = np.maximum(counts, 1)
    return torch.from_numpy((counts / counts.sum()).astype(np.float32))


def _mean_dice(model: Baseline, images: Sequence[TrainingImage]) -> float:
    """Mean Dice over the labelled pixels of these images, pooled."""
    table = np.zeros((model.n_classes, model.n_classes), np.int64)
    with torch.inference_mode():
        for image in images:
            found = model.network(model.scale.apply(image.planes).to(model.device))[0].argmax(dim=0).cpu().numpy()
            table += confusion(image.target, found, model.n_classes)
    return Scores(model.classes, table).mean_dice


def main(arguments: Sequence[str] | None = None) -> None:
    """Train on the training part, score on the test part, print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument("--data", default="somites", help="somites, bodies, or a folder with images/, labels/, *.txt")
    parser.add_argument("--half", action="store_true", help="use the images at half resolution")
    parser.add_argument("--depth-images", action="store_true", help="the folder has depth images, 0 for missing")
    parser.add_argument("--config", help="a .toml or .json file of settings")
    parser.add_argument("--steps", type=int, help="training steps at most")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    try:
        config = BaselineConfig.read(given.config) if given.config else BaselineConfig()
        steps = config.steps if given.steps is None else given.steps
        config = replace(config, network=given.network, seed=given.seed, steps=steps)
        if given.depth_images or given.data == "bodies":
            config = replace(config, images="depth")
        depth = config.images == "depth"
        train, test = (load_set(given.data, part, given.half, depth) for part in ("train", "test"))
        start = time.perf_counter()
        model = fit_baseline(train.images, train.labels, config)
        seconds = time.perf_counter() - start
        found = [model.predict(image) for image in test.images]
        result = {
            "network": config.network,
            "seed": config.seed,
            "steps": model.history[-1]["step"],
            "seconds": round(seconds, 1),
            "held_out": model.held_out_dice and round(model.held_out_dice, 4),
            "test": round(scores(test.labels, found, model.classes, model.unlabelled).mean_dice, 4),
        }
        print(json.dumps(result))
    except HedgerowError as error:
        print(f"hedgerow: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
