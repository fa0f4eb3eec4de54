"""Segmenting an image by its paint, in three scopes: the part on the screen, the whole image, and the full model; and
suggesting where to paint next.

visible: the part on the screen, by a quick forest that is grown after each stroke
whole:   the whole image, by the same forest
full:    the whole image, by more trees or a full stack, once the user pauses

A model that the user has chosen takes the place of all three until the paint changes.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeGuard

import numpy as np

from hedgerow.forest.default_settings import STROKE_TREES
from hedgerow.images.regions import Region
from hedgerow.kernels import buffers
from hedgerow.paint.code_cache import CODE_TILE, CodeCache, n_codes
from hedgerow.paint.engine import Engine
from hedgerow.paint.labels import TILE
from hedgerow.paint.messages import Refused
from hedgerow.paint.model_at_rest import ModelAtRest
from hedgerow.paint.model_predictions import MAX_WHOLE_PIXELS, ListedModels, describe_forests, predict_tiles
from hedgerow.paint.overlays import (
    Overlay,
    OverlayLayer,
    OverlayTile,
    TilePlace,
    View,
    hull_of_tiles,
    region_at,
    tiles_of,
)
from hedgerow.paint.paint_statistics import PaintStatistics
from hedgerow.paint.project import Project
from hedgerow.paint.pyramid import finest_level, level_size, n_levels
from hedgerow.paint.quick_forest import (
    MAX_QUICK_SAMPLES,
    WARM_UP_STEPS,
    QuickForest,
    grow_quick_forest,
    warm_up,
)
from hedgerow.paint.suggestions import Place, best_place
from hedgerow.threads import get_threads, map_threads

MAX_VISIBLE_PIXELS = 1_700_000  # of the part on the screen; a larger part is segmented at a coarser level
CACHE_SHARE = {MAX_VISIBLE_PIXELS: 0.5, MAX_WHOLE_PIXELS: 0.75}  # part of the cache that their codes may take
MAX_SEARCHED_PIXELS = 1_200_000  # of the level at which an image is searched for the place to paint next
MAX_SEARCH_SECONDS = 4.0  # after which no further image is searched


class Segmenter:
    """Grows forests and predicts with them; called by one thread. For more urgent work, methods raise Interrupted."""

    def __init__(self, project: Project, codes: CodeCache) -> None:
        self.project, self.codes = project, codes
        self.statistics = PaintStatistics(project)
        self._was_stack = False  # whether a stack suited the paint best when the user rested last
        self.at_rest, self.listed = ModelAtRest(project, codes), ListedModels(project, codes)
        self.next_id = itertools.count(1).__next__  # of a new overlay
        self._forests: dict[int, tuple[tuple[object, ...], QuickForest]] = {}

    def compile(self, engine: Engine) -> None:
        """Compile all kernels that a stroke needs, on an image of noise."""
        began = time.monotonic()
        noise = np.random.default_rng(0).random((self.project.images[0].n_channels, 32, 32), np.float32)
        for done in warm_up(noise):
            engine.progress("compile", "getting ready", done, WARM_UP_STEPS, began)

    def visible(self, engine: Engine, view: View) -> None:
        """Segment the part on the screen, at its resolution or a finer one."""
        model = self.project.current_model
        if model is not None:
            if self.listed.show(engine, view, model, self.next_id):
                self.statistics.send(engine, view.image)
            return
        began = time.monotonic()
        size = self.project.images[view.image].size
        level = self._level(view)
        if self._is_shown(engine, view.image, level, view.region):
            return
        region = region_at(view.region, level, size)
        forest, is_new = self.forest(engine, view.image, level)
        if forest is None:
            engine.withdraw(view.image)
            self.statistics.send(engine, view.image)
            # The first stroke will need these features; nothing else is to be done until then.
            places = dict.fromkeys(map(_code_tile_of, tiles_of(region, self._size(view.image, level))))
            self._compute_features(engine, view.image, level, list(places), until_urgent=True)
            return
        tiles = self.predict(engine, view.image, forest, level, region, {})
        before = engine.newest(view.image)
        layers = [OverlayLayer(level, tiles)]
        if not is_new and _is_live(before, forest):
            layers = _merge(layers[0], before.layers)
        overlay = self._overlay(view.image, forest.classes, layers, "visible", describe_forests(1, forest.n_trees))
        seconds = time.monotonic() - began
        engine.show(overlay, hull_of_tiles(list(tiles), size, level), seconds)
        if is_new:
            self.statistics.seconds = seconds
            self.statistics.send(engine, view.image)

    def whole(self, engine: Engine, image: int) -> None:
        """Segment the whole image, at full resolution if it is not too large."""
        began = time.monotonic()
        size = self.project.images[image].size
        level = finest_level(size, self.max_pixels(MAX_WHOLE_PIXELS))
        if self.project.current_model is not None or self._is_shown(engine, image, level, Region.whole(size)):
            return
        forest, is_new = self.forest(engine, image, level)
        if forest is None:
            return
        before = engine.newest(image)
        known: dict[TilePlace, OverlayTile] = {}
        if not is_new and _is_live(before, forest):
            known = next((dict(layer.tiles) for layer in before.layers if layer.level == level), {})
        tiles = self.predict(engine, image, forest, level, None, known)
        if before is not None and len(tiles) == len(known):  # the page has all of them already
            engine.show(replace(before, scope="whole"), None, time.monotonic() - began)
            return
        finer = before.layers if _is_live(before, forest) else []
        layers = _merge(OverlayLayer(level, tiles), [layer for layer in finer if layer.level < level])
        overlay = self._overlay(image, forest.classes, layers, "whole", describe_forests(1, forest.n_trees))
        engine.show(overlay, None, time.monotonic() - began)

    def full(self, engine: Engine, image: int) -> None:
        """Segment the whole image by the full model, trained on the paint of all images, and score it on held-out
        strokes."""
        began, stamp = time.monotonic(), self.project.stamp
        size = self.project.images[image].size
        level = finest_level(size, self.max_pixels(MAX_WHOLE_PIXELS))
        is_shown = self._is_shown(engine, image, level, Region.whole(size))
        if self.project.current_model is not None or (is_shown and self.statistics.stamp == stamp):
            return
        if not is_shown and not (level == 0 and self._was_stack):  # else the forest would be seen after every stroke
            forest = self.at_rest.forest(level, engine.raise_if_interrupted)
            if forest is None:
                return
            tiles = self.predict(engine, image, forest, level, None, {})
            engine.raise_if_interrupted()
            self._show_fully(engine, image, forest.classes, OverlayLayer(level, tiles), 1, STROKE_TREES, began, stamp)
        if level == 0:
            choice = self.at_rest.choose(engine.raise_if_interrupted)
            self._was_stack = choice is not None and choice.is_stack
            if self._was_stack:
                self._show_stack(engine, image, began, stamp)
        self._score(engine, image, level)

    def _show_fully(
        self, engine: Engine, image: int, classes: tuple[int, ...], layer: OverlayLayer, n_levels: int, n_trees: int,
        began: float, stamp: tuple[int, ...],
    ) -> None:  # fmt: skip
        model = describe_forests(n_levels, n_trees)
        overlay = self._overlay(image, classes, [layer], "full", model, stamp)
        engine.show(overlay, None, time.monotonic() - began)

    def _show_stack(self, engine: Engine, image: int, began: float, stamp: tuple[int, ...]) -> None:
        stack = self.at_rest.model(lambda *_: engine.raise_if_interrupted())
        size, tiles = self.project.images[image].size, dict[TilePlace, OverlayTile]()
        places = tiles_of(Region.whole(size), size)
        predict_tiles(stack, self.codes.pyramid(image), places, lambda *_: engine.raise_if_interrupted(), tiles)
        n_trees = stack.levels[0].n_trees
        self._show_fully(engine, image, stack.classes, OverlayLayer(0, tiles), stack.n_levels, n_trees, began, stamp)

    def where_next(
        self, engine: Engine, image: int | None, shown: int, skip: Sequence[Sequence[int]] = ()
    ) -> dict[str, Any]:
        """The message that suggests the best place in an image, or in all images that can be searched in a few seconds.

        shown: the image on the screen, which is searched first
        skip:  places (row, column) in that image that were suggested before
        """
        others = [i for i in range(len(self.project.images)) if i != shown]
        others.sort(key=lambda i: self.project.labels[i].n_painted > 0)  # unpainted images first
        began = time.monotonic()
        candidates: list[tuple[int, int, Place]] = []
        for i in [shown, *others] if image is None else [image]:
            level = finest_level(self.project.images[i].size, MAX_SEARCHED_PIXELS)
            forest, _ = self.forest(engine, i, level)
            if forest is not None:
                seen = [(row >> level, column >> level) for row, column in skip] if i == shown else []
                place = best_place(self.codes, forest, self.training_images(i, level), i, level, seen)
                candidates += [(i, level, place)] if place is not None else []
            if time.monotonic() - began > MAX_SEARCH_SECONDS:
                break
        if not candidates:
            if skip:
                raise Refused("there is no other place to suggest in this image.")
            raise Refused("no place can be suggested yet; paint with two classes first.")
        best, level, place = max(candidates, key=lambda candidate: candidate[2].score)
        height, width = self.project.images[best].size
        row, column = min(place.row << level, height - 1), min(place.column << level, width - 1)
        found = {"say": "next", "image": best, "row": row, "col": column, "why": place.why}
        return {**found, "class": place.likely}

    def _score(self, engine: Engine, image: int, level: int) -> None:
        """Score on held-out strokes, and send the statistics."""
        stamp, wait = self.project.stamp, engine.raise_if_interrupted
        choice = self.at_rest.choose(wait) if level == 0 else None
        self.statistics.take(self.at_rest.score_at(level, wait) if choice is None else choice.score, stamp)
        self.statistics.send(engine, image)

    def _is_shown(self, engine: Engine, image: int, level: int, region: Region) -> bool:
        """Whether the full model of the current paint is shown there already."""
        shown = engine.newest(image)
        return shown is not None and shown.stamp == self.project.stamp and shown.covers(level, region)

    def _size(self, image: int, level: int) -> tuple[int, int]:
        return level_size(self.project.images[image].size, level)

    def _level(self, view: View) -> int:
        """The finest level at which the part on the screen is not too large, at most the level of the screen."""
        size = self.project.images[view.image].size
        coarsest = min(view.level, n_levels(size) - 1)
        for level in range(coarsest):
            region = region_at(view.region, level, size)
            if region.height * region.width <= self.max_pixels(MAX_VISIBLE_PIXELS):
                return level
        return coarsest

    def max_pixels(self, limit: int) -> int:
        """MAX_VISIBLE_PIXELS or MAX_WHOLE_PIXELS, or fewer if their codes would not stay in the cache."""
        n_features = n_codes(self.project.images[0].n_channels)
        return min(limit, int(CACHE_SHARE[limit] * self.codes.cache.max_bytes / n_features))

    def _has_level(self, image: int, level: int) -> bool:
        return level < n_levels(self.project.images[image].size)

    def forest(self, engine: Engine, image: int, level: int) -> tuple[QuickForest | None, bool]:
        """The quick forest of the current paint at a level, and whether it is new; None: fewer than two classes are
        painted."""
        used = self.training_images(image, level)
        if image in used:
            self._compute_features(engine, image, level, self._painted_code_tiles(image, level))
        with self.project.lock:
            state = tuple((i, self.project.labels[i].n_changes) for i in used)
        cached = self._forests.get(level)
        if cached is not None and cached[0] == state:
            return cached[1], False
        painted = [self.codes.painted_pixels(i, level) for i in used]
        forest = grow_quick_forest(self.codes, painted, level, self.codes.config, MAX_QUICK_SAMPLES)
        if forest is not None:
            self._forests[level] = state, forest
        return forest, True

    def training_images(self, image: int, level: int) -> list[int]:
        """The painted images that the quick forest learns from: this one, and those whose features are cached."""
        painted = self.project.painted_images()
        return [i for i in painted if i == image or (self._has_level(i, level) and self._is_cached(i, level))]

    def _is_cached(self, image: int, level: int) -> bool:
        """Whether the codes of the painted pixels are known without computing features."""
        if self.codes.has_painted_pixels(image, level):
            return True
        return all(self.codes.has_tile(image, level, place) for place in self._painted_code_tiles(image, level))

    def _painted_code_tiles(self, image: int, level: int) -> list[TilePlace]:
        with self.project.lock:
            rows, columns, _ = self.project.labels[image].painted(level)
        return sorted(set(zip((rows // CODE_TILE).tolist(), (columns // CODE_TILE).tolist(), strict=True)))

    def _compute_features(
        self, engine: Engine, image: int, level: int, places: Sequence[TilePlace], *, until_urgent: bool = False
    ) -> None:
        """Compute the codes of the tiles that are not cached."""
        missing = [place for place in places if not self.codes.has_tile(image, level, place)]
        if not missing:
            return
        began, text, total = time.monotonic(), f"features of {self.project.images[image].name}", len(missing)
        engine.progress("features", text, 0, total, began)
        try:
            for n_done, place in enumerate(missing, start=1):
                self.codes.tile(image, level, place)
                engine.progress("features", text, n_done, total, began)
                if until_urgent and n_done < total:
                    engine.raise_if_interrupted()
        finally:
            engine.progress("features", text, total, total, began)
            buffers.release()

    def predict(
        self, engine: Engine, image: int, forest: QuickForest, level: int, region: Region | None,
        known: dict[TilePlace, OverlayTile],
    ) -> dict[TilePlace, OverlayTile]:  # fmt: skip
        """The known tiles, and those that a region of a level touches.

        region: None for all of the level
        """
        size = self._size(image, level)
        wanted = [place for place in tiles_of(region or Region.whole(size), size) if place not in known]
        tiles = dict(known)
        by_code_tile: dict[TilePlace, list[TilePlace]] = {}
        for place in wanted:
            by_code_tile.setdefault(_code_tile_of(place), []).append(place)
        code_places, n_at_once = list(by_code_tile), get_threads()
        self._compute_features(engine, image, level, code_places, until_urgent=True)
        for start in range(0, len(code_places), n_at_once):
            encoded = {outer: self.codes.tile(image, level, outer) for outer in code_places[start : start + n_at_once]}
            pairs = [(outer, place) for outer in encoded for place in by_code_tile[outer]]
            predicted = map_threads(
                lambda inputs: forest.predict(*inputs),
                [(encoded[outer], _window(outer, place, encoded[outer].size)) for outer, place in pairs],
            )
            tiles |= {place: tile for (_, place), tile in zip(pairs, predicted, strict=True)}
            if start + n_at_once < len(code_places):
                engine.raise_if_interrupted()
        return tiles

    def _overlay(
        self, image: int, classes: tuple[int, ...], layers: list[OverlayLayer], scope: str, model: str,
        stamp: tuple[int, ...] | None = None,
    ) -> Overlay:  # fmt: skip
        return Overlay(self.next_id(), image, self.project.images[image].size, classes, layers, scope, model, stamp)


def _is_live(before: Overlay | None, forest: QuickForest) -> TypeGuard[Overlay]:
    """Whether tiles of a former overlay may stay beside those of a forest: it shows no model of the list."""
    return before is not None and before.classes == forest.classes and not before.is_of_file


def _merge(new: OverlayLayer, layers: list[OverlayLayer]) -> list[OverlayLayer]:
    """Layers of one model: the new layer is merged into the one of its level."""
    same = next((layer.tiles for layer in layers if layer.level == new.level), {})
    others = [layer for layer in layers if layer.level != new.level]
    return sorted([OverlayLayer(new.level, {**same, **new.tiles}), *others], key=lambda layer: layer.level)


def _code_tile_of(place: TilePlace) -> TilePlace:
    """The tile of codes that contains a tile of the page."""
    return place[0] * TILE // CODE_TILE, place[1] * TILE // CODE_TILE


def _window(code_place: TilePlace, place: TilePlace, size: tuple[int, int]) -> Region:
    """Where a tile of the page lies in its tile of codes, which has this size."""
    return Region.tile_at(place, TILE).within(Region.tile_at(code_place, CODE_TILE)).clipped(Region.whole(size))
