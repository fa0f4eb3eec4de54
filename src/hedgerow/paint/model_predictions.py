"""Overlays of complete models: of a forest stack, and of the models in the project's list."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hedgerow.images.reading import SourcePlanes
from hedgerow.images.regions import Region
from hedgerow.io import model_file
from hedgerow.kernels import buffers
from hedgerow.paint.code_cache import CodeCache
from hedgerow.paint.engine import Engine
from hedgerow.paint.labels import TILE
from hedgerow.paint.overlays import Overlay, OverlayLayer, OverlayTile, TilePlace, View, hull_of_tiles, tiles_of
from hedgerow.paint.project import Project
from hedgerow.paint.project_file import PageModel
from hedgerow.paint.pyramid import Pyramid
from hedgerow.predict.protocol import Model
from hedgerow.predict.tiling import region_outputs
from hedgerow.progress import Report

if TYPE_CHECKING:
    from hedgerow.deep.any_model import AnyModel

MAX_WHOLE_PIXELS = 4_300_000  # of an image that is segmented as a whole; a larger one is segmented at a coarser level
TILES_PER_SIDE = 2  # tiles along each side of the region that is predicted at once
TILES_PER_SIDE_FAR = 4  # the same for features with a large halo: a pretrained network computes its whole patch anyway


def predict_tiles(
    model: Model, pyramid: Pyramid, places: Sequence[TilePlace], report: Report, tiles: dict[TilePlace, OverlayTile]
) -> None:
    """Add the predictions of a model for some tiles of the full image to `tiles`, which keeps them if `report` raises
    an exception to stop."""
    size = pyramid.image.size
    planes: Any = SourcePlanes(partial(pyramid.planes, 0), (pyramid.image.n_channels, *size))
    side = TILES_PER_SIDE_FAR if model.features.halo > TILES_PER_SIDE * TILE else TILES_PER_SIDE
    groups: dict[tuple[int, int], list[TilePlace]] = {}
    for row, column in places:
        groups.setdefault((row // side, column // side), []).append((row, column))
    try:
        for n_done, group in enumerate(groups.values()):
            report("segmenting", n_done, len(groups))
            region = hull_of_tiles(group, size)
            proba = region_outputs(model, planes, region)[-1]
            for place in group:
                part = hull_of_tiles([place], size).within(region).of(proba)
                tiles[place] = OverlayTile(
                    part.argmax(axis=0).astype(np.uint8), np.clip(part * 255 + 0.5, 0, 255).astype(np.uint8)
                )
        report("segmenting", len(groups), len(groups))
    finally:
        buffers.release()


def describe_forests(n_levels: int, n_trees: int) -> str:
    """A forest stack in words, such as "forest, 3 levels, 16 trees"."""
    return f"forest, {n_levels} level{'s' if n_levels > 1 else ''}, {n_trees} trees"


class ListedModels:
    """Shows models of the project's list; called by the engine's thread."""

    def __init__(self, project: Project, codes: CodeCache) -> None:
        self.project, self.codes = project, codes
        self._model: tuple[int, AnyModel] | None = None  # the one that was loaded last, by number
        self._model_tiles: tuple[int, int, dict[TilePlace, OverlayTile]] = 0, 0, {}  # of a model and an image

    def show(self, engine: Engine, view: View, model: PageModel, next_id: Callable[[], int]) -> bool:
        """Show what a model says of the image on the screen; of a large image, of the part on the screen. Returns
        whether there is something new to see; raises Interrupted."""
        began, size = time.monotonic(), self.project.images[view.image].size
        region = Region.whole(size) if math.prod(size) <= MAX_WHOLE_PIXELS else view.region
        if region.height * region.width > MAX_WHOLE_PIXELS:
            return False
        shown = engine.newest(view.image)
        if self._model_tiles[:2] != (model.number, view.image):
            known = shown.layers[0].tiles if shown is not None and shown.model == model.title else {}
            self._model_tiles = model.number, view.image, dict(known)
        tiles = self._model_tiles[2]
        missing = [place for place in tiles_of(region, size) if place not in tiles]
        if not missing and shown is not None and shown.model == model.title:
            return False
        text = f"segmenting by {model.title}"

        def report(_: str, done: int, total: int) -> None:
            engine.progress("segment", text, done, total, began)
            engine.raise_if_interrupted()

        try:
            loaded = self._load(model)
            predict_tiles(loaded, self.codes.pyramid(view.image), missing, report, tiles)
        finally:
            engine.progress("segment", text, 1, 1, began)
        layers = [OverlayLayer(0, dict(tiles))]
        id, title = next_id(), model.title
        overlay = Overlay(id, view.image, size, loaded.classes, layers, "full", title, is_of_file=True)
        engine.show(overlay, region, time.monotonic() - began)
        return True

    def _load(self, model: PageModel) -> AnyModel:
        if self._model is None or self._model[0] != model.number:
            self._model = model.number, model_file.load(self.project.model_file(model.number))
        return self._model[1]
