"""Pretrained networks: what a pass over an image costs, what training on their features costs beside scikit-learn's
forest on the same ones, and how much better strokes on real photographs become.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from hedgerow import synthetic
from hedgerow.config import EncoderConfig, StackConfig
from hedgerow.encoders.catalogue import find
from hedgerow.encoders.mobilesam import MobileSam
from hedgerow.encoders.store import place_of
from hedgerow.features.registry import fit_features
from hedgerow.forest.autocontext import grow_stack
from hedgerow.forest.default_settings import labelled_fraction, settings_for
from hedgerow.forest.settings_choice import fit_stack
from hedgerow.images.given import labelled_set
from hedgerow.images.metrics import scores
from hedgerow.progress import silent
from hedgerow.threads import set_threads
from measure import THREADS, Cost, in_fresh_process, installed, measure, require, seconds, table
from photographs import photographs

TITLE = "Pretrained networks"
SIDE, PART, N_PAINTERS = 1024, 0.01, 3
KINDS = {
    "bank": {"features": "bank"},
    "encoder": {"features": "encoder"},
    "bank+encoder": {"features": "bank+encoder"},
    "encoder:mobilesam": {"features": "encoder:mobilesam"},
    "encoder:mobilesam, scale 2": {"features": "encoder:mobilesam", "encoder": EncoderConfig(scale=2)},
}


def networks() -> list[str]:
    """The encoders whose weights are installed."""
    return ["lite0", *(["mobilesam"] if place_of(MobileSam) is not None else [])]


def image_of(side: int) -> tuple[np.ndarray, np.ndarray]:
    """A drawn house front (side,side,3) uint8 with its classes (side,side)."""
    images, labels = synthetic.facades(n_images=1, size=(side, side), seed=2)
    return images[0], labels[0]


def one_pass(name: str, side: int) -> Cost:
    """A pass of the network over an image at its own size, all its usual layers."""
    set_threads(THREADS)
    encoder, picture = find(name), np.ascontiguousarray(image_of(side)[0].transpose(2, 0, 1), np.float32)
    encoder.run(picture[:, :64, :64].copy(), encoder.default_layers)
    return measure(lambda: encoder.run(picture, encoder.default_layers), 3)[0]


def features_of(name: str, side: int) -> Cost:
    """All features of an image: network, principal components, and their values at every pixel."""
    set_threads(THREADS)
    planes = np.ascontiguousarray(image_of(side)[0].transpose(2, 0, 1), np.float32)
    fit_features([planes[:, :64, :64].copy()], StackConfig(features=f"encoder:{name}"))
    return measure(lambda: fit_features([planes], StackConfig(features=f"encoder:{name}")))[0]


def trained(name: str, side: int) -> tuple[Cost, float]:
    """Training from strokes on the features of one image, and mean Dice on its other pixels."""
    set_threads(THREADS)
    image, whole = image_of(side)
    strokes = synthetic.paint(whole, PART)
    labelled = labelled_set([image], [strokes])
    config = replace(settings_for(labelled_fraction(labelled), keep_features=True), features="encoder")
    computed = fit_features([labelled.images[0].planes], config)[1][0]
    if name == "hedgerow":
        labelled, config = labelled_set([computed], [strokes], layout="planes"), replace(config, features="channels")
        grow_stack(labelled, config, progress=silent)  # kernels compile at their first use
        cost, stack = measure(lambda: grow_stack(labelled, config, progress=silent))
        predicted = stack.predict(computed, progress=silent)
    else:
        from sklearn.ensemble import RandomForestClassifier

        rows = computed.reshape(len(computed), -1).T
        forest = RandomForestClassifier(config.n_trees, n_jobs=THREADS, random_state=0)
        is_painted = strokes.ravel() != 255
        cost, _ = measure(lambda: forest.fit(rows[is_painted], strokes.ravel()[is_painted]))
        predicted = forest.predict(rows).reshape(strokes.shape)
    rest = np.where(strokes == 255, whole, 255)
    return cost, scores([rest], [predicted], np.unique(whole).tolist()).mean_dice


def painted(kind: str, n_photographs: int, n_painters: int) -> tuple[list[float], float]:
    """Mean Dice on the unpainted pixels of each photograph, and CPU seconds including features."""
    set_threads(THREADS)
    dice, spent = [], 0.0
    for _, image, labels in photographs()[:n_photographs]:
        for painter in range(n_painters):
            strokes = synthetic.paint(labels, PART, seed=painter)
            config = replace(
                settings_for(labelled_fraction(labelled_set([image], [strokes])), keep_features=True), **KINDS[kind]
            )
            begin = time.process_time()
            predicted = fit_stack([image], [strokes], config, progress=silent).predict(image, progress=silent)
            spent += time.process_time() - begin
            rest = np.where(strokes == 255, labels, 255)
            dice.append(scores([rest], [predicted], np.unique(labels[labels != 255]).tolist()).mean_dice)
    return dice, spent / len(dice)


def run(small: bool = False) -> str:
    side = 256 if small else SIDE
    rows = []
    for name in networks():
        once, all_ = in_fresh_process(one_pass, name, side), in_fresh_process(features_of, name, side)
        megapixels = side**2 / 1e6
        rows.append(
            [
                name,
                seconds(once.cpu),
                f"{once.peak:.0f}",
                seconds(all_.cpu),
                f"{all_.peak:.0f}",
                f"{all_.added / megapixels:.0f}",
            ]
        )
    parts = [
        f"An image of {side} x {side}. Memory is of the whole process, in MB.",
        table(["network", "pass, CPU s", "peak MB", "features, CPU s", "peak MB", "added MB/megapixel"], rows),
    ]
    if installed("sklearn"):
        outcomes = {name: in_fresh_process(trained, name, side) for name in ("hedgerow", "scikit-learn")}
        require(outcomes["hedgerow"][1] > 0.2, "a segmentation by strokes is no better than guessing.")
        parts += [
            f"Training from strokes on {PART:.0%} of that image, with the features of lite0 computed before, 64 trees.",
            table(
                ["", "CPU s", "mean Dice"],
                [[name, seconds(cost.cpu), f"{dice:.3f}"] for name, (cost, dice) in outcomes.items()],
            ),
        ]
    if installed("skimage"):
        counts = (1, 1) if small else (4, N_PAINTERS)
        kinds = [kind for kind in KINDS if "mobilesam" not in kind or "mobilesam" in networks()]
        of_kinds = {kind: in_fresh_process(painted, kind, *counts) for kind in kinds}
        parts += [
            f"Strokes on {PART:.0%} of a photograph, scored on the rest of it: {counts[0]} photograph(s) of "
            f"scikit-image with regions painted by script, {counts[1]} set(s) of strokes each.",
            table(
                ["features", "mean Dice", "worst", "CPU s"],
                [[kind, f"{np.mean(d):.3f}", f"{min(d):.3f}", seconds(cpu)] for kind, (d, cpu) in of_kinds.items()],
            ),
        ]
    return "\n\n".join(parts)
