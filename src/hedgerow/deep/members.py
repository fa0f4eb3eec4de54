"""The members of a convolutional level one by one: what each is, and its class probabilities."""

from dataclasses import dataclass

import numpy as np

from hedgerow.deep.convnet import ConvNet
from hedgerow.deep.deepstack import DeepStack
from hedgerow.deep.pretrained import PretrainedUNet
from hedgerow.deep.recipe import ALONE, PRETRAINED, READING
from hedgerow.deep.record import STACK
from hedgerow.forest.level_input import LevelPlan
from hedgerow.images.regions import Region


@dataclass(frozen=True)
class Member:
    """A member of a convolutional level, or one that was tried and left out of it.

    weight:     how much it counts; 0: nothing
    n_networks: how many there are of it; 0: it was left out, or is the stack, whose network is the model's base
    channels:   of such a U-Net on each of its scales, full resolution first
    n_weights:  of all of them
    reads:      what a network of it reads, in words
    dice:       mean Dice on what it did not see; None: not known
    """

    name: str
    weight: float
    n_networks: int = 0
    channels: tuple[int, ...] = ()
    n_weights: int = 0
    reads: str = ""
    dice: float | None = None


def members(model: DeepStack) -> list[Member]:
    """The stack, the convolutional members, and those that were tried and count nothing."""
    scores = model.record.scores
    names = [STACK, *(name for name in (ALONE, READING, PRETRAINED) if name in model.nets or name in scores)]
    return [_member(model, name) for name in names]


def _member(model: DeepStack, name: str) -> Member:
    weight, dice = model.weights.get(name, 0.0), model.record.scores.get(name)
    if name not in model.nets:
        return Member(name, weight, dice=dice)
    nets = model.nets[name]
    network = nets[0].network
    channels = tuple(min(network.base * 2**level, network.widest) for level in range(network.n_down + 1))
    n_weights = sum(weight.numel() for net in nets for weight in net.network.parameters())
    return Member(name, weight, len(nets), channels, n_weights, _reads(nets[0], model.base.features.n_features), dice)


def _reads(net: ConvNet, n_features: int) -> str:
    """n_features: of the stack"""
    first, end = net.features
    what = ["the image"]
    if first < end:
        what.append(f"{'all ' if end - first == n_features else ''}{end - first} features of the stack")
    if net.reads:
        what.append("the stack's class probabilities")
    if isinstance(net.network, PretrainedUNet):
        what.append("features of EfficientNet-Lite0")
    return what[0] if len(what) == 1 else f"{', '.join(what[:-1])} and {what[-1]}"


def levels_and_members(
    model: DeepStack, planes: np.ndarray, region: Region, plan: LevelPlan | None = None
) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    """Class probabilities (C,h,w) after each level in a region of an image (C,H,W), and those of each member.

    plan: of this region, shared with other models that read the same; None: made here
    """
    plan = plan or LevelPlan(model, planes, region, model.n_levels)
    outputs: list[np.ndarray] = []
    for level in range(model.base.n_levels):
        outputs.append(model.run_level(level, plan.read(level, outputs[-1] if outputs else None)))
    by_member = model.member_outputs(plan.read(model.base.n_levels, outputs[-1]))
    outputs.append(model.joined(by_member))
    levels = [plan.output(level, output) for level, output in enumerate(outputs)]
    return levels, {name: plan.output(model.base.n_levels, proba) for name, proba in by_member.items()}
