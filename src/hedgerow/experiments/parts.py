"""The parts of an experiment, each a question of its own: it trains what it needs and scores it on the test images.

A part returns rows: one model, its scores, what it costs and how large its file is.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from hedgerow.experiments.baselines import BaselineConfig, fit_baseline
from hedgerow.experiments.bench import SOFT_TOLERANCE, Bench, Row, timed
from hedgerow.experiments.data import ImageSet
from hedgerow.experiments.protocols import CURVE, PAPER_SHARPNESS, Protocol, Scale
from hedgerow.experiments.random_start import random_start, schedule
from hedgerow.network.mapping import to_convnet

# For random starts: full connections grow with its square, and sparse ones are to be compared with them.
SMALL_STACK: dict[str, Any] = {"n_trees": 4, "max_depth": 6}
LEVELS = (1, 2, 3)
SPLITS_TRIED, LEAVES_TRIED = (10.0, 100.0, 1000.0), (1.0, 2.0, 3.0, 5.0)  # sharpness; the paper's are 100 and 1
# No fused kernel trains the edges of a tree, so on a whole stack this is slow: at the small scale it must be asked for.
SLOW = ("paper-sparse",)
ON_REQUEST = ("sharpness",)  # at any scale: many networks that are not trained
SETTINGS = {"soft tolerance": SOFT_TOLERANCE, "random start of": SMALL_STACK}


def paper(bench: Bench) -> list[Row]:
    """The paper's way: its forests, tanh splits, its sharpness, its schedule; edges of the trees keep their weights."""
    stack, grown = bench.grown("paper", bench.protocol.stack, bench.paper_train)
    return bench.all_models("paper", stack, grown, "tanh", bench.paper_train, bench.protocol.refine, PAPER_SHARPNESS)


def paper_sparse(bench: Bench) -> list[Row]:
    """The same with the weights of the edges between splits and leaves trained as well: the paper's sparse scheme.

    No fused kernel can do that, so it is slow, and what it leaves is no tree to map back to.
    """
    stack, grown = bench.grown("paper", bench.protocol.stack, bench.paper_train)
    net = to_convnet(stack, "tanh", PAPER_SHARPNESS, connections="sparse")
    return [bench.refined("paper-sparse", "ConvNet", net, bench.paper_train, bench.protocol.refine, grown)]


def sharpness(bench: Bench) -> list[Row]:
    """The paper's network before any training, as sharp as in the paper and otherwise: what its softness costs."""
    stack, grown = bench.grown("paper", bench.protocol.stack, bench.paper_train)

    def mapped(split: float, leaf: float) -> Row:
        as_sharp = replace(PAPER_SHARPNESS, split=split, leaf=leaf)
        name = sharpness_name(split, leaf)
        return bench.score("sharpness", name, lambda: (to_convnet(stack, "tanh", as_sharp).to(bench.device), grown))

    forests = bench.score("sharpness", "DF", lambda: (stack, grown))
    return [forests, *itertools.starmap(mapped, itertools.product(SPLITS_TRIED, LEAVES_TRIED))]


def sharpness_name(split: float, leaf: float) -> str:
    """Of a network that was mapped so, in rows."""
    return f"splits {split:g}, leaves {leaf:g}"


def _own(part: str, split: str) -> Callable[[Bench], list[Row]]:
    def run(bench: Bench) -> list[Row]:
        stack, grown = bench.grown("own", bench.protocol.own_stack, bench.train)
        return bench.all_models(part, stack, grown, split, bench.train, bench.protocol.own_refine)

    return run


def _levels(n_levels: int) -> Callable[[Bench], list[Row]]:
    """Hedgerow's way with another number of forests in the stack."""

    def run(bench: Bench) -> list[Row]:
        part = f"levels-{n_levels}"
        stack, grown = bench.grown(part, replace(bench.protocol.own_stack, n_levels=n_levels), bench.train)
        df = bench.score(part, "DF", lambda: (stack, grown), n_levels=n_levels)
        net, config = to_convnet(stack), bench.protocol.own_refine
        return [df, bench.refined(part, "ConvNet", net, bench.train, config, grown, n_levels=n_levels)]

    return run


def _images(n_images: int) -> Callable[[Bench], list[Row]]:
    """Hedgerow's way and the U-Net from the first n images."""

    def run(bench: Bench) -> list[Row]:
        part = f"images-{n_images}"
        few = replace(bench, train=ImageSet(bench.train.images[:n_images], bench.train.labels[:n_images]))
        stack, grown = few.grown(part, bench.protocol.own_stack, few.train)
        df = few.score(part, "DF", lambda: (stack, grown), n_images=n_images)
        net, config = to_convnet(stack), bench.protocol.own_refine
        refined = few.refined(part, "ConvNet", net, few.train, config, grown, n_images=n_images)
        return [df, refined, *_network("unet", part, few, n_images=n_images)]

    return run


def baseline_config(protocol: Protocol, scale: Scale, seed: int) -> BaselineConfig:
    """Of the U-Net."""
    images: Literal["depth", "plain"] = "depth" if protocol.is_depth else "plain"
    return BaselineConfig(steps=scale.network_steps, images=images, seed=seed)


def _network(kind: Literal["unet", "fcn"], part: str, bench: Bench, **more: Any) -> list[Row]:
    """A U-Net or an FCN from scratch."""
    config = replace(baseline_config(bench.protocol, bench.scale, bench.seed), network=kind)
    name = {"unet": "U-Net", "fcn": "FCN"}[kind]

    def trained() -> Any:
        return fit_baseline(
            bench.train.images, bench.train.labels, config, device=bench.device, progress=bench.progress
        )

    return [bench.score(part, name, lambda: timed(trained), **more)]


def _random(connections: str) -> Callable[[Bench], list[Row]]:
    """The network of the paper's forests, of a smaller stack, without their weights."""

    def run(bench: Bench) -> list[Row]:
        part = f"random-{connections}"
        stack, grown = bench.grown("random", replace(bench.protocol.stack, **SMALL_STACK), bench.paper_train)
        net = random_start(stack, connections, bench.seed)
        training = schedule(bench.scale.random_steps, bench.seed)
        if bench.protocol.is_depth:
            training = replace(training, stride=bench.protocol.refine.stride, trim=True)
        name = f"random start, {connections}"
        return [bench.refined(part, name, net, bench.paper_train, training, grown)]

    return run


PARTS: Mapping[str, Callable[[Bench], list[Row]]] = {
    "paper": paper,
    "own": _own("own", "soft"),
    "tanh": _own("tanh", "tanh"),
    "crelu": _own("crelu", "crelu"),
    **{f"levels-{n}": _levels(n) for n in LEVELS},
    "unet": lambda bench: _network("unet", "unet", bench),
    "fcn": lambda bench: _network("fcn", "fcn", bench),
    **{f"images-{n}": _images(n) for n in CURVE},
    "random-sparse": _random("sparse"),
    "random-full": _random("full"),
    "sharpness": sharpness,
    "paper-sparse": paper_sparse,
}


def usable_parts(protocol: Protocol, train: ImageSet) -> list[str]:
    """The parts that ask something new: other numbers of levels, fewer images as long as they have every class."""
    few = [
        f"images-{n}"
        for n in CURVE
        if n < len(train.images) and class_values(train.labels[:n]) == class_values(train.labels)
    ]
    levels = [f"levels-{n}" for n in LEVELS if n != protocol.own_stack.n_levels]
    left_out = {name for name in PARTS if name.startswith(("images-", "levels-"))} - {*few, *levels}
    return [name for name in PARTS if name not in left_out]


def class_values(labels: Sequence[np.ndarray]) -> set[int]:
    """Of all label maps, without the unlabelled value."""
    return {int(value) for label in labels for value in np.unique(label)} - {255}
