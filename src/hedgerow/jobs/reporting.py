"""Reporting on models in one HTML page; a large image is represented by its parts with the most labels."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hedgerow.files import PathLike
from hedgerow.images.array_checks import UNLABELLED_INDEX
from hedgerow.images.label_files import read_labels
from hedgerow.images.labelled import LazySequence
from hedgerow.images.pairing import FilesSpec, Pair, pair_files
from hedgerow.images.reading import Pages, opened, read_input
from hedgerow.images.regions import Region
from hedgerow.io import model_file
from hedgerow.jobs.inputs import checked_output, files_of, refuse_volumes
from hedgerow.progress import Report, Say, quiet
from hedgerow.report.naming import paper_name
from hedgerow.report.page import write_report
from hedgerow.scale.large_pairs import LargePair, is_large, large_pair

if TYPE_CHECKING:
    from hedgerow.deep.any_model import AnyModel

PART_SIDE = 1024  # side of a part of a large image, without its surroundings within the receptive field
MOST_PARTS = 4  # of each image


@dataclass(frozen=True)
class ReportRequest:
    """A page about models, scored on images that they were not trained on.

    models:     model files; the others are compared with the first
    output:     the HTML page to write
    background: class that is shown dark and scored separately
    title:      heading of the page
    pages:      which pages of image files to read, see `read_image`
    overwrite:  also overwrite an existing file that Hedgerow did not write
    """

    models: Sequence[PathLike]
    images: FilesSpec
    labels: FilesSpec
    output: PathLike
    background: int | None = None
    title: str | None = None
    pages: Pages = None
    overwrite: bool = False


def report(request: ReportRequest, *, say: Say = quiet, progress: Report | None = None) -> int:
    """Write one HTML page that compares models; returns the number of images. Large images are shown in parts."""
    files = list(dict.fromkeys(Path(model) for model in request.models))
    pairs = pair_files(request.images, request.labels, say)
    output = checked_output(request.output, [*files, *files_of(pairs)], "report.html", overwrite=request.overwrite)
    models = [model_file.load(path) for path in files]
    for path, model in zip(files, models, strict=True):
        refuse_volumes(model, path, "report")
    shown = shown_parts(models, pairs, request.pages, say)
    write_report(
        output,
        dict(zip(unique_names(files, models), models, strict=True)),
        shown.images,
        shown.labels,
        title=request.title or f"{files[0].stem} on {len(pairs)} image{'s' * (len(pairs) != 1)}",
        names=shown.names,
        background=request.background,
        progress=progress,
    )
    return len(pairs)


def unique_names(files: Sequence[Path], models: Sequence[AnyModel]) -> list[str]:
    """The kind of each model; where two are equal, with the file name, or if needed the whole path."""
    names = [paper_name(model) for model in models]
    for more in ([path.name for path in files], [str(path) for path in files]):
        seen = Counter(names)
        names = [
            f"{paper_name(model)}, {text}" if seen[name] > 1 else name
            for model, name, text in zip(models, names, more, strict=True)
        ]
    return names


@dataclass(frozen=True)
class ReportImages:
    """The images of a report, in the layout that the models take, with their labels (H,W) and names."""

    images: Sequence[np.ndarray]
    labels: Sequence[np.ndarray]
    names: Sequence[str]


def shown_parts(models: Sequence[Any], pairs: Sequence[Pair], pages: Pages, say: Say) -> ReportImages:
    """Images with labels; a large image is represented by at most MOST_PARTS squares of PART_SIDE pixels per side."""
    model = models[0]
    model.features.check_here()  # one refusal, not one for each image
    reach = max(one.receptive_field for one in models)
    items: list[tuple[Pair, LargePair | None, Region | None]] = []
    for pair in pairs:
        if not is_large(pair):
            items.append((pair, None, None))
            continue
        large = large_pair(model, pair.image, pair.label, pages=pages)
        chosen = _most_labelled(large)
        say(
            f"{pair.image}: only the {len(chosen)} parts of {PART_SIDE:,} x {PART_SIDE:,} pixels with the most labels "
            "are shown and scored; `hedgerow evaluate` scores all of it"
        )
        items += [(pair, large, part) for part in chosen]

    def image(i: int) -> np.ndarray:
        pair, large, part = items[i]
        if large is None or part is None:
            return read_input(pair.image, model.features.layout, pages)
        lazy = opened(large.image)
        planes = lazy.read(part.grown(reach, lazy.whole))
        return planes if model.features.layout == "planes" else np.moveaxis(planes, 0, -1)

    def labels(i: int) -> np.ndarray:
        pair, large, part = items[i]
        if large is None or part is None:
            return read_labels(pair.label, legend=model.legend or None)
        # Around the part, predictions would differ from those of the whole image: they are not scored.
        around = part.grown(reach, opened(large.image).whole)
        values = np.full((around.height, around.width), model.unlabelled, np.int64)
        own = opened(large.labels).read(part)[0].astype(np.int64)
        inside = part.within(around)
        inside.of(values)[...] = np.where(own == large.unlabelled, model.unlabelled, own)
        return values

    names = [
        pair.image.name + (f", rows {part.top}-{part.bottom}, columns {part.left}-{part.right}" if part else "")
        for pair, _, part in items
    ]
    return ReportImages(LazySequence(len(items), image), LazySequence(len(items), labels), names)


def _most_labelled(pair: LargePair) -> list[Region]:
    """The parts with the most labels, in reading order."""
    parts = opened(pair.image).whole.tiles(PART_SIDE)
    counted = ((int(np.count_nonzero(pair.target(part) != UNLABELLED_INDEX)), part) for part in parts)
    best = heapq.nlargest(MOST_PARTS, (one for one in counted if one[0]), key=lambda one: one[0])
    return sorted((part for _, part in best), key=lambda part: (part.top, part.left))
