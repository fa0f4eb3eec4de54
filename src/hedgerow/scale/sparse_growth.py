"""Growth on more images than fit in memory: only labelled pixels and their surroundings are loaded."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from hedgerow.config import StackConfig
from hedgerow.errors import HedgerowError, InputError
from hedgerow.features.registry import fit_features_at
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.autocontext import GrowAll, TrainingSet, grow_from, grow_in_turn
from hedgerow.forest.history import Known
from hedgerow.forest.planes import build_planes
from hedgerow.forest.samples import kind_of_groups
from hedgerow.forest.sparse_training import LabelledPixels, reasons_for_whole_images, sparse_training_set
from hedgerow.images.array_checks import Layout, encode_labels, nothing_labelled, sizes_differ, to_labels
from hedgerow.images.classes import ClassTable, ReadPlanes, check_n_classes, table_of
from hedgerow.images.file_checks import LARGE_PIXELS
from hedgerow.images.label_files import legend_of_files, read_labels
from hedgerow.images.labelled import LabelledSet, LazySequence, subjects_of
from hedgerow.images.legend import Colour
from hedgerow.images.pairing import Pair
from hedgerow.images.reading import ImageSource, open_image
from hedgerow.images.regions import Region
from hedgerow.images.stored import Pages
from hedgerow.images.subjects import Groups, subject_names
from hedgerow.progress import Report, Say, quiet, reporting
from hedgerow.scale.costs import refuse_endless

LARGE_SET_PIXELS = 2**27  # of all images; with more pixels, only labelled pixels and their surroundings are loaded
MAX_LABELLED_PIXELS = 2**28  # labelled pixels whose coordinates are stored
N_FIRST_LABELS = 4  # label maps that decide whether 0 means unlabelled
MAX_LOADED_FRACTION = 0.5  # of all pixels; if more are needed, whole images are loaded
READ_ROWS = 1024


class WholeInstead(HedgerowError):
    """Whole images must be loaded; the message gives the reason."""


@dataclass(frozen=True)
class LargeSet:
    """Files with labels, opened one at a time.

    layout, pages: how the images are read
    groups:        which images belong together; None: as their names say; images so large are not compared
    """

    pairs: Sequence[Pair]
    layout: Layout
    pages: Pages = None
    groups: Groups = None

    def image(self, i: int) -> ImageSource:
        return _affordable(open_image(self.pairs[i].image, self.layout, self.pages))

    @property
    def planes(self) -> Sequence[Any]:
        return LazySequence(len(self.pairs), lambda i: self.image(i).source_planes())

    def labels(self, i: int) -> Sequence[tuple[Region, np.ndarray]]:
        """Parts of a label map and their class values (h,w) int32, row after row."""
        path, name = self.pairs[i].label, f"the label map of {self.pairs[i].image}"
        with open_image(path, "labels", "all") as source:
            is_large = source.by_region and _n_pixels(source) > LARGE_PIXELS
        if not is_large:
            values = to_labels(read_labels(path), name)
            return [(Region.whole(values.shape), values)]
        lazy = _affordable(open_image(path, "labels"))
        parts = lazy.whole.tiles(READ_ROWS)
        return LazySequence(len(parts), lambda k: (parts[k], to_labels(lazy.read(parts[k]), name)))

    def exceeds_memory(self) -> bool:
        """Whether all images together have more pixels than are loaded as a whole."""
        total = 0
        for pair in self.pairs:
            try:
                with open_image(pair.image, self.layout, self.pages) as source:
                    total += _n_pixels(source)
            except HedgerowError:
                return False  # the reader reports the error
            if total > LARGE_SET_PIXELS:
                return True
        return False

    def first_labels(self) -> tuple[list[np.ndarray], list[ReadPlanes]]:
        """Parts (h,w) of the first label maps, and their images; they decide the value that means unlabelled."""
        maps, images = list[np.ndarray](), list[ReadPlanes]()
        for i in range(min(len(self.pairs), N_FIRST_LABELS)):
            for region, values in _some_paint(self.labels(i)):
                maps.append(values)
                images.append(partial(_planes_within, self.image(i), region))
        return maps, images

    def palettes(self) -> Iterator[Mapping[int, Colour]]:
        """Index -> colour of each label map; empty for those without a palette."""
        for pair in self.pairs:
            with open_image(pair.label, "labels", "all") as source:
                yield source.stored.palette

    def mark(self, i: int) -> str:
        """A fingerprint of 16 digits, as `LabelledImage.mark`, some rows at a time."""
        image = self.image(i)
        digest = hashlib.sha256(f"{np.dtype(np.float32).str} {image.shape}".encode())
        for c in range(image.shape[0]):
            for rows in image.whole.tiles((1, READ_ROWS, image.shape[2])):
                digest.update(np.ascontiguousarray(image.planes(rows)[c]).tobytes())
        return digest.hexdigest()[:16]


def _affordable(image: ImageSource) -> ImageSource:
    image.check_memory()
    refuse_endless(image, image.whole)
    return image


def _n_pixels(image: ImageSource) -> int:
    return image.shape[1] * image.shape[2]


def _planes_within(image: ImageSource, outer: Region, region: Region) -> np.ndarray:
    """(C,h,w) of a region that is counted from the corner of another."""
    return image.planes(region.placed_in(outer).clipped(image.whole))


def _some_paint(parts: Sequence[tuple[Region, np.ndarray]]) -> list[tuple[Region, np.ndarray]]:
    """The first part of a label map, and the next few that have values of their own, with their values (h,w)."""
    parts_with_new_values, seen = [], set[int]()
    for region, values in parts:
        own = set(np.unique(values).tolist())
        if not own <= seen:
            parts_with_new_values.append((region, values))
            seen |= own
        if len(parts_with_new_values) > N_FIRST_LABELS:
            break
    return parts_with_new_values


def grow(
    files: LargeSet,
    settings: Callable[[float, Say], StackConfig],
    unlabelled: int,
    max_classes: int,
    *,
    say: Say = quiet,
    progress: Report | None = None,
    grow_all: GrowAll = grow_in_turn,
) -> ForestStack:
    """A stack grown on parts of images, equal to the stack that `grow_stack` grows on whole images.

    settings: the settings for images with this fraction of labelled pixels, as `TrainRequest.settings`
    """
    with reporting(progress) as report:
        notes: list[str] = []
        table, painted = read_labelled_pixels(files, unlabelled, report, notes.append)
        check_n_classes(len(table.values), max_classes)
        legend = legend_of_files([pair.label for pair in files.pairs], files.palettes()).only(table.values)
        say(table.text(legend.names))
        n_labelled = sum(table.pixels)
        n_pixels = n_labelled + table.unlabelled
        fraction = n_labelled / n_pixels
        config = settings(fraction, say)
        held = kind_of_groups(len(subjects_of(pixels.subject for pixels in painted)), fraction)
        if reasons := reasons_for_whole_images(config, held):
            raise WholeInstead(f"parts of images do not suffice for {', '.join(reasons)}")
        sparse = sparse_training_set(painted, held, config)
        n_loaded = sum(part.target.size for part in sparse.parts)
        if n_loaded > MAX_LOADED_FRACTION * n_pixels:
            raise WholeInstead("most of the pixels are labelled or near labels")
        for note in notes:  # where images are loaded whole instead, they are compared as well
            say(note)
        say(f"{len(painted)} image(s): {n_loaded:,} of their pixels are loaded")
        known = Known(tuple(files.mark(i) for i in range(len(files.pairs))))
        report("features", 0, 2)
        features, at_places = fit_features_at(files.planes, sparse.places, config)
        report("features", 1, 2)

        def computed(k: int) -> np.ndarray:
            part = sparse.parts[k]
            values = at_places[part.image][:, 0, part.first : part.first + part.target.size]
            return np.ascontiguousarray(values).reshape(len(values), *part.target.shape)

        images, dtype = sparse.images(features.n_inputs), str(files.image(0).dtype)
        labelled = LabelledSet(images, table.values, unlabelled, dtype, table, legend)
        planes = build_planes(labelled, features, computed, sparse.samples, config)
        report("features", 2, 2)
        training_set = TrainingSet(labelled, features, planes, sparse.samples, held, known)
        return grow_from(training_set, config, report, say, grow_all)


def read_labelled_pixels(
    files: LargeSet, unlabelled: int, report: Report, say: Say = quiet
) -> tuple[ClassTable, list[LabelledPixels]]:
    """The classes of all label maps, and the labelled pixels of each."""
    counts: Counter[int] = Counter()
    of_image: list[tuple[tuple[int, int], np.ndarray, np.ndarray, np.ndarray]] = []
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
        counts_here = dict(zip(*(part.tolist() for part in np.unique(values, return_counts=True)), strict=True))
        counts.update(counts_here)
        height, width = image.size
        counts[unlabelled] += height * width - len(rows)
        of_image.append(((height, width), rows, columns, values))
        if sum(counts.values()) - counts[unlabelled] > MAX_LABELLED_PIXELS:
            raise WholeInstead(f"there are more than {MAX_LABELLED_PIXELS:,} labelled pixels")
        report("labels", i + 1, len(files.pairs))
    table = table_of(counts, unlabelled)
    subjects = subject_names([str(pair.image) for pair in files.pairs], None, files.groups, say)
    painted = [
        LabelledPixels(size, rows, columns, encode_labels(values[None], table.values, unlabelled)[0], subject)
        for (size, rows, columns, values), subject in zip(of_image, subjects, strict=True)
    ]
    return table, painted


def _labelled(
    parts: Sequence[tuple[Region, np.ndarray]], unlabelled: int, image: ImageSource, pair: Pair
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, columns and class values (n,) of the labelled pixels, in reading order."""
    labelled, size = [], [0, 0]
    for region, values in parts:
        row, column = np.nonzero(values != unlabelled)
        labelled.append((row + region.top, column + region.left, values[row, column]))
        size = [max(size[0], region.bottom), max(size[1], region.right)]
    if tuple(size) != image.size:
        raise sizes_differ(image.size, size, str(pair.image))
    rows, columns, values = (np.concatenate(field).astype(np.int32) for field in zip(*labelled, strict=True))
    if not len(rows):
        raise nothing_labelled(f"the label map of {pair.image}", unlabelled)
    order = np.lexsort((columns, rows))
    return rows[order], columns[order], values[order]
