"""How the defaults were chosen: variants of the settings, each scored on training images that it did not see.

    python benchmarks/choices.py somites default naive
    python benchmarks/choices.py FOLDER default naive --half

`somites`: 16 drawn images to learn from and 8 others to score on. A folder has images/, labels/ and train.txt: three
quarters of its training images are learned from and the last quarter is scored.
Test images are read only with --test, which is for the end: all training images are learned from and the test images
scored. docs/choices.md holds the results.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

import hedgerow as hr
from hedgerow.config import AugmentConfig, ContextConfig, SamplingConfig, StackConfig
from hedgerow.experiments.data import load_set
from hedgerow.images.metrics import scores
from hedgerow.progress import silent

DEFAULT = StackConfig()
PAPER_GRID = SamplingConfig(step=3, fraction=0.25)
ROTATED = AugmentConfig(copies=2)
ALL_CHANGES = AugmentConfig(copies=2, flip=True, scale=0.15, brightness=0.3, contrast=0.2)
SMALL_CHANGES = AugmentConfig(copies=1, rotation=15.0, scale=0.1, shift=0.1)
SIGMAS = DEFAULT.sigmas

FOLDS3 = {"n_folds": 3}
NAIVE = {"held_out": "none"}
VARIANTS: dict[str, dict[str, object]] = {
    "default": {},
    "naive": NAIVE,
    "trees": {"held_out": "trees"},
    "folds3": FOLDS3,
    "folds5": {"n_folds": 5},
    "paper_grid": {"sampling": PAPER_GRID, "n_folds": 4},
    "paper_grid_naive": {"sampling": PAPER_GRID, **NAIVE},
    "paper_grid_trees": {"sampling": PAPER_GRID, "held_out": "trees"},
    "paper_grid_rotated": {"sampling": PAPER_GRID, "augment": ROTATED, **FOLDS3},
    "paper_grid_rotated_naive": {"sampling": PAPER_GRID, "augment": ROTATED, **NAIVE},
    "paper_grid_rotated_trees": {"sampling": PAPER_GRID, "augment": ROTATED, "held_out": "trees"},
    "paper_grid_all_changes_naive": {"sampling": PAPER_GRID, "augment": ALL_CHANGES, **NAIVE},
    "per_class_naive": {"sampling": SamplingConfig(kind="per_class", per_class=100), **NAIVE},
    "balanced": {"balance": True, **FOLDS3},
    "balanced_naive": {"balance": True, **NAIVE},
    "rotated_copy": {"augment": AugmentConfig(copies=1), **FOLDS3},
    "small_changes_copy": {"augment": SMALL_CHANGES, **FOLDS3},
    "sigma16": {"sigmas": (*SIGMAS, 16.0), **FOLDS3},
    "window97": {"context": ContextConfig(window=97), **FOLDS3},
    "windows": {"context": ContextConfig(radii=(0, 3)), **FOLDS3},
    "entropy": {"criterion": "entropy", **FOLDS3},
    "search4096": {"search_samples": 4096, **FOLDS3},
    "zebrafish": StackConfig.zebrafish().to_dict(),
    "kinect": StackConfig.kinect().to_dict(),
    "kinect_folds": StackConfig.kinect(held_out="folds").to_dict(),
}


def load(given: argparse.Namespace) -> tuple[list[np.ndarray], list[np.ndarray], int]:
    """Images and labels, those to learn from first, and how many these are."""
    if given.data == "somites":
        images, labels = hr.synthetic.somites(16 if given.test else 24, seed=0)
        tests = hr.synthetic.somites(16, seed=1000) if given.test else ([], [])
        return images + tests[0], labels + tests[1], 16
    found = load_set(given.data, "train", given.half)
    images, labels = found.images[:: given.every], found.labels[:: given.every]
    if not given.test:
        return images, labels, len(images) * 3 // 4
    tests = load_set(given.data, "test", given.half)
    return images + tests.images, labels + tests.labels, len(images)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="'somites', or a folder with images/, labels/ and train.txt")
    parser.add_argument("variants", nargs="+", choices=VARIANTS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--half", action="store_true", help="use the folder's images at half resolution")
    parser.add_argument("--every", type=int, default=1, help="use every n-th training image of the folder")
    parser.add_argument("--test", action="store_true", help="score on the test images: once, at the end")
    given = parser.parse_args()
    images, labels, n_train = load(given)
    for variant in given.variants:
        for seed in given.seeds:
            config = StackConfig.from_dict({**VARIANTS[variant], "seed": seed})
            start = time.process_time()
            stack = hr.fit_stack(images[:n_train], labels[:n_train], config, progress=silent)
            cpu = time.process_time() - start
            levels = [stack.level_outputs(image, progress=silent) for image in images[n_train:]]
            values = np.array(stack.classes)
            dice = []
            for level in range(stack.n_levels):
                found = [values[outputs[level].argmax(axis=0)] for outputs in levels]
                dice.append(round(scores(labels[n_train:], found, stack.classes).mean_dice, 4))
            print(json.dumps({"variant": variant, "seed": seed, "mean_dice": dice, "cpu_s": round(cpu, 1)}), flush=True)


if __name__ == "__main__":
    main()
