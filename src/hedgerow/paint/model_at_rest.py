"""The model of the page while nobody paints: trained on the paint of all images, shown as a whole, and exported."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from hedgerow.config import StackConfig
from hedgerow.errors import HedgerowError
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.autocontext import grow_stack
from hedgerow.forest.default_settings import STROKE_TREES, settings_for
from hedgerow.images.array_checks import UNLABELLED_INDEX as UNPAINTED
from hedgerow.images.given import labelled_set
from hedgerow.images.regions import Region
from hedgerow.images.stored import as_picture
from hedgerow.images.subjects import grouped
from hedgerow.paint.code_cache import CodeCache, PaintedPixels, live_config
from hedgerow.paint.held_out_strokes import HeldOutScore, HeldOutStrokes, Predict
from hedgerow.paint.labels import TILE
from hedgerow.paint.messages import Refused
from hedgerow.paint.model_predictions import predict_tiles
from hedgerow.paint.overlays import OverlayTile, TilePlace
from hedgerow.paint.project import Project
from hedgerow.paint.pyramid import n_levels
from hedgerow.paint.quick_forest import (
    MAX_QUICK_SAMPLES,
    QuickForest,
    as_stack,
    balanced_sample,
    grow_on_codes,
    grow_quick_forest,
)
from hedgerow.progress import Report, quiet

MAX_FULL_SAMPLES = 100_000  # painted pixels that the forest of STROKE_TREES is grown on
CLEARLY_BETTER = 0.05  # Dice by which a stack must be better than the forest, whose scores vary less
MAX_STACK_PIXELS = 4_300_000  # of all painted images together; growing a stack on more would take minutes
Wait = Callable[[], None]
"""Called in between; may raise an exception to stop."""


@dataclass(frozen=True)
class SuitableModel:
    """Which kind of model suits the paint, and its score. stamp: the state of the paint"""

    stamp: tuple[int, ...]
    is_stack: bool
    score: HeldOutScore


class ModelAtRest:
    """Trains the model of the current paint; called by the engine's thread."""

    def __init__(self, project: Project, codes: CodeCache) -> None:
        self.project, self.codes = project, codes
        self._choice: SuitableModel | None = None
        self._newest: tuple[tuple[int, ...], ForestStack] | None = None  # the state of the paint, and its model

    def model(self, report: Report) -> ForestStack:
        """The model that is shown at full resolution when nobody paints, to export it; raises Refused if there is too
        little paint."""
        stamp = self.project.stamp
        if self._newest is None or self._newest[0] != stamp:
            wait = lambda: report("training on the paint", 0, 1)  # noqa: E731
            choice = self.choose(wait)
            if choice is not None and choice.is_stack:
                self._newest = stamp, self.stack(wait)
            else:
                forest = self.forest(0, wait)
                if forest is None:
                    n_painted = len(self.project.painted_images())
                    what = "only one class is painted" if n_painted else "nothing is painted yet"
                    raise Refused(f"{what}; paint with two classes first.")
                self._newest = stamp, as_stack(forest, self.codes, self.project)
        assert self._newest is not None
        return self._newest[1]

    def forest(self, level: int, wait: Wait) -> QuickForest | None:
        """The forest of the paint of all images; None: fewer than two classes are painted. wait: see
        `grow_quick_forest`"""
        config = live_config(self.project.images[0].n_channels, STROKE_TREES)
        painted = self.painted_pixels(level, wait)
        return grow_quick_forest(self.codes, painted, level, config, MAX_FULL_SAMPLES, wait)

    def stack(self, wait: Wait) -> ForestStack:
        """A stack grown on all paint, with the settings for full labels."""
        painted = self.project.painted_images()
        with self.project.lock:
            labels = {i: self.project.labels[i].whole() for i in painted}
        return self._grown(labels, StackConfig(), wait)

    def _grown(self, labels: Mapping[int, np.ndarray], config: StackConfig, wait: Wait) -> ForestStack:
        """A stack grown on label maps (H,W) of some images."""
        images = [
            as_picture(self.codes.pyramid(i).planes(0, Region.whole(self.project.images[i].size))) for i in labels
        ]
        names = [self.project.images[i].name for i in labels]
        labelled = labelled_set(images, list(labels.values()), unlabelled=UNPAINTED, names=names)
        return grow_stack(grouped(labelled, None, quiet), config, progress=lambda *_: wait())

    def choose(self, wait: Wait) -> SuitableModel | None:
        """The better of the forest and the stack, by held-out strokes; None: fewer than two classes are painted."""
        stamp = self.project.stamp
        if self._choice is None or self._choice.stamp != stamp:
            painted = self.painted_pixels(0, wait)
            if len({value for pixels in painted for value in pixels.value}) < 2:
                return None
            strokes = HeldOutStrokes(painted, 0)
            score, is_stack = strokes.score(self._forest_on(strokes, 0, wait), wait), False
            if score.dice is not None and self._is_small():
                other = strokes.score(self._stack_on(strokes, StackConfig(), wait), wait)
                if other.dice is not None and other.dice > score.dice + CLEARLY_BETTER:
                    score, is_stack = other, True
            self._choice = SuitableModel(stamp, is_stack, score)
        return self._choice

    def score_of_training(self, wait: Wait) -> HeldOutScore:
        """The score of the model that `hedgerow train` makes of this paint, on the same strokes as of the page."""
        painted = self.painted_pixels(0, wait)
        if not self._is_small():
            return HeldOutScore()
        strokes = HeldOutStrokes(painted, 0)
        sizes = [self.project.images[pixels.image].size for pixels in painted]
        part = len(strokes.value) / sum(math.prod(size) for size in sizes)
        return strokes.score(self._stack_on(strokes, settings_for(part), wait), wait)

    def score_at(self, level: int, wait: Wait) -> HeldOutScore:
        """The score of the forest at a level of large images."""
        painted = self.painted_pixels(level, wait)
        strokes = HeldOutStrokes(painted, level) if painted else None
        return HeldOutScore() if strokes is None else strokes.score(self._forest_on(strokes, level, wait), wait)

    def _is_small(self) -> bool:
        """Whether stacks can be grown on all painted images while the user rests."""
        images = [self.project.images[i] for i in self.project.painted_images()]
        return sum(math.prod(image.size) for image in images) <= MAX_STACK_PIXELS

    def _forest_on(self, strokes: HeldOutStrokes, level: int, wait: Wait) -> Predict:
        codes = np.concatenate([pixels.codes for pixels in strokes.painted])
        edges = self.codes.bank_and_edges(level)[1]
        config = live_config(self.project.images[0].n_channels, STROKE_TREES)

        def predict(training: np.ndarray, others: np.ndarray) -> np.ndarray:
            chosen = training[balanced_sample(strokes.value[training], MAX_QUICK_SAMPLES)]
            n_classes, target = len(strokes.classes), strokes.target[chosen]
            forest = grow_on_codes(np.ascontiguousarray(codes[chosen].T), target, edges, n_classes, config, wait)
            return QuickForest.of(forest, range(n_classes)).predict_classes(codes[others])

        return predict

    def _stack_on(self, strokes: HeldOutStrokes, config: StackConfig, wait: Wait) -> Predict:
        place = np.concatenate([np.stack([each.row, each.column], axis=1) for each in strokes.painted])
        image = np.concatenate([np.full(len(each.value), each.image) for each in strokes.painted])

        def predict(training: np.ndarray, others: np.ndarray) -> np.ndarray:
            labels = {}
            for i in np.unique(image[training]).tolist():
                mine = training[image[training] == i]
                labels[i] = np.full(self.project.images[i].size, UNPAINTED, np.uint8)
                labels[i][place[mine, 0], place[mine, 1]] = strokes.value[mine]
            stack = self._grown(labels, config, wait)
            predicted = np.zeros(len(others), np.int64)
            for i in np.unique(image[others]).tolist():
                mine = image[others] == i
                rows, columns = place[others[mine]].T
                tiles: dict[TilePlace, OverlayTile] = {}
                places = sorted(set(zip((rows // TILE).tolist(), (columns // TILE).tolist(), strict=True)))
                predict_tiles(stack, self.codes.pyramid(i), places, lambda *_: wait(), tiles)
                indices = [
                    int(tiles[row // TILE, column // TILE].classes[row % TILE, column % TILE])
                    for row, column in zip(rows.tolist(), columns.tolist(), strict=True)
                ]
                predicted[mine] = np.searchsorted(strokes.classes, np.array(stack.classes)[indices])
            return predicted

        return predict

    def painted_pixels(self, level: int, wait: Wait) -> list[PaintedPixels]:
        """The painted pixels of all readable images that have this level."""
        painted = []
        for image in self.project.painted_images():
            wait()
            if level < n_levels(self.project.images[image].size):
                with suppress(HedgerowError):
                    painted.append(self.codes.painted_pixels(image, level))
        return painted
