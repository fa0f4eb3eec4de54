"""The parts of an experiment, each a question of its own: it trains what it needs and scores it on the test images.

A part returns rows: one model, its scores, what it costs and how large its file is. All parts of a seed that begin from
the same forests share them through the folder of models.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from hedgerow.config import RefineConfig, Sharpness, StackConfig
from hedgerow.convnet import StackNet
from hedgerow.errors import DivergenceError
from hedgerow.experiments.baselines import BaselineConfig, fit_baseline
from hedgerow.experiments.data import ImageSet
from hedgerow.experiments.protocols import CURVE, PAPER_SHARPNESS, Protocol, Scale
from hedgerow.experiments.random_start import random_start, schedule
from hedgerow.mapping import to_convnet, to_forest
from hedgerow.metrics import scores
from hedgerow.model_io import load, save
from hedgerow.progress import Report, silent
from hedgerow.refinement import refine
from hedgerow.stack import fit_stack
from hedgerow.trees import ForestStack

# For random starts: full connections grow with its square, and sparse ones are to be compared with them.
SMALL_STACK: dict[str, Any] = {"n_trees": 4, "max_depth": 6}
SOFT_TOLERANCE = 1e-3
LEVELS = (1, 2, 3)
BACK = {"MB1": "weights", "MB2": "leaf_mean", "fitted": "fitted"}  # what a network is mapped back to, and how
# No fused kernel trains the edges of a tree, so on a whole stack this is slow: at the small scale it must be asked for.
SLOW = ("paper-sparse",)
SETTINGS = {"soft tolerance": SOFT_TOLERANCE, "random start of": SMALL_STACK}
Row = dict[str, Any]


@dataclass(frozen=True)
class Bench:
    """Where a part is run: the images, the settings, one seed.

    train, test: what a part may learn from, and what it is scored on
    paper_train: `train` with the paper's rotated copies
    folder:      for models and checkpoints
    """

    protocol: Protocol
    scale: Scale
    train: ImageSet
    paper_train: ImageSet
    test: ImageSet
    seed: int
    device: str
    folder: Path
    progress: Report

    def score(self, name: str, model: Any, seconds: float, **more: Any) -> Row:
        """A row for any model that predicts; `seconds` it took to make."""
        is_ours = isinstance(model, ForestStack | StackNet)
        quiet = {"progress": silent} if is_ours else {}
        model.predict(self.test.images[0], **quiet)  # compiles, if it must
        start, cpu = time.perf_counter(), time.process_time()
        found = [model.predict(image, **quiet) for image in self.test.images]
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu
        result = scores(self.test.labels, found, model.classes, model.unlabelled)
        row = {
            "model": name,
            "seed": self.seed,
            "mean_dice": result.mean_dice,
            "balanced_accuracy": result.balanced_accuracy,
            "train_seconds": seconds,
            "ms_an_image": 1e3 * wall / len(found),
            "cpu_ms_an_image": 1e3 * cpu / len(found),
            "device": str(model.device).split(":")[0],
            **more,
        }
        background = self.protocol.background
        if background is not None and background in model.classes:
            row["foreground_accuracy"] = result.balanced_accuracy_without(background)
        if is_ours:
            row["bytes"] = save(model, self.folder / "models" / file_name(more["part"], name, self.seed))
        return row

    def grown(self, key: str, config: StackConfig, train: ImageSet) -> tuple[ForestStack, float]:
        """Forests and the seconds they took; those of another part with the same key are taken up."""
        path = self.folder / "models" / f"{key}-{self.seed}.hedge"
        if path.exists():
            stack = load(path)
            assert isinstance(stack, ForestStack)
            return stack, float(stack.settings["grown_seconds"])
        start = time.perf_counter()
        stack = fit_stack(train.images, train.labels, replace(config, seed=self.seed), progress=self.progress)
        seconds = time.perf_counter() - start
        save(replace(stack, settings={**stack.settings, "grown_seconds": seconds}), path)
        return stack, seconds

    def refined(
        self, net: StackNet, train: ImageSet, config: RefineConfig, key: str
    ) -> tuple[StackNet, dict[str, Any]]:
        """The refined network, and what to know of the way there: seconds, whether it was resumed, or diverged.

        Of one that diverged it is the last that was good.
        """
        checkpoint = self.folder / "models" / f"{key}-{self.seed}.checkpoint"
        notes: dict[str, Any] = {"resumed": True} if checkpoint.exists() else {}
        start = time.perf_counter()
        settings = replace(config, seed=self.seed)
        try:
            refined = refine(
                net.to(self.device), train.images, train.labels, settings, checkpoint=checkpoint, progress=self.progress
            )
        except DivergenceError as error:
            checkpoint.unlink(missing_ok=True)
            refined = cast(StackNet, error.network)
            notes["diverged"] = str(error)
        return refined, {**notes, "refine_seconds": time.perf_counter() - start}

    def all_models(
        self, part: str, stack: ForestStack, grown: float, split: str, train: ImageSet, config: RefineConfig,
        sharpness: Sharpness | None = None,
    ) -> list[Row]:  # fmt: skip
        """DF, mapped, relaxed, ConvNet, MB1, MB2, fitted votes; of a fuzzy tree also the soft forest."""
        net = to_convnet(stack, split, sharpness).to(self.device)
        rows = [self.score("DF", stack, grown, part=part), self.score("mapped", net, grown, part=part)]
        if config.relax != 1:
            rows.append(self.score("relaxed", relaxed(net, config), grown, part=part))
        refined, notes = self.refined(net, train, config, part)
        seconds = grown + notes["refine_seconds"]
        rows.append(self.score("ConvNet", refined, seconds, part=part, **notes))
        for name, method in BACK.items():
            start = time.perf_counter()
            back = to_forest(refined, train.images, method, progress=silent)
            rows.append(self.score(name, back, seconds + time.perf_counter() - start, part=part, **notes))
        if split == "soft":
            soft = to_forest(refined, method="soft", tolerance=SOFT_TOLERANCE)
            rows.append(self.score("soft", soft, seconds, part=part, **notes))
        return rows


def relaxed(net: StackNet, config: RefineConfig) -> StackNet:
    """The network as its refinement begins: with softer splits, without the branches that training leaves out.

    With all branches, soft splits take minutes for one large image.
    """
    softer = copy.deepcopy(net)
    softer.set_tolerance(config.tolerance)
    softer.relax(config.relax)
    return softer


def file_name(part: str, model: str, seed: int) -> str:
    """Of a scored model."""
    return f"{part}-{model.replace(', ', '-').replace(' ', '-')}-{seed}.hedge"


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
    refined, notes = bench.refined(net, bench.paper_train, bench.protocol.refine, "paper-sparse")
    return [bench.score("ConvNet", refined, grown + notes["refine_seconds"], part="paper-sparse", **notes)]


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
        refined, notes = bench.refined(to_convnet(stack), bench.train, bench.protocol.own_refine, part)
        return [
            bench.score("DF", stack, grown, part=part, n_levels=n_levels),
            bench.score("ConvNet", refined, grown + notes["refine_seconds"], part=part, n_levels=n_levels, **notes),
        ]

    return run


def _images(n_images: int) -> Callable[[Bench], list[Row]]:
    """Hedgerow's way and the U-Net from the first n images."""

    def run(bench: Bench) -> list[Row]:
        part = f"images-{n_images}"
        few = replace(bench, train=ImageSet(bench.train.images[:n_images], bench.train.labels[:n_images]))
        stack, grown = few.grown(part, bench.protocol.own_stack, few.train)
        refined, notes = few.refined(to_convnet(stack), few.train, bench.protocol.own_refine, part)
        return [
            few.score("DF", stack, grown, part=part, n_images=n_images),
            few.score("ConvNet", refined, grown + notes["refine_seconds"], part=part, n_images=n_images, **notes),
            *_network("unet", part, few, n_images=n_images),
        ]

    return run


def baseline_config(protocol: Protocol, scale: Scale, seed: int) -> BaselineConfig:
    """Of the U-Net."""
    images: Literal["depth", "plain"] = "depth" if protocol.is_depth else "plain"
    return BaselineConfig(steps=scale.network_steps, images=images, seed=seed)


def _network(kind: Literal["unet", "fcn"], part: str, bench: Bench, **more: Any) -> list[Row]:
    """A U-Net or an FCN from scratch."""
    config = replace(baseline_config(bench.protocol, bench.scale, bench.seed), network=kind)
    start = time.perf_counter()
    model = fit_baseline(bench.train.images, bench.train.labels, config, device=bench.device, progress=bench.progress)
    seconds = time.perf_counter() - start
    return [bench.score({"unet": "U-Net", "fcn": "FCN"}[kind], model, seconds, part=part, **more)]


def _random(connections: str) -> Callable[[Bench], list[Row]]:
    """The network of the paper's forests, of a smaller stack, without their weights."""

    def run(bench: Bench) -> list[Row]:
        part = f"random-{connections}"
        stack, grown = bench.grown("random", replace(bench.protocol.stack, **SMALL_STACK), bench.paper_train)
        net = random_start(stack, connections, bench.seed)
        training = schedule(bench.scale.random_steps, bench.seed)
        if bench.protocol.is_depth:
            training = replace(training, stride=bench.protocol.refine.stride, trim=True)
        trained, notes = bench.refined(net, bench.paper_train, training, part)
        seconds = grown + notes["refine_seconds"]
        return [bench.score(f"random start, {connections}", trained, seconds, part=part, **notes)]

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
