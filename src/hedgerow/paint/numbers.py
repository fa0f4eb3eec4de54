"""Numbers that help: pixels per class, a score on strokes that were held out, and warnings."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy import sparse

from hedgerow.config import StackConfig
from hedgerow.images.metrics import Scores, confusion
from hedgerow.paint.live import MOST, Codes, Table, grow_on_codes, some_of
from hedgerow.paint.project import Project
from hedgerow.paint.squares import Walkable
from hedgerow.paint.telling import Teller

LITTLE = 30  # painted pixels: with fewer, a class is hardly known
MISTAKEN = 0.25  # part of the held-out pixels of a class that are taken for another: more is worth a warning
FOLDS = 2


class Numbers:
    """What is known about the paint of a project."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.held_out: float | None = None
        self.seconds: float | None = None  # from a stroke to the segmentation of what is on the screen
        self.paint: tuple[int, ...] | None = None  # the stamp of the paint that the score is of
        self._taken: list[tuple[int, int, float]] = []

    def hold_out(
        self, codes: Codes, tables: Sequence[Table], level: int, is_enough: Callable[[], bool] = lambda: False
    ) -> bool:
        """Score forests on strokes that they did not see; False, and nothing changed, if that `is_enough` before."""
        value = np.concatenate([table.value for table in tables])
        read = np.concatenate([table.codes for table in tables])
        classes = np.unique(value)
        fold, scored = dealt(tables, value)
        target = np.searchsorted(classes, value).astype(np.int32)
        table = np.zeros((len(classes), len(classes)), np.int64)
        config = codes.config
        for one in range(FOLDS):
            if is_enough():
                return False
            seen = np.flatnonzero(fold != one)
            held = np.flatnonzero((fold == one) & np.isin(value, scored))
            if len(np.unique(target[seen])) < 2 or not len(held):
                continue
            table += _mistakes(read, target, seen, held, codes.fitted(level)[1], len(classes), config)
        rows = np.searchsorted(classes, scored)
        result = Scores(tuple(classes.tolist()), table)
        self.held_out = None if len(scored) < 2 or not table.any() else float(result.dice[rows].mean())
        self._taken = _often(table, classes.tolist(), rows.tolist())
        return True

    def tell(self, teller: Teller, image: int) -> None:
        """Say the numbers of an image."""
        with self.project.lock:
            pixels = {str(value): n for value, n in self.project.labels[image].pixels.items()}
        teller.tell(
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
        """One sentence each."""
        totals: dict[int, int] = {}
        with self.project.lock:
            for labels in self.project.labels:
                for value, n in labels.pixels.items():
                    totals[value] = totals.get(value, 0) + n
            names = {one.id: one.name for one in self.project.classes}
        found = []
        if len(totals) < 2:
            found.append("Paint with at least two classes to see a segmentation.")
        for value, n in sorted(totals.items()):
            if n < LITTLE:
                found.append(f"{names.get(value, value)} has only {n} painted pixels; paint a little more of it.")
        for value, other, part in self._taken:
            if value in totals and other in totals:
                found.append(
                    f"{names.get(value, value)} is taken for {names.get(other, other)} on {part:.0%} of the strokes "
                    "held out; paint more where they meet, or check the strokes."
                )
        return found


def _mistakes(
    read: np.ndarray, target: np.ndarray, seen: np.ndarray, held: np.ndarray, edges: np.ndarray, n_classes: int,
    config: StackConfig,
) -> np.ndarray:  # fmt: skip
    """(C,C) confusion on pixels `held` of a forest grown on pixels `seen`; read: codes (S,P)."""
    seen = seen[some_of(target[seen].astype(np.uint8), MOST)]
    forest = grow_on_codes(np.ascontiguousarray(read[seen].T), target[seen], edges, n_classes, config)
    found = Walkable.of(forest).classes_of(read[held])
    return confusion(target[held].astype(np.uint8)[None], found[None], n_classes)


def dealt(tables: Sequence[Table], value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(S,) the fold of each painted pixel, and the classes that can be scored: strokes are dealt out in turn, the
    longest first, and a class of one stroke would be held out as a whole."""
    piece, first = np.zeros(len(value), np.int64), 0
    start = 0
    for table in tables:
        found = pieces(table.row, table.column, table.value)
        piece[start : start + len(found)] = first + found
        start, first = start + len(found), first + (int(found.max()) + 1 if len(found) else 0)
    fold, scored = np.zeros(len(value), np.int64), []
    for one in np.unique(value):
        mine = np.flatnonzero(value == one)
        numbers, inverse, sizes = np.unique(piece[mine], return_inverse=True, return_counts=True)
        rank = np.empty(len(numbers), np.int64)
        rank[np.argsort(-sizes, kind="stable")] = np.arange(len(numbers))
        fold[mine] = rank[inverse] % FOLDS
        if len(numbers) >= FOLDS:
            scored.append(one)
    return fold, np.array(scored, value.dtype)


def pieces(row: np.ndarray, column: np.ndarray, value: np.ndarray) -> np.ndarray:
    """(S,) the number of the connected piece (8 neighbours, one class) that each painted pixel belongs to."""
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
        is_there = (ordered[at] == ordered + step) & (value[order[at]] == value[order])
        pairs.append(np.stack([order[is_there], order[at[is_there]]]))
    one, other = np.concatenate(pairs, axis=1)
    graph = sparse.coo_array((np.ones(len(one), np.int8), (one, other)), (n, n))
    return sparse.csgraph.connected_components(graph, directed=False)[1].astype(np.int64)


def _often(table: np.ndarray, classes: Sequence[int], scored: Sequence[int]) -> list[tuple[int, int, float]]:
    """(class, other, part) where too many pixels of a class are taken for the other."""
    found = []
    for i in scored:
        total = int(table[i].sum())
        other = int(np.argmax(np.where(np.arange(len(table)) == i, -1, table[i])))
        if total >= LITTLE and table[i, other] > MISTAKEN * total:
            found.append((int(classes[i]), int(classes[other]), table[i, other] / total))
    return found
