"""Scores on images of any size; only tiles with labels are read and predicted."""

import numpy as np

from hedgerow.errors import InputError
from hedgerow.forest.level_input import fitting_tile
from hedgerow.images.array_checks import UNLABELLED_INDEX
from hedgerow.images.metrics import confusion
from hedgerow.images.reading import opened
from hedgerow.images.regions import Region
from hedgerow.kernels import buffers
from hedgerow.predict.protocol import Model
from hedgerow.predict.tiling import region_outputs
from hedgerow.progress import Report, reporting
from hedgerow.scale.large_pairs import LargePair
from hedgerow.scale.shards import LARGEST, TILE_BYTES, tiles_to_compute
from hedgerow.scale.worker_tasks import EachPart


def summed_table(pair: LargePair, model: Model, each: EachPart, progress: Report | None) -> np.ndarray:
    """Confusion (C,C) of a large image. each: does `table_of` on each part"""
    parts = opened(pair.image).whole.tiles(LARGEST)
    table = np.zeros((model.n_classes, model.n_classes), np.int64)
    with reporting(progress) as report:
        for done, part in enumerate(each(pair, parts)):
            table += part
            report("evaluating", done + 1, len(parts))
    if not table.any():
        raise InputError(
            f"the labels {pair.labels.path} have no labelled pixel: all have the unlabelled value {pair.unlabelled}; "
            "label some pixels, or leave the image out."
        )
    return table


def table_of(pair: LargePair, model: Model, part: Region) -> np.ndarray:
    """Confusion (C,C) in a part of an image; tiles without labels are neither read nor predicted."""
    image, target = opened(pair.image), pair.target(part)
    table = np.zeros((model.n_classes, model.n_classes), np.int64)
    is_labelled = target != UNLABELLED_INDEX
    for tile, window in tiles_to_compute(model, image, part, fitting_tile(model, TILE_BYTES), is_labelled):
        predicted = region_outputs(model, window, tile)[-1].argmax(axis=0)  # type: ignore[arg-type]
        table += confusion(tile.within(part).of(target), predicted, model.n_classes)
    buffers.release()
    return table
