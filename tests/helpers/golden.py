"""Golden files: a small model of every kind as this version writes it, and what it predicts.

Run before the format of model files changes: `PYTHONPATH=src:tests python -m helpers.golden tests/io/golden/versionN`.
Version 3 has volumes only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

import hedgerow as hr
from helpers.c_models import softened
from helpers.deep import pictures, small_deep
from helpers.forests import GROWN, SMALL, grown_stack

SOFT = ("offsets", "windows", "depth")
NETS = {
    "hard": ("offsets", {"split": "hard"}),
    "tanh": ("windows", {"split": "tanh"}),
    "soft": ("oblique", {"split": "soft"}),
    "crelu": ("colour", {"split": "crelu"}),
    "softmax-leaves": ("offsets", {"activation": "softmax"}),
    "sparse": ("channels", {"connections": "sparse"}),
    "full": ("channels", {"connections": "full"}),
    "depth": ("depth", {"split": "soft"}),
}


def predictions(model, image) -> dict[str, np.ndarray]:
    """The labels, and the class probabilities after each level."""
    outputs = {f"level{k}": output for k, output in enumerate(model.level_outputs(image))}
    return {"labels": model.predict(image), **outputs}


def _soft_forest(kind: str):
    stack, image = grown_stack(kind)
    return softened(stack), image


def _net(kind: str, options: dict[str, str]):
    stack, image = grown_stack(kind)
    net = hr.to_convnet(stack, **options)
    if net.split == "soft" and net.level(0).activation == "exp":
        net.set_tolerance(1e-4)
    return net, image


def _deep():
    images, labels = pictures()
    return small_deep(images[:4], labels[:4]), images[4]


def _volume():
    """Of filters in the plane, since sigmas along z are too small, and offsets in three dimensions."""
    volumes, labels = hr.synthetic.embryo(3, (5, 20, 24))
    classes = [np.array([0, *[1] * 8, 2, 1], np.uint8)[label] for label in labels]
    return hr.fit_stack(
        volumes[:2], classes[:2], replace(SMALL, sigmas=(0.7, 1.4)), axes="ZYX", voxel_size=(3, 1, 1)
    ), volumes[2]


MODELS: dict[str, Callable] = {
    **{f"stack-{kind}": partial(grown_stack, kind) for kind in (*GROWN, "joined")},
    **{f"forest-soft-{kind}": partial(_soft_forest, kind) for kind in SOFT},
    **{f"net-{name}": partial(_net, *given) for name, given in NETS.items()},
    "deep": _deep,
    "stack-volume": _volume,
}


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in MODELS.items():
        model, image = make()
        hr.save(model, folder / f"{name}.hedge")
        np.savez_compressed(folder / f"{name}.npz", image=image, **predictions(model, image))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
