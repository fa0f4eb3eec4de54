"""Scores on images of any size; only labelled tiles are read and predicted."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from hedgerow.errors import HedgerowError, InputError
from hedgerow.forest.level_input import fitting_tile, needed
from hedgerow.images.array_checks import UNLABELLED_INDEX
from hedgerow.images.metrics import confusion
from hedgerow.images.regions import Region
from hedgerow.kernels import buffers
from hedgerow.predict.protocol import Model
from hedgerow.predict.run import region_outputs
from hedgerow.progress import Report, reporting
from hedgerow.scale import cluster
from hedgerow.scale.large_pairs import LargePair
from hedgerow.scale.lazy_image import ImageWindow
from hedgerow.scale.model_bytes import loaded
from hedgerow.scale.opening import opened
from hedgerow.scale.shard_prediction import MEMORY, ahead, occupied
from hedgerow.scale.shards import LARGEST, cut

Tables = Callable[[LargePair, Sequence[Region]], Iterable[np.ndarray]]
"""(an image, its parts) -> confusion (C,C) of each part"""


def summed_table(pair: LargePair, model: Model, tables: Tables, progress: Report | None) -> np.ndarray:
    """Confusion (C,C) of a large image."""
    parts = opened(pair.image).whole.tiles(LARGEST)
    table = np.zeros((model.n_classes, model.n_classes), np.int64)
    with reporting(progress) as report:
        for done, one in enumerate(tables(pair, parts)):
            table += one
            report("evaluating", done + 1, len(parts))
    if not table.any():
        raise InputError(
            f"the labels {pair.labels.path} have no labelled pixel: all have the unlabelled value {pair.unlabelled}; "
            "label some pixels, or leave the image out."
        )
    return table


def tables_here(model: Model, pair: LargePair, parts: Sequence[Region]) -> Iterator[np.ndarray]:
    """Confusion (C,C) of each part of an image, in this process."""
    return (table_of(pair, model, part) for part in parts)


def table_of(pair: LargePair, model: Model, place: Region) -> np.ndarray:
    """Confusion (C,C) in a part of an image; what has no label is neither read nor predicted."""
    image, target = opened(pair.image), pair.target(place)
    table = np.zeros((model.n_classes, model.n_classes), np.int64)
    cell = max(model.level_tile(level) for level in range(model.n_levels))
    tiles = (
        one
        for tile in cut(place, fitting_tile(model, MEMORY), cell)
        if (one := occupied(tile, place, target != UNLABELLED_INDEX)) is not None
    )
    for tile, window in ahead(lambda tile: ImageWindow(image, needed(model, image.size, tile)), tiles):
        found = region_outputs(model, window, tile)[-1].argmax(axis=0)  # type: ignore[arg-type]
        table += confusion(tile.within(place).of(target), found, model.n_classes)
    buffers.release()
    return table


def tables_on(client: Any, content: bytes, device: str) -> Tables:
    """`tables_here` on the workers of a client; content: of the model file"""
    model = cluster.broadcast(client, content)

    def each(pair: LargePair, parts: Sequence[Region]) -> Iterator[np.ndarray]:
        for _, table in cluster.side_by_side(client, _part, parts, pair, model, device):
            if isinstance(table, HedgerowError):
                raise table
            yield table

    return each


def _part(place: Region, pair: LargePair, content: bytes, device: str) -> np.ndarray:
    return table_of(pair, loaded(content, device), place)
