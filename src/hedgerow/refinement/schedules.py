"""The paper's schedules of learning rate and momentum, and the optimisers."""

import math
from typing import Any

import torch

from hedgerow.config import RefineConfig
from hedgerow.network.stacknet import StackNet
from hedgerow.refinement.tuning import TunedNet

BESIDE_RATE = 0.03  # for weights outside the levels, e.g. of a network before the features
CONNECTION_RATE = 0.1  # for weights between H1 and H2, relative to the rate of votes, since each moves a whole path


def learning_rate(config: RefineConfig, step: int) -> float:
    """r(i), i = step: a / (1 + i / b), or a half cosine from a to 0."""
    if config.decay == "halving":
        return config.learning_rate / (1 + step / config.halving_steps)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * step / config.n_steps))


def momentum(config: RefineConfig, step: int) -> float:
    """mu(i) = min(mu_max, 1 - 3 / (i + 5)), or one constant and then another, as for the paper's zebrafish."""
    if config.first_momentum is not None:
        return config.first_momentum if step < config.momentum_steps else config.max_momentum
    return min(config.max_momentum, 1 - 3 / (step + 5))


def make_optimiser(net: StackNet, config: RefineConfig) -> torch.optim.Optimizer:
    """Adam changes each weight by about its rate, so rates are relative to the size of weights; SGD has one rate."""
    groups: list[dict[str, Any]] = []
    tuned = [{"params": [p], "factor": rate} for p, rate in _encoder_rates(net, config)]
    if config.optimiser == "sgd":
        trained = [p for name, p in net.named_parameters() if p.requires_grad and not _is_tuned(net, name)]
        groups = [{"params": trained, "factor": 1.0}, *tuned]
        return torch.optim.SGD(groups, lr=config.learning_rate, momentum=0.5)
    for number in range(net.n_levels):
        level = net.level(number)
        sharpness, splits = level.sharpness, config.split_rate * level.sharpness.split
        groups.append({"params": [level.vote_weight], "factor": sharpness.vote})
        groups.append({"params": [level.split_weight, level.split_bias], "factor": splits})
        if level.leaf_weight.requires_grad:
            leaves = CONNECTION_RATE * sharpness.leaf
            groups.append({"params": [level.leaf_weight, level.leaf_bias], "factor": leaves})
    beside = [p for name, p in net.named_parameters() if not name.startswith("levels.") and not _is_tuned(net, name)]
    if beside:
        groups.append({"params": beside, "factor": BESIDE_RATE})
    return torch.optim.Adam([*groups, *tuned], lr=config.learning_rate, eps=1e-12)


def _is_tuned(net: StackNet, name: str) -> bool:
    """Whether a parameter is a weight of the encoder."""
    return isinstance(net, TunedNet) and name.startswith("encoder.")


def _encoder_rates(net: StackNet, config: RefineConfig) -> list[tuple[torch.Tensor, float]]:
    """Each weight array of the encoder that trains, with its rate.

    Rates are relative to the root mean square of the initial weights: arrays into which the normalisation was folded
    differ much in size.
    """
    if not isinstance(net, TunedNet):
        return []
    sizes = [float(weight.detach().cpu().double().square().mean().sqrt()) for weight in net.encoder]
    return [(weight, config.encoder_rate * size) for weight, size in zip(net.encoder, sizes, strict=True)]
