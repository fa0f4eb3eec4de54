"""The network of one level in NumPy: runs the fused kernels on several threads, without PyTorch."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import groupby, pairwise

import numpy as np

from hedgerow.kernels.constants import CPU_GENERATIONS, GRADIENT_PARTS, SMALLEST_CARRY, SPLIT_KINDS
from hedgerow.kernels.cpu.blocks import COLUMNS, ROWS
from hedgerow.kernels.cpu.level_arguments import Activation, Reading, Trees, Weights, make_room
from hedgerow.kernels.cpu.level_backward import backward
from hedgerow.kernels.cpu.level_forward import forward
from hedgerow.kernels.cpu.soft_level import MIN_WALKED_TOLERANCE, SoftLevel
from hedgerow.kernels.wiring import Reads, Wiring
from hedgerow.threads import map_threads

Rows = tuple[int, int, int]
"""A slice of the grid, and the first and last row of a part of it."""

_walks = ContextVar("walks", default=True)


@contextmanager
def in_stored_order() -> Iterator[None]:
    """Within the block, soft levels visit all nodes in stored order: sums then have the same bits as in 0.1.0."""
    before = _walks.set(False)
    try:
        yield
    finally:
        _walks.reset(before)


class LevelWork:
    """A level on a grid, without its weights: where it reads, its wiring and its activation."""

    def __init__(
        self, reads: Reads, wiring: Wiring, split: str, activation: str, leaf_sharpness: float, tolerance: float
    ) -> None:
        self.size, self.first_trained, self._reads = reads.size, reads.first_trained, reads
        self.trees = Trees(wiring.root, wiring.left_child, wiring.split_of, wiring.leaf_of, wiring.leaf_group)
        self.n_pieces = 1 + max(int(wiring.path_length.max()) - 1, 0) // CPU_GENERATIONS  # on a path
        smallest = np.float32(max(tolerance, SMALLEST_CARRY))
        self.activation = Activation(SPLIT_KINDS[split], np.float32(leaf_sharpness), activation == "softmax", smallest)
        # A block that ends beyond the grid reads what lies there, but its gradient there is zero.
        self.beyond = (ROWS + 1) * reads.stride + COLUMNS
        is_soft = split == "soft" and activation == "exp" and not reads.is_stretched
        is_walked = is_soft and tolerance >= MIN_WALKED_TOLERANCE and _walks.get()
        self.sparse = SoftLevel(reads, wiring, tolerance) if is_walked else None

    def padded(self, values: np.ndarray) -> np.ndarray:
        """The values (V,), with padding behind them if needed, as both passes read them."""
        if self.sparse is not None:
            return values
        return np.concatenate([values, np.zeros(self.beyond, np.float32)])

    def _reading(self, padded: np.ndarray, z: int) -> Reading:
        """The reading of slice z of the grid."""
        r = self._reads
        return Reading(
            padded[r.slice_start(z) :], r.place, r.stride, r.size[1:], r.offset, r.row, r.column, r.stretch, r.planes,
            r.extent,
        )  # fmt: skip

    def scores(self, padded: np.ndarray, weights: Weights) -> np.ndarray:
        """(C,Z,h,w) float32, before normalisation or softmax."""
        if self.sparse is not None:
            return self.sparse.scores(padded, weights)
        n_classes = weights.votes.shape[1]
        depth, height, width = self.size
        out = np.empty((depth, n_classes, height, width), np.float32)

        def run(runs: list[Rows]) -> None:
            room = make_room(self.n_pieces, n_classes)
            for z, first, last in runs:
                forward(self._reading(padded, z), self.trees, weights, self.activation, room, first, last, out[z])

        # Small parts, so that threads finish at the same time.
        list(map_threads(run, self._parts(4 * GRADIENT_PARTS)))
        return np.moveaxis(out, 0, 1)

    def gradients(
        self, padded: np.ndarray, weights: Weights, slope: np.ndarray, first_trained: int
    ) -> tuple[Weights, np.ndarray]:
        """Gradients of the weights, and (V - first_trained,) of the values from there on.

        slope: (C,Z,h,w), the gradient of the scores
        """
        if self.sparse is not None:
            return self.sparse.gradients(padded, weights, slope, first_trained)
        slopes = [np.ascontiguousarray(plane) for plane in np.moveaxis(slope, 1, 0)]

        def run(runs: list[Rows]) -> tuple[Weights, np.ndarray]:
            d_weights = Weights(*(np.zeros_like(array) for array in weights))
            d_values = np.zeros(padded.size - first_trained, np.float32)
            room = make_room(self.n_pieces, len(slope))
            for z, first, last in runs:
                backward(
                    self._reading(padded, z), self.trees, weights, self.activation, room, first_trained, first, last,
                    slopes[z], d_weights, d_values[self._reads.slice_start(z) :],
                )  # fmt: skip
            return d_weights, d_values

        parts = map_threads(run, self._parts(GRADIENT_PARTS))
        d_weights, d_values = next(parts)
        for more_weights, more_values in parts:
            for total, part in zip((*d_weights, d_values), (*more_weights, more_values), strict=True):
                total += part
        return d_weights, d_values[: -self.beyond]

    def _parts(self, most: int) -> list[list[Rows]]:
        """The rows of blocks of all slices, divided into at most `most` parts."""
        depth, height, _ = self.size
        rows = [(z, top, min(top + ROWS, height)) for z in range(depth) for top in range(0, height, ROWS)]
        edges = np.linspace(0, len(rows), min(most, len(rows)) + 1).astype(int).tolist()
        parts = []
        for first, end in pairwise(edges):
            by_slice = [list(same) for _, same in groupby(rows[first:end], key=lambda each: each[0])]
            parts.append([(same[0][0], same[0][1], same[-1][2]) for same in by_slice])
        return parts
