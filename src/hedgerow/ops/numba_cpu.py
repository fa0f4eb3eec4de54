"""The network of one level on the CPU: the fused kernels behind the signature of `reference.level_scores`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from hedgerow.ops import net_backward_kernels
from hedgerow.ops import net_kernels as kernels
from hedgerow.ops.blocks import BLOCK, COLUMNS, ROWS
from hedgerow.ops.wiring import GENERATIONS, Reads, Wiring
from hedgerow.threads import map_threads

KINDS = {"hard": kernels.HARD, "tanh": kernels.TANH, "soft": kernels.SOFT, "crelu": kernels.CRELU}
# Gradients are summed in so many parts, whatever the number of threads: the same sums in the same order.
PARTS = 8
SMALLEST = 1e-30  # what a branch must carry to be felt in float32 at all; smaller numbers only cost time


def level_scores(
    values: Tensor,
    reads: Reads,
    wiring: Wiring,
    split_weight: Tensor,
    split_bias: Tensor,
    vote_weight: Tensor,
    split: str,
    activation: str,
    leaf_sharpness: float,
    tolerance: float = 0.0,
) -> Tensor:
    """Scores (C,S) of the pixels of a grid, before normalisation or softmax, with the tree as it is.

    values: (V,) float32 flat planes; split_weight (N,J), split_bias (N,), vote_weight (L,C), all float32
    leaf_sharpness: alpha_2; the fuzzy tree ("soft") has 1
    tolerance: branches that carry no more than this at a pixel are left out there; 0: nothing is
    """
    work = _Work(reads, wiring, KINDS[split], np.float32(leaf_sharpness), activation == "softmax", tolerance)
    scores: Tensor = _LevelScores.apply(values, split_weight, split_bias, vote_weight, work)
    return scores


class _Work:
    """The kernels' arguments that do not train."""

    def __init__(self, reads: Reads, wiring: Wiring, kind: int, leaf: np.float32, normalised: bool, tolerance: float):
        self.reads, self.carried = reads, reads.carried
        self.reading = (
            reads.place, reads.stride, reads.size, reads.offset, reads.row, reads.column, reads.stretch,
            reads.planes, reads.extent,
        )  # fmt: skip
        self.tree = (wiring.root, wiring.left_child, wiring.split_of, wiring.leaf_of, wiring.leaf_group)
        self.n_pieces = 1 + max(int(wiring.path_length.max()) - 1, 0) // GENERATIONS  # that lie above each other
        self.activations = (kind, leaf, normalised, np.float32(max(tolerance, SMALLEST)))
        # A block that ends beyond the grid reads, and adds nothing to, what lies there.
        self.beyond = (ROWS + 1) * reads.stride + COLUMNS

    def arrays(self, values: Tensor, *parameters: Tensor) -> list[np.ndarray]:
        padded = np.concatenate([values.detach().numpy(), np.zeros(self.beyond, np.float32)])
        return [padded, *(_array(tensor) for tensor in parameters)]

    def bands(self, parts: int) -> list[tuple[int, int]]:
        """Rows of blocks, shared out in at most so many parts."""
        height = self.reads.size[0]
        blocks = -(-height // ROWS)
        edges = np.minimum(np.linspace(0, blocks, min(parts, blocks) + 1).astype(int) * ROWS, height)
        return list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))


class _LevelScores(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, values: Tensor, weight: Tensor, bias: Tensor, votes: Tensor, work: _Work) -> Tensor:
        arrays = work.arrays(values, weight, bias, votes)
        context.save_for_backward(values, weight, bias, votes)
        context.work, context.padded = work, arrays[0]  # padded once for both ways
        out = np.empty((votes.shape[1], *work.reads.size), np.float32)

        reading, weights = (arrays[0], *work.reading), tuple(arrays[1:])

        def run(rows: tuple[int, int]) -> None:
            room = kernels.make_room(work.n_pieces, len(out))
            total = np.empty((len(out), BLOCK), np.float32)
            kernels.forward(reading, work.tree, weights, work.activations, room, *rows, total, out)

        # Small bands, so that threads end together.
        list(map_threads(run, work.bands(4 * PARTS)))
        return torch.from_numpy(out).reshape(len(out), -1)

    @staticmethod
    def backward(context: Any, *slopes: Tensor) -> Any:
        work: _Work = context.work
        # Read through autograd, which refuses weights that were changed in between.
        arrays = [context.padded, *(_array(tensor) for tensor in context.saved_tensors[1:])]
        slope = _array(slopes[0]).reshape(-1, *work.reads.size)
        reading, weights = (arrays[0], *work.reading), tuple(arrays[1:])
        carried = work.carried if context.needs_input_grad[0] else arrays[0].size

        def run(rows: tuple[int, int]) -> list[np.ndarray]:
            parts = [np.zeros_like(array) for array in arrays[1:]]
            parts.append(np.zeros(arrays[0].size - carried, np.float32))
            room = kernels.make_room(work.n_pieces, len(slope)), net_backward_kernels.make_room(len(slope))
            net_backward_kernels.backward(
                reading, work.tree, weights, work.activations, *room, carried, *rows, slope, *parts
            )
            return parts

        totals: list[np.ndarray] = []
        for parts in map_threads(run, work.bands(PARTS)):
            if not totals:
                totals = parts
                continue
            for total, part in zip(totals, parts, strict=True):
                total += part
        weight, bias, votes = (torch.from_numpy(total) for total in totals[:3])
        read = totals[3]
        values = None
        if context.needs_input_grad[0]:
            slope_of_values = np.zeros(arrays[0].size - work.beyond, np.float32)  # only what is touched takes memory
            slope_of_values[carried:] = read[: -work.beyond]
            values = torch.from_numpy(slope_of_values)
        return values, weight, bias, votes, None


def _array(tensor: Tensor) -> np.ndarray:
    return np.ascontiguousarray(tensor.detach().numpy())
