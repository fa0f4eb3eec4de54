"""Overlays of complete models: of a model file, and of the forest stack that dense labels allow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.autocontext import grow_stack
from hedgerow.forest.default_settings import SPARSE_FRACTION, settings_for
from hedgerow.images.labelled import labelled_set
from hedgerow.images.regions import Region
from hedgerow.kernels import buffers
from hedgerow.paint.labels import TILE
from hedgerow.paint.overlays import OverlayTile, TilePlace, WorkerLink, raise_if_interrupted, tiles_of
from hedgerow.paint.project import Project
from hedgerow.paint.pyramid import Pyramid
from hedgerow.paint.quick_forest import CodeCache
from hedgerow.predict.protocol import Model
from hedgerow.predict.run import region_outputs
from hedgerow.progress import Report

MAX_STACK_PIXELS = 4_300_000  # of all painted images together: with more, growing a stack would take minutes
TILES_PER_SIDE = 2  # tiles along each side of the region that is predicted at once
TILES_PER_SIDE_FAR = 4  # the same for features with a large halo: a pretrained network computes its whole patch anyway


class PyramidPlanes:
    """An image (C,H,W) as float32, of which only the requested part is read."""

    def __init__(self, pyramid: Pyramid) -> None:
        self._pyramid = pyramid
        self.shape = (pyramid.image.n_channels, *pyramid.image.size)
        self.ndim, self.dtype = 3, np.dtype(np.float32)

    def __getitem__(self, index: tuple[Any, ...]) -> np.ndarray:
        rows, columns = index[-2:]
        top, bottom, _ = rows.indices(self.shape[1])
        left, right, _ = columns.indices(self.shape[2])
        planes = self._pyramid.planes(0, Region(top, bottom, left, right))
        return planes if index[0] is Ellipsis else planes[index[0]]


def predict_tiles(
    model: Model, pyramid: Pyramid, places: Sequence[TilePlace], report: Report
) -> dict[TilePlace, OverlayTile]:
    """What a model predicts for some tiles of the full image."""
    planes: Any = PyramidPlanes(pyramid)
    size = pyramid.image.size
    side = TILES_PER_SIDE_FAR if model.features.halo > TILES_PER_SIDE * TILE else TILES_PER_SIDE
    groups: dict[tuple[int, int], list[TilePlace]] = {}
    for row, column in places:
        groups.setdefault((row // side, column // side), []).append((row, column))
    tiles: dict[TilePlace, OverlayTile] = {}
    try:
        for n_done, group in enumerate(groups.values()):
            report("segmenting", n_done, len(groups))
            region = _region_around(group, size)
            proba = region_outputs(model, planes, region)[-1]
            for place in group:
                part = _region_around([place], size).within(region).of(proba)
                tiles[place] = OverlayTile(
                    part.argmax(axis=0).astype(np.uint8), np.clip(part * 255 + 0.5, 0, 255).astype(np.uint8)
                )
        report("segmenting", len(groups), len(groups))
    finally:
        buffers.release()
    return tiles


def describe_forests(n_levels: int, n_trees: int) -> str:
    """A forest stack in words."""
    return f"{'one level' if n_levels == 1 else f'{n_levels} levels'} of {n_trees} trees"


def is_densely_painted(project: Project) -> bool:
    """Whether a full stack is worth growing: much of the painted images is labelled, and they are not too large."""
    with project.lock:
        painted = project.painted_images()
        n_pixels = sum(int(np.prod(project.images[i].size)) for i in painted)
        n_painted = sum(project.labels[i].n_painted for i in painted)
        n_classes = len({value for i in painted for value in project.labels[i].pixels})
    return 0 < n_pixels <= MAX_STACK_PIXELS and n_classes > 1 and n_painted >= SPARSE_FRACTION * n_pixels


def grow_painted_stack(project: Project, codes: CodeCache, link: WorkerLink) -> ForestStack:
    """A stack grown on all paint, with the settings that `hedgerow train` would choose; raises Interrupted."""
    painted = project.painted_images()
    images = [_image_of(codes.pyramid(i)) for i in painted]
    with project.lock:
        labels = [project.labels[i].whole() for i in painted]
    labelled = labelled_set(images, labels, names=[project.images[i].name for i in painted])
    settings = settings_for(labelled, has_features=True)
    return grow_stack(labelled, settings, progress=lambda what, done, total: raise_if_interrupted(link))


def predict_stack_tiles(stack: ForestStack, pyramid: Pyramid, link: WorkerLink) -> dict[TilePlace, OverlayTile]:
    """What a stack predicts for all tiles of an image; raises Interrupted."""
    height, width = pyramid.image.size
    places = tiles_of((0, height, 0, width), (height, width))
    return predict_tiles(stack, pyramid, places, lambda what, done, total: raise_if_interrupted(link))


def _image_of(pyramid: Pyramid) -> np.ndarray:
    """(H,W) or (H,W,C) float32"""
    height, width = pyramid.image.size
    planes = pyramid.planes(0, Region(0, height, 0, width))
    return planes[0] if len(planes) == 1 else np.moveaxis(planes, 0, 2)


def _region_around(places: Sequence[TilePlace], size: tuple[int, int]) -> Region:
    """The smallest region that holds these tiles of the full image."""
    rows, columns = [row for row, _ in places], [column for _, column in places]
    return Region(
        min(rows) * TILE,
        min((max(rows) + 1) * TILE, size[0]),
        min(columns) * TILE,
        min((max(columns) + 1) * TILE, size[1]),
    )
