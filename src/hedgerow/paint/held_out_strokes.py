"""The score of a model of the page: on strokes that lie apart from those that it was trained on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import sparse, spatial

from hedgerow.images.metrics import Scores
from hedgerow.paint.code_cache import PaintedPixels

N_FOLDS = 2
GAP_PIXELS = 16  # of the full image, between strokes that score and pixels that train
N_DRAWS = 100  # of strokes, to estimate how much the score depends on them
SCORE_MARGIN = 2.0  # times the standard deviation over these draws
Predict = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(indices of the painted pixels to train on, indices of others) -> class indices of the others."""


@dataclass(frozen=True)
class HeldOutScore:
    """dice, margin: mean Dice, and how far off it may be; None: unknown, since no two classes have a stroke to spare

    table:   (C,C) confusion of held-out pixels, true class by predicted class
    classes: (C,) their values
    scored:  the indices of the classes that were held out
    """

    dice: float | None = None
    margin: float | None = None
    table: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    classes: Sequence[int] = ()
    scored: Sequence[int] = ()

    def __str__(self) -> str:
        return "not scored" if self.dice is None else f"{self.dice:.2f} \N{PLUS-MINUS SIGN} {self.margin:.2f}"


class HeldOutStrokes:
    """The painted pixels of some images at a level, and which of them are held out.

    value, target: (S,) class values and indices of all painted pixels, image by image
    """

    def __init__(self, painted: Sequence[PaintedPixels], level: int) -> None:
        self.painted = painted
        self.value = np.concatenate([pixels.value for pixels in painted])
        self.classes = np.unique(self.value)
        self.target = np.searchsorted(self.classes, self.value).astype(np.int32)
        self._fold, self._stroke, self._scored = assign_folds(painted, self.value)
        self._gap = max(GAP_PIXELS >> level, 1)

    def score(self, predict: Predict, check: Callable[[], None] = lambda: None) -> HeldOutScore:
        """Score models that are trained without the held-out strokes. check: called in between; may raise an exception
        to stop"""
        counts, truths = [], []
        for k in range(N_FOLDS):
            check()
            training, held_out = self._parts(k)
            if len(np.unique(self.target[training])) < 2 or not len(held_out):
                continue
            predicted = predict(training, held_out)
            for stroke in np.unique(self._stroke[held_out]):
                mine = self._stroke[held_out] == stroke
                counts.append(np.bincount(predicted[mine], minlength=len(self.classes)))
                truths.append(int(self.target[held_out][mine][0]))
        truth = np.array(truths, np.int64)
        if len(np.unique(truth)) < 2:
            return HeldOutScore(classes=self.classes.tolist())
        return self._scored_by(np.stack(counts), truth)

    def _scored_by(self, counts: np.ndarray, truth: np.ndarray) -> HeldOutScore:
        """counts: (N,C) predicted pixels of each stroke; truth: (N,) class index of each stroke"""
        scored = np.unique(truth)

        def table_of(strokes: np.ndarray) -> np.ndarray:
            table = np.zeros((len(self.classes), len(self.classes)), np.int64)
            np.add.at(table, truth[strokes], counts[strokes])
            return table

        def dice_of(strokes: np.ndarray) -> float:
            return float(Scores(tuple(self.classes.tolist()), table_of(strokes)).dice[scored].mean())

        rng, every = np.random.default_rng(0), np.arange(len(truth))
        of_class = [every[truth == k] for k in scored]
        draws = [np.concatenate([rng.choice(own, len(own)) for own in of_class]) for _ in range(N_DRAWS)]
        margin = SCORE_MARGIN * float(np.std([dice_of(draw) for draw in draws]))
        return HeldOutScore(
            round(dice_of(every), 4), round(margin, 4), table_of(every), self.classes.tolist(), scored.tolist()
        )

    def _parts(self, fold: int) -> tuple[np.ndarray, np.ndarray]:
        """The pixels to train on, and those that score: of classes that the others can teach, and apart from them."""
        is_held = (self._fold == fold) & np.isin(self.value, self._scored)
        trains = self._fold != fold
        start = 0
        for pixels in self.painted:
            here = slice(start, start + len(pixels.value))
            place = np.stack([pixels.row, pixels.column], axis=1)
            if is_held[here].any() and trains[here].any():
                tree = spatial.cKDTree(place[is_held[here]])
                trained = start + np.flatnonzero(trains[here])
                distance, _ = tree.query(place[trains[here]], distance_upper_bound=self._gap)
                trains[trained[np.isfinite(distance)]] = False
            start = here.stop
        is_held &= np.isin(self.value, self.value[trains])
        return np.flatnonzero(trains), np.flatnonzero(is_held)


def assign_folds(painted: Sequence[PaintedPixels], value: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(S,) the fold and the stroke of each painted pixel, and the classes that can be scored.

    The strokes of a class go to the folds in turn, the longest first. A class with fewer strokes than folds cannot be
    scored: holding out its stroke would leave nothing to train on.
    """
    stroke, start, n_strokes = np.zeros(len(value), np.int64), 0, 0
    for pixels in painted:
        numbers = connected_strokes(pixels.row, pixels.column, pixels.value)
        stroke[start : start + len(numbers)] = n_strokes + numbers
        start, n_strokes = start + len(numbers), n_strokes + (int(numbers.max()) + 1 if len(numbers) else 0)
    fold, scored = np.zeros(len(value), np.int64), []
    for a_class in np.unique(value):
        of_class = np.flatnonzero(value == a_class)
        strokes, inverse, sizes = np.unique(stroke[of_class], return_inverse=True, return_counts=True)
        rank = np.empty(len(strokes), np.int64)
        rank[np.argsort(-sizes, kind="stable")] = np.arange(len(strokes))
        fold[of_class] = rank[inverse] % N_FOLDS
        if len(strokes) >= N_FOLDS:
            scored.append(a_class)
    return fold, stroke, np.array(scored, value.dtype)


def connected_strokes(row: np.ndarray, column: np.ndarray, value: np.ndarray) -> np.ndarray:
    """(S,) the number of the connected component (8 neighbours, one class) of each painted pixel."""
    n = len(row)
    if n == 0:
        return np.zeros(0, np.int64)
    width = int(column.max()) + 3
    key = (row.astype(np.int64) + 1) * width + column + 1
    order = np.argsort(key)
    ordered = key[order]
    pairs = []
    for step in (1, width - 1, width, width + 1):
        at = np.minimum(np.searchsorted(ordered, ordered + step), n - 1)
        is_neighbour = (ordered[at] == ordered + step) & (value[order[at]] == value[order])
        pairs.append(np.stack([order[is_neighbour], order[at[is_neighbour]]]))
    first, second = np.concatenate(pairs, axis=1)
    graph = sparse.coo_array((np.ones(len(first), np.int8), (first, second)), (n, n))
    return sparse.csgraph.connected_components(graph, directed=False)[1].astype(np.int64)
