"""What a model of a file makes of an image, tile by tile, as the page shows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hedgerow.images.regions import Region
from hedgerow.kernels import reused
from hedgerow.paint.labels import TILE
from hedgerow.paint.pyramid import Pyramid
from hedgerow.paint.results import Block
from hedgerow.predict.protocol import Model
from hedgerow.predict.run import region_outputs
from hedgerow.progress import Report

SIDE = 2  # tiles along each side of what is predicted at once
WIDE = 4  # the same for features that look far: a pretrained network computes its whole patch for any part of it


class LazyPlanes:
    """An image (C,H,W) of which only what is asked for is read, as float32."""

    def __init__(self, pyramid: Pyramid) -> None:
        self._pyramid = pyramid
        self.shape = (pyramid.image.n_channels, *pyramid.image.size)
        self.ndim, self.dtype = 3, np.dtype(np.float32)

    def __getitem__(self, place: tuple[Any, ...]) -> np.ndarray:
        rows, columns = place[-2:]
        top, bottom, _ = rows.indices(self.shape[1])
        left, right, _ = columns.indices(self.shape[2])
        found = self._pyramid.planes(0, Region(top, bottom, left, right))
        return found if place[0] is Ellipsis else found[place[0]]


def predicted_tiles(
    model: Model, pyramid: Pyramid, tiles: Sequence[tuple[int, int]], report: Report
) -> dict[tuple[int, int], Block]:
    """The blocks of some tiles of the full image."""
    planes: Any = LazyPlanes(pyramid)
    height, width = pyramid.image.size
    side = WIDE if model.features.halo > SIDE * TILE else SIDE
    groups: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for row, column in tiles:
        groups.setdefault((row // side, column // side), []).append((row, column))
    found: dict[tuple[int, int], Block] = {}
    try:
        for done, members in enumerate(groups.values()):
            report("segmenting", done, len(groups))
            around = _around(members, height, width)
            proba = region_outputs(model, planes, around)[-1]
            for row, column in members:
                part = _around([(row, column)], height, width).within(around).of(proba)
                shown = np.clip(part * 255 + 0.5, 0, 255).astype(np.uint8)
                found[row, column] = Block(part.argmax(axis=0).astype(np.uint8), shown)
        report("segmenting", len(groups), len(groups))
    finally:
        reused.let_go()
    return found


def _around(tiles: Sequence[tuple[int, int]], height: int, width: int) -> Region:
    rows, columns = [row for row, _ in tiles], [column for _, column in tiles]
    return Region(
        min(rows) * TILE,
        min((max(rows) + 1) * TILE, height),
        min(columns) * TILE,
        min((max(columns) + 1) * TILE, width),
    )
