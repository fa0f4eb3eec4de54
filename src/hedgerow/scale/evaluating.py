"""Evaluating on images of any size: only where there are labels is anything read and predicted."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from hedgerow.errors import HedgerowError, InputError
from hedgerow.files import PathLike
from hedgerow.forest.level_input import fitting_tile, needed
from hedgerow.images.arrays import UNLABELLED_INDEX
from hedgerow.images.metrics import Scores, confusion
from hedgerow.images.pairing import FilesSpec, pair_files
from hedgerow.images.reading import Pages
from hedgerow.images.regions import Region
from hedgerow.io import model_file
from hedgerow.jobs.evaluating import Evaluated, Written
from hedgerow.jobs.inputs import files_of, read_for
from hedgerow.kernels import reused
from hedgerow.predict.evaluate import score_each
from hedgerow.predict.protocol import Model
from hedgerow.predict.run import region_outputs
from hedgerow.progress import Report, reporting
from hedgerow.scale import cluster
from hedgerow.scale.lazy_image import Window
from hedgerow.scale.models import content_of, loaded
from hedgerow.scale.opening import opened
from hedgerow.scale.pairs import LargePair, has_address, large_pair, told_apart_by_size
from hedgerow.scale.shards import LARGEST, cut
from hedgerow.scale.work import MEMORY, ahead, occupied

_Each = Any  # (pair, its parts) -> confusion (C,C) of each part


def evaluate(
    model: PathLike,
    images: FilesSpec,
    labels: FilesSpec,
    output: PathLike | None = None,
    *,
    csv: PathLike | None = None,
    background: int | None = None,
    unlabelled: int | None = None,
    pages: Pages = None,
    level: int = 0,
    pixel_size: float | None = None,
    device: str = "cpu",
    client: Any = None,
    overwrite: bool = False,
    progress: Report | None = None,
) -> Evaluated:
    """As `jobs.evaluate`, for images of any size: large ones are read in parts. One image may be an address.

    level, pixel_size: which level of a pyramid; labels of that size must be among theirs
    client: who predicts large images, as in `predict_large`
    """
    content, stamp = content_of(model), uuid4().hex
    own: Any = loaded(content, "cpu")
    parted = level != 0 or pixel_size is not None
    if has_address(images, labels):
        if not (isinstance(images, str) and isinstance(labels, str)):
            raise InputError("addresses are read one at a time; give one image and its labels.")
        names, files = [images], [images, labels]
        small, large = [], [(images, labels)]
    else:
        pairs = pair_files(images, labels)
        small_pairs, large_pairs = ([], pairs) if parted else told_apart_by_size(pairs)
        names = [pair.image.name for pair in (*small_pairs, *large_pairs)]
        files = [str(path) for path in files_of(pairs)]
        small, large = small_pairs, [(str(pair.image), str(pair.label)) for pair in large_pairs]
    written = Written(output, csv, background).checked(model, own, files, overwrite)
    chosen = [large_pair(own, *pair, unlabelled, pages, level, pixel_size, stamp) for pair in large]
    here = model_file.load(model).to(device) if small or client is None else own
    each, n_known = list[Scores](), 0
    if small:
        labelled = read_for(here, small, unlabelled, pages)
        n_known = sum(image.mark in own.known.seen for image in labelled)
        each = score_each(here, labelled, progress)
    with ExitStack() as rooms:
        who: _Each = lambda pair, parts: (table_of(pair, here, part) for part in parts)  # noqa: E731
        if client is not None and chosen:
            who = _on(rooms.enter_context(cluster.connected(client)), content, device)
        for pair in chosen:
            each.append(Scores(own.classes, _table(pair, own, who, progress), own.legend.names))
    return written.write(own, [Path(name).name for name in names], each, n_known)


def _table(pair: LargePair, model: Model, who: _Each, progress: Report | None) -> np.ndarray:
    """Confusion (C,C) of a large image."""
    parts = opened(pair.image).whole.tiles(LARGEST)
    table = np.zeros((model.n_classes, model.n_classes), np.int64)
    with reporting(progress) as report:
        for done, one in enumerate(who(pair, parts)):
            table += one
            report("evaluating", done + 1, len(parts))
    if not table.any():
        raise InputError(
            f"the labels {pair.labels.path} have no labelled pixel: all have the unlabelled value {pair.unlabelled}; "
            "label some pixels, or leave the image out."
        )
    return table


def table_of(pair: LargePair, model: Model, place: Region) -> np.ndarray:
    """Confusion (C,C) in a part of an image; what has no label is neither read nor predicted."""
    image, target = opened(pair.image), pair.target(place)
    table = np.zeros((model.n_classes, model.n_classes), np.int64)
    cell = max(model.level_tile(level) for level in range(model.n_levels))
    tiles = [
        one
        for tile in cut(place, fitting_tile(model, MEMORY), cell)
        if (one := occupied(tile, place, target != UNLABELLED_INDEX)) is not None
    ]
    windows = ahead(lambda tile: Window(image, needed(model, image.size, tile)), tiles)
    for tile, window in zip(tiles, windows, strict=True):
        found = region_outputs(model, window, tile)[-1].argmax(axis=0)  # type: ignore[arg-type]
        table += confusion(tile.within(place).of(target), found, model.n_classes)
    reused.let_go()
    return table


def _on(client: Any, content: bytes, device: str) -> _Each:
    model = cluster.carried(client, content)

    def each(pair: LargePair, parts: Sequence[Region]) -> Iterator[np.ndarray]:
        for _, table in cluster.side_by_side(client, _part, parts, pair, model, device):
            if isinstance(table, HedgerowError):
                raise table
            yield table

    return each


def _part(place: Region, pair: LargePair, content: bytes, device: str) -> np.ndarray:
    return table_of(pair, loaded(content, device), place)
