"""A training set without the pixels that training does not read: labelled ones, and those within the reach of context.

Growing takes parts of images for images of their own. A part extends as far around its labelled pixels as all levels
together can look, so nothing that is read lies beyond it, unless the image itself ends there: the forests are the same
to the last bit as those grown on whole images.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from hedgerow.config import SamplingConfig, StackConfig
from hedgerow.features.at_places import Places
from hedgerow.features.registry import kinds_of
from hedgerow.forest.groups import BLOCKS_PER_SIDE, GroupsOf, block_at, dealt_out
from hedgerow.forest.samples import Samples, limited, number_type
from hedgerow.images.array_checks import UNLABELLED_INDEX
from hedgerow.images.labelled import LabelledImage
from hedgerow.images.regions import Region

MIN_TILE_SIDE = 256  # side of the tiles of an image whose labelled pixels make one part, unless context reaches farther


@dataclass(frozen=True)
class LabelledPixels:
    """The labelled pixels of an image of this size (H,W), in reading order: rows, columns (n,), class indices (n,)."""

    size: tuple[int, int]
    row: np.ndarray
    column: np.ndarray
    target: np.ndarray

    def __len__(self) -> int:
        return len(self.row)


def reach_of(config: StackConfig) -> int:
    """How far from a labelled pixel growing reads features, through all levels."""
    return config.n_levels * (config.context.window // 2)


def reasons_for_whole_images(config: StackConfig, held: GroupsOf) -> list[str]:
    """What of the settings needs whole images, in words; empty if parts of them will do."""
    plain = all(kind.proposals == "offsets" and kind.blank is None for kind in kinds_of(config.features))
    reasons = {
        "radii other than 0": tuple(config.context.radii) != (0,),
        "altered copies": config.augment.copies > 0,
        "reserved images": config.reserve > 0,
        "depth features": not plain,
        "more than one level on strokes in fewer than four images": held == "strokes" and config.n_levels > 1,
    }
    return [reason for reason, holds in reasons.items() if holds]


def chosen(painted: LabelledPixels, config: SamplingConfig, rng: np.random.Generator) -> np.ndarray:
    """(n,) bool: those of the labelled pixels that `choose_pixels` chooses, with the same random numbers."""
    is_chosen, values = np.zeros(len(painted), bool), np.unique(painted.target)
    if config.kind != "grid":
        for value in values:
            places = np.flatnonzero(painted.target == value)
            is_chosen[rng.choice(places, min(len(places), config.per_class), replace=False)] = True
        return is_chosen
    on_lattice = (painted.row % config.step == 0) & (painted.column % config.step == 0)
    is_chosen = on_lattice & _drawn(painted, config, rng)
    from_lattice = is_chosen.copy()
    for value in values:
        places = np.flatnonzero((painted.target == value) & ~is_chosen)
        missing = config.at_least - int(np.count_nonzero(painted.target[from_lattice] == value))
        if missing > 0:
            is_chosen[rng.choice(places, min(missing, len(places)), replace=False)] = True
    return is_chosen


def _drawn(painted: LabelledPixels, config: SamplingConfig, rng: np.random.Generator) -> np.ndarray:
    """(n,) bool: whether the random number of a pixel's place on the lattice is below the fraction."""
    step = config.step
    height, width = (-(-side // step) for side in painted.size)
    is_drawn = np.zeros(len(painted), bool)
    row, column = painted.row // step, painted.column // step
    band = max(2**20 // width, 1)
    for top in range(0, height, band):
        numbers = rng.random((min(band, height - top), width))
        first, last = np.searchsorted(row, [top, top + band])
        is_drawn[first:last] = numbers[row[first:last] - top, column[first:last]] < config.fraction
    return is_drawn


def groups(painted: Sequence[LabelledPixels], held: GroupsOf, config: StackConfig) -> list[np.ndarray]:
    """For each image, the groups (n,) int32 of its labelled pixels, as `with_groups` makes them."""
    group_of_pixel, first = [], 0
    for i, pixels in enumerate(painted):
        if held == "strokes":
            group_of_pixel.append(_strokes(pixels, config.n_folds, np.random.default_rng((config.seed, 9, i))))
            continue
        group_of_pixel.append(first + _blocks(pixels.size, held, pixels.row, pixels.column))
        first += int(_blocks(pixels.size, held, np.array([pixels.size[0] - 1]), np.array([pixels.size[1] - 1]))[0]) + 1
    return group_of_pixel


def _blocks(size: tuple[int, int], held: GroupsOf, row: np.ndarray, column: np.ndarray) -> np.ndarray:
    """(n,) int32: the number of the block of an image that pixels lie in, one for all if groups are images."""
    return block_at(size, 1 if held == "images" else BLOCKS_PER_SIDE, row, column)


def _strokes(painted: LabelledPixels, n_groups: int, rng: np.random.Generator) -> np.ndarray:
    """(n,) int32 groups, as `groups.strokes` has them."""
    group = np.zeros(len(painted), np.int32)
    for value in np.unique(painted.target):
        mine = np.flatnonzero(painted.target == value)
        piece = _pieces(painted.row[mine], painted.column[mine], painted.size[1])
        group[mine] = dealt_out(piece, int(piece.max()) + 1, n_groups, rng)
    return group


def _pieces(row: np.ndarray, column: np.ndarray, width: int) -> np.ndarray:
    """(n,) the number of the connected piece of each pixel, neighbours at corners included; in reading order."""
    key = row.astype(np.int64) * (width + 2) + column + 1  # no pixel is beside one at the other end of a row
    links = []
    for step in (1, width + 1, width + 2, width + 3):
        other = np.searchsorted(key, key + step)
        has = np.flatnonzero((other < len(key)) & (key[np.minimum(other, len(key) - 1)] == key + step))
        links.append((has, other[has]))
    first, second = (np.concatenate(ends) for ends in zip(*links, strict=True))
    graph = sparse.coo_matrix((np.ones(len(first), np.int8), (first, second)), shape=(len(key), len(key)))
    return np.asarray(sparse.csgraph.connected_components(graph, directed=False)[1])


@dataclass(frozen=True)
class Part:
    """A part of an image that stands for an image of its own, (h,w).

    first:        where its pixels begin among the places of its image
    target:       (h,w) uint8, UNLABELLED_INDEX but for the pixels that it is for; group: (h,w) int32
    """

    image: int
    first: int
    target: np.ndarray
    group: np.ndarray


@dataclass(frozen=True)
class SparseTrainingSet:
    """parts of all images; the places of each image, those of its parts one after another; and the samples."""

    parts: list[Part]
    places: list[Places]
    samples: Samples

    def images(self, n_inputs: int) -> list[LabelledImage]:
        """The parts as growing takes them; their planes hold nothing, for the features are already computed."""
        nothing = np.float32(0)
        return [
            LabelledImage(np.broadcast_to(nothing, (n_inputs, *part.target.shape)), part.target, group=part.group)
            for part in self.parts
        ]


def sparse_training_set(painted: Sequence[LabelledPixels], held: GroupsOf, config: StackConfig) -> SparseTrainingSet:
    """The parts of images that training reads, and the samples in them, the same as `draw_samples` draws."""
    of_group, reach = groups(painted, held, config), reach_of(config)
    parts: list[Part] = []
    places: list[Places] = []
    fields: list[list[np.ndarray]] = []
    start = 0
    for i, pixels in enumerate(painted):
        mine = chosen(pixels, config.sampling, np.random.default_rng((config.seed, 2, i)))
        cut = [_strip(i, pixels, of_group[i])] if reach == 0 else _tiles(i, pixels, of_group[i], reach, held)
        places.append((np.concatenate([c.rows for c in cut]), np.concatenate([c.columns for c in cut])))
        local = np.zeros((5, len(pixels)), np.int64)  # slice, row, column, part, pixel
        for piece in cut:
            width = piece.part.target.shape[1]
            local[1:, piece.own] = [
                piece.row, piece.column, np.full(len(piece.own), len(parts)), start + piece.row * width + piece.column,
            ]  # fmt: skip
            parts.append(piece.part)
            start += piece.part.target.size
        fields.append([*local[:, mine], pixels.target[mine], of_group[i][mine]])
    joined = [np.concatenate(field).astype(number_type(start)) for field in zip(*fields, strict=True)]
    return SparseTrainingSet(parts, places, limited(joined, config))


@dataclass(frozen=True)
class _Cut:
    """A part, and the rows and columns of all of its pixels in the image.

    own: the numbers of the labelled pixels that it is for; row, column: where they are in it
    """

    part: Part
    rows: np.ndarray
    columns: np.ndarray
    own: np.ndarray
    row: np.ndarray
    column: np.ndarray


def _strip(i: int, painted: LabelledPixels, group: np.ndarray) -> _Cut:
    """Without context only the labelled pixels are read: they stand in a row."""
    own = np.arange(len(painted))
    part = Part(i, 0, painted.target[None], group[None])
    return _Cut(part, painted.row, painted.column, own, np.zeros_like(own), own)


def _tiles(i: int, painted: LabelledPixels, group: np.ndarray, reach: int, held: GroupsOf) -> list[_Cut]:
    """The labelled pixels of each tile of a grid, with what lies within reach of them."""
    side = max(MIN_TILE_SIDE, 2 * reach)
    key = (painted.row // side).astype(np.int64) * (-(-painted.size[1] // side)) + painted.column // side
    cuts, first = [], 0
    for tile in np.unique(key):
        own = np.flatnonzero(key == tile)
        row, column = painted.row[own], painted.column[own]
        labelled = Region(int(row.min()), int(row.max()) + 1, int(column.min()), int(column.max()) + 1)
        seen = labelled.grown(reach, Region.whole(painted.size))
        target = np.full((seen.height, seen.width), UNLABELLED_INDEX, np.uint8)
        inner = row - seen.top, column - seen.left
        target[inner] = painted.target[own]
        rows, columns = (places.ravel() for places in np.mgrid[seen.top : seen.bottom, seen.left : seen.right])
        # The groups of blocks begin where those of the image do.
        first_group = int(group[own[0]]) - int(_blocks(painted.size, held, row[:1], column[:1])[0])
        around = (first_group + _blocks(painted.size, held, rows, columns)).reshape(target.shape)
        around[inner] = group[own]
        part = Part(i, first, target, around)
        cuts.append(_Cut(part, rows, columns, own, *inner))
        first += target.size
    return cuts
