"""Beside the U-Net: mean Dice on test images of a stack, its refined network, the convolutional level on top, and a
U-Net trained as that level's networks are, from the same images.

The stack has the settings that `hedgerow train` chooses: where the extra `pretrained` is installed, it reads the
pretrained network, which also joins some of the networks on top, but not the U-Net. Sizes and normalisations of the
networks are fixed and the same on both sides; they were chosen on images that are neither trained nor tested on
(docs/measurements/best-and-u-net.md).

Every job is a process of its own, HEDGEROW_BENCH_AT_ONCE of them side by side, and its rows are kept in a file, so that
a run that was ended goes on. HEDGEROW_BENCH_VNC names the folder of `vnc_sstem`; HEDGEROW_BENCH_SETS, the sets to run,
with ";" between them. On a CPU it would take days, so there it runs only what that names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))  # where the package `experiments` is

from experiments.data import load_set, recounted, shrunk
from hedgerow.config import ConvConfig, DeepConfig, RefineConfig, StackConfig
from hedgerow.images.labelled import LabelledSet
from hedgerow.images.regions import Region
from hedgerow.predict.tiling import predict_indices
from hedgerow.progress import silent
from measure import DRAWN, table

TITLE = "Beside the U-Net"
SEEDS = range(3)
PIXELS = 8192  # of a step of refinement, as `--effort good` has on a CPU
KEPT = DRAWN / "ahead.jsonl"
MODELS = ("U-Net", "FCN", "stack", "refined", "best")


@dataclass(frozen=True)
class Set:
    """data: drawn images by name, or "vnc"; size: (H,W) of drawn ones; base, norm: of the networks"""

    data: str
    n_train: int
    n_test: int
    size: tuple[int, int] | None
    base: int
    norm: Literal["batch", "image"]


NUMBERS = (1, 2, 4, 8, 16)  # of images, of the learning curves
SETS = {
    **{f"somites, {n}": Set("somites", n, 16, (256, 256), 16 if n > 4 else 32, "batch") for n in NUMBERS},
    **{f"vnc_sstem, {n}": Set("vnc", n, 4, None, 32, "image") for n in NUMBERS},
    **{f"bodies, {n}": Set("bodies", n, 20, (120, 160), 32, "image") for n in (*NUMBERS, 40)},
}
TINY = Set("somites", 5, 2, (48, 48), 4, "batch")


def images_of(of: Set) -> tuple[LabelledSet, LabelledSet]:
    """To learn from, the first ones, and to test on."""
    if of.data != "vnc":
        train, test = (load_set(of.data, part, n, of.size) for part, n in (("train", of.n_train), ("test", of.n_test)))
        return train, test
    folder = os.environ["HEDGEROW_BENCH_VNC"]
    train, test = (shrunk(load_set(folder, part), 2) for part in ("train", "test"))
    return recounted(replace(train, images=train.images[: of.n_train])), test


def rows_of(name: str, model: str, seed: int, small: bool) -> Iterator[dict[str, Any]]:
    """Scores of a job: a network of the comparison, or "best" with what comes before it."""
    import torch

    from experiments.baselines import BaselineConfig, fit_baseline
    from hedgerow.deep.fitting import deepen_labelled
    from hedgerow.deep.recipe import Recipe, for_images, for_number
    from hedgerow.deep.refinement_search import TURNED
    from hedgerow.forest.autocontext import grow_stack
    from hedgerow.forest.default_settings import labelled_fraction, settings_for
    from hedgerow.network.mapping import to_convnet
    from hedgerow.refinement.loop import refine_labelled

    of, device = TINY if small else SETS[name], "cuda" if torch.cuda.is_available() else "cpu"
    train, test = images_of(of)
    is_depth, has_up = of.data == "bodies", of.data != "vnc"
    conv = ConvConfig(n_down=5, base=of.base, norm=of.norm, n_steps=4 if small else 1500, seed=seed)
    conv = for_images(conv, is_depth)
    conv = conv if has_up else replace(conv, augment=TURNED, orientations=8)
    conv = replace(conv, batch=8) if is_depth else conv  # these images are small

    def row(model: str, maps: Sequence[np.ndarray], **more: Any) -> dict[str, Any]:
        dice = float(test.score([np.asarray(labels, np.uint8) for labels in maps]).mean_dice)
        return {"set": name, "seed": seed, "model": model, "dice": dice, "device": device, **more}

    if model in ("U-Net", "FCN"):
        kind: Any = {"U-Net": "unet", "FCN": "fcn"}[model]
        images: Any = "depth" if is_depth else "plain"
        config = BaselineConfig(network=kind, sizes=(of.base,), norms=(of.norm,), images=images, conv=conv)
        net = fit_baseline(train, config, device=device, progress=silent)
        yield row(model, [net.predict_indices(image.planes) for image in test])
        return
    kinect = StackConfig.kinect(held_out="folds", n_trees=10, seed=seed)
    stack = grow_stack(
        train, kinect if is_depth else replace(settings_for(labelled_fraction(train)), seed=seed), progress=silent
    )
    yield row("stack", [predict_indices(stack, image.planes) for image in test])
    refining = RefineConfig(seed=seed, held_out=0.0, pixels=PIXELS, n_steps=3 if small else 300)
    refining = refining if has_up else replace(refining, augment=TURNED)
    refined = refine_labelled(to_convnet(stack).to(device), train, refining, progress=silent)
    yield row("refined", [predict_indices(refined, image.planes) for image in test])
    settings = DeepConfig(conv=for_number(conv, len(train)), seed=seed)
    deep = deepen_labelled(refined, Recipe(settings, train), device=device, progress=silent)
    of_members = [deep.levels_and_members(image.planes, Region.whole(image.size))[1] for image in test]
    alone = {
        member: row(member, [probabilities[member].argmax(0) for probabilities in of_members])["dice"]
        for member in of_members[0]
    }
    yield row(
        "best",
        [deep.joined(probabilities).argmax(0) for probabilities in of_members],
        members=alone,
        weights=dict(deep.weights),
    )


def _run_job(job: tuple[str, str, int, bool]) -> None:
    """Run a job in its own process, unless its rows are stored already."""
    name, model, seed, small = job
    if any((row["set"], row["model"], row["seed"]) == (name, model, seed) for row in stored_rows()):
        return
    subprocess.run([sys.executable, __file__, *map(str, (name, model, seed, int(small)))], check=True)


def stored_rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in KEPT.read_text().splitlines()] if KEPT.exists() else []


def wanted() -> list[str]:
    """The requested sets that are available."""
    asked = os.environ.get("HEDGEROW_BENCH_SETS")
    if asked is None and not has_gpu():
        return []
    here = [name for name, of in SETS.items() if of.data != "vnc" or "HEDGEROW_BENCH_VNC" in os.environ]
    return [name for name in here if asked is None or name in asked.split(";")]


def has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def run(small: bool = False) -> str:
    names = ["tiny, 5"] if small else wanted()
    if not names:
        return "There is no GPU, and HEDGEROW_BENCH_SETS names no set: left out."
    jobs = [
        (name, model, seed, small)
        for name in names
        for model in ("best", "U-Net", *["FCN"] * (name.startswith("bodies")))
        for seed in (SEEDS if not small else (0,))
    ]
    KEPT.parent.mkdir(exist_ok=True)
    if small:
        KEPT.unlink(missing_ok=True)
    with ThreadPoolExecutor(int(os.environ.get("HEDGEROW_BENCH_AT_ONCE", 1))) as pool:
        list(pool.map(_run_job, jobs))
    return shown(stored_rows(), names)


def shown(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    """A table with the mean over the seeds, and each; learning curves beside it as pictures."""
    # A job that was interrupted and run again stored its first rows twice.
    dice = {(row["set"], row["model"], row["seed"]): row["dice"] for row in rows}

    def dice_of(name: str, model: str) -> list[float]:
        return [item for (of, by, _), item in sorted(dice.items()) if (of, by) == (name, model)]

    def cell(name: str, model: str) -> str:
        each = dice_of(name, model)
        return f"{np.mean(each):.3f} ({', '.join(f'{item:.3f}' for item in each)})" if each else "-"

    for data in dict.fromkeys(name.split(",")[0] for name in names):
        mine = [name for name in names if name.split(",")[0] == data]
        lines = {model: _line(mine, lambda name, model=model: dice_of(name, model)) for model in MODELS}
        lines = {model: line for model, line in lines.items() if len(line) > 1}
        if lines:
            _draw(data, lines)
    text = table(
        ("set, training images", *MODELS), [(name, *(cell(name, model) for model in MODELS)) for name in names]
    )
    return f"Mean Dice on test images, the mean over the seeds and each of them.\n\n{text}"


def _line(names: Sequence[str], dice_of: Callable[[str], list[float]]) -> list[tuple[float, float, float]]:
    """For each number of images, the mean and standard deviation."""
    each = [(float(name.split(",")[1]), dice_of(name)) for name in names]
    return [(n, float(np.mean(values)), float(np.std(values))) for n, values in each if values]


def _draw(data: str, lines: dict[str, list[tuple[float, float, float]]]) -> None:
    from experiments.outputs import draw_curve
    from hedgerow.report import Curve

    draw_curve(Curve(data, f"training images, {data}", "mean Dice", lines, log_x=True), DRAWN / f"ahead-{data}.png")


if __name__ == "__main__":
    for one in rows_of(sys.argv[1], sys.argv[2], int(sys.argv[3]), bool(int(sys.argv[4]))):
        with KEPT.open("a") as file:
            file.write(json.dumps(one) + "\n")
