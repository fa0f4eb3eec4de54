"""The full stack, where so much is painted that context helps: forests on forests, as `hedgerow train` grows them."""

from __future__ import annotations

import numpy as np

from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.autocontext import grow_stack
from hedgerow.forest.choosing import SPARSE, settings_for
from hedgerow.images.labelled import labelled_set
from hedgerow.images.regions import Region
from hedgerow.paint.live import Codes
from hedgerow.paint.predicted import predicted_tiles
from hedgerow.paint.project import Project
from hedgerow.paint.pyramid import Pyramid
from hedgerow.paint.results import Block, tiles_of
from hedgerow.paint.telling import Teller

MOST = 4_300_000  # pixels of all painted images: with more, a stack would take minutes


def described(n_levels: int, n_trees: int) -> str:
    """Forests, in words."""
    return f"{'one level' if n_levels == 1 else f'{n_levels} levels'} of {n_trees} trees"


class Interrupted(Exception):
    """Something more urgent waits."""


def give_way(teller: Teller) -> None:
    """Raise Interrupted if something more urgent waits."""
    if teller.has_news():
        raise Interrupted


def wants_stack(project: Project) -> bool:
    """Whether so much is painted that labels are no strokes, on images that are not too large."""
    with project.lock:
        painted = project.painted_images()
        pixels = sum(int(np.prod(project.images[i].size)) for i in painted)
        n_painted = sum(project.labels[i].n_painted for i in painted)
        n_classes = len({value for i in painted for value in project.labels[i].pixels})
    return 0 < pixels <= MOST and n_classes > 1 and n_painted >= SPARSE * pixels


def grown_stack(project: Project, codes: Codes, teller: Teller) -> ForestStack:
    """A stack of all that is painted, with the settings that fit; raises Interrupted."""
    painted = project.painted_images()
    images = [_picture(codes.pyramid(i)) for i in painted]
    with project.lock:
        labels = [project.labels[i].whole() for i in painted]
    labelled = labelled_set(images, labels, names=[project.images[i].name for i in painted])

    settings = settings_for(labelled, has_features=True)
    return grow_stack(labelled, settings, progress=lambda what, done, total: give_way(teller))


def stack_blocks(stack: ForestStack, pyramid: Pyramid, teller: Teller) -> dict[tuple[int, int], Block]:
    """What a stack says of an image, tile by tile; raises Interrupted."""
    height, width = pyramid.image.size
    tiles = tiles_of((0, height, 0, width), (height, width))
    return predicted_tiles(stack, pyramid, tiles, lambda what, done, total: give_way(teller))


def _picture(pyramid: Pyramid) -> np.ndarray:
    """(H,W) or (H,W,C) float32"""
    height, width = pyramid.image.size
    planes = pyramid.planes(0, Region(0, height, 0, width))
    return planes[0] if len(planes) == 1 else np.moveaxis(planes, 0, 2)
