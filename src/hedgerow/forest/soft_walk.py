"""Forests of soft splits over an image: node by node for the pixels that get there, or all nodes where most count."""

import numpy as np

from hedgerow.forest.arrays import Forest
from hedgerow.forest.level_input import LevelInput
from hedgerow.forest.reads import FixedPlaces, any_planes, fixed_places, used_planes, walkable
from hedgerow.images.regions import Region
from hedgerow.kernels.constants import UNUSED
from hedgerow.kernels.cpu import soft_walk as kernels
from hedgerow.kernels.cpu.level_arguments import Weights
from hedgerow.kernels.cpu.level_work import LevelWork
from hedgerow.kernels.cpu.soft_level import MIN_WALKED_TOLERANCE
from hedgerow.kernels.cpu.walk import Probes
from hedgerow.kernels.definition.outputs import normalise, softmax
from hedgerow.kernels.wiring import Wiring, fixed_reads, wire
from hedgerow.threads import map_threads, slice_blocks


def run_soft_forest(forest: Forest, level_input: LevelInput, is_softmax: bool, tolerance: float) -> np.ndarray:
    """Class probabilities (C,Z,h,w) float32 of a forest with soft splits; arguments as in `walk.run_forest`."""
    inner = level_input.region
    pairs, plane = used_planes(forest)
    if level_input.stretch is None and level_input.outside is None:
        fixed = fixed_places(forest, level_input, pairs, plane)
        if tolerance < MIN_WALKED_TOLERANCE:
            scores = _all_branches(forest, fixed, inner, tolerance)
            return softmax(scores) if is_softmax else normalise(scores)
        probes = Probes(plane, forest.offset, forest.weight)
        nowhere = np.zeros(0, np.float32)
        reads = [
            kernels.SoftReading(fixed.values(z), fixed.stride, fixed.place, level_input.size[1:], -1, nowhere)
            for z in range(inner.depth)
        ]
    else:
        averaged, probes = any_planes(forest, level_input, pairs, plane)
        values = np.concatenate([averaged.values.reshape(-1), averaged.outside])
        beyond = averaged.values.size if len(averaged.outside) else -1
        no_place = np.zeros((0, 0), np.int64)
        reads = [kernels.SoftReading(values, 0, no_place, averaged.size[1:], beyond, averaged.stretch)]
    nodes = walkable(forest)._replace(threshold=forest.threshold)
    limit, finish = np.float32(tolerance), kernels.SOFTMAX if is_softmax else kernels.NORMALISED
    out = np.empty((inner.depth, forest.n_classes, inner.height, inner.width), np.float32)

    def walk(rows: tuple[int, int, int]) -> None:
        z, first, end = rows
        origin = (inner.top, inner.left)
        kernels.walk_soft(reads[z], probes, nodes, forest.sharpness, limit, finish, first, end, origin, out[z])

    # The rows of a block share much work, so there are fewer and larger parts than for hard splits.
    list(map_threads(walk, slice_blocks(inner.depth, inner.height, 2)))
    return np.moveaxis(out, 0, 1)


def _all_branches(forest: Forest, fixed: FixedPlaces, inner: Region, tolerance: float) -> np.ndarray:
    """Scores (C,Z,h,w) by the network of one level, whose kernels take blocks of pixels through all nodes."""
    wiring = wire(forest.root, forest.left_child)
    splits, weights = wiring.node_split, soft_weights(forest, wiring)
    used = np.where(forest.weight[splits] != 0, fixed.place[splits], UNUSED)
    reads = fixed_reads(inner.shape, used, fixed.stride, fixed.slice_stride, fixed.planes.size)
    work = LevelWork(reads, wiring, "soft", "exp", 1.0, tolerance)
    return work.scores(work.padded(fixed.planes.reshape(-1)), weights)


def soft_weights(forest: Forest, wiring: Wiring) -> Weights:
    """The weights of the network that equals a forest of soft splits."""
    assert forest.sharpness is not None
    splits = wiring.node_split
    scale = forest.sharpness[splits]
    votes = np.ascontiguousarray(forest.votes[forest.leaf_index[wiring.node_leaf]])
    return Weights(scale[:, None] * forest.weight[splits], -scale * forest.threshold[splits], votes)
