"""The parts of an experiment: each answers one question by training models and scoring them on the test images.

A part returns a row for each model: its scores, its cost and the size of its file.
"""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from experiments.alternating import alternating
from experiments.baselines import BaselineConfig, fit_baseline
from experiments.bench import SOFT_TOLERANCE, Bench, Row, timed
from experiments.choices import VARIANTS, choice
from experiments.cost import cost
from experiments.data import present, recounted
from experiments.front import front, front_none
from experiments.inner import inner
from experiments.protocols import CURVE, PAPER_SHARPNESS, READINGS, Protocol, Scale
from experiments.random_start import random_start, schedule
from experiments.vgg_fcn import find_weights
from hedgerow.config import ConvConfig, RefineConfig, StackConfig
from hedgerow.deep.network_search import crops_for
from hedgerow.deep.recipe import for_images
from hedgerow.deep.refinement_search import TURNED
from hedgerow.forest.arrays import ForestStack
from hedgerow.images.labelled import LabelledSet
from hedgerow.jobs.estimates import Budget
from hedgerow.jobs.training import fit_labelled
from hedgerow.network.mapping import to_convnet
from hedgerow.refinement.loop import check_settings

LEVELS = (1, 2, 3)
SPLITS_TRIED, LEAVES_TRIED = (10.0, 100.0, 1000.0), (1.0, 2.0, 3.0, 5.0)  # sharpness; the paper's are 100 and 1
STRIDES = (1, 3, 9)  # a refinement uses every n-th row and column; the paper has 9, since more pixels took too long
PENALTIES = (0.01, 0.1, 1.0)  # weights of the penalties on leaves that fire together
SETTINGS = {"soft tolerance": SOFT_TOLERANCE}
VGG_RATE = 1e-3  # learning rate of its new weights; that of pretrained weights is a tenth
Part = Callable[[Bench], list[Row]]


def paper(bench: Bench) -> list[Row]:
    """The paper's way: its forests, tanh splits, its sharpness, its schedule; edges of the trees keep their weights."""
    return _as_read("paper", bench, bench.protocol)


def _papers_stack(bench: Bench, protocol: Protocol) -> tuple[ForestStack, float]:
    return bench.grown(f"paper-{protocol.reading.votes}", protocol.stack, bench.paper_train)


def _as_read(part: str, bench: Bench, protocol: Protocol) -> list[Row]:
    stack, grown = _papers_stack(bench, protocol)
    return bench.all_models(part, stack, grown, "tanh", bench.paper_train, protocol.refine, protocol.reading.sharpness)


def _reading(name: str) -> Part:
    """The paper's way, with another interpretation where the paper leaves a choice."""
    return lambda bench: _as_read(f"reading-{name}", bench, bench.protocol.read_as(READINGS[name]))


def paper_sparse(bench: Bench) -> list[Row]:
    """The paper's sparse scheme, which also trains the weights of the edges between splits and leaves.

    It is slow, because no fused kernel supports it, and its network is no longer a tree, so it cannot be mapped back.
    """
    stack, grown = _papers_stack(bench, bench.protocol)
    net = to_convnet(stack, "tanh", bench.protocol.reading.sharpness, connections="sparse")
    return [bench.refined("paper-sparse", "ConvNet", net, bench.paper_train, bench.protocol.refine, grown)]


def sharpness(bench: Bench) -> list[Row]:
    """The paper's network before training, with the paper's sharpness and others, to see what soft splits cost."""
    stack, grown = _papers_stack(bench, bench.protocol)

    def mapped(split: float, leaf: float) -> Row:
        as_sharp = replace(PAPER_SHARPNESS, split=split, leaf=leaf)
        name = sharpness_name(split, leaf)
        return bench.score("sharpness", name, lambda: (to_convnet(stack, "tanh", as_sharp).to(bench.device), grown))

    forests = bench.score("sharpness", "DF", lambda: (stack, grown))
    return [forests, *itertools.starmap(mapped, itertools.product(SPLITS_TRIED, LEAVES_TRIED))]


def sharpness_name(split: float, leaf: float) -> str:
    """The name in rows of a network mapped with this sharpness."""
    return f"splits {split:g}, leaves {leaf:g}"


def _own(part: str, split: str) -> Part:
    """Hedgerow's way with a kind of split."""

    def run(bench: Bench) -> list[Row]:
        check_settings(bench.protocol.own_refine, split, bench.protocol.is_depth)
        stack, grown = bench.grown("own", bench.protocol.own_stack, bench.train)
        return bench.all_models(part, stack, grown, split, bench.train, bench.protocol.own_refine)

    return run


def _grown_and_refined(
    part: str, bench: Bench, stack: StackConfig, config: RefineConfig, key: str = "", **more: Any
) -> list[Row]:
    """Forests and the network refined from them; key: names forests that parts share"""
    check_settings(config, "soft", bench.protocol.is_depth)
    forests, grown = bench.grown(key or part, stack, bench.train)
    df = bench.score(part, "DF", lambda: (forests, grown), **more)
    return [df, bench.refined(part, "ConvNet", to_convnet(forests), bench.train, config, grown, **more)]


def _levels(n_levels: int) -> Part:
    """Hedgerow's way with another number of forests in the stack."""

    def run(bench: Bench) -> list[Row]:
        stack, config = replace(bench.protocol.own_stack, n_levels=n_levels), bench.protocol.own_refine
        return _grown_and_refined(f"levels-{n_levels}", bench, stack, config, n_levels=n_levels)

    return run


def _stride(stride: int) -> Part:
    """Hedgerow's way, refined on every n-th row and column of all training images, none of which is held out."""

    def run(bench: Bench) -> list[Row]:
        config = replace(bench.protocol.own_refine, stride=stride, held_out=0.0)
        return _grown_and_refined(f"stride-{stride}", bench, bench.protocol.own_stack, config, "own")

    return run


def _first(bench: Bench, n_images: int) -> Bench:
    """The bench with only the first n training images and their copies."""
    n_copies = bench.protocol.copies
    return replace(
        bench,
        train=recounted(replace(bench.train, images=bench.train.images[:n_images])),
        paper_train=recounted(replace(bench.paper_train, images=bench.paper_train.images[: n_images * (1 + n_copies)])),
    )


def _images(n_images: int) -> Part:
    """The paper's way, a random start, Hedgerow's way, the U-Net and the FCN, from the first n images."""

    def run(bench: Bench) -> list[Row]:
        part, protocol, few = f"images-{n_images}", bench.protocol, _first(bench, n_images)
        stack, grown = few.grown(f"paper-{part}", protocol.stack, few.paper_train)
        net = to_convnet(stack, "tanh", protocol.reading.sharpness)
        return [
            few.score(part, "DF, paper", lambda: (stack, grown), n_images=n_images),
            few.refined(part, "ConvNet, paper", net, few.paper_train, protocol.refine, grown, n_images=n_images),
            _random_start("sparse", part, few, stack, grown, n_images=n_images),
            *_grown_and_refined(part, few, protocol.own_stack, protocol.own_refine, n_images=n_images),
            *_network("unet", part, few, n_images=n_images),
            *_network("fcn", part, few, n_images=n_images),
        ]

    return run


def _best_of_first(n_images: int) -> Part:
    """Effort best from the first n images."""
    part = f"best-{n_images}"
    return lambda bench: [_best(part, _first(bench, n_images), n_images=n_images)]


def baseline_config(protocol: Protocol, scale: Scale, seed: int) -> BaselineConfig:
    """Settings of the U-Net: those of the convolutional level, see `ConvConfig`."""
    images: Literal["depth", "plain"] = "depth" if protocol.is_depth else "plain"
    conv = ConvConfig(n_down=5, n_steps=scale.network_steps, seed=seed)
    if not protocol.has_up:
        conv = replace(conv, augment=TURNED, orientations=8)
    conv = for_images(conv, protocol.is_depth)
    return BaselineConfig(sizes=scale.network_sizes, norms=scale.network_norms, images=images, conv=conv)


def _network(kind: Literal["unet", "fcn"], part: str, bench: Bench, **more: Any) -> list[Row]:
    """A U-Net or an FCN from scratch."""
    config = baseline_config(bench.protocol, bench.scale, bench.seed)
    config = replace(config, network=kind, crops=crops_for(config.conv, bench.train)[1:])
    name = {"unet": "U-Net", "fcn": "FCN"}[kind]

    def trained() -> Any:
        return fit_baseline(bench.train, config, device=bench.device, progress=bench.progress)

    return [bench.score(part, name, lambda: timed(trained), **more)]


def _vgg(recipe: Literal["own", "paper"]) -> Part:
    """The paper's FCN: VGG16's pretrained convolutions, trained further."""

    def run(bench: Bench) -> list[Row]:
        find_weights()  # before anything takes long
        config = baseline_config(bench.protocol, bench.scale, bench.seed)
        conv = replace(config.conv, learning_rate=VGG_RATE)
        if recipe == "paper":
            conv = replace(conv, n_steps=bench.scale.vgg_steps)
        config = replace(config, network="vgg", recipe=recipe, sizes=(conv.base,), norms=(conv.norm,), conv=conv)

        def trained() -> Any:
            return fit_baseline(bench.train, config, device=bench.device, progress=bench.progress)

        return [bench.score(f"vgg-{recipe}", f"FCN of VGG16, {recipe} recipe", lambda: timed(trained))]

    return run


def _best(part: str, bench: Bench, **more: Any) -> Row:
    """The model of `hedgerow train --effort best`: a refined stack with a convolutional level."""
    config = replace(bench.protocol.own_stack, seed=bench.seed)

    def trained() -> Any:
        budget = Budget("best", bench.scale.best_minutes, bench.device)
        return fit_labelled(bench.train, config, budget, progress=bench.progress).model

    return bench.score(part, "best", lambda: timed(trained), **more)


def _random(connections: str) -> Part:
    """The network of the paper's forests, trained from random weights."""

    def run(bench: Bench) -> list[Row]:
        stack, grown = _papers_stack(bench, bench.protocol)
        return [_random_start(connections, f"random-{connections}", bench, stack, grown)]

    return run


def _random_start(connections: str, part: str, bench: Bench, stack: ForestStack, grown: float, **more: Any) -> Row:
    training = schedule(bench.scale.random_steps, bench.seed)
    if bench.protocol.is_depth:
        training = replace(training, stride=bench.protocol.refine.stride, trim=True)
    net = random_start(stack, connections, bench.seed)
    return bench.refined(part, f"random start, {connections}", net, bench.paper_train, training, grown, **more)


def _penalised(penalty: Literal["leaf_l1", "leaf_entropy"], weight: float) -> Part:
    """Hedgerow's way with a penalty on leaves that fire together, so that mapping back might lose less."""
    split, part = {"leaf_l1": "tanh", "leaf_entropy": "soft"}[penalty], penalised_name(penalty, weight)

    def run(bench: Bench) -> list[Row]:
        stack, grown = bench.grown("own", bench.protocol.own_stack, bench.train)
        penalties: dict[str, Any] = {penalty: weight}
        config = replace(bench.protocol.own_refine, **penalties)
        return bench.all_models(part, stack, grown, split, bench.train, config)

    return run


def penalised_name(penalty: str, weight: float) -> str:
    """The name of a part with a penalty."""
    return f"{penalty.replace('_', '-')}-{weight:g}"


def _kind_at_scale(split: str) -> Part:
    """The paper's forests mapped with a kind of split, and refined by Hedgerow's settings."""

    def run(bench: Bench) -> list[Row]:
        stack, grown = _papers_stack(bench, bench.protocol)
        return bench.all_models(f"mapping-{split}", stack, grown, split, bench.train, bench.protocol.own_refine)

    return run


USUAL: dict[str, Part] = {
    "paper": paper,
    "inner": inner,
    "own": _own("own", "soft"),
    "tanh": _own("tanh", "tanh"),
    "crelu": _own("crelu", "crelu"),
    **{f"levels-{n}": _levels(n) for n in LEVELS},
    "best": lambda bench: [_best("best", bench)],
    "unet": lambda bench: _network("unet", "unet", bench),
    "fcn": lambda bench: _network("fcn", "fcn", bench),
    **{f"images-{n}": _images(n) for n in CURVE},
    "alternating": alternating,
    "random-sparse": _random("sparse"),
    "random-full": _random("full"),
}
# No fused kernel trains the edges of a tree, so this is slow: below full scale, it must be requested.
SLOW: dict[str, Part] = {"paper-sparse": paper_sparse}
# These questions are settled; at any scale, the parts must be requested.
ON_REQUEST: dict[str, Part] = {
    "vgg-own": _vgg("own"),
    "vgg-paper": _vgg("paper"),
    "sharpness": sharpness,
    "cost": cost,
    **{f"reading-{name}": _reading(name) for name in READINGS},
    **{penalised_name("leaf_l1", weight): _penalised("leaf_l1", weight) for weight in PENALTIES},
    **{penalised_name("leaf_entropy", weight): _penalised("leaf_entropy", weight) for weight in PENALTIES},
    **{f"mapping-{split}": _kind_at_scale(split) for split in ("tanh", "soft", "crelu")},
    **{f"best-{n}": _best_of_first(n) for n in CURVE},
    "front": front,
    "front-none": front_none,
    **{f"stride-{n}": _stride(n) for n in STRIDES},
    **{f"choice-{variant}": choice(variant) for variant in VARIANTS},
}
PARTS = {**USUAL, **SLOW, **ON_REQUEST}


def usable_parts(protocol: Protocol, train: LabelledSet) -> list[str]:
    """All parts except those that repeat the default number of levels or have too few images for every class."""
    firsts = {n: replace(train, images=train.images[:n]) for n in CURVE if n < len(train)}
    few = [n for n, first in firsts.items() if present(first) == set(train.classes)]
    left_out = {f"{part}-{n}" for part in ("images", "best") for n in CURVE if n not in few} | {
        f"levels-{protocol.own_stack.n_levels}"
    }
    return [name for name in PARTS if name not in left_out]
