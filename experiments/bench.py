"""Runs a part of an experiment: grows, refines and scores models, and saves the results.

A row is saved when its model has been scored, a refinement saves checkpoints, and parts that begin with the same
forests share them, so that an interrupted part resumes.
"""

import copy
import functools
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from experiments.data import spread
from experiments.protocols import Protocol, Scale
from hedgerow.config import RefineConfig, Sharpness, StackConfig
from hedgerow.deep.deepstack import DeepStack
from hedgerow.errors import DivergenceError
from hedgerow.files import write_text
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.autocontext import grow_stack
from hedgerow.forest.samples import hold_out
from hedgerow.images.labelled import LabelledSet
from hedgerow.io.model_file import load, save
from hedgerow.network.mapback import fitted_votes, leaf_means, to_forest
from hedgerow.network.mapping import to_convnet
from hedgerow.network.stacknet import StackNet
from hedgerow.network.vote_fit import FitSamples
from hedgerow.overwrite_guard import remove_state
from hedgerow.predict.tiling import predict_indices
from hedgerow.progress import Report
from hedgerow.refinement.loop import refine_labelled

OURS = (ForestStack, StackNet, DeepStack)
SOFT_TOLERANCE = 1e-3
Row = dict[str, Any]
Made = tuple[Any, float]  # a model, and the seconds that it took to make from images
LabelMaps = Sequence[np.ndarray]  # (H,W) class indices of each test image


@dataclass(frozen=True)
class Bench:
    """The images, the settings and a seed.

    train, test: training and test images, with the same classes
    paper_train: `train` with the paper's rotated copies
    folder:      folder for rows, models and checkpoints
    """

    protocol: Protocol
    scale: Scale
    train: LabelledSet
    paper_train: LabelledSet
    test: LabelledSet
    seed: int
    device: str
    folder: Path
    progress: Report

    def begun_path(self, part: str) -> Path:
        """The file with the rows of an unfinished part."""
        return self.folder / "begun" / f"{part}-{self.seed}.json"

    def known_rows(self, part: str) -> dict[str, Row]:
        """By model, the rows of an interrupted run, except those of models whose file is gone."""
        path = self.begun_path(part)
        content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        rows: dict[str, Row] = content.get("rows", {})
        return {name: row for name, row in rows.items() if "bytes" not in row or self.model_path(part, name).exists()}

    def write_rows(self, part: str, rows: dict[str, Row]) -> None:
        """Save the rows of an unfinished part, in a file that is marked as removable."""
        write_json(self.begun_path(part), {"hedgerow": "a part of an experiment", "rows": rows})

    def score(
        self, part: str, name: str, make: Callable[[], Made], beside: Callable[[], LabelMaps] | None = None, **more: Any
    ) -> Row:
        """The row of a model; if it is known already, the model is not made again.

        beside: returns the network's label maps, to count the pixels that the model labels differently
        """
        known = self.known_rows(part)
        if name not in known:
            model, seconds = make()
            known[name] = self._row(part, name, model, seconds, beside, **more)
            self.write_rows(part, known)
        return known[name]

    def _row(
        self, part: str, name: str, model: Any, seconds: float, beside: Callable[[], LabelMaps] | None, **more: Any
    ) -> Row:
        _predict(model, self.test.images[0].planes)  # compiles the kernels if necessary
        start, cpu = time.perf_counter(), time.process_time()
        maps = self.predicted(name, model)
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu
        result = self.test.score(maps)
        row = {
            "part": part,
            "model": name,
            "seed": self.seed,
            "mean_dice": result.mean_dice,
            "balanced_accuracy": result.balanced_accuracy,
            "train_seconds": seconds,
            "ms_an_image": 1e3 * wall / len(maps),
            "cpu_ms_an_image": 1e3 * cpu / len(maps),
            "device": str(model.device).split(":")[0],
            **more,
        }
        background = self.protocol.background
        if background is not None and background in model.classes:
            row["foreground_accuracy"] = result.balanced_accuracy_without(background)
        if beside is not None:
            row["differs"] = float(np.mean([np.mean(a != b) for a, b in zip(maps, beside(), strict=True)]))
        if isinstance(model, OURS):  # others have no file
            row["bytes"] = save(model, self.model_path(part, name))
        return row

    def predicted(self, name: str, model: Any) -> LabelMaps:
        """The model's label maps of the test images."""
        maps, n = [], len(self.test)
        for done, image in enumerate(self.test):
            self.progress(f"scoring {name}", done, n)
            maps.append(_predict(model, image.planes))
        self.progress(f"scoring {name}", n, n)
        return maps

    def model_path(self, part: str, name: str) -> Path:
        """The file of a scored model."""
        return self.folder / "models" / file_name(part, name, self.seed)

    def grown(self, key: str, config: StackConfig, train: LabelledSet) -> tuple[ForestStack, float]:
        """Forests and the seconds they took; parts with the same key share them."""
        path = self.folder / "models" / f"{key}-{self.seed}.hedge"
        if path.exists():
            stack = load(path)
            assert isinstance(stack, ForestStack)
            return stack, float(stack.settings["grown_seconds"])
        settings = replace(config, seed=self.seed)
        stack, seconds = timed(lambda: grow_stack(train, settings, progress=self.progress))
        save(replace(stack, settings={**stack.settings, "grown_seconds": seconds}), path)
        return stack, seconds

    def refined(
        self, part: str, name: str, net: StackNet, train: LabelledSet, config: RefineConfig, grown: float, **more: Any
    ) -> Row:
        """The row of the refined network, or of the last good network if the refinement diverged."""
        checkpoint, known = self.folder / "models" / f"{part}-{self.seed}.checkpoint", self.known_rows(part)
        if name not in known:
            # Rows of models made from another network, whose file is gone, are dropped.
            others = {other: row for other, row in known.items() if "refine_seconds" not in row}
            self.write_rows(part, others)
            notes: dict[str, Any] = {"resumed": True} if checkpoint.exists() else {}
            start, settings = time.perf_counter(), replace(config, seed=self.seed)
            # The refinement holds out some of the images that the forests were trained on.
            training, held = hold_out(train, settings.held_out, settings.seed)
            try:
                refined = refine_labelled(
                    net.to(self.device), replace(train, images=training), settings,
                    validation=replace(train, images=held) if held else None, checkpoint=checkpoint,
                    keep_checkpoint=True, progress=self.progress,
                )  # fmt: skip
            except DivergenceError as error:
                refined = cast(StackNet, error.network)
                notes["diverged"] = str(error)
            notes["refine_seconds"] = time.perf_counter() - start
            seconds = grown + notes["refine_seconds"]
            known[name] = self.score(part, name, lambda: (refined, seconds), **notes, **more)
        remove_state(checkpoint)  # no longer needed, since the network is saved
        return known[name]

    def all_models(
        self, part: str, stack: ForestStack, grown: float, split: str, train: LabelledSet, config: RefineConfig,
        sharpness: Sharpness | None = None,
    ) -> list[Row]:  # fmt: skip
        """DF, mapped, relaxed, ConvNet, MB1, MB2 and fitted votes; for soft splits also the soft forest."""
        net = to_convnet(stack, split, sharpness).to(self.device)
        score = functools.partial(self.score, part)
        rows = [score("DF", lambda: (stack, grown)), score("mapped", lambda: (net, grown))]
        if config.relax != 1:
            rows.append(score("relaxed", lambda: (relaxed(net, config), grown)))
        row = self.refined(part, "ConvNet", net, train, config, grown)
        notes = {name: row[name] for name in ("resumed", "diverged", "refine_seconds") if name in row}
        before = row["train_seconds"]

        @functools.cache
        def refined() -> StackNet:
            return cast(StackNet, load(self.model_path(part, "ConvNet"))).to(self.device)

        def mapped_back(method: str, **options: Any) -> Made:
            net = refined()
            forest, seconds = timed(lambda: to_forest(net, method=method, **options))
            return forest, before + seconds

        @functools.cache
        def means() -> tuple[Made, Made]:
            """MB2 and the fitted votes, from one pass over the images."""
            some = replace(train, images=spread(train.images, self.scale.back_images))
            first, samples = to_forest(refined(), method="weights"), FitSamples(len(some))
            mean, seconds = timed(lambda: leaf_means(refined(), first, some.pictures(), self.progress, samples))
            fitted, more = timed(lambda: fitted_votes(mean, samples))
            return (mean, before + seconds), (fitted, before + seconds + more)

        @functools.cache
        def network_maps() -> LabelMaps:
            return self.predicted("ConvNet", refined())

        makers: dict[str, Callable[[], Made]] = {
            "MB1": lambda: mapped_back("weights"),
            "MB2": lambda: means()[0],
            "fitted": lambda: means()[1],
        }
        if split == "soft":
            makers["soft"] = lambda: mapped_back("soft", tolerance=SOFT_TOLERANCE)
        return [*rows, row, *(score(name, make, network_maps, **notes) for name, make in makers.items())]


def _predict(model: Any, planes: np.ndarray) -> np.ndarray:
    """(H,W) class indices; a baseline predicts whole images with a method of its own."""
    return (
        predict_indices(model, planes) if isinstance(model, OURS) else cast(np.ndarray, model.predict_indices(planes))
    )


def relaxed(net: StackNet, config: RefineConfig) -> StackNet:
    """The network at the start of its refinement: with softer splits, and with the tolerance of training, without which
    soft splits take minutes for one large image."""
    softer = copy.deepcopy(net)
    softer.set_tolerance(config.tolerance)
    softer.relax(config.relax)
    return softer


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """The result of the work, and the seconds it took."""
    start = time.perf_counter()
    return work(), time.perf_counter() - start


def file_name(part: str, model: str, seed: int) -> str:
    """The file name of a scored model."""
    return f"{part}-{model.replace(', ', '-').replace(' ', '-')}-{seed}.hedge"


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Write a JSON file, completely or not at all."""
    write_text(path, json.dumps(values, indent=2))
