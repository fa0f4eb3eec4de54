"""Numbers that help: pixels per class, a score on strokes that were held out, and warnings."""

from __future__ import annotations

from typing import Any

from hedgerow.paint.live import Codes, Grown, Table
from hedgerow.paint.project import Project
from hedgerow.paint.telling import Teller

LITTLE = 30  # painted pixels: with fewer, a class is hardly known


class Numbers:
    """What is known about the paint of a project."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.held_out: float | None = None
        self.mistaken: list[str] = []

    def hold_out(self, codes: Codes, tables: list[Table], level: int) -> None:
        """Score forests on strokes that they did not see."""

    def tell(self, teller: Teller, image: int, grown: Grown | None, seconds: float | None) -> None:
        with self.project.lock:
            pixels = {str(value): n for value, n in self.project.labels[image].pixels.items()}
        teller.tell(
            {
                "say": "numbers",
                "image": image,
                "pixels": pixels,
                "held_out": self.held_out,
                "seconds": None if seconds is None else round(seconds, 3),
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
            names: dict[int, Any] = {one.id: one.name for one in self.project.classes}
        found = []
        if len(totals) < 2:
            found.append("Paint with at least two classes to see a segmentation.")
        for value, n in totals.items():
            if n < LITTLE:
                found.append(f"{names.get(value, value)} has only {n} painted pixels; paint a little more of it.")
        return found + self.mistaken
