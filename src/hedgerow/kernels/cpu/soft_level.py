"""The network of one level of soft splits in NumPy, without small branches: walked node by node, without PyTorch.

Most branches carry less than the tolerance at most pixels. The fused kernels of `level_work` process a branch for a
whole block if one of its pixels enters it; here each pixel enters only its own branches.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from hedgerow.kernels.constants import GRADIENT_PARTS, LEAF, UNUSED
from hedgerow.kernels.cpu.level_arguments import Weights
from hedgerow.kernels.cpu.soft_backward import in_blocks, make_soft_back_room, soft_backward
from hedgerow.kernels.cpu.soft_walk import SCORES, SoftReading, walk_soft
from hedgerow.kernels.cpu.walk import Nodes, Probes
from hedgerow.kernels.weak_cache import WeakCache
from hedgerow.kernels.wiring import Reads, Wiring
from hedgerow.threads import map_threads, slice_blocks

# Below this tolerance nearly all branches are entered, and processing whole blocks is faster.
MIN_WALKED_TOLERANCE = 1e-6

_NODES = WeakCache(1)
_PLACES = WeakCache(1)


def factored(weight: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights (N,J), thresholds (N,) and sharpness (N,) of soft splits w x + b = sharpness (weight x - threshold).

    The sharpness is a power of two, so nothing is rounded.
    """
    largest = np.abs(weight).max(axis=1, initial=0)
    # Within the range of float32; 1 for a split that no longer reads anything.
    power = np.clip(np.round(np.log2(np.where(largest > 0, largest, 1))), -60, 60)
    scale = np.exp2(power).astype(np.float32)
    return weight / scale[:, None], -bias / scale, scale


def _static(wiring: Wiring) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The fields root, depth, child and leaf of `Nodes`."""
    child = np.where(wiring.left_child == LEAF, np.arange(len(wiring.left_child)), wiring.left_child)
    depth = np.array([wiring.path_length.max()], np.int64)
    leaf = np.maximum(wiring.leaf_of, 0).astype(np.uint32)
    return wiring.root.astype(np.uint32), depth, child.astype(np.uint32), leaf


def _placed(place: np.ndarray, wiring: Wiring) -> np.ndarray:
    """(nodes,J) int64: where each node's probes read; 0 where there is no probe, whose weight is 0."""
    if not len(place):
        return np.zeros((len(wiring.split_of), 1), np.int64)
    return np.maximum(place, 0)[np.maximum(wiring.split_of, 0)]


class SoftLevel:
    """A level of soft splits on a grid, without its weights."""

    def __init__(self, reads: Reads, wiring: Wiring, tolerance: float) -> None:
        """reads: with fixed offsets; tolerance: at least MIN_WALKED_TOLERANCE"""
        self.size, self._reads, self._wiring, self._limit = reads.size, reads, wiring, np.float32(tolerance)

    def scores(self, values: np.ndarray, weights: Weights) -> np.ndarray:
        """(C,Z,h,w) float32, before normalisation or softmax."""
        return self._walked(*self._trees(values, weights), weights.votes.shape[1])

    def tree_scores(self, values: np.ndarray, weights: Weights) -> Iterator[np.ndarray]:
        """Scores (C,Z,h,w) of each tree."""
        reading, probes, nodes, sharpness = self._trees(values, weights)
        for root in np.split(nodes.root, len(nodes.root)):
            yield self._walked(reading, probes, nodes._replace(root=root), sharpness, weights.votes.shape[1])

    def gradients(
        self, values: np.ndarray, weights: Weights, slope: np.ndarray, first_trained: int
    ) -> tuple[Weights, np.ndarray]:
        """As `LevelWork.gradients`."""
        reading, probes, nodes, sharpness = self._trees(values, weights)
        width = nodes.votes.shape[1]
        slopes = [in_blocks(plane, width) for plane in np.moveaxis(slope, 1, 0)]
        # Each part has trees of its own, so no two threads add to the same node or leaf.
        d_weights = Weights(*(np.zeros_like(array) for array in (probes.weight, sharpness, nodes.votes)))

        def run(trees: tuple[int, int]) -> np.ndarray:
            d_values = np.zeros(values.size - first_trained, np.float32)
            room = make_soft_back_room(int(nodes.depth.max()), width)
            for z, of_slice in enumerate(slopes):
                start = self._reads.slice_start(z)
                soft_backward(
                    reading._replace(values=values[start:]), probes, nodes, sharpness, self._limit, first_trained,
                    trees, self.size[1:], of_slice, room, d_weights, d_values[start:],
                )  # fmt: skip
            return d_values

        edges = np.linspace(0, len(nodes.root), min(GRADIENT_PARTS, len(nodes.root)) + 1).astype(int).tolist()
        parts = map_threads(run, pairwise(edges))
        d_values = next(parts)
        for more in parts:
            d_values += more
        splits = self._wiring.node_split
        votes = np.ascontiguousarray(d_weights.votes[:, : len(slope)])
        is_read = self._reads.place != UNUSED
        return Weights(np.where(is_read, d_weights.split[splits], 0), d_weights.bias[splits], votes), d_values

    def _trees(self, values: np.ndarray, weights: Weights) -> tuple[SoftReading, Probes, Nodes, np.ndarray]:
        """The arguments of the kernels, in which splits and leaves have the numbers of their nodes."""
        wiring, votes = self._wiring, weights.votes
        root, depth, child, leaf = _NODES.get(wiring, None, lambda: _static(wiring))
        place = _PLACES.get(self._reads.place, None, lambda: _placed(self._reads.place, wiring))
        weight, threshold, scale = factored(np.where(self._reads.place != UNUSED, weights.split, 0), weights.bias)
        of_node = np.maximum(wiring.split_of, 0)  # a leaf's is not read
        if not len(threshold):
            of_node, (weight, threshold, scale) = of_node * 0, (np.zeros(s, np.float32) for s in ((1, 1), 1, 1))
        padded = np.pad(votes, ((0, 0), (0, -votes.shape[1] % 8)))
        nothing = np.zeros((0, 0), np.int32), np.zeros((0, 0, 3), np.float32)
        reading = SoftReading(values, self._reads.stride, place, self.size[1:], -1, np.zeros(0, np.float32))
        nodes = Nodes(root, depth, child, threshold[of_node], leaf, padded)
        return reading, Probes(*nothing, weight[of_node]), nodes, scale[of_node]

    def _walked(
        self, reading: SoftReading, probes: Probes, nodes: Nodes, sharpness: np.ndarray, n_classes: int
    ) -> np.ndarray:
        depth, height, width = self.size
        out = np.empty((depth, n_classes, height, width), np.float32)

        def walk(rows: tuple[int, int, int]) -> None:
            z, first, last = rows
            here = reading._replace(values=reading.values[self._reads.slice_start(z) :])
            walk_soft(here, probes, nodes, sharpness, self._limit, SCORES, first, last, (0, 0), out[z])

        list(map_threads(walk, slice_blocks(depth, height, 2)))
        return np.moveaxis(out, 0, 1)
