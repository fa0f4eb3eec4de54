"""The network of one level in NumPy: the fused kernels, handed out to threads. No PyTorch here."""

from __future__ import annotations

import numpy as np

from hedgerow.kernels.cpu import level_backward
from hedgerow.kernels.cpu import level_forward as kernels
from hedgerow.kernels.cpu.blocks import BLOCK, COLUMNS, ROWS
from hedgerow.kernels.wiring import GENERATIONS, Reads, Wiring
from hedgerow.threads import map_threads

KINDS = {"hard": kernels.HARD, "tanh": kernels.TANH, "soft": kernels.SOFT, "crelu": kernels.CRELU}
# Gradients are summed in so many parts, whatever the number of threads: the same sums in the same order.
PARTS = 8
SMALLEST = 1e-30  # what a branch must carry to be felt in float32 at all; smaller numbers only cost time


class LevelWork:
    """A level on a grid, without what trains: where it reads, how it is wired, its activations.

    Weights are given as (split_weight (N,J), split_bias (N,), vote_weight (L,C)), all float32.
    """

    def __init__(
        self, reads: Reads, wiring: Wiring, split: str, activation: str, leaf_sharpness: float, tolerance: float
    ) -> None:
        self.size, self.carried = reads.size, reads.carried
        self.reading = (
            reads.place, reads.stride, reads.size, reads.offset, reads.row, reads.column, reads.stretch,
            reads.planes, reads.extent,
        )  # fmt: skip
        self.tree = (wiring.root, wiring.left_child, wiring.split_of, wiring.leaf_of, wiring.leaf_group)
        self.n_pieces = 1 + max(int(wiring.path_length.max()) - 1, 0) // GENERATIONS  # that lie above each other
        smallest = np.float32(max(tolerance, SMALLEST))
        self.activations = (KINDS[split], np.float32(leaf_sharpness), activation == "softmax", smallest)
        # A block that ends beyond the grid reads, and adds nothing to, what lies there.
        self.beyond = (ROWS + 1) * reads.stride + COLUMNS

    def padded(self, values: np.ndarray) -> np.ndarray:
        """values (V,) with room behind them, as both ways read them."""
        return np.concatenate([values, np.zeros(self.beyond, np.float32)])

    def scores(self, padded: np.ndarray, weights: tuple[np.ndarray, ...]) -> np.ndarray:
        """(C,h,w) float32, before normalisation or softmax."""
        n_classes = weights[2].shape[1]
        out = np.empty((n_classes, *self.size), np.float32)

        def run(rows: tuple[int, int]) -> None:
            room, total = kernels.make_room(self.n_pieces, n_classes), np.empty((n_classes, BLOCK), np.float32)
            kernels.forward((padded, *self.reading), self.tree, weights, self.activations, room, *rows, total, out)

        # Small bands, so that threads end together.
        list(map_threads(run, self._bands(4 * PARTS)))
        return out

    def gradients(
        self, padded: np.ndarray, weights: tuple[np.ndarray, ...], slope: np.ndarray, carried: int
    ) -> list[np.ndarray]:
        """Of the three weights, and (V - carried,) of the values from `carried` on; slope: (C,h,w) of the scores."""

        def run(rows: tuple[int, int]) -> list[np.ndarray]:
            parts = [np.zeros_like(array) for array in weights]
            parts.append(np.zeros(padded.size - carried, np.float32))
            room = kernels.make_room(self.n_pieces, len(slope)), level_backward.make_room(len(slope))
            level_backward.backward(
                (padded, *self.reading), self.tree, weights, self.activations, *room, carried, *rows, slope, *parts
            )
            return parts

        totals: list[np.ndarray] = []
        for parts in map_threads(run, self._bands(PARTS)):
            if not totals:
                totals = parts
                continue
            for total, part in zip(totals, parts, strict=True):
                total += part
        return [*totals[:3], totals[3][: -self.beyond]]

    def _bands(self, parts: int) -> list[tuple[int, int]]:
        """Rows of blocks, shared out in at most so many parts."""
        height = self.size[0]
        blocks = -(-height // ROWS)
        edges = np.minimum(np.linspace(0, blocks, min(parts, blocks) + 1).astype(int) * ROWS, height)
        return list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
