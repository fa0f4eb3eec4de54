"""The parts of an experiment, each a question of its own: it trains what it needs and scores it on the test images.

A part returns rows: one model, its scores, what it costs and how large its file is. All parts of a seed that begin from
the same forests share them through the folder of models.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from hedgerow.config import RefineConfig, Sharpness, StackConfig
from hedgerow.convnet import StackNet
from hedgerow.errors import DivergenceError
from hedgerow.experiments.baselines import BaselineConfig, fit_baseline
from hedgerow.experiments.data import ImageSet, with_copies
from hedgerow.experiments.protocols import CURVE, PAPER_SHARPNESS, Protocol, Scale
from hedgerow.experiments.random_start import random_start, schedule
from hedgerow.mapping import to_convnet, to_forest
from hedgerow.metrics import scores
from hedgerow.model_io import load, save
from hedgerow.progress import Report, silent
from hedgerow.refinement import refine
from hedgerow.stack import fit_stack
from hedgerow.trees import ForestStack

SMALL_STACK: dict[str, Any] = {"n_trees": 4, "max_depth": 6}  # for full connections, which grow with its square
SOFT_TOLERANCE = 1e-3
VOTE_COPIES = 2  # altered copies of each image, to take votes from beside it
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
            "device": self.device,
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

    def refined(self, net: StackNet, train: ImageSet, config: RefineConfig, key: str) -> tuple[StackNet, float]:
        """The refined network and the seconds; one that diverged is the last that was good."""
        checkpoint = self.folder / "models" / f"{key}-{self.seed}.checkpoint"
        start = time.perf_counter()
        settings = replace(config, seed=self.seed)
        try:
            refined = refine(
                net.to(self.device), train.images, train.labels, settings, checkpoint=checkpoint, progress=self.progress
            )
        except DivergenceError as error:
            checkpoint.unlink(missing_ok=True)
            refined = cast(StackNet, error.network)
        return refined, time.perf_counter() - start

    def all_models(
        self, part: str, stack: ForestStack, grown: float, split: str, train: ImageSet, config: RefineConfig,
        sharpness: Sharpness | None = None,
    ) -> list[Row]:  # fmt: skip
        """DF, mapped, ConvNet, MB1 and MB2; of a fuzzy tree also MB2 from more images, and the soft forest."""
        net = to_convnet(stack, split, sharpness)
        rows = [self.score("DF", stack, grown, part=part)]
        rows.append(self.score("mapped", net.to(self.device), 0.0, part=part))
        refined, seconds = self.refined(net, train, config, part)
        rows.append(self.score("ConvNet", refined, grown + seconds, part=part, refine_seconds=seconds))
        start = time.perf_counter()
        first = to_forest(refined, method="weights")
        rows.append(self.score("MB1", first, grown + seconds + time.perf_counter() - start, part=part))
        start = time.perf_counter()
        second = to_forest(refined, train.images, "leaf_mean", progress=silent)
        rows.append(self.score("MB2", second, grown + seconds + time.perf_counter() - start, part=part))
        if split == "soft":
            start = time.perf_counter()
            copies = with_copies(train, replace(config.augment, copies=VOTE_COPIES), self.seed, self.protocol.is_depth)
            third = to_forest(refined, copies.images, "leaf_mean", progress=silent)
            rows.append(self.score("MB2, copies", third, grown + seconds + time.perf_counter() - start, part=part))
            soft = to_forest(refined, method="soft", tolerance=SOFT_TOLERANCE)
            rows.append(self.score("soft", soft, grown + seconds, part=part))
        return rows


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
    refined, seconds = bench.refined(net, bench.paper_train, bench.protocol.refine, "paper-sparse")
    return [bench.score("ConvNet", refined, grown + seconds, part="paper-sparse", refine_seconds=seconds)]


def _own(part: str, split: str) -> Callable[[Bench], list[Row]]:
    def run(bench: Bench) -> list[Row]:
        stack, grown = bench.grown("own", bench.protocol.own_stack, bench.train)
        return bench.all_models(part, stack, grown, split, bench.train, bench.protocol.own_refine)

    return run


def _levels(n_levels: int) -> Callable[[Bench], list[Row]]:
    """Hedgerow's way with fewer forests in the stack."""

    def run(bench: Bench) -> list[Row]:
        part = f"levels-{n_levels}"
        stack, grown = bench.grown(part, replace(bench.protocol.own_stack, n_levels=n_levels), bench.train)
        refined, seconds = bench.refined(to_convnet(stack), bench.train, bench.protocol.own_refine, part)
        return [
            bench.score("DF", stack, grown, part=part, n_levels=n_levels),
            bench.score("ConvNet", refined, grown + seconds, part=part, n_levels=n_levels),
        ]

    return run


def _images(n_images: int) -> Callable[[Bench], list[Row]]:
    """Hedgerow's way and the U-Net from the first n images."""

    def run(bench: Bench) -> list[Row]:
        part = f"images-{n_images}"
        few = replace(bench, train=ImageSet(bench.train.images[:n_images], bench.train.labels[:n_images]))
        stack, grown = few.grown(part, bench.protocol.own_stack, few.train)
        refined, seconds = few.refined(to_convnet(stack), few.train, bench.protocol.own_refine, part)
        return [
            few.score("DF", stack, grown, part=part, n_images=n_images),
            few.score("ConvNet", refined, grown + seconds, part=part, n_images=n_images),
            *_network("unet", part, few, n_images=n_images),
        ]

    return run


def _network(kind: str, part: str, bench: Bench, **more: Any) -> list[Row]:
    """A U-Net or an FCN from scratch."""
    config = BaselineConfig(
        network="unet" if kind == "unet" else "fcn",
        steps=bench.scale.network_steps,
        images="depth" if bench.protocol.is_depth else "plain",
        seed=bench.seed,
    )
    start = time.perf_counter()
    model = fit_baseline(bench.train.images, bench.train.labels, config, device=bench.device, progress=bench.progress)
    seconds = time.perf_counter() - start
    return [bench.score({"unet": "U-Net", "fcn": "FCN"}[kind], model, seconds, part=part, **more)]


def _random(connections: str) -> Callable[[Bench], list[Row]]:
    """The network of the paper's forests without their weights."""

    def run(bench: Bench) -> list[Row]:
        part = f"random-{connections}"
        config = bench.protocol.stack if connections == "sparse" else replace(bench.protocol.stack, **SMALL_STACK)
        stack, grown = bench.grown("paper" if connections == "sparse" else part, config, bench.paper_train)
        net = random_start(stack, connections, bench.seed)
        training = replace(schedule(bench.scale.random_steps, bench.seed), check_every=bench.scale.random_steps)
        if bench.protocol.is_depth:
            training = replace(training, stride=bench.protocol.refine.stride, trim=True)
        trained, seconds = bench.refined(net, bench.paper_train, training, part)
        return [bench.score(f"random start, {connections}", trained, grown + seconds, part=part)]

    return run


PARTS: Mapping[str, Callable[[Bench], list[Row]]] = {
    "paper": paper,
    "own": _own("own", "soft"),
    "tanh": _own("tanh", "tanh"),
    "crelu": _own("crelu", "crelu"),
    "levels-1": _levels(1),
    "levels-2": _levels(2),
    "unet": lambda bench: _network("unet", "unet", bench),
    "fcn": lambda bench: _network("fcn", "fcn", bench),
    **{f"images-{n}": _images(n) for n in CURVE[:-1]},
    "random-sparse": _random("sparse"),
    "random-full": _random("full"),
    "paper-sparse": paper_sparse,
}


def usable_parts(protocol: Protocol, n_train: int) -> list[str]:
    """The parts that make sense: no fewer levels than the stack has anyway, no more images than there are."""
    few = [f"images-{n}" for n in CURVE if n < n_train]
    levels = [f"levels-{n}" for n in range(1, protocol.own_stack.n_levels)]
    left_out = {name for name in PARTS if name.startswith(("images-", "levels-"))} - {*few, *levels}
    return [name for name in PARTS if name not in left_out]
