"""One forest on a table of samples: training and probabilities, beside scikit-learn and its accelerated forms.

16 trees of depth 12, at least 25 samples to split, 22 classes, 64 features (smoothed noise), 200,000 training
samples; then the probabilities of all 760,000. Our training includes cutting the features into codes. onnxruntime
does not train: it is given scikit-learn's forest.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hedgerow.config import ContextConfig, StackConfig
from hedgerow.forest.arrays import Forest
from hedgerow.forest.grow import grow_forest
from hedgerow.forest.level_input import whole_input
from hedgerow.forest.planes import N_EDGES, TrainingPlanes, fit_edges
from hedgerow.forest.samples import Samples
from hedgerow.forest.walk import run_forest
from hedgerow.kernels.cpu.plane_ops import encode
from hedgerow.kernels.definition import forest as plain
from hedgerow.threads import map_threads, set_threads
from measure import THREADS, Cost, Outcome, comparison, in_fresh_process, installed, measure, require, verdict
from onnx_peer import answer, open_session, write_forest

TITLE = "Forest"
N_CLASSES, N_TREES, MAX_DEPTH, MIN_SPLIT = 22, 16, 12, 25
CONFIG = StackConfig(n_trees=N_TREES, max_depth=MAX_DEPTH, min_split=MIN_SPLIT, context=ContextConfig(window=1))
"""No offsets; by default a node draws as many features as with scikit-learn's max_features="sqrt"."""
OURS, PEER, ACCELERATED, EXTRA = "hedgerow", "scikit-learn", "scikit-learn-intelex", "scikit-learn ExtraTrees"
ONNX = "onnxruntime, scikit-learn's forest"
ACCURACY_SLACK = {False: 0.002, True: 0.01}
"""The accuracy of equally good forests varies this much between seeds; True: in the small run."""
PROBA_TOLERANCE = 1e-5
"""If one of 16 trees decided differently, the difference would be far larger; rounding of float32 is far smaller."""


@dataclass(frozen=True)
class Table:
    """channels: (F,H,W) float32; target: (H,W) int32; chosen: (S,) training pixels, ascending."""

    channels: np.ndarray
    target: np.ndarray
    chosen: np.ndarray

    @classmethod
    def load(cls, folder: Path) -> Table:
        return cls(*(np.load(folder / f"{name}.npy") for name in ("channels", "target", "chosen")))

    @property
    def columns(self) -> np.ndarray:
        """(F,S) float32: the training samples, feature after feature."""
        return np.ascontiguousarray(self.channels.reshape(len(self.channels), -1)[:, self.chosen])

    @property
    def labels(self) -> np.ndarray:
        return self.target.ravel()[self.chosen]

    @property
    def rows(self) -> np.ndarray:
        """(pixels,F) float32: all samples, one after another."""
        return np.ascontiguousarray(self.channels.reshape(len(self.channels), -1).T)

    def accuracy(self, proba: np.ndarray) -> float:
        """The accuracy of probabilities (C,pixels) on pixels that are not training samples."""
        unseen = np.ones(self.target.size, bool)
        unseen[self.chosen] = False
        return float((proba.argmax(axis=0) == self.target.ravel())[unseen].mean())


def make_table(folder: Path, n_features: int, shape: tuple[int, int], n_samples: int) -> None:
    """Smoothed noise; the class is the largest of 22 functions of them; one label in fifty is random."""
    from scipy.ndimage import gaussian_filter

    rng = np.random.default_rng(0)
    channels = np.empty((n_features, *shape), np.float32)
    for f, channel in enumerate(channels):
        channel[:] = gaussian_filter(rng.standard_normal(shape, np.float32), 1 + f % 5)
        channel /= channel.std()
    best = np.full(shape, -np.inf, np.float32)
    target = np.zeros(shape, np.int32)
    for c in range(N_CLASSES):
        added, (left, right) = rng.integers(0, n_features, 4), rng.integers(0, n_features, 2)
        score = channels[added].sum(axis=0) + channels[left] * channels[right]
        target[score > best] = c
        np.maximum(best, score, out=best)
    drawn = rng.random(shape) < 0.02
    target[drawn] = rng.integers(0, N_CLASSES, int(drawn.sum()))
    np.save(folder / "channels.npy", channels)
    np.save(folder / "target.npy", target)
    np.save(folder / "chosen.npy", np.sort(rng.permutation(target.size)[:n_samples]))


def grow_on_table(columns: np.ndarray, labels: np.ndarray) -> Forest:
    """Our forest of samples (F,S): codes first, then trees, as `fit_stack` does it for images."""
    n_features, n_samples = columns.shape
    codes = np.empty((n_features, n_samples), np.uint8)
    edges = np.empty((n_features, N_EDGES), np.float32)

    def cut(f: int) -> None:
        edges[f] = fit_edges(columns[f])
        encode(columns[f], edges[f], codes[f])

    list(map_threads(cut, range(n_features)))
    planes = TrainingPlanes(
        codes=codes,
        values=np.zeros((0, 0), np.float32),
        edges=edges,
        start=np.array([0], np.int32),
        depth=np.array([1], np.int32),
        height=np.array([1], np.int32),
        width=np.array([n_samples], np.int32),
        stretch=np.zeros(0, np.float32),
        outside=np.zeros(0, np.float32),
        radii=(0,),
        proposals="offsets",
    )
    zero, index = np.zeros(n_samples, np.int32), np.arange(n_samples, dtype=np.int32)
    samples = Samples(zero, zero, index, zero, index, labels.astype(np.int32), zero)
    nothing_skipped = [np.zeros(0, np.int32)] * N_TREES
    return planes.over_channels(grow_forest(planes, samples, nothing_skipped, N_CLASSES, CONFIG, (0,)))


def check_walk(forest: Forest, channels: np.ndarray, proba: np.ndarray) -> None:
    """Raise CheckFailed if some pixels get other probabilities than by the definition of a forest."""
    rng = np.random.default_rng(1)
    for row, column in rng.integers(0, proba.shape[1:], (50, 2)):
        expected = plain.forest_proba(forest, channels[:, None, row : row + 1, column : column + 1])[:, 0, 0, 0]
        require(np.array_equal(expected, proba[:, row, column]), "our walk differs from a forest's definition.")


def run_ours(folder: Path, repeats: int) -> Outcome:
    set_threads(THREADS)
    table = Table.load(folder)
    columns, labels = table.columns, table.labels
    few = np.ascontiguousarray(columns[:, :2000])
    run_forest(grow_on_table(few, labels[:2000]), whole_input(table.channels[:, :8]))  # compiles
    train, forest = measure(lambda: grow_on_table(columns, labels), repeats)
    predict, proba = measure(lambda: run_forest(forest, whole_input(table.channels))[:, 0], 2 * repeats)
    check_walk(forest, table.channels, proba)
    return Outcome(train, predict, table.accuracy(proba.reshape(N_CLASSES, -1)))


def run_peer(kind: str, folder: Path, repeats: int) -> Outcome:
    """A forest with scikit-learn's interface, given samples as rows, ready before the timing."""
    settings = {
        "n_estimators": N_TREES,
        "max_depth": MAX_DEPTH,
        "min_samples_split": MIN_SPLIT,
        "max_features": "sqrt",
        "n_jobs": THREADS,
        "random_state": 0,
    }
    make = _peer_class(kind)
    table = Table.load(folder)
    labels = table.labels
    chosen_rows = np.ascontiguousarray(table.columns.T)
    all_rows = table.rows
    make(**settings).fit(chosen_rows[:2000], labels[:2000]).predict_proba(chosen_rows[:2000])
    train, model = measure(lambda: make(**settings).fit(chosen_rows, labels), repeats)
    predict, proba = measure(lambda: model.predict_proba(all_rows), 2 * repeats)
    if kind == PEER and installed("onnx"):
        write_forest(model, folder / "forest.onnx")
        np.save(folder / "proba.npy", proba)
    by_class = np.zeros((N_CLASSES, len(all_rows)), np.float32)
    by_class[model.classes_] = proba.T
    return Outcome(train, predict, table.accuracy(by_class))


def run_onnxruntime(folder: Path, repeats: int) -> Cost:
    """Probabilities by the forest of `run_peer` in the folder, if they equal those that it stored."""
    rows, path = Table.load(folder).rows, folder / "forest.onnx"
    check_proba(answer(path, "proba", {"rows": rows}), np.load(folder / "proba.npy"))
    session = open_session(path)
    return measure(lambda: session.run(["proba"], {"rows": rows}), 2 * repeats)[0]


def check_proba(found: np.ndarray, expected: np.ndarray) -> None:
    worst = np.abs(found - expected).max() if found.shape == expected.shape else np.inf
    require(worst <= PROBA_TOLERANCE, f"onnxruntime's probabilities differ from scikit-learn's by {worst:.1e}.")


def _peer_class(kind: str) -> Callable:
    if kind == ACCELERATED:
        from sklearnex.ensemble import RandomForestClassifier

        return RandomForestClassifier
    from sklearn import ensemble

    return ensemble.ExtraTreesClassifier if kind == EXTRA else ensemble.RandomForestClassifier


def contenders(folder: Path, repeats: int) -> dict[str, Outcome | None]:
    """The same number of runs for every contender, because the best of more runs looks better."""
    outcomes: dict[str, Outcome | None] = {OURS: in_fresh_process(run_ours, folder, repeats)}
    for kind, module in ((PEER, "sklearn"), (ACCELERATED, "sklearnex"), (EXTRA, "sklearn")):
        outcomes[kind] = in_fresh_process(run_peer, kind, folder, repeats) if installed(module) else None
    return outcomes


def run(small: bool = False) -> str:
    n_features, shape, n_samples = (16, (120, 200), 8000) if small else (64, (800, 950), 200_000)
    with tempfile.TemporaryDirectory() as name:
        in_fresh_process(make_table, Path(name), n_features, shape, n_samples)
        repeats = 1 if small else 2
        outcomes = contenders(Path(name), repeats)
        has_onnx = installed("sklearn", "onnx", "onnxruntime")
        onnx_cost = in_fresh_process(run_onnxruntime, Path(name), repeats) if has_onnx else None
    ours, peer = outcomes[OURS], outcomes[PEER]
    if peer:
        require(
            ours.accuracy >= peer.accuracy - ACCURACY_SLACK[small],
            f"our accuracy is {ours.accuracy:.4f}, scikit-learn's {peer.accuracy:.4f}.",
        )
    accuracy = {name: f"{outcome.accuracy:.4f}" for name, outcome in outcomes.items() if outcome}
    training = {name: outcome and outcome.train for name, outcome in outcomes.items()}
    predicting = {name: outcome and outcome.predict for name, outcome in outcomes.items()} | {ONNX: onnx_cost}
    return "\n".join(
        [
            f"{N_TREES} trees, depth {MAX_DEPTH}, min split {MIN_SPLIT}, {N_CLASSES} classes, "
            f"{n_features} features, {THREADS} threads.",
            "",
            f"Training on {n_samples:,} samples; accuracy on the {shape[0] * shape[1] - n_samples:,} others:",
            "",
            comparison(training, PEER, accuracy, "accuracy"),
            "",
            f"Class probabilities of {shape[0] * shape[1]:,} samples:",
            "",
            comparison(predicting, PEER),
            "",
            verdict("training", ours.train.cpu, peer and peer.train.cpu, 1 / 6, 1 / 10),
            verdict("prediction", ours.predict.cpu, peer and peer.predict.cpu, 1 / 3, 1 / 5),
        ]
    )
