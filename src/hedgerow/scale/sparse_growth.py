"""Forests for more images than fit in memory: only labelled pixels and their surroundings are loaded."""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hedgerow.config import StackConfig
from hedgerow.errors import HedgerowError, InputError
from hedgerow.features.at_places import fit_features_at
from hedgerow.features.registry import layout_of
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.autocontext import GrowAll, Prepared, grow_levels
from hedgerow.forest.choosing import SPARSE, settings_for_part
from hedgerow.forest.groups import GroupsOf
from hedgerow.forest.history import Known
from hedgerow.forest.thinned import Painted, held_by, only_whole, thin
from hedgerow.images.array_checks import encode_labels, to_labels
from hedgerow.images.classes import ClassTable, check_n_classes, table_of
from hedgerow.images.label_files import read_labels
from hedgerow.images.labelled import LazySequence
from hedgerow.images.legend import Legend, legend_of_files
from hedgerow.images.limits import LARGE_PIXELS
from hedgerow.images.pairing import Pair
from hedgerow.images.reading import open_by_region, open_image, open_spec
from hedgerow.images.regions import Region
from hedgerow.images.source import ImageSource
from hedgerow.images.stored import ImageSpec, Pages
from hedgerow.images.unlabelled import UNLABELLED
from hedgerow.kernels import reused
from hedgerow.progress import Report, Say, quiet, reporting
from hedgerow.scale.costs import refuse_endless

MUCH = 2**27  # pixels of all images; with more, only labelled pixels and their surroundings are loaded
MOST_PAINTED = 2**28  # labelled pixels whose coordinates are stored
LOOKED_AT = 4  # label maps that decide whether 0 means unlabelled
WORTH = 0.5  # fraction of pixels needed above which whole images are loaded
_BAND = 1024


class WholeInstead(HedgerowError):
    """Whole images must be loaded; the message gives the reason."""


@dataclass(frozen=True)
class Files:
    """Files with labels, opened one at a time."""

    pairs: Sequence[Pair]
    wanted: Callable[[Pair], ImageSpec]

    def image(self, i: int) -> ImageSource:
        return _affordable(open_by_region(self.wanted(self.pairs[i])))

    @property
    def planes(self) -> Sequence[Any]:
        return LazySequence(len(self.pairs), lambda i: self.image(i).window())

    def labels(self, i: int) -> Sequence[tuple[Region, np.ndarray]]:
        """Parts of a label map and their class values (h,w) int32, row after row."""
        path, name = self.pairs[i].label, f"the label map of {self.pairs[i].image}"
        with open_image(path, "labels", "all") as source:
            is_large = source.by_region and _n_pixels(source) > LARGE_PIXELS
        if not is_large:
            values = to_labels(read_labels(path), name)
            return [(Region.whole(values.shape), values)]
        lazy = _affordable(open_by_region(ImageSpec(str(path), "labels")))
        parts = lazy.whole.tiles(_BAND)
        return LazySequence(len(parts), lambda k: (parts[k], to_labels(lazy.read(parts[k]), name)))

    def is_much(self) -> bool:
        """Whether all images together have more pixels than are kept as a whole."""
        total = 0
        for pair in self.pairs:
            try:
                total += _n_pixels(open_spec(self.wanted(pair)))
            except HedgerowError:
                return False  # the reader reports the error
            if total > MUCH:
                return True
        return False

    def first_labels(self) -> list[np.ndarray]:
        """Parts (h,w) of the first label maps, with which it is decided what is unlabelled."""
        return [part for i in range(min(len(self.pairs), LOOKED_AT)) for part in _some_paint(self.labels(i))]

    def mark(self, i: int) -> str:
        """A fingerprint of 16 digits, as `LabelledImage.mark`, read band by band."""
        image = self.image(i)
        found = hashlib.sha256(f"{np.dtype(np.float32).str} {image.shape}".encode())
        for c in range(image.shape[0]):
            for top in range(0, image.shape[1], _BAND):
                band = image.planes(Region(top, min(top + _BAND, image.shape[1]), 0, image.shape[2]))
                found.update(np.ascontiguousarray(band[c]).tobytes())
        return found.hexdigest()[:16]


def _affordable(image: ImageSource) -> ImageSource:
    refuse_endless(image, image.whole)
    return image


def _n_pixels(image: ImageSource) -> int:
    return image.shape[1] * image.shape[2]


def _some_paint(parts: Sequence[tuple[Region, np.ndarray]]) -> list[np.ndarray]:
    """(h,w) each: the first part of a label map, and the next few that have values of their own."""
    found, seen = [], set[int]()
    for _, values in parts:
        own = set(np.unique(values).tolist())
        if not own <= seen:
            found.append(values)
            seen |= own
        if len(found) > LOOKED_AT:
            break
    return found


def files_for(pairs: Sequence[Pair], config: StackConfig, pages: Pages = None) -> Files:
    layout = layout_of(config.features)
    numbers = pages if pages is None or isinstance(pages, str | int) else tuple(pages)
    return Files(pairs, lambda pair: ImageSpec(str(pair.image), layout, numbers))


def grow(
    files: Files,
    config: StackConfig | None,
    changes: Mapping[str, Any] | None = None,
    unlabelled: int = UNLABELLED,
    max_classes: int = 64,
    *,
    say: Say = quiet,
    progress: Report | None = None,
    scored: Callable[[int, float, GroupsOf], None] | None = None,
    grow_all: GrowAll | None = None,
) -> ForestStack:
    """A stack grown on parts of the images of files: the same as `grow_stack` grows on the whole."""
    with reporting(progress) as report:
        table, painted = read_painted(files, unlabelled, report)
        check_n_classes(len(table.values), max_classes)
        legend = (legend_of_files([pair.label for pair in files.pairs]) or Legend()).only(table.values)
        say(table.text(legend.names))
        part = sum(table.pixels) / (sum(table.pixels) + table.unlabelled)
        changed = config or settings_for_part(part, say, has_features="features" in (changes or {}))
        changed = replace(changed, **(changes or {}))
        held = held_by(len(painted), part < SPARSE)
        if reasons := only_whole(changed, held):
            raise WholeInstead(f"parts of images do not suffice for {', '.join(reasons)}")
        thinned = thin(painted, held, changed)
        n_pixels = sum(one.target.size for one in thinned.parts)
        if n_pixels > WORTH * (sum(table.pixels) + table.unlabelled):
            raise WholeInstead("labels and their surroundings are most of the pixels")
        say(f"{len(painted)} image(s): {n_pixels:,} of their pixels are loaded")
        report("features", 0, 2)
        features, kept = fit_features_at(files.planes, thinned.places, changed)
        features.validate()
        report("features", 1, 2)

        def computed(k: int) -> np.ndarray:
            one = thinned.parts[k]
            size = one.target.shape
            here = kept[one.image][:, 0, one.first : one.first + one.target.size]
            return np.ascontiguousarray(here).reshape(len(here), *size)

        prepared = Prepared(thinned.images(features.n_inputs), features, computed, thinned.samples)
        levels, scores = grow_levels(prepared, table.values, changed, report, held, scored, grow_all)
        marks = tuple(files.mark(i) for i in range(len(files.pairs)))
    settings = {"config": changed.to_dict(), "n_images": len(painted), "held_out": scores, "held": held}
    stack = ForestStack(
        features, tuple(levels), table.values, unlabelled, str(files.image(0).dtype), settings=settings, legend=legend,
        known=Known(marks, ()),
    )  # fmt: skip
    stack.validate()
    reused.let_go()
    return stack


def read_painted(files: Files, unlabelled: int, report: Report) -> tuple[ClassTable, list[Painted]]:
    """The classes of all label maps, and the labelled pixels of each."""
    counts: Counter[int] = Counter()
    found: list[tuple[tuple[int, int], np.ndarray, np.ndarray, np.ndarray]] = []
    n_channels = None
    for i, pair in enumerate(files.pairs):
        image = files.image(i)
        n_channels = image.shape[0] if n_channels is None else n_channels
        if image.shape[0] != n_channels:
            raise InputError(
                f"{pair.image} has {image.shape[0]} channel(s) but {files.pairs[0].image} has {n_channels}; all images "
                "of a set need the same channels."
            )
        rows, columns, values = _labelled(files.labels(i), unlabelled, image, pair)
        own = dict(zip(*(part.tolist() for part in np.unique(values, return_counts=True)), strict=True))
        counts.update(own)
        counts[unlabelled] += image.size[0] * image.size[1] - len(rows)
        found.append((image.size, rows, columns, values))
        if sum(counts.values()) - counts[unlabelled] > MOST_PAINTED:
            raise WholeInstead(f"there are more than {MOST_PAINTED:,} labelled pixels")
        report("labels", i + 1, len(files.pairs))
    table = table_of(counts, unlabelled)
    painted = [
        Painted(size, rows, columns, encode_labels(values[None], table.values, unlabelled)[0])
        for size, rows, columns, values in found
    ]
    return table, painted


def _labelled(
    parts: Sequence[tuple[Region, np.ndarray]], unlabelled: int, image: ImageSource, pair: Pair
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, columns and class values (n,) of the labelled pixels, in reading order."""
    found, size = [], [0, 0]
    for region, values in parts:
        row, column = np.nonzero(values != unlabelled)
        found.append((row + region.top, column + region.left, values[row, column]))
        size = [max(size[0], region.bottom), max(size[1], region.right)]
    if tuple(size) != image.size:
        raise InputError(
            f"{pair.image}: the image has {image.size[0]} rows x {image.size[1]} columns and its labels {size[0]} rows "
            f"x {size[1]} columns, expected the same; check the pairing or export the labels again at full size"
        )
    rows, columns, values = (np.concatenate(field).astype(np.int32) for field in zip(*found, strict=True))
    if not len(rows):
        raise InputError(
            f"the labels of {pair.image} have no labelled pixel: all have the unlabelled value {unlabelled}; label "
            "some pixels, leave it out, or set another unlabelled value"
        )
    order = np.lexsort((columns, rows))
    return rows[order], columns[order], values[order]
