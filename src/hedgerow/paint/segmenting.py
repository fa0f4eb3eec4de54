"""Segmenting what was painted, in three steps: what is on the screen, the whole image, and all trees."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from hedgerow.errors import HedgerowError
from hedgerow.images.regions import Region
from hedgerow.kernels import reused
from hedgerow.paint.labels import TILE
from hedgerow.paint.live import BLOCK, MOST, Codes, Grown, Table, grown_on, live_config, n_codes
from hedgerow.paint.numbers import Numbers
from hedgerow.paint.project import Project
from hedgerow.paint.pyramid import level_size, n_levels
from hedgerow.paint.results import Block, Layer, Result, region_at, tiles_of
from hedgerow.paint.squares import Walkable
from hedgerow.paint.stacks import Interrupted, described, give_way, grown_stack, stack_blocks, wants_stack
from hedgerow.paint.telling import Teller
from hedgerow.paint.warming import STEPS, run_all
from hedgerow.threads import get_threads, map_threads

VISIBLE, WHOLE = 1_700_000, 4_300_000  # pixels that are segmented at most: of the screen's part, of the whole image
ROOM = {VISIBLE: 0.5, WHOLE: 0.75}  # part of the store that their codes may take
ALL_TREES = 64
MOST_FOR_ALL = 100_000  # painted pixels that all trees are grown on


@dataclass(frozen=True)
class View:
    """What is on a screen: a region, in pixels of the full image, shown at a level."""

    image: int
    level: int
    region: Region


class Segmenter:
    """Grows forests and walks them; called by one thread."""

    def __init__(self, project: Project, codes: Codes) -> None:
        self.project, self.codes = project, codes
        self.numbers = Numbers(project)
        self._ids = itertools.count(1)
        self._grown: dict[int, tuple[tuple[object, ...], Grown, Walkable]] = {}

    def compile(self, teller: Teller) -> None:
        """Have all kernels that a stroke needs compiled, on an image of noise."""
        began = time.monotonic()
        noise = np.random.default_rng(0).random((self.project.images[0].n_channels, 32, 32), np.float32)

        def step(done: int) -> None:
            teller.progress("compile", "making ready", done, STEPS, began)

        step(0)
        run_all(noise, step)

    def visible(self, teller: Teller, view: View) -> None:
        """The part on the screen, at its resolution or a finer one."""
        began = time.monotonic()
        size = self.project.images[view.image].size
        level = self._level(view)
        if self._is_shown(teller, view.image, level, view.region):
            return
        grown, walkable, is_new = self.forest(teller, view.image, level)
        if grown is None or walkable is None:
            self.numbers.tell(teller, view.image)
            self._prepare(teller, view.image, level, region_at(view.region, level, size))
            return
        shown = region_at(view.region, level, size)
        blocks = self.walk(teller, view.image, walkable, level, shown, {})
        if blocks is None:
            return
        before = teller.newest(view.image)
        layers = [Layer(level, blocks)]
        if not is_new and before is not None and before.classes == grown.classes:
            layers = _joined(layers[0], before.layers)
        result = self._result(view.image, grown, layers, "visible", described(1, len(walkable.root)))
        seconds = time.monotonic() - began
        teller.show(result, _at_full(_hull_of(blocks), level, size), seconds)
        if is_new:
            self.numbers.seconds = seconds
            self.numbers.tell(teller, view.image)

    def whole(self, teller: Teller, image: int) -> None:
        """All of the image, at its resolution if it is not too large."""
        began = time.monotonic()
        size = self.project.images[image].size
        level = whole_level(size, self.most(WHOLE))
        if self._is_shown(teller, image, level, Region(0, size[0], 0, size[1])):
            return
        grown, walkable, is_new = self.forest(teller, image, level)
        if grown is None or walkable is None:
            return
        before = teller.newest(image)
        known: dict[tuple[int, int], Block] = {}
        if not is_new and before is not None and before.classes == grown.classes:
            known = next((dict(layer.blocks) for layer in before.layers if layer.level == level), {})
        height, width = level_size(size, level)
        blocks = self.walk(teller, image, walkable, level, Region(0, height, 0, width), known)
        if blocks is None:
            return
        if before is not None and len(blocks) == len(known):  # the screen shows all of it already
            teller.show(replace(before, scope="whole"), None, time.monotonic() - began)
            return
        finer = [] if before is None or before.classes != grown.classes else before.layers
        layers = _joined(Layer(level, blocks), [layer for layer in finer if layer.level < level])
        result = self._result(image, grown, layers, "whole", described(1, len(walkable.root)))
        teller.show(result, None, time.monotonic() - began)

    def full(self, teller: Teller, image: int) -> bool:
        """The whole image by all that is painted on all images, with the settings that fit the amount of paint; and how
        good that is on strokes held out. False: something more urgent came in between."""
        began = time.monotonic()
        size = self.project.images[image].size
        level = whole_level(size, self.most(WHOLE))
        if self._is_shown(teller, image, level, Region(0, size[0], 0, size[1])):
            return self.numbers.paint == self.project.stamp or self._hold_out(teller, image, level)
        if level == 0 and wants_stack(self.project):
            return self._stack(teller, image, began)
        config, paint = live_config(self.project.images[0].n_channels, ALL_TREES), self.project.stamp
        try:
            tables = self._tables(level, teller)
            grown = grown_on(self.codes, tables, level, config, MOST_FOR_ALL, lambda: give_way(teller))
        except Interrupted:
            return False
        if grown is None:
            return True
        height, width = level_size(size, level)
        walkable = Walkable.of(grown.forest)
        blocks = self.walk(teller, image, walkable, level, Region(0, height, 0, width), {})
        if blocks is None or teller.has_news():
            return False
        words = described(1, ALL_TREES)
        self._show_full(teller, image, grown.classes, Layer(level, blocks), words, paint, began)
        return self._hold_out(teller, image, level)

    def _hold_out(self, teller: Teller, image: int, level: int) -> bool:
        """Score on strokes held out, and tell; False: something more urgent came in between."""
        try:
            tables, paint = self._tables(level, teller), self.project.stamp
        except Interrupted:
            return False
        if tables and self.numbers.hold_out(self.codes, tables, level, teller.has_news):
            self.numbers.paint = paint
        self.numbers.tell(teller, image)
        return True

    def _is_shown(self, teller: Teller, image: int, level: int, region: Region) -> bool:
        """Whether a better model than the quick one, of the paint as it is now, is shown there already."""
        shown = teller.newest(image)
        return shown is not None and shown.paint == self.project.stamp and shown.covers(level, region)

    def _stack(self, teller: Teller, image: int, began: float) -> bool:
        paint = self.project.stamp
        try:
            stack = grown_stack(self.project, self.codes, teller)
            blocks = stack_blocks(stack, self.codes.pyramid(image), teller)
        except Interrupted:
            return False
        words = described(stack.n_levels, stack.levels[0].n_trees)
        self._show_full(teller, image, stack.classes, Layer(0, blocks), words, paint, began)
        self.numbers.held_out = stack.held_out_dice[stack.n_levels - 1] if stack.held_out_dice else None
        self.numbers.paint = paint
        self.numbers.tell(teller, image)
        return True

    def _show_full(
        self, teller: Teller, image: int, classes: tuple[int, ...], layer: Layer, words: str, paint: tuple[int, ...],
        began: float,
    ) -> None:  # fmt: skip
        size = self.project.images[image].size
        result = Result(self.next_id(), image, size, classes, [layer], "full", words, paint)
        teller.show(result, None, time.monotonic() - began)

    def _tables(self, level: int, teller: Teller) -> list[Table]:
        """The painted pixels of all images that have this level and can be read; raises Interrupted."""
        tables = []
        for image in self.project.painted_images():
            give_way(teller)
            if self._fits(image, level):
                with suppress(HedgerowError):
                    tables.append(self.codes.table(image, level))
        return tables

    def _prepare(self, teller: Teller, image: int, level: int, region: Region) -> None:
        """Compute features that the first stroke will need, while there is nothing else to do."""
        tiles = tiles_of((region.top, region.bottom, region.left, region.right), self._size(image, level))
        places = dict.fromkeys((row * TILE // BLOCK, column * TILE // BLOCK) for row, column in tiles)
        self._features(teller, image, level, list(places), until_news=True)

    def _size(self, image: int, level: int) -> tuple[int, int]:
        return level_size(self.project.images[image].size, level)

    def _level(self, view: View) -> int:
        """The finest level at which what is on the screen has not too many pixels, or the screen's own."""
        size = self.project.images[view.image].size
        for level in range(min(view.level, n_levels(size) - 1)):
            region = region_at(view.region, level, size)
            if region.height * region.width <= self.most(VISIBLE):
                return level
        return min(view.level, n_levels(size) - 1)

    def most(self, pixels: int) -> int:
        """VISIBLE or WHOLE pixels, or as many as have room in the store: else each stroke would compute features."""
        n_features = n_codes(self.project.images[0].n_channels)
        return min(pixels, int(ROOM[pixels] * self.codes.store.memory / n_features))

    def _fits(self, image: int, level: int) -> bool:
        return level < n_levels(self.project.images[image].size)

    def forest(self, teller: Teller, image: int, level: int) -> tuple[Grown | None, Walkable | None, bool]:
        """The forest of the paint as it is now, at a level, and whether it is new."""
        used = self.used(image, level)
        if image in used:
            self._features(teller, image, level, self._painted_blocks(image, level))
        with self.project.lock:
            stamp = tuple((one, self.project.labels[one].n_changes) for one in used)
        known = self._grown.get(level)
        if known is not None and known[0] == stamp:
            return known[1], known[2], False
        tables = [self.codes.table(one, level) for one in used]
        grown = grown_on(self.codes, tables, level, self.codes.config, MOST)
        if grown is None:
            return None, None, True
        walkable = Walkable.of(grown.forest)
        self._grown[level] = stamp, grown, walkable
        return grown, walkable, True

    def used(self, image: int, level: int) -> list[int]:
        """The images whose paint the quick forest learns from: this one, and those whose features are known."""
        painted = self.project.painted_images()
        return [one for one in painted if one == image or (self._fits(one, level) and self._is_near(one, level))]

    def walkable(self, teller: Teller, image: int, level: int) -> Walkable | None:
        """The quick forest of the paint as it is now; None: fewer than two classes are painted."""
        return self.forest(teller, image, level)[1]

    def next_id(self) -> int:
        """The number of another result."""
        return next(self._ids)

    def _is_near(self, image: int, level: int) -> bool:
        """Whether the painted pixels of another image are known, or soon are."""
        if self.codes.has_table(image, level):
            return True
        return all(self.codes.is_known(image, level, place) for place in self._painted_blocks(image, level))

    def _painted_blocks(self, image: int, level: int) -> list[tuple[int, int]]:
        with self.project.lock:
            rows, columns, _ = self.project.labels[image].painted(level)
        return sorted(set(zip((rows // BLOCK).tolist(), (columns // BLOCK).tolist(), strict=True)))

    def _features(
        self, teller: Teller, image: int, level: int, places: Sequence[tuple[int, int]], *, until_news: bool = False
    ) -> None:
        missing = [place for place in places if not self.codes.is_known(image, level, place)]
        began, text = time.monotonic(), f"features of {self.project.images[image].name}"
        if missing:
            teller.progress("features", text, 0, len(missing), began)
        for done, place in enumerate(missing, start=1):
            self.codes.block(image, level, place)
            teller.progress("features", text, done, len(missing), began)
            if until_news and teller.has_news():
                teller.progress("features", text, len(missing), len(missing), began)
                break
        if missing:
            reused.let_go()

    def walk(
        self, teller: Teller, image: int, walkable: Walkable, level: int, region: Region,
        known: dict[tuple[int, int], Block],
    ) -> dict[tuple[int, int], Block] | None:  # fmt: skip
        """Blocks of all tiles that a region of a level touches, with those known; None: news came in between."""
        size = level_size(self.project.images[image].size, level)
        around = (region.top, region.bottom, region.left, region.right)
        wanted = [at for at in tiles_of(around, size) if at not in known]
        found = dict(known)
        of_block: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for row, column in wanted:
            of_block.setdefault((row * TILE // BLOCK, column * TILE // BLOCK), []).append((row, column))
        n_missing = sum(not self.codes.is_known(image, level, place) for place in of_block)
        began, done, text = time.monotonic(), 0, f"features of {self.project.images[image].name}"
        for places in _some_at_once(list(of_block), 1 if n_missing else get_threads()):
            for place in places:
                if not self.codes.is_known(image, level, place):
                    self.codes.block(image, level, place)
                    done += 1
                    teller.progress("features", text, min(done, n_missing), n_missing, began)
            jobs = [(place, at) for place in places for at in of_block[place]]
            blocks = {place: self.codes.block(image, level, place) for place in places}
            windows = [_window(place, at, blocks[place].size) for place, at in jobs]
            walked = map_threads(
                lambda job: walkable.walked(*job),
                [(blocks[place], window) for (place, _), window in zip(jobs, windows, strict=True)],
            )
            found |= {at: block for (_, at), block in zip(jobs, walked, strict=True)}
            if teller.has_news() and len(found) < len(wanted) + len(known):
                return None
        return found

    def _result(self, image: int, grown: Grown, layers: list[Layer], scope: str, model: str) -> Result:
        return Result(self.next_id(), image, self.project.images[image].size, grown.classes, layers, scope, model)


def whole_level(size: tuple[int, int], most: int) -> int:
    """The finest level at which an image of this size has at most so many pixels."""
    last = n_levels(size) - 1
    return next((k for k in range(last) if np.prod(level_size(size, k)) <= most), last)


def _at_full(region: Region, level: int, size: tuple[int, int]) -> Region:
    return Region(
        region.top << level,
        min(region.bottom << level, size[0]),
        region.left << level,
        min(region.right << level, size[1]),
    )


def _hull_of(blocks: dict[tuple[int, int], Block]) -> Region:
    """Around tiles, in pixels of their level; those at the edges may be smaller."""
    rows, columns = [row for row, _ in blocks], [column for _, column in blocks]
    return Region(min(rows) * TILE, (max(rows) + 1) * TILE, min(columns) * TILE, (max(columns) + 1) * TILE)


def _joined(new: Layer, before: list[Layer]) -> list[Layer]:
    """Layers of one model: the new one in place of, or with, the one of its level."""
    same = next((layer.blocks for layer in before if layer.level == new.level), {})
    others = [layer for layer in before if layer.level != new.level]
    return sorted([Layer(new.level, {**same, **new.blocks}), *others], key=lambda layer: layer.level)


def _window(place: tuple[int, int], at: tuple[int, int], size: tuple[int, int]) -> Region:
    """A tile inside the block of this size that holds it."""
    top, left = at[0] * TILE - place[0] * BLOCK, at[1] * TILE - place[1] * BLOCK
    return Region(top, min(top + TILE, size[0]), left, min(left + TILE, size[1]))


def _some_at_once(places: list[tuple[int, int]], n: int) -> list[list[tuple[int, int]]]:
    return [places[i : i + n] for i in range(0, len(places), n)]
