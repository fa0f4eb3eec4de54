"""`NeuralForestClassifier`: a forest of a plain table as a network of two hidden layers, refined, and back again."""
# ruff: noqa: E402  # what may be missing is asked for first, so that the message names the remedy

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from hedgerow import extras

for _package in ("sklearn", "torch"):
    extras.require(_package, "NeuralForestClassifier")

import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import RandomForestClassifier
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch.nn import functional

from hedgerow.config import RefineConfig, Sharpness, StackConfig
from hedgerow.features.registry import fit_features
from hedgerow.forest.arrays import Forest, ForestStack
from hedgerow.forest.level_input import whole_input
from hedgerow.images.array_checks import MAX_VALUE, as_volumes
from hedgerow.images.regions import Region
from hedgerow.kernels.cpu.blocks import COLUMNS
from hedgerow.network.layout import Source, region_grid
from hedgerow.network.mapback import FROM_IMAGES, to_forest
from hedgerow.network.mapping import to_convnet
from hedgerow.network.stacknet import StackNet
from hedgerow.predict.tiling import run_level
from hedgerow.progress import silent
from hedgerow.refinement.loop import steady_sums
from hedgerow.refinement.schedules import learning_rate, make_optimiser
from hedgerow.settings import Checked, setting
from hedgerow.sklearn.forests import TableError, from_sklearn, refuse_masked, table_channels

# Measured, see docs/tables.md.
SPLIT_SHARPNESS = 2.0  # per standard deviation of a column
LEAF_SHARPNESS = {"tanh": 5.0, "soft": 1.0, "crelu": 1.0}
SUM_SHARPNESS = 8.0  # of the sum of all trees' votes
SPLIT_RATE = 0.3  # of the splits, as a part of the votes' rate; each in units of its own sharpness


@dataclass(frozen=True, repr=False)
class TableConfig(Checked):
    """The parameters of `NeuralForestClassifier` with their limits."""

    n_trees: int = setting(16, 1, 10_000, "trees of the forest")
    max_depth: int = setting(8, 1, 30, "splits on the longest path of a tree")
    split: Literal["soft", "tanh", "crelu"] = setting("soft", about="kind of split of the network")
    sharpness: Sharpness | None = setting(None, about="of the network; none: values measured for tables")
    epochs: int = setting(40, 0, 1_000_000, "times that the network sees the table; 0: it stays as mapped")
    batch_size: int = setting(64, 1, 1_000_000, "samples per step")
    learning_rate: float = setting(0.02, 1e-9, 1e3, "of the first step; it falls to 0 along a half cosine")


class NeuralForestClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A random forest, mapped to the network of two hidden layers that computes the same, and refined by Adam.

    Parameters; `fit` refuses what is beyond their limits:
    n_trees, max_depth:                 of the forest
    split, sharpness:                   of the network, as in `to_convnet`; columns are standardised
    epochs, batch_size, learning_rate:  of the refinement
    random_state:                       fixes the forest and the order of the samples, and so the result

    After `fit`:
    classes_: (C,) as y had them
    forest_:  ForestStack of one level, the forest before refinement
    network_: StackNet
    The table (S,M) is read as an image of M channels and one row, so that stacks and network can be saved and exported;
    their class k is classes_[k].

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = hr.NeuralForestClassifier(n_trees=4, max_depth=3, epochs=5, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.8)
    True
    """

    def __init__(
        self,
        n_trees: int = TableConfig.n_trees,
        max_depth: int = TableConfig.max_depth,
        *,
        split: str = TableConfig.split,
        sharpness: Sharpness | None = TableConfig.sharpness,
        epochs: int = TableConfig.epochs,
        batch_size: int = TableConfig.batch_size,
        learning_rate: float = TableConfig.learning_rate,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_trees = n_trees
        self.max_depth = max_depth
        self.split = split
        self.sharpness = sharpness
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> NeuralForestClassifier:
        """X: (S,M) finite numbers; y: (S,) class labels of any kind."""
        config = TableConfig(**{k: v for k, v in self.get_params(deep=False).items() if k != "random_state"})
        refuse_masked(X, y)
        X, y = validate_data(self, X, y, ensure_all_finite=False)
        check_classification_targets(y)
        table = _checked(X)
        self.classes_, target = np.unique(y, return_inverse=True)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        features, computed = fit_features([table], StackConfig(features="channels"))
        planes = computed[0][:, 0]
        grown = RandomForestClassifier(config.n_trees, max_depth=config.max_depth, random_state=seed)
        forest = from_sklearn(grown.fit(planes.T, target))
        assert isinstance(forest, Forest)
        self.forest_ = ForestStack(features, (forest,), tuple(range(len(self.classes_))))
        sharpness = config.sharpness or Sharpness(
            SPLIT_SHARPNESS, LEAF_SHARPNESS[config.split], SUM_SHARPNESS / config.n_trees
        )
        self.network_ = to_convnet(self.forest_, config.split, sharpness)
        with steady_sums(self.network_):
            _refine(self.network_, planes, target, config, seed)
        # Now, since the samples that votes are taken from are not kept.
        images = _images(table)
        self._from_samples = {
            method: to_forest(self.network_, images, method, progress=silent) for method in FROM_IMAGES
        }
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """(S,C) float32, by the network."""
        check_is_fitted(self)
        return self._run(self.network_, X)

    def predict(self, X: Any) -> np.ndarray:
        """(S,) class labels, by the network."""
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def to_forest(self, method: str = "leaf_mean") -> ForestStack:
        """The forest with what the network learned: `method` is one of those of `hr.to_forest`."""
        check_is_fitted(self)
        return self._from_samples.get(method) or to_forest(self.network_, method=method)

    def forest_proba(self, X: Any, forest: ForestStack | None = None) -> np.ndarray:
        """(S,C) float32, by a forest of `to_forest`; None: by the one before refinement."""
        check_is_fitted(self)
        return self._run(self.forest_ if forest is None else forest, X)

    def _run(self, model: ForestStack | StackNet, X: Any) -> np.ndarray:
        refuse_masked(X)
        table = _checked(validate_data(self, X, reset=False, ensure_all_finite=False))
        planes = _folded(model.features.compute(table)[:, 0])
        proba = run_level(model, 0, whole_input(planes))
        return np.ascontiguousarray(proba.reshape(model.n_classes, -1)[:, : table.shape[2]].T)


def _checked(X: np.ndarray) -> np.ndarray:
    """(M,1,S) float32 of a table, whose values must be such that their squares are numbers still."""
    table = table_channels(X)
    largest = float(np.abs(table).max())
    if largest > MAX_VALUE:
        raise TableError(f"X has a value of size {largest:g}, expected at most {MAX_VALUE:g}; rescale its columns.")
    return table


def _folded(planes: np.ndarray) -> np.ndarray:
    """(M,h,COLUMNS): the samples (M,S) row after row, the last row filled up with 0.

    Kernels work on blocks of several rows; in one long row most of every block would be empty.
    """
    n_samples = planes.shape[1]
    rows = np.zeros((len(planes), -(-n_samples // COLUMNS) * COLUMNS), np.float32)
    rows[:, :n_samples] = planes
    return rows.reshape(len(planes), -1, COLUMNS)


def _images(table: np.ndarray) -> list[np.ndarray]:
    """A table (M,1,S) as images of rows of COLUMNS samples, and what is left over; none is filled up."""
    whole = table.shape[2] // COLUMNS * COLUMNS
    parts = (table[..., :whole].reshape(len(table), -1, COLUMNS), table[..., whole:])
    return [part for part in parts if part.size]


def _refine(net: StackNet, planes: np.ndarray, target: np.ndarray, config: TableConfig, seed: int) -> None:
    """Train the network on samples (M,S) of classes target (S,): cross-entropy, mini-batches, Adam.

    Adam's steps are bounded by the rate, whose limit keeps the numbers in float32's range.
    """
    n_samples = planes.shape[1]
    starts = range(0, n_samples, config.batch_size)
    n_steps = max(config.epochs * len(starts), 1)
    rates = RefineConfig(n_steps=n_steps, learning_rate=config.learning_rate, split_rate=SPLIT_RATE)
    optimiser = make_optimiser(net, rates)
    rng, classes = np.random.default_rng(seed), torch.from_numpy(target.astype(np.int64))
    for epoch in range(config.epochs):
        order = rng.permutation(n_samples)
        for number, start in enumerate(starts):
            batch = order[start : start + config.batch_size]
            for group in optimiser.param_groups:
                group["lr"] = group["factor"] * learning_rate(rates, epoch * len(starts) + number)
            samples = as_volumes(_folded(planes[:, batch]))
            scores = net(Source(torch.from_numpy(samples)), [region_grid(Region.whole(samples.shape[1:]))])[-1]
            loss = functional.cross_entropy(scores.reshape(net.n_classes, -1)[:, : len(batch)].T, classes[batch])
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            optimiser.step()
