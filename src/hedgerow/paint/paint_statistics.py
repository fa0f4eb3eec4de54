"""Statistics for the user: pixels per class, a score on held-out strokes, and warnings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from scipy import sparse

from hedgerow.config import StackConfig
from hedgerow.images.metrics import Scores, confusion
from hedgerow.paint.code_cache import CodeCache, PaintedPixels
from hedgerow.paint.engine import Engine
from hedgerow.paint.project import Project
from hedgerow.paint.quick_forest import MAX_QUICK_SAMPLES, QuickForest, balanced_sample, grow_on_codes

MIN_PIXELS_PER_CLASS = 30  # there is a warning about a class with fewer painted pixels
MAX_CONFUSED_FRACTION = 0.25  # with more of a class's held-out pixels predicted as another class, there is a warning
N_FOLDS = 2


class PaintStatistics:
    """Statistics about the paint of a project.

    held_out: mean Dice on held-out strokes; None: unknown
    seconds:  from a stroke to the segmentation of the part on the screen
    stamp:    the state of the paint that was scored
    """

    def __init__(self, project: Project) -> None:
        self.project = project
        self.held_out: float | None = None
        self.seconds: float | None = None
        self.stamp: tuple[int, ...] | None = None
        self._confused: list[tuple[int, int, float]] = []

    def hold_out(
        self,
        codes: CodeCache,
        painted: Sequence[PaintedPixels],
        level: int,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Score forests on strokes held out of training. check: called in between; may raise an exception to stop"""
        value = np.concatenate([pixels.value for pixels in painted])
        all_codes = np.concatenate([pixels.codes for pixels in painted])
        classes = np.unique(value)
        fold, scored = assign_folds(painted, value)
        target = np.searchsorted(classes, value).astype(np.int32)
        table = np.zeros((len(classes), len(classes)), np.int64)
        edges = codes.bank_and_edges(level)[1]
        for k in range(N_FOLDS):
            check()
            training = np.flatnonzero(fold != k)
            held_out = np.flatnonzero((fold == k) & np.isin(value, scored))
            if len(np.unique(target[training])) >= 2 and len(held_out):
                table += _fold_confusion(all_codes, target, training, held_out, edges, len(classes), codes.config)
        rows = np.searchsorted(classes, scored)
        dice = Scores(tuple(classes.tolist()), table).dice
        self.held_out = None if len(scored) < 2 or not table.any() else float(dice[rows].mean())
        self._confused = _confused_classes(table, classes.tolist(), rows.tolist())

    def send(self, engine: Engine, image: int) -> None:
        """Send the statistics of an image to all windows."""
        with self.project.lock:
            pixels = {str(value): n for value, n in self.project.labels[image].pixels.items()}
        engine.broadcast(
            {
                "say": "numbers",
                "image": image,
                "pixels": pixels,
                "held_out": None if self.held_out is None else round(self.held_out, 4),
                "seconds": None if self.seconds is None else round(self.seconds, 3),
                "warnings": self.warnings(),
            }
        )

    def warnings(self) -> list[str]:
        """Advice on the paint, one sentence each."""
        totals = Counter[int]()
        with self.project.lock:
            for labels in self.project.labels:
                totals.update(labels.pixels)
            names = {a_class.id: a_class.name for a_class in self.project.classes}
        warnings = []
        if len(totals) < 2:
            warnings.append("Paint with at least two classes to see a segmentation.")
        for value, n in sorted(totals.items()):
            if n < MIN_PIXELS_PER_CLASS:
                warnings.append(f"{names.get(value, value)} has only {n} painted pixels; paint a little more of it.")
        for value, other, fraction in self._confused:
            if value in totals and other in totals:
                warnings.append(
                    f"{names.get(value, value)} is mistaken for {names.get(other, other)} in {fraction:.0%} of the "
                    "held-out strokes; paint more where they meet, or check the strokes."
                )
        return warnings


def _fold_confusion(
    codes: np.ndarray, target: np.ndarray, training: np.ndarray, held_out: np.ndarray, edges: np.ndarray,
    n_classes: int, config: StackConfig,
) -> np.ndarray:  # fmt: skip
    """(C,C) confusion on the held-out pixels of a forest grown on the training pixels; codes: (S,P)."""
    training = training[balanced_sample(target[training].astype(np.uint8), MAX_QUICK_SAMPLES)]
    forest = grow_on_codes(np.ascontiguousarray(codes[training].T), target[training], edges, n_classes, config)
    predicted = QuickForest.of(forest, range(n_classes)).predict_classes(codes[held_out])
    return confusion(target[held_out].astype(np.uint8)[None], predicted[None], n_classes)


def assign_folds(painted: Sequence[PaintedPixels], value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(S,) the fold of each painted pixel, and the classes that can be scored.

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
    return fold, np.array(scored, value.dtype)


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


def _confused_classes(table: np.ndarray, classes: Sequence[int], scored: Sequence[int]) -> list[tuple[int, int, float]]:
    """(class, other, fraction) where too many pixels of a class are predicted as the other."""
    confused = []
    for i in scored:
        total = int(table[i].sum())
        other = int(np.argmax(np.where(np.arange(len(table)) == i, -1, table[i])))
        if total >= MIN_PIXELS_PER_CLASS and table[i, other] > MAX_CONFUSED_FRACTION * total:
            confused.append((int(classes[i]), int(classes[other]), table[i, other] / total))
    return confused
