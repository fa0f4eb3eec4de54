"""`NeuralForestClassifier` beside its own forest, scikit-learn's RandomForest and its MLPClassifier, cross-validated.

    python -m hedgerow.experiments.tables
    python -m hedgerow.experiments.tables --sets iris wine --repeats 1

Data sets are those that come with scikit-learn, and generated ones. No setting was tuned on any of them.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import RepeatedStratifiedKFold
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from hedgerow.errors import HedgerowError
from hedgerow.sklearn.classifier import NeuralForestClassifier

SETS: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {
    "iris": lambda: datasets.load_iris(return_X_y=True),
    "wine": lambda: datasets.load_wine(return_X_y=True),
    "breast_cancer": lambda: datasets.load_breast_cancer(return_X_y=True),
    "digits": lambda: datasets.load_digits(return_X_y=True),
    "moons": lambda: datasets.make_moons(1000, noise=0.3, random_state=0),
    "hastie": lambda: datasets.make_hastie_10_2(2000, random_state=0),
    "classification": lambda: datasets.make_classification(
        1000, 30, n_informative=8, n_redundant=4, n_classes=5, class_sep=1.5, random_state=0
    ),
}
"""Tables (S,M) and classes (S,)."""
FOREST, NEURAL, BACK, RANDOM_FOREST, MLP = "own forest", "NeuralForest", "mapped back", "RandomForest", "MLP"
PEERS: dict[str, Callable[[int], Any]] = {
    RANDOM_FOREST: lambda seed: RandomForestClassifier(random_state=seed),
    # The default of 200 epochs ends before it has converged on some sets.
    MLP: lambda seed: make_pipeline(StandardScaler(), MLPClassifier(max_iter=2000, random_state=seed)),
}
COLUMNS = (FOREST, NEURAL, BACK, RANDOM_FOREST, MLP)
TIMED = (NEURAL, RANDOM_FOREST, MLP)


@dataclass(frozen=True)
class Comparison:
    """Accuracy of each of COLUMNS on each fold, and CPU seconds of each fit of TIMED."""

    name: str
    shape: tuple[int, int]
    accuracy: dict[str, list[float]] = field(default_factory=lambda: {column: [] for column in COLUMNS})
    seconds: dict[str, list[float]] = field(default_factory=lambda: {column: [] for column in TIMED})

    def row(self) -> str:
        """One row of a Markdown table."""
        scores = [f"{np.mean(a):.3f} ± {np.std(a):.3f}" for a in self.accuracy.values()]
        seconds = [f"{np.mean(s):.2f}" for s in self.seconds.values()]
        return f"| {self.name} | {self.shape[0]} x {self.shape[1]} | {' | '.join([*scores, *seconds])} |"


def compare(name: str, n_folds: int = 5, n_repeats: int = 2) -> Comparison:
    """Every contender on the same folds of one of SETS."""
    table, classes = SETS[name]()
    result = Comparison(name, table.shape)
    folds = RepeatedStratifiedKFold(n_splits=n_folds, n_repeats=n_repeats, random_state=0)
    for seed, (train, test) in enumerate(folds.split(table, classes)):
        neural = _timed_fit(result, NEURAL, NeuralForestClassifier(random_state=seed), table[train], classes[train])
        given, expected = table[test], classes[test]
        by_forests = {FOREST: neural.forest_, BACK: neural.to_forest()}
        for column, forest in by_forests.items():
            found = neural.classes_[neural.forest_proba(given, forest).argmax(axis=1)]
            result.accuracy[column].append(float(np.mean(found == expected)))
        result.accuracy[NEURAL].append(neural.score(given, expected))
        for column, make in PEERS.items():
            peer = _timed_fit(result, column, make(seed), table[train], classes[train])
            result.accuracy[column].append(peer.score(given, expected))
    return result


def _timed_fit(result: Comparison, column: str, model: Any, table: np.ndarray, classes: np.ndarray) -> Any:
    start = time.process_time()
    model.fit(table, classes)
    result.seconds[column].append(time.process_time() - start)
    return model


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, a row as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=tuple(SETS), default=list(SETS))
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=2)
    given = parser.parse_args(arguments)
    try:
        if given.folds < 2 or given.repeats < 1:
            raise HedgerowError(f"{given.folds} folds, {given.repeats} times, cannot be; give at least 2 and 1.")
        NeuralForestClassifier(n_trees=1, epochs=1).fit([[0.0], [1.0]], [0, 1])  # kernels compile at their first use
        timed = [f"{column}, CPU s a fit" for column in TIMED]
        print(f"| data set | samples x columns | {' | '.join([*COLUMNS, *timed])} |")
        print("|---" * (2 + len(COLUMNS) + len(timed)) + "|")
        for name in given.sets:
            print(compare(name, given.folds, given.repeats).row(), flush=True)
    except HedgerowError as error:
        print(f"hedgerow: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
