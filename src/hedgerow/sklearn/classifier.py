"""`NeuralForestClassifier`: a forest of a plain table as a network of two hidden layers, refined, and back again."""
# ruff: noqa: E402  # optional packages are required first, so that the message names the remedy

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
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

# Measured, see docs/measurements/tables.md.
SPLIT_SHARPNESS = 2.0  # per standard deviation of a column
LEAF_SHARPNESS = {"tanh": 5.0, "soft": 1.0, "crelu": 1.0}
SUM_SHARPNESS = 8.0  # of the sum of the votes of all trees
SPLIT_RATE = 0.3  # learning rate of the splits relative to that of the votes, in units of their sharpness


@dataclass(frozen=True, repr=False)
class TableConfig(Checked):
    """The parameters of `NeuralForestClassifier` with their limits."""

    n_trees: int = setting(16, 1, 10_000, "trees of the forest")
    max_depth: int = setting(8, 1, 30, "splits on the longest path of a tree")
    split: Literal["soft", "tanh", "crelu"] = setting("soft", about="kind of split of the network")
    sharpness: Sharpness | None = setting(None, about="sharpness of the network; none: values measured for tables")
    epochs: int = setting(40, 0, 1_000_000, "passes over the table; 0: the network stays as mapped")
    batch_size: int = setting(64, 1, 1_000_000, "samples per step")
    learning_rate: float = setting(
        0.02, 1e-9, 1e3, "learning rate of the first step; it falls to 0 along a half cosine"
    )


@dataclass(repr=False, eq=False)
class NeuralForestClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A random forest that is mapped to the equivalent network of two hidden layers and refined by Adam.

    Parameters; `fit` checks their limits:
    n_trees, max_depth:                 of the forest
    split, sharpness:                   of the network, as in `to_convnet`; columns are standardised
    epochs, batch_size, learning_rate:  of the refinement
    random_state:                       determines the forest and the order of the samples, and thus the result

    After `fit`:
    classes_: (C,) as y had them
    forest_:  ForestStack of one level, the forest before refinement
    network_: StackNet
    A table (S,M) is treated as an image of M channels and one row. So the stacks and the network can be saved and
    exported; their class k is classes_[k].

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = hr.NeuralForestClassifier(n_trees=4, max_depth=3, epochs=5, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.8)
    True
    """

    n_trees: int = TableConfig.n_trees
    max_depth: int = TableConfig.max_depth
    _: KW_ONLY
    split: str = TableConfig.split
    sharpness: Sharpness | None = TableConfig.sharpness
    epochs: int = TableConfig.epochs
    batch_size: int = TableConfig.batch_size
    learning_rate: float = TableConfig.learning_rate
    random_state: int | np.random.RandomState | None = None

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
        # Mapped back now, because the samples that these votes come from are not kept.
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
        """The network mapped back to a forest; method: as in `hr.to_forest`"""
        check_is_fitted(self)
        return self._from_samples.get(method) or to_forest(self.network_, method=method)

    def forest_proba(self, X: Any, forest: ForestStack | None = None) -> np.ndarray:
        """(S,C) float32, by a forest from `to_forest`, or by default by the forest before refinement."""
        check_is_fitted(self)
        return self._run(self.forest_ if forest is None else forest, X)

    def _run(self, model: ForestStack | StackNet, X: Any) -> np.ndarray:
        refuse_masked(X)
        table = _checked(validate_data(self, X, reset=False, ensure_all_finite=False))
        planes = _folded(model.features.compute(table)[:, 0])
        proba = run_level(model, 0, whole_input(planes))
        return np.ascontiguousarray(proba.reshape(model.n_classes, -1)[:, : table.shape[2]].T)


def _checked(X: np.ndarray) -> np.ndarray:
    """(M,1,S) float32 of a table; values whose squares would overflow are refused."""
    table = table_channels(X)
    largest = float(np.abs(table).max())
    if largest > MAX_VALUE:
        raise TableError(
            f"X has a value of magnitude {largest:g}, expected at most {MAX_VALUE:g}; rescale its columns."
        )
    return table


def _folded(planes: np.ndarray) -> np.ndarray:
    """(M,h,COLUMNS): the samples (M,S) in rows, of which the last is padded with 0.

    Kernels work on blocks of several rows: with a single long row, most of every block would be empty.
    """
    n_samples = planes.shape[1]
    rows = np.zeros((len(planes), -(-n_samples // COLUMNS) * COLUMNS), np.float32)
    rows[:, :n_samples] = planes
    return rows.reshape(len(planes), -1, COLUMNS)


def _images(table: np.ndarray) -> list[np.ndarray]:
    """A table (M,1,S) as an image with rows of COLUMNS samples, and one with the rest; neither is padded."""
    whole = table.shape[2] // COLUMNS * COLUMNS
    parts = (table[..., :whole].reshape(len(table), -1, COLUMNS), table[..., whole:])
    return [part for part in parts if part.size]


def _refine(net: StackNet, planes: np.ndarray, target: np.ndarray, config: TableConfig, seed: int) -> None:
    """Train the network on samples (M,S) of classes target (S,), with cross-entropy, mini-batches and Adam.

    Adam's steps are bounded by the learning rate, whose limit keeps the weights within float32.
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
