"""Statistics for the user: pixels per class, a score on held-out strokes, and warnings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from hedgerow.paint.engine import Engine
from hedgerow.paint.held_out_strokes import HeldOutScore
from hedgerow.paint.project import Project

MIN_PIXELS_PER_CLASS = 30  # there is a warning about a class with fewer painted pixels
MAX_CONFUSED_FRACTION = 0.25  # with more of a class's held-out pixels predicted as another class, there is a warning


class PaintStatistics:
    """Statistics about the paint of a project.

    score:    of the model that is shown, on held-out strokes
    seconds:  from a stroke to the segmentation of the part on the screen
    stamp:    the state of the paint that was scored
    """

    def __init__(self, project: Project) -> None:
        self.project = project
        self.score = HeldOutScore()
        self.seconds: float | None = None
        self.stamp: tuple[int, ...] | None = None
        self._confused: list[tuple[int, int, float]] = []

    def take(self, score: HeldOutScore, stamp: tuple[int, ...]) -> None:
        """Note the score of the model that is shown, for this state of the paint."""
        self.score, self.stamp = score, stamp
        self._confused = _confused_classes(score.table, score.classes, score.scored)

    def send(self, engine: Engine, image: int) -> None:
        """Send the statistics of an image to all windows."""
        with self.project.lock:
            pixels = {str(value): n for value, n in self.project.labels[image].pixels.items()}
        engine.broadcast(
            {
                "say": "numbers",
                "image": image,
                "pixels": pixels,
                "held_out": self.score.dice,
                "margin": self.score.margin,
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


def _confused_classes(table: np.ndarray, classes: Sequence[int], scored: Sequence[int]) -> list[tuple[int, int, float]]:
    """(class, other, fraction) where too many pixels of a class are predicted as the other."""
    confused = []
    for i in scored:
        total = int(table[i].sum())
        other = int(np.argmax(np.where(np.arange(len(table)) == i, -1, table[i])))
        if total >= MIN_PIXELS_PER_CLASS and table[i, other] > MAX_CONFUSED_FRACTION * total:
            confused.append((int(classes[i]), int(classes[other]), table[i, other] / total))
    return confused
