"""A training set reduced to the pixels that training reads: labelled pixels, and those within reach of context.

Each part of an image is grown on like an image of its own. A part extends as far around its labelled pixels as all
levels together can read, so nothing that is read lies outside it unless it lies outside the image: the forests equal
those grown on whole images to the last bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hedgerow.config import StackConfig
from hedgerow.features.registry import Places, kinds_of
from hedgerow.forest.samples import (
    GroupsOf,
    Samples,
    block_at,
    blocks_per_side,
    chosen,
    limited,
    number_type,
    stroke_groups,
)
from hedgerow.images.array_checks import UNLABELLED_INDEX
from hedgerow.images.labelled import LabelledImage, subjects_of
from hedgerow.images.regions import Region

MIN_TILE_SIDE = 256  # side of the tiles whose labelled pixels make one part, unless context reaches farther


@dataclass(frozen=True)
class LabelledPixels:
    """The labelled pixels of an image of this size (H,W), in reading order: rows, columns (n,), class indices (n,).

    subject: as in `LabelledImage`
    """

    size: tuple[int, int]
    row: np.ndarray
    column: np.ndarray
    target: np.ndarray
    subject: str = ""

    def __len__(self) -> int:
        return len(self.row)


def reasons_for_whole_images(config: StackConfig, held: GroupsOf) -> list[str]:
    """The settings that need whole images, in words; none if parts suffice."""
    plain = all(kind.proposals == "offsets" and kind.blank is None for kind in kinds_of(config.features))
    reasons = {
        "radii other than 0": tuple(config.context.radii) != (0,),
        "altered copies": config.augment.copies > 0,
        "reserved images": config.reserve > 0,
        "depth features": not plain,
        "more than one level on strokes in fewer than four images": held == "strokes" and config.n_levels > 1,
    }
    return [reason for reason, holds in reasons.items() if holds]


def groups(painted: Sequence[LabelledPixels], held: GroupsOf, config: StackConfig) -> list[np.ndarray]:
    """For each image, the groups (n,) int32 of its labelled pixels, the same as `with_groups` makes."""
    subjects, side = subjects_of(pixels.subject for pixels in painted), blocks_per_side(held)
    if held == "strokes":
        places = [(pixels.row, pixels.column, pixels.target) for pixels in painted]
        return stroke_groups(places, subjects, config.n_folds, (config.seed, 9))
    subject_of = {i: number for number, subject in enumerate(subjects) for i in subject}
    return [
        subject_of[i] * side**2 + block_at(pixels.size, side, pixels.row, pixels.column)
        for i, pixels in enumerate(painted)
    ]


@dataclass(frozen=True)
class Part:
    """A part of an image that stands for an image of its own, (h,w).

    first:  where its pixels begin among the places of its image
    target: (h,w) uint8, UNLABELLED_INDEX outside the labelled pixels that it is for; group: (h,w) int32
    """

    image: int
    first: int
    target: np.ndarray
    group: np.ndarray


@dataclass(frozen=True)
class SparseTrainingSet:
    """The parts of all images; for each image, the places of the pixels of its parts, part after part; the samples."""

    parts: list[Part]
    places: list[Places]
    samples: Samples

    def images(self, n_inputs: int) -> list[LabelledImage]:
        """The parts as images to grow on; their planes are empty, because the features are already computed."""
        nothing = np.float32(0)
        return [
            LabelledImage(np.broadcast_to(nothing, (n_inputs, *part.target.shape)), part.target, group=part.group)
            for part in self.parts
        ]


def sparse_training_set(painted: Sequence[LabelledPixels], held: GroupsOf, config: StackConfig) -> SparseTrainingSet:
    """The parts of images that training reads, and the samples in them, the same as `draw_samples` draws."""
    reach = config.n_levels * (config.context.window // 2)  # how far from a labelled pixel all levels together read
    parts: list[Part] = []
    places: list[Places] = []
    fields: list[list[np.ndarray]] = []
    start = 0
    for i, (pixels, group) in enumerate(zip(painted, groups(painted, held, config), strict=True)):
        place = pixels.row.astype(np.int64) * pixels.size[1] + pixels.column
        rng = np.random.default_rng((config.seed, 2, i))
        mine = chosen(place, pixels.target, pixels.size, config.sampling, rng)
        cut = [_strip(i, pixels, group)] if reach == 0 else _tiles(i, pixels, group, reach, held)
        places.append((np.concatenate([c.rows for c in cut]), np.concatenate([c.columns for c in cut])))
        local = np.zeros((5, len(pixels)), np.int64)  # slice, row, column, part, pixel
        for piece in cut:
            width = piece.part.target.shape[1]
            local[1:, piece.own] = [
                piece.row, piece.column, np.full(len(piece.own), len(parts)), start + piece.row * width + piece.column,
            ]  # fmt: skip
            parts.append(piece.part)
            start += piece.part.target.size
        fields.append([*local[:, mine], pixels.target[mine], group[mine]])
    joined = [np.concatenate(field).astype(number_type(start)) for field in zip(*fields, strict=True)]
    return SparseTrainingSet(parts, places, limited(joined, config))


@dataclass(frozen=True)
class _Cut:
    """A part, and the rows and columns of all of its pixels in the image.

    own: the numbers of the labelled pixels that it is for; row, column: their places in the part
    """

    part: Part
    rows: np.ndarray
    columns: np.ndarray
    own: np.ndarray
    row: np.ndarray
    column: np.ndarray


def _strip(i: int, painted: LabelledPixels, group: np.ndarray) -> _Cut:
    """Without context, only the labelled pixels are read: they form a single row."""
    own = np.arange(len(painted))
    part = Part(i, 0, painted.target[None], group[None])
    return _Cut(part, painted.row, painted.column, own, np.zeros_like(own), own)


def _tiles(i: int, painted: LabelledPixels, group: np.ndarray, reach: int, held: GroupsOf) -> list[_Cut]:
    """The labelled pixels of each tile of a grid, with all pixels within reach of them."""
    side, n_blocks = max(MIN_TILE_SIDE, 2 * reach), blocks_per_side(held)
    key = (painted.row // side).astype(np.int64) * (-(-painted.size[1] // side)) + painted.column // side
    cuts, first = [], 0
    for tile in np.unique(key):
        own = np.flatnonzero(key == tile)
        row, column = painted.row[own], painted.column[own]
        seen = Region.of_pixels(row, column).grown(reach, Region.whole(painted.size))
        target = np.full((seen.height, seen.width), UNLABELLED_INDEX, np.uint8)
        inner = row - seen.top, column - seen.left
        target[inner] = painted.target[own]
        rows, columns = (places.ravel() for places in np.mgrid[seen.top : seen.bottom, seen.left : seen.right])
        # Blocks are numbered from the first group of the image.
        first_group = int(group[own[0]]) - int(block_at(painted.size, n_blocks, row[0], column[0]))
        around = (first_group + block_at(painted.size, n_blocks, rows, columns)).reshape(target.shape)
        around[inner] = group[own]
        part = Part(i, first, target, around)
        cuts.append(_Cut(part, rows, columns, own, *inner))
        first += target.size
    return cuts
