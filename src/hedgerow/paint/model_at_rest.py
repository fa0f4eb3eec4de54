"""The model of the page while nobody paints: trained on the paint of all images, shown as a whole, and exported."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import numpy as np

from hedgerow.errors import HedgerowError
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.autocontext import grow_stack
from hedgerow.forest.default_settings import SPARSE_FRACTION, STROKE_TREES, labelled_fraction, settings_for
from hedgerow.images.array_checks import UNLABELLED_INDEX as UNPAINTED
from hedgerow.images.given import labelled_set
from hedgerow.images.regions import Region
from hedgerow.images.stored import as_picture
from hedgerow.images.subjects import grouped
from hedgerow.paint.code_cache import CodeCache, PaintedPixels, live_config
from hedgerow.paint.messages import Refused
from hedgerow.paint.project import Project
from hedgerow.paint.pyramid import n_levels
from hedgerow.paint.quick_forest import QuickForest, as_stack, grow_quick_forest
from hedgerow.progress import Report, quiet

MAX_FULL_SAMPLES = 100_000  # painted pixels that the forest of STROKE_TREES is grown on
MAX_STACK_PIXELS = 4_300_000  # of all painted images together; growing a stack on more would take minutes
Wait = Callable[[], None]
"""Called in between; may raise an exception to stop."""


class ModelAtRest:
    """Trains the model of the current paint; called by the engine's thread."""

    def __init__(self, project: Project, codes: CodeCache) -> None:
        self.project, self.codes = project, codes
        self._newest: tuple[tuple[int, ...], ForestStack] | None = None  # the state of the paint, and its model

    def model(self, report: Report) -> ForestStack:
        """The model that is shown at full resolution when nobody paints, to export it; raises Refused if there is too
        little paint."""
        stamp = self.project.stamp
        if self._newest is None or self._newest[0] != stamp:
            wait = lambda: report("training on the paint", 0, 1)  # noqa: E731
            if is_densely_painted(self.project):
                self.stack(wait)
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
        """A stack grown on all paint, with the settings that `hedgerow train` would choose."""
        project, stamp = self.project, self.project.stamp
        painted = project.painted_images()
        images = [as_picture(self.codes.pyramid(i).planes(0, Region.whole(project.images[i].size))) for i in painted]
        with project.lock:
            labels = [project.labels[i].whole() for i in painted]
        labelled = labelled_set(images, labels, unlabelled=UNPAINTED, names=[project.images[i].name for i in painted])
        labelled = grouped(labelled, None, quiet)
        settings = settings_for(labelled_fraction(labelled), keep_features=True)
        stack = grow_stack(labelled, settings, progress=lambda *_: wait())
        self._newest = stamp, stack
        return stack

    def painted_pixels(self, level: int, wait: Wait) -> list[PaintedPixels]:
        """The painted pixels of all readable images that have this level."""
        painted = []
        for image in self.project.painted_images():
            wait()
            if level < n_levels(self.project.images[image].size):
                with suppress(HedgerowError):
                    painted.append(self.codes.painted_pixels(image, level))
        return painted


def is_densely_painted(project: Project) -> bool:
    """Whether a full stack is worth growing: much of the painted images is labelled, and they are not too large."""
    with project.lock:
        painted = project.painted_images()
        n_pixels = sum(int(np.prod(project.images[i].size)) for i in painted)
        n_painted = sum(project.labels[i].n_painted for i in painted)
        n_classes = len({value for i in painted for value in project.labels[i].pixels})
    return 0 < n_pixels <= MAX_STACK_PIXELS and n_classes > 1 and n_painted >= SPARSE_FRACTION * n_pixels
