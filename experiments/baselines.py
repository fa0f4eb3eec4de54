"""The convolutional networks of the comparison: FCN and U-Net, trained from scratch on the same few images, and an FCN
that starts from VGG16's pretrained weights.

The comparison is fair: they are trained like the convolutional level (batches, one-cycle schedule, Dice and
cross-entropy, newly altered images at every step), with the size and normalisation that score best on held-out images,
and then on all images.
"""

import logging
from dataclasses import dataclass, replace
from typing import Literal, cast

import numpy as np
import torch
from torch import nn

from experiments.networks import NETWORKS
from experiments.vgg_fcn import VggFCN, find_weights, read_arrays, train_as_the_paper
from hedgerow.config import ConvConfig
from hedgerow.deep.convnet import ConvNet
from hedgerow.deep.crops import fit_scale, sheet_of
from hedgerow.deep.folds import Folds, search_folds
from hedgerow.deep.network_search import Tried, choose
from hedgerow.deep.network_training import start_at_shares, train_network
from hedgerow.deep.recipe import for_sizes
from hedgerow.deep.unet import Norm, UNet
from hedgerow.errors import InputError
from hedgerow.forest.history import Check
from hedgerow.images.labelled import LabelledSet
from hedgerow.progress import Report, reporting
from hedgerow.settings import Checked, setting

log = logging.getLogger("hedgerow")


@dataclass(frozen=True, repr=False)
class BaselineConfig(Checked):
    """A network and how it is trained."""

    network: Literal["unet", "fcn", "vgg"] = setting("unet", about="kind of network; vgg has one size and no norm")
    recipe: Literal["own", "paper"] = setting(
        "own", about="training as in the convolutional level, or as the paper's FCN"
    )
    sizes: tuple[int, ...] = setting(
        (16,), about="channels at full resolution, instead of conv.base; the best size on held-out images is used"
    )
    norms: tuple[Norm, ...] = setting(
        ("batch",), about="instead of conv.norm; the better one on held-out images is used"
    )
    crops: tuple[int, ...] = setting(
        (), about="sides of crops to try besides conv.crop; the best on held-out images is used"
    )
    images: Literal["plain", "depth"] = setting(
        "plain", about="any channels, or depth images, in which 0 means missing"
    )
    conv: ConvConfig = setting(ConvConfig(n_down=5))


@dataclass(frozen=True, eq=False)
class Baseline:
    """A trained network.

    classes:    (C,) class values of the user's labels
    conv:       its settings
    tried:      held-out mean Dice by size, normalisation and crops; empty if there was no choice
    """

    net: ConvNet
    classes: tuple[int, ...]
    conv: ConvConfig
    checks: list[Check]
    tried: Tried

    @property
    def device(self) -> torch.device:
        return self.net.device

    def predict_indices(self, planes: np.ndarray) -> np.ndarray:
        """(H,W) class indices of an image (M,H,W)."""
        return self.net.proba(planes, None, None).argmax(axis=0).astype(np.uint8)


def fit_baseline(
    labelled: LabelledSet, config: BaselineConfig, *, device: str = "cpu", progress: Report | None = None
) -> Baseline:
    """Train a network on labelled images.

    If there is a choice, each candidate is first trained without a fold (of images, or of blocks if there are few
    images) and scored on it.
    device: where the network is trained, and stays; progress: report function; None: a bar on the terminal
    """
    n_inputs = len(labelled.images[0].planes)
    if config.images == "depth" and n_inputs != 1:
        raise InputError(
            f"depth images have one channel, and these have {n_inputs}; give depth maps, or choose images='plain'."
        )
    with reporting(progress) as report:
        folds = search_folds(labelled, config.conv.seed)

        def dice(conv: ConvConfig) -> float:
            return _held_out_dice(folds, config, conv, device, report)

        crops = (config.conv.crop, *config.crops)
        conv, tried = choose(config.conv, len(labelled), config.sizes, config.norms, crops, dice)
        log.info(
            "%s: %d channels, normalised by %s, crops of %d, of %s",
            config.network, conv.base, conv.norm, conv.crop, tried,
        )  # fmt: skip
        model = _trained(labelled, config, conv, device, report)
    return replace(model, tried=tried)


def _held_out_dice(folds: Folds, config: BaselineConfig, conv: ConvConfig, device: str, report: Report) -> float:
    """Mean Dice of a network on a fold that it was trained without."""
    model = _trained(folds.training(0), config, conv, device, report)
    held = [replace(folds.labelled.images[i], target=folds.target(i, 0)) for i in folds.held(0)]
    part = replace(folds.labelled, images=held)
    return part.score([model.predict_indices(image.planes) for image in part]).mean_dice


def _trained(labelled: LabelledSet, config: BaselineConfig, conv: ConvConfig, device: str, report: Report) -> Baseline:
    n_down = for_sizes(conv, labelled).n_down
    scale = fit_scale(labelled.images, 0.0 if config.images == "depth" else None)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(conv.seed)
        network: nn.Module
        if config.network == "vgg":
            network = VggFCN(read_arrays(find_weights()), scale.n_outputs, labelled.n_classes)
        else:
            network = NETWORKS[config.network](
                scale.n_outputs, labelled.n_classes, conv.base, n_down, conv.widest, conv.norm
            )
    network.to(device)
    net = ConvNet(cast(UNet, network), scale, orientations=conv.orientations)  # an FCN has everything that is used here
    sheets = [sheet_of(net, image, None, None) for image in labelled]
    if config.recipe == "paper":
        train_as_the_paper(network, sheets, conv.n_steps, conv.seed)
        return Baseline(net, labelled.classes, conv, [], {})
    start_at_shares(network.class_bias, sheets)
    name = f"{config.network} of {conv.base} channels"
    checks = train_network(
        network, sheets, conv, advance=lambda step, dice: report(f"{name}: steps", step, conv.n_steps)
    )
    return Baseline(net, labelled.classes, conv, checks, {})
