"""Dice of volumes that the models do not know, beside scikit-learn's trees on three-dimensional filters:
docs/measurements/volumes.md. Prints a line as soon as a number is known.

    python benchmarks/volume_scores.py --data FOLDER [--set hippocampus] [--volumes 1 3 10 30] [--seeds 0 1 2]
                                       [--develop] [--method stack] [--change NAME=VALUE ...]

FOLDER holds sets with images/, labels/, train.txt and test.txt: `hippocampus`, volumes of three classes, scored by the
mean Dice of the two foreground classes per volume; `vnc_sstem`, sections of one stack at half size, scored by the mean
Dice of all classes. Seed k trains on the volumes from k times their number on, with seed k, so that seeds differ in
volumes, too. Scores of --develop are on training volumes not trained on: the test part is not even read.
--method baseline: auto-context of scikit-learn's ExtraTrees on filters of scipy.ndimage; baseline-2d: plane by plane.
--change sets a setting of the stack; `window` is that of its offsets, `copies` the number of altered copies of each
volume, `tilt` whether they leave the plane, `step` that of the sampled rows and columns.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import imageio.v3 as imageio
import numpy as np
from scipy import ndimage

import hedgerow as hr
from hedgerow.features.registry import layout_of
from hedgerow.forest.default_settings import TILTED
from hedgerow.forest.settings_choice import suited_settings
from hedgerow.images.given import labelled_set
from hedgerow.images.subjects import grouped
from hedgerow.progress import quiet, silent
from object_scores import changes_of

UNLABELLED = 255
VOXEL_SIZES = {"hippocampus": (1.0, 1.0, 1.0), "vnc_sstem": (50.0, 9.2, 9.2)}
HELD_OUT = {"hippocampus": 10, "vnc_sstem": 4}  # of the training part, with --develop
TEST_PLANES = 4  # of vnc_sstem
Predict = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Pair:
    """A volume and its labels, (Z,H,W) each."""

    volume: np.ndarray
    labels: np.ndarray


def changed(words: Sequence[str]) -> dict[str, Any]:
    """Settings by name, from NAME=VALUE."""
    changes = changes_of(words)
    copies, tilt = changes.pop("augment", None), changes.pop("tilt", True)
    if copies is not None:
        changes["augment"] = replace(TILTED, copies=copies.copies, tilt=TILTED.tilt if tilt else 0.0)
    if "step" in changes:
        changes["sampling"] = hr.SamplingConfig(step=changes.pop("step"))
    return changes


def read_pairs(folder: Path, stems: Sequence[str]) -> list[Pair]:
    """The volumes of these names; the sections of vnc_sstem are one volume, at half size."""
    volumes = [imageio.imread(next((folder / "images").glob(f"{stem}.*"))) for stem in stems]
    labels = [imageio.imread(next((folder / "labels").glob(f"{stem}.*"))) for stem in stems]
    if folder.name != "vnc_sstem":
        return [Pair(volume, label) for volume, label in zip(volumes, labels, strict=True)]
    stack, truth = np.stack(volumes), np.stack(labels)
    blocks = stack.reshape(len(stack), stack.shape[1] // 2, 2, stack.shape[2] // 2, 2)
    return [Pair(np.rint(blocks.mean(axis=(2, 4))).astype(np.uint8), truth[:, ::2, ::2])]


def dice(truth: np.ndarray, predicted: np.ndarray, classes: Sequence[int]) -> float:
    """Mean Dice of these classes in one volume."""
    labelled = truth != UNLABELLED
    truth, predicted = truth[labelled], predicted[labelled]
    parts = [(truth == value, predicted == value) for value in classes]
    return float(np.mean([2 * np.sum(a & b) / max(int(a.sum() + b.sum()), 1) for a, b in parts]))


def stack(pairs: Sequence[Pair], voxel_size: tuple[float, ...], seed: int, changes: dict[str, Any]) -> Predict:
    """Our stack, as the command trains it; settings that are not changed are chosen for the volumes."""
    volumes, labels = [pair.volume for pair in pairs], [pair.labels for pair in pairs]
    layout, where = layout_of(changes.get("features", "bank")), {"axes": "ZYX", "voxel_size": voxel_size}
    labelled = grouped(labelled_set(volumes, labels, layout=layout, unlabelled=UNLABELLED, **where), None, quiet)
    config = suited_settings(labelled, changes=changes, say=partial(print, "   ", flush=True))
    return hr.fit_stack(volumes, labels, config, unlabelled=UNLABELLED, progress=silent, **where).predict


class Baseline:
    """Auto-context as anybody would build it: filters, voxels around, ExtraTrees, and the same with probabilities.

    With one volume there is nothing to predict honestly, so there is one level.
    """

    sigmas = (0.7, 1.0, 1.6, 3.5, 5.0)
    reach, n_offsets, n_levels, n_trees, max_samples = 12, 100, 3, 100, 300_000

    def __init__(self, pairs: Sequence[Pair], anisotropy: float, seed: int, dimensions: int) -> None:
        self.anisotropy, self.dimensions, self.rng = anisotropy, dimensions, np.random.default_rng(seed)
        deep = 0 if dimensions == 2 else round(self.reach / anisotropy)
        reach = np.array([deep, self.reach, self.reach])
        self.offsets = self.rng.integers(-reach, reach + 1, (self.n_offsets, 3))
        self.levels, probabilities = [], [None] * len(pairs)
        features = [self.filtered(pair.volume) for pair in pairs]
        for level in range(self.n_levels if len(pairs) > 1 else 1):
            rows = [self.rows(*of_volume) for of_volume in zip(features, probabilities, strict=True)]
            self.levels.append(self.grown(rows, pairs))
            if level + 1 < self.n_levels and len(pairs) > 1:
                probabilities = self.held_out(rows, pairs)

    def filtered(self, volume: np.ndarray) -> np.ndarray:
        """(F,Z,H,W): filters at each scale; the last channel is read at offsets."""
        volume = (volume - volume.mean()) / volume.std()
        channels = []
        for sigma in self.sigmas:
            scales = (0.0 if self.dimensions == 2 else sigma / self.anisotropy, sigma, sigma)
            smooth = ndimage.gaussian_filter(volume, scales)
            slopes = np.gradient(smooth, axis=(1, 2) if self.dimensions == 2 or len(volume) < 2 else (0, 1, 2))
            channels += [smooth, np.sqrt(sum(slope**2 for slope in slopes)), ndimage.gaussian_laplace(volume, scales)
                         if self.dimensions == 3 else volume - smooth]  # fmt: skip
        return np.array([*channels, channels[3]], np.float32)

    def rows(self, features: np.ndarray, probabilities: np.ndarray | None) -> np.ndarray:
        """(voxels, features): filters, and grey values and probabilities of voxels around, or the nearest."""
        read = [features[-1]] if probabilities is None else [features[-1], *probabilities[1:]]
        places = np.indices(features.shape[1:], np.int32)
        around = []
        for offset in self.offsets:
            moved = [np.clip(p + o, 0, n - 1) for p, o, n in zip(places, offset, features.shape[1:], strict=True)]
            around += [channel[tuple(moved)].ravel() for channel in read]
        own = [] if probabilities is None else list(probabilities.reshape(len(probabilities), -1))
        return np.stack([*features[:-1].reshape(len(features) - 1, -1), *own, *around], axis=1)

    def grown(self, rows: Sequence[np.ndarray], pairs: Sequence[Pair]) -> Any:
        """Trees of a random part of the labelled voxels."""
        from sklearn.ensemble import ExtraTreesClassifier

        n_labelled = sum(int((pair.labels != UNLABELLED).sum()) for pair in pairs)
        part = min(0.25, self.max_samples / n_labelled)
        chosen = [
            np.flatnonzero((pair.labels.ravel() != UNLABELLED) & (self.rng.random(pair.labels.size) < part))
            for pair in pairs
        ]
        samples = np.concatenate([row[places] for row, places in zip(rows, chosen, strict=True)])
        truth = np.concatenate([pair.labels.ravel()[places] for pair, places in zip(pairs, chosen, strict=True)])
        seed = int(self.rng.integers(2**31))
        return ExtraTreesClassifier(self.n_trees, min_samples_leaf=3, random_state=seed).fit(samples, truth)

    def held_out(self, rows: Sequence[np.ndarray], pairs: Sequence[Pair]) -> list[np.ndarray]:
        """Probabilities of every volume from trees that do not know it."""
        result: list[np.ndarray] = [np.empty(0)] * len(pairs)
        for fold in range(2):
            others = [k for k in range(len(pairs)) if k % 2 != fold]
            trees = self.grown([rows[k] for k in others], [pairs[k] for k in others])
            for k in range(fold, len(pairs), 2):
                result[k] = self.probabilities(trees, rows[k], pairs[k].volume.shape)
        return result

    def probabilities(self, trees: Any, rows: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """(C,Z,H,W)."""
        return trees.predict_proba(rows).T.reshape(-1, *shape).astype(np.float32)

    def __call__(self, volume: np.ndarray) -> np.ndarray:
        features, probabilities = self.filtered(volume), None
        for trees in self.levels:
            probabilities = self.probabilities(trees, self.rows(features, probabilities), volume.shape)
        return self.levels[-1].classes_[np.argmax(probabilities, axis=0)]


def baseline(
    pairs: Sequence[Pair], voxel_size: tuple[float, ...], seed: int, changes: dict[str, Any], dimensions: int = 3
) -> Predict:
    """The baseline; `changes` are for our stack."""
    return Baseline(pairs, voxel_size[0] / voxel_size[1], seed, dimensions)


METHODS: dict[str, Callable[..., Predict]] = {
    "stack": stack, "baseline": baseline, "baseline-2d": partial(baseline, dimensions=2),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--set", choices=list(VOXEL_SIZES), default="hippocampus")
    parser.add_argument("--volumes", type=int, nargs="+", default=[1, 3, 10, 30], help="of hippocampus")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--method", choices=list(METHODS), default="stack")
    parser.add_argument("--develop", action="store_true")
    parser.add_argument("--change", nargs="+", default=[], metavar="NAME=VALUE")
    arguments = parser.parse_args()
    folder, voxel_size = arguments.data / arguments.set, VOXEL_SIZES[arguments.set]
    train = (folder / "train.txt").read_text().split()
    if arguments.develop:
        train, test = train[: -HELD_OUT[arguments.set]], train[-HELD_OUT[arguments.set] :]
    else:
        test = (folder / "test.txt").read_text().split()
    test_pairs = read_pairs(folder, test)
    is_one_stack = arguments.set == "vnc_sstem"
    classes = range(5) if is_one_stack else (1, 2)
    for n in [len(train)] if is_one_stack else arguments.volumes:
        scores = []
        for seed in arguments.seeds:
            chosen = train if is_one_stack else [train[(seed * n + k) % len(train)] for k in range(n)]
            start = time.process_time()
            changes = {"seed": seed, **changed(arguments.change)}
            predict = METHODS[arguments.method](read_pairs(folder, chosen), voxel_size, seed, changes)
            trained = time.process_time()
            each = [dice(pair.labels, predict(pair.volume), classes) for pair in test_pairs]
            cost = time.process_time() - trained
            scores.append(float(np.mean(each)))
            print(
                f"{arguments.method} {' '.join(arguments.change)}: {n} {'sections' if is_one_stack else 'volumes'}, "
                f"seed {seed}: {scores[-1]:.3f}  (lowest {min(each):.3f}; {trained - start:.0f} CPU s to train, "
                f"{cost:.0f} to predict {len(each)})", flush=True,
            )  # fmt: skip
        print(f"  mean of {len(scores)} seed(s): {np.mean(scores):.3f}", flush=True)


if __name__ == "__main__":
    main()
