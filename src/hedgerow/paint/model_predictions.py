"""Overlays of complete models: of a model file, and of the forest stack that dense labels allow."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.autocontext import grow_stack
from hedgerow.forest.default_settings import SPARSE_FRACTION, labelled_fraction, settings_for
from hedgerow.images.array_checks import UNLABELLED_INDEX as UNPAINTED
from hedgerow.images.given import labelled_set
from hedgerow.images.reading import SourcePlanes
from hedgerow.images.regions import Region
from hedgerow.images.stored import as_picture
from hedgerow.images.subjects import grouped
from hedgerow.kernels import buffers
from hedgerow.paint.code_cache import CodeCache
from hedgerow.paint.engine import Engine
from hedgerow.paint.labels import TILE
from hedgerow.paint.overlays import OverlayTile, TilePlace, hull_of_tiles
from hedgerow.paint.project import Project
from hedgerow.paint.pyramid import Pyramid
from hedgerow.predict.protocol import Model
from hedgerow.predict.tiling import region_outputs
from hedgerow.progress import Report, quiet

MAX_WHOLE_PIXELS = 4_300_000  # of an image that is segmented as a whole; a larger one is segmented at a coarser level
MAX_STACK_PIXELS = 4_300_000  # of all painted images together; growing a stack on more would take minutes
TILES_PER_SIDE = 2  # tiles along each side of the region that is predicted at once
TILES_PER_SIDE_FAR = 4  # the same for features with a large halo: a pretrained network computes its whole patch anyway


def predict_tiles(
    model: Model, pyramid: Pyramid, places: Sequence[TilePlace], report: Report
) -> dict[TilePlace, OverlayTile]:
    """The predictions of a model for some tiles of the full image."""
    size = pyramid.image.size
    planes: Any = SourcePlanes(partial(pyramid.planes, 0), (pyramid.image.n_channels, *size))
    side = TILES_PER_SIDE_FAR if model.features.halo > TILES_PER_SIDE * TILE else TILES_PER_SIDE
    groups: dict[tuple[int, int], list[TilePlace]] = {}
    for row, column in places:
        groups.setdefault((row // side, column // side), []).append((row, column))
    tiles: dict[TilePlace, OverlayTile] = {}
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
    return tiles


def describe_forests(n_levels: int, n_trees: int) -> str:
    """A forest stack in words, such as "3 levels of 16 trees"."""
    return f"{'one level' if n_levels == 1 else f'{n_levels} levels'} of {n_trees} trees"


def is_densely_painted(project: Project) -> bool:
    """Whether a full stack is worth growing: much of the painted images is labelled, and they are not too large."""
    with project.lock:
        painted = project.painted_images()
        n_pixels = sum(int(np.prod(project.images[i].size)) for i in painted)
        n_painted = sum(project.labels[i].n_painted for i in painted)
        n_classes = len({value for i in painted for value in project.labels[i].pixels})
    return 0 < n_pixels <= MAX_STACK_PIXELS and n_classes > 1 and n_painted >= SPARSE_FRACTION * n_pixels


def grow_painted_stack(project: Project, codes: CodeCache, engine: Engine) -> ForestStack:
    """A stack grown on all paint, with the settings that `hedgerow train` would choose; raises Interrupted."""
    painted = project.painted_images()
    images = [as_picture(codes.pyramid(i).planes(0, Region.whole(project.images[i].size))) for i in painted]
    with project.lock:
        labels = [project.labels[i].whole() for i in painted]
    labelled = labelled_set(images, labels, unlabelled=UNPAINTED, names=[project.images[i].name for i in painted])
    labelled = grouped(labelled, None, quiet)
    settings = settings_for(labelled_fraction(labelled), keep_features=True)
    return grow_stack(labelled, settings, progress=lambda *_: engine.raise_if_interrupted())
