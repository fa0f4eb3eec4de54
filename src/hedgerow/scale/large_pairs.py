"""Large images with their labels, both read in parts, and scores on them; only tiles with labels are predicted."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hedgerow.errors import HedgerowError, InputError
from hedgerow.forest.level_input import fitting_tile
from hedgerow.images.array_checks import (
    UNLABELLED_INDEX,
    check_channels,
    encode_labels,
    nothing_labelled,
    sizes_differ,
    to_labels,
)
from hedgerow.images.file_checks import LARGE_PIXELS
from hedgerow.images.metrics import confusion
from hedgerow.images.pairing import Pair
from hedgerow.images.reading import ImageSource, open_image, opened, reads_regions, spec_for_workers
from hedgerow.images.regions import Region
from hedgerow.images.remote import absolute, is_remote
from hedgerow.images.stored import ImageSpec, Pages
from hedgerow.kernels import buffers
from hedgerow.predict.protocol import Model
from hedgerow.predict.tiling import region_outputs
from hedgerow.progress import Report, reporting
from hedgerow.scale.costs import refuse_endless
from hedgerow.scale.shards import LARGEST_SHARD_SIDE, TILE_BYTES, tiles_to_compute
from hedgerow.scale.worker_tasks import EachPart


@dataclass(frozen=True)
class LargePair:
    """An image and its labels, each as a worker opens it; the classes, and the value that means "no label"."""

    image: ImageSpec
    labels: ImageSpec
    classes: tuple[int, ...]
    unlabelled: int

    def target(self, region: Region) -> np.ndarray:
        """(h,w) uint8 class indices of a region."""
        name = f"{self.labels.path}, from row {region.top} and column {region.left} on,"
        values = to_labels(opened(self.labels).read(region), name)
        return encode_labels(values, self.classes, self.unlabelled, name)


def is_large(pair: Pair) -> bool:
    """Whether an image is read in parts."""
    if not reads_regions(pair.image) or not reads_regions(pair.label):
        return False
    with suppress(HedgerowError):  # the reader reports the error
        height, width = open_image(pair.image, pages="all").size
        return height * width > LARGE_PIXELS
    return False


def large_pair(
    model: Model,
    image: str | Path,
    labels: str | Path,
    unlabelled: int | None = None,
    pages: Pages = None,
    level: int = 0,
    pixel_size: float | None = None,
    stamp: str = "",
) -> LargePair:
    """An image with labels of the same size; if the labels have a pyramid, its level of that size is read."""
    wanted = spec_for_workers(image, model.features.layout, pages, level=level, pixel_size=pixel_size, stamp=stamp)
    source = opened(wanted)
    check_channels(source.shape[0], model.features.n_inputs, source.name)
    refuse_endless(source, source.whole)
    ignored = model.unlabelled if unlabelled is None else unlabelled
    return LargePair(wanted, _fitting(source, absolute(labels), stamp), model.classes, ignored)


def _fitting(image: ImageSource, labels: str, stamp: str) -> ImageSpec:
    """The level of the labels that has the size of the image."""
    first = opened(ImageSpec(labels, "labels", stamp=stamp))
    for level in range(first.stored.n_levels):
        wanted = ImageSpec(labels, "labels", level=level, stamp=stamp)
        candidate = opened(wanted)
        if candidate.shape[0] != 1:
            raise InputError(
                f"cannot use {labels} as labels of a large image: found {candidate.shape[0]} channels, expected one "
                "class value per pixel; save class values."
            )
        if candidate.size == image.size:
            refuse_endless(candidate, candidate.whole)
            return wanted
    raise sizes_differ(image.size, first.size, image.name)


def split_by_size(pairs: Sequence[Pair]) -> tuple[list[Pair], list[Pair]]:
    """Pairs that are read whole, and large ones."""
    large = [pair for pair in pairs if is_large(pair)]
    return [pair for pair in pairs if pair not in large], large


def has_address(*names: object) -> bool:
    """Whether any argument is an address."""
    return any(isinstance(name, str) and is_remote(name) for name in names)


def summed_table(pair: LargePair, model: Model, each: EachPart, progress: Report | None) -> np.ndarray:
    """Confusion (C,C) of a large image. each: does `table_of` on each part"""
    parts = opened(pair.image).whole.tiles(LARGEST_SHARD_SIDE)
    table = np.zeros((model.n_classes, model.n_classes), np.int64)
    with reporting(progress) as report:
        for done, part in enumerate(each(pair, parts)):
            table += part
            report("evaluating", done + 1, len(parts))
    if not table.any():
        raise nothing_labelled(f"the label map {pair.labels.path}", pair.unlabelled)
    return table


def table_of(pair: LargePair, model: Model, part: Region) -> np.ndarray:
    """Confusion (C,C) in a part of an image; tiles without labels are neither read nor predicted."""
    image, target = opened(pair.image), pair.target(part)
    table = np.zeros((model.n_classes, model.n_classes), np.int64)
    is_labelled = target != UNLABELLED_INDEX
    for tile, planes in tiles_to_compute(model, image, part, fitting_tile(model, TILE_BYTES), is_labelled):
        predicted = region_outputs(model, planes, tile)[-1].argmax(axis=0)  # type: ignore[arg-type]
        table += confusion(tile.within(part).of(target), predicted, model.n_classes)
    buffers.release()
    return table
