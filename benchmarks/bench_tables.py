"""`NeuralForestClassifier` beside its own forest, scikit-learn's RandomForest and its MLPClassifier, cross-validated.

Data sets are those that come with scikit-learn, and generated ones. No setting was tuned on any of them. All
contenders see the same folds; docs/measurements/tables.md says what was found.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hedgerow.threads import set_threads
from measure import THREADS, in_fresh_process, installed, require, table

TITLE = "Tables"
N_FOLDS = 5
FOREST, NEURAL, BACK, RANDOM_FOREST, MLP = "own forest", "NeuralForest", "mapped back", "RandomForest", "MLP"
COLUMNS = (FOREST, NEURAL, BACK, RANDOM_FOREST, MLP)
TIMED = (NEURAL, RANDOM_FOREST, MLP)
SETS: dict[str, tuple[str, dict[str, Any]]] = {
    "iris": ("load_iris", {"return_X_y": True}),
    "wine": ("load_wine", {"return_X_y": True}),
    "breast_cancer": ("load_breast_cancer", {"return_X_y": True}),
    "digits": ("load_digits", {"return_X_y": True}),
    "moons": ("make_moons", {"n_samples": 1000, "noise": 0.3, "random_state": 0}),
    "hastie": ("make_hastie_10_2", {"n_samples": 2000, "random_state": 0}),
    "classification": (
        "make_classification",
        {
            "n_samples": 1000, "n_features": 30, "n_informative": 8, "n_redundant": 4, "n_classes": 5,
            "class_sep": 1.5, "random_state": 0,
        },
    ),
}  # fmt: skip
"""Functions of sklearn.datasets, and what they are given; they return a table (S,M) and classes (S,)."""


@dataclass(frozen=True)
class Comparison:
    """Accuracy on each fold for each of COLUMNS, and CPU seconds of each fit for each of TIMED."""

    name: str
    shape: tuple[int, int]
    accuracy: dict[str, list[float]] = field(default_factory=lambda: {column: [] for column in COLUMNS})
    seconds: dict[str, list[float]] = field(default_factory=lambda: {column: [] for column in TIMED})

    def row(self) -> list[str]:
        scores = [f"{np.mean(a):.3f} ± {np.std(a):.3f}" for a in self.accuracy.values()]
        return [
            self.name, f"{self.shape[0]} x {self.shape[1]}", *scores,
            *(f"{np.mean(s):.2f}" for s in self.seconds.values()),
        ]  # fmt: skip


def peers() -> dict[str, Callable[[int], Any]]:
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return {
        RANDOM_FOREST: lambda seed: RandomForestClassifier(random_state=seed),
        # The default of 200 epochs ends before it has converged on some sets.
        MLP: lambda seed: make_pipeline(StandardScaler(), MLPClassifier(max_iter=2000, random_state=seed)),
    }


def compare(name: str, n_repeats: int) -> Comparison:
    """Every contender on the same folds of one of SETS; raises CheckFailed if a network only guesses."""
    from sklearn import datasets
    from sklearn.model_selection import RepeatedStratifiedKFold

    from hedgerow.sklearn.classifier import NeuralForestClassifier

    set_threads(THREADS)
    NeuralForestClassifier(n_trees=1, epochs=1).fit([[0.0], [1.0]], [0, 1])  # kernels compile at their first use
    function, given = SETS[name]
    values, classes = getattr(datasets, function)(**given)
    result = Comparison(name, values.shape)
    folds = RepeatedStratifiedKFold(n_splits=N_FOLDS, n_repeats=n_repeats, random_state=0)
    for seed, (train, test) in enumerate(folds.split(values, classes)):
        neural = _timed_fit(result, NEURAL, NeuralForestClassifier(random_state=seed), values[train], classes[train])
        unseen, expected = values[test], classes[test]
        for column, forest in {FOREST: neural.forest_, BACK: neural.to_forest()}.items():
            found = neural.classes_[neural.forest_proba(unseen, forest).argmax(axis=1)]
            result.accuracy[column].append(float(np.mean(found == expected)))
        result.accuracy[NEURAL].append(neural.score(unseen, expected))
        for column, make in peers().items():
            peer = _timed_fit(result, column, make(seed), values[train], classes[train])
            result.accuracy[column].append(peer.score(unseen, expected))
    guessed, right = np.unique(classes, return_counts=True)[1].max() / len(classes), np.mean(result.accuracy[NEURAL])
    require(right > guessed, f"{name}: the network has {right:.3f}, and guessing {guessed:.3f}.")
    return result


def _timed_fit(result: Comparison, column: str, model: Any, values: np.ndarray, classes: np.ndarray) -> Any:
    start = time.process_time()
    model.fit(values, classes)
    result.seconds[column].append(time.process_time() - start)
    return model


def run(small: bool = False) -> str:
    if not installed("sklearn", "torch"):
        return "Not run: scikit-learn or PyTorch is not installed."
    n_repeats = 1 if small else 2
    results = [in_fresh_process(compare, name, n_repeats) for name in (["iris", "wine"] if small else SETS)]
    headers = ["data set", "samples x columns", *COLUMNS, *(f"{column}, CPU s per fit" for column in TIMED)]
    return "\n".join(
        [
            f"Accuracy, its mean and standard deviation over {N_FOLDS * n_repeats} folds ({N_FOLDS} at a time):",
            "",
            table(headers, [one.row() for one in results]),
        ]
    )
