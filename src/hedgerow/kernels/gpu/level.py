"""The network of one level on a GPU: the Triton kernels behind the signature of `cpu.level.level_scores`.

Arrays over nodes are passed in the order of the trees' pieces (see `pieces`), and gradients are returned in it.
Programs add their parts of a gradient in no fixed order, so its last digits vary from run to run. After
`torch.use_deterministic_algorithms(True)` they add whole numbers, whose sum does not depend on the order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
import triton
from torch import Tensor

from hedgerow.kernels.constants import NO_PLANE, SMALLEST_CARRY, SPLIT_KINDS, UNUSED
from hedgerow.kernels.gpu.level_backward import backward
from hedgerow.kernels.gpu.level_forward import COLUMNS, IS_INTERPRETED, forward
from hedgerow.kernels.gpu.pieces import Pieces, pieces_of
from hedgerow.kernels.weak_cache import WeakCache
from hedgerow.kernels.wiring import Reads, Wiring

PADDING = -1e30  # bias of a place without a split: everything goes left
MOST_BYTES = 2**28  # limit on the scores of trees that one run computes separately
MOST_CLASSES = 63  # per run; one more column of the votes counts leaves
# Operands of matrix products are pairs of float16 numbers, whose range is 2^-25 to 2^16. They are scaled by powers of
# two to at most about this size, and results are divided by the same powers.
WHOLE = 2.0**14


@dataclass(frozen=True)
class _Shape:
    """How work is divided: pixels per tile, warps per tile, programs per multiprocessor."""

    pixels: int
    warps: int
    programs: int


FORWARD, BACKWARD = _Shape(64, 1, 8), _Shape(32, 1, 8)  # measured to be the fastest on an H200
MOST_BELOW = 4  # tiles, one below the other, whose gradients are summed first if that keeps all multiprocessors busy
FEW_TILES = 2048  # with fewer, each tree of a tile is an item of work by itself, to keep all multiprocessors busy


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
    """Scores (C,S) of the pixels of a grid, as from `cpu.level.level_scores`."""
    reads.check_split(split)
    work = _Work(reads, wiring, values, split, activation, leaf_sharpness, tolerance)
    weights = values, split_weight, split_bias
    parts = [_GpuScores.apply(*weights, some, work) for some in vote_weight.split(MOST_CLASSES, dim=1)]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def tree_scores(
    values: Tensor, reads: Reads, wiring: Wiring, weight: Tensor, bias: Tensor, votes: Tensor, *kinds: Any
) -> Iterator[Tensor]:
    """Scores (C,S) of each tree, without gradients; arguments as in `level_scores`.

    One run computes as many trees as MOST_BYTES allows.
    """
    together = max(1, MOST_BYTES // (4 * votes.shape[1] * reads.n_pixels))
    for first in range(0, wiring.n_trees, together):
        some = wiring if together >= wiring.n_trees else replace(wiring, root=wiring.root[first : first + together])
        work = _Work(reads, some, values, *kinds)
        arguments = values.contiguous(), weight.detach(), bias.detach()
        parts = [work.tree_scores(*arguments, part) for part in votes.detach().split(MOST_CLASSES, dim=1)]
        yield from parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


class _GpuScores(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, values: Tensor, weight: Tensor, bias: Tensor, votes: Tensor, work: _Work) -> Tensor:
        context.save_for_backward(values, weight, bias, votes)
        context.work = work
        return work.scores(values.contiguous(), weight, bias, votes)

    @staticmethod
    def backward(context: Any, *slopes: Tensor) -> Any:
        work: _Work = context.work
        # Read through autograd, which refuses weights that have changed since the forward pass.
        values, weight, bias, votes = context.saved_tensors
        slope, needs_values = slopes[0].contiguous(), context.needs_input_grad[0]
        gradients = work.gradients(values.contiguous(), weight, bias, votes, slope, needs_values)
        return *gradients, None


class _Reading(NamedTuple):
    """Of splits, in the order of the pieces: place (Q,J,EXITS), spot (Q,J,5,EXITS), offset (Q,J,2,EXITS); of pixels:
    row, column, stretch (S,). With fixed offsets only `place` is used, and the others can be any tensor."""

    place: Tensor
    spot: Tensor
    offset: Tensor
    row: Tensor
    column: Tensor
    stretch: Tensor


class _Arranged(NamedTuple):
    """Weights in the order of the pieces: weight (Q,J,EXITS), bias (Q,EXITS), and the two parts of the votes
    (Q,EXITS,WIDTH), whose column C is WHOLE."""

    weight: Tensor
    bias: Tensor
    votes: Tensor
    fine_votes: Tensor


_TABLES, _READING = WeakCache(), WeakCache()


def _tables(pieces: Pieces, device: torch.device) -> SimpleNamespace:
    """The arrays of `Pieces` on a device. As an index, UNUSED (-1) selects the last row, where padding is appended."""

    def put() -> SimpleNamespace:
        arrays = {name: array for name, array in vars(pieces).items() if isinstance(array, np.ndarray)}
        return SimpleNamespace(**{name: torch.as_tensor(array, device=device) for name, array in arrays.items()})

    return _TABLES.get(pieces, device, put)


class _Work:
    """A level on a grid, without its weights: where it reads, its wiring and its activations."""

    def __init__(
        self,
        reads: Reads,
        wiring: Wiring,
        values: Tensor,
        split: str,
        activation: str,
        leaf_sharpness: float,
        tolerance: float,
    ) -> None:
        self.reads, self.split = reads, split
        self.pieces = pieces_of(wiring)
        self.device = values.device
        self.tables = _tables(self.pieces, values.device)
        self.n_trees, self.n_probes = len(self.tables.first) - 1, reads.place.shape[1]
        self.kinds = {
            "J": self.n_probes,
            "STRETCHED": reads.is_stretched,
            "KIND": SPLIT_KINDS[split],
            "DROPS": tolerance > 0 and split in ("soft", "crelu"),
            "NORMALISED": activation == "softmax",
            "WHOLE": _whole(split, values.device),
        }
        self.whole = float(self.kinds["WHOLE"])
        self.leaf, self.tolerance = float(leaf_sharpness), max(tolerance, SMALLEST_CARRY) * self.whole
        # Decisions and the places of stretched offsets must not depend on fused multiply-add instructions.
        self.fuses = split != "hard" and not reads.is_stretched
        index_type = torch.int32 if values.numel() < 2**31 else torch.int64
        key = (id(self.pieces), self.device, index_type)
        # The pieces are cached too, so that no other object can get their identity.
        _, self.reading = _READING.get(reads, key, lambda: (self.pieces, self._reading(index_type)))

    def _reading(self, index_type: torch.dtype) -> _Reading:
        reads, device = self.reads, self.device
        place = reads.place
        if not reads.is_stretched:
            at = self._by_piece(torch.as_tensor(place, device=device).to(index_type), UNUSED)
            return _Reading(at, at, at, at, at, at)
        planes = np.where((place == UNUSED)[..., None], NO_PLANE, reads.planes[place])
        table = torch.as_tensor(planes, device=device).to(index_type)
        offset = torch.as_tensor(reads.offset, device=device)
        row, column = torch.as_tensor(np.stack([reads.row, reads.column]), device=device).to(index_type)
        return _Reading(
            self._by_piece(table[..., 0], UNUSED),
            self._by_piece(table[..., 1:], 1),
            self._by_piece(offset, 0),
            row,
            column,
            torch.as_tensor(reads.stretch, device=device),
        )

    def _by_piece(self, of_splits: Tensor, padding: float) -> Tensor:
        """An array over splits (N,...) in the order of the pieces, (Q,...,EXITS), with `padding` elsewhere."""
        padded = torch.cat([of_splits, of_splits.new_full((1, *of_splits.shape[1:]), padding)])
        return padded[self.tables.split.long()].movedim(1, -1).contiguous()

    def arranged(self, weight: Tensor, bias: Tensor, votes: Tensor) -> _Arranged:
        counted = torch.cat([votes, votes.new_full((len(votes), 1), self.whole)], dim=1)
        width = max(16, triton.next_power_of_2(counted.shape[1]))
        padded = torch.nn.functional.pad(counted, (0, width - counted.shape[1], 0, 1))[self.tables.leaf.long()]
        coarse = padded if self.whole == 1 else padded.half()
        fine = (padded - coarse).to(coarse.dtype)
        return _Arranged(self._by_piece(weight, 0), self._by_piece(bias, PADDING), coarse, fine)

    def _enlarged(self, values: Tensor, most: float) -> tuple[Tensor, Tensor]:
        """The values times the power of two that brings the largest to between `most` / 2 and `most`, and that power
        (float64). Where matrix products are exact, the values are returned as they are."""
        if self.whole == 1 or not values.numel():
            return values, values.new_ones((), dtype=torch.float64)
        largest = values.detach().abs().amax().double()
        factor = torch.exp2(torch.floor(torch.log2(most / largest)).clamp(-120, 120))
        factor = torch.where(largest == 0, 1, factor)
        factor = torch.where(largest.isfinite(), factor, torch.nan)  # an infinite value would scale all others to 0
        return (values * factor).float(), factor

    def _tiles(self, shape: _Shape) -> tuple[int, int]:
        """The number of tiles, down and across, that cover a slice of the grid."""
        _, height, width = self.reads.size
        return -(-height // (shape.pixels // COLUMNS.value)), -(-width // COLUMNS.value)

    def _programs(self, shape: _Shape) -> int:
        if self.device.type != "cuda":
            return 1
        return shape.programs * torch.cuda.get_device_properties(self.device).multi_processor_count

    def _trees(self) -> tuple[Tensor, ...]:
        tables = self.tables
        return tables.slot, tables.below, tables.is_open, tables.after, tables.first

    def _geometry(self) -> tuple[int, ...]:
        reads = self.reads
        return *reads.size[1:], reads.stride, *reads.extent

    def scores(self, values: Tensor, weight: Tensor, bias: Tensor, votes: Tensor) -> Tensor:
        """(C,S) float32."""
        down, across = self._tiles(FORWARD)
        out, scale = self._forward(values, weight, bias, votes, self.n_trees if down * across < FEW_TILES else 1)
        total = out[0]
        for part in out[1:]:  # tree after tree, as one program would add them
            total = total + part
        return total if scale is None else total * scale

    def tree_scores(self, values: Tensor, weight: Tensor, bias: Tensor, votes: Tensor) -> Tensor:
        """(T,C,S) float32: the scores of each tree."""
        out, scale = self._forward(values, weight, bias, votes, self.n_trees)
        return out if scale is None else out.mul_(scale)  # in place: they are large, and no gradient needs them

    def _forward(
        self, values: Tensor, weight: Tensor, bias: Tensor, votes: Tensor, n_groups: int
    ) -> tuple[Tensor, Tensor | None]:
        """Scores (n_groups,C,S) float32, one sum for each group of trees, and the factor to multiply them by."""
        larger, factor = self._enlarged(votes, self.whole)
        weights, n_classes = self.arranged(weight, bias, larger), votes.shape[1]
        down, across = self._tiles(FORWARD)
        n_items, width = down * across * n_groups, weights.votes.shape[2]
        n_programs = min(n_items, self._programs(FORWARD))
        rooms = torch.empty((n_programs, self.pieces.n_slots + width, FORWARD.pixels), device=self.device)
        slices = []
        for z in range(self.reads.size[0]):
            slices.append(torch.empty((n_groups, n_classes, math.prod(self.reads.size[1:])), device=self.device))
            forward[(n_programs,)](
                values[self.reads.slice_start(z) :], *self.reading, *weights, *self._trees(), rooms, slices[z],
                *self._geometry(), n_items, self.n_trees, n_groups, n_classes, self.pieces.n_slots, self.leaf,
                self.tolerance, 1.0, **self.kinds, WIDTH=width, P=FORWARD.pixels, num_warps=FORWARD.warps,
                enable_fp_fusion=self.fuses,
            )  # fmt: skip
        out = slices[0] if len(slices) == 1 else torch.cat(slices, dim=2)
        if self.whole == 1:
            return out, None
        return out, (self.whole ** (1 if self.kinds["NORMALISED"] else -1) / factor).float()

    def gradients(
        self, values: Tensor, weight: Tensor, bias: Tensor, votes: Tensor, slope: Tensor, needs_values: bool
    ) -> tuple[Tensor | None, ...]:
        """Gradients of values (V,), split_weight (N,J), split_bias (N,) and votes (L,C), from that of the scores, slope
        (C,S)."""
        tables, first_trained = self.tables, self.reads.first_trained
        # The gradient of a tree's mass can be as large as those of all classes together.
        most = self.whole / MOST_CLASSES if self.kinds["NORMALISED"] else self.whole
        (slope, slope_factor), (larger, vote_factor) = self._enlarged(slope, most), self._enlarged(votes, self.whole)
        arranged = self.arranged(weight, bias, larger)
        n_trees, n_programs, width = self.n_trees, self._programs(BACKWARD), arranged.votes.shape[2]
        down, across = self._tiles(BACKWARD)
        n_below = min(MOST_BELOW, down)
        while n_below > 1 and -(-down // n_below) * across * n_trees < 4 * n_programs:
            n_below //= 2
        n_items = -(-down // n_below) * across * n_trees
        n_programs = min(n_items, n_programs)
        rooms = torch.empty((n_programs, n_below, self.pieces.n_slots + 1, BACKWARD.pixels), device=self.device)
        room_of_slopes = (n_programs, n_below, 2, width, BACKWARD.pixels)
        slopes = torch.empty(room_of_slopes, dtype=arranged.votes.dtype, device=self.device)
        is_fixed = torch.are_deterministic_algorithms_enabled()
        scales = self._scales(values, weight, larger, slope) if is_fixed else values.new_ones(3)
        # A weight's gradient is a sum over thousands of tiles, which needs more digits.
        kinds = (torch.int64, torch.int64) if is_fixed else (torch.float64, torch.float32)
        trained = (arranged.weight, arranged.bias, arranged.votes)
        sums = [torch.zeros(tensor.shape, dtype=kinds[0], device=self.device) for tensor in trained]
        n_values = values.numel() - first_trained if needs_values and self.split != "hard" else 0
        sums.append(torch.zeros(n_values, dtype=kinds[1], device=self.device))
        for z, of_slice in enumerate(slope.split(math.prod(self.reads.size[1:]), dim=1)):
            start = self.reads.slice_start(z)
            backward[(n_programs,)](
                values[start:], *self.reading, *arranged, *self._trees(), rooms, slopes, of_slice.contiguous(),
                tables.split, tables.leaf, tables.opens, tables.visited, tables.is_up, tables.visit_after,
                tables.first_visit, *sums[:3], sums[3][start:], scales, *self._geometry(), first_trained,
                n_items, n_below, n_trees, votes.shape[1], self.pieces.n_slots, self.leaf, self.tolerance, 1.0,
                **self.kinds, NEEDS_VALUES=n_values > 0, FIXED_POINT=is_fixed,
                WIDTH=width, P=BACKWARD.pixels, num_warps=BACKWARD.warps, enable_fp_fusion=self.fuses,
            )  # fmt: skip
        of_votes = self.whole * slope_factor  # the factor by which the sums are too large
        of_all = of_votes * vote_factor
        factors = [of_all, of_all, of_votes, of_all]
        if is_fixed:
            factors = [factor * scales[n].double() for factor, n in zip(factors, (0, 0, 1, 2), strict=True)]
        d_weight, d_bias, d_votes, read = (
            (total.double() / factor).float() for total, factor in zip(sums, factors, strict=True)
        )
        d_values = None
        if needs_values:
            d_values = torch.zeros_like(values)
            if n_values:
                d_values[first_trained:] = read
        return (
            d_values,
            _of_neurons(d_weight.movedim(2, 1).flatten(0, 1), tables.split_at),
            _of_neurons(d_bias.flatten(), tables.split_at),
            _of_neurons(d_votes.flatten(0, 1), tables.leaf_at)[:, : votes.shape[1]].contiguous(),
        )

    def _scales(self, values: Tensor, weight: Tensor, votes: Tensor, slope: Tensor) -> Tensor:
        """(3,) powers of two that scale gradients of weights, votes and values to whole numbers of 63 bits."""
        slope, votes, weight, values = (
            tensor.abs().amax().double() if tensor.numel() else tensor.new_zeros((), dtype=torch.float64)
            for tensor in (slope, votes, weight, values)
        )
        n_pixels, n_classes = self.reads.n_pixels, MOST_CLASSES
        n_readers = weight.new_full((), self.reads.place.size * (n_pixels if self.reads.is_stretched else 1))
        # No leaf's activation exceeds 1. Except with tanh, a tree's sum to at most 1 or are divided by their sum.
        split = 2 * n_classes * votes * slope * self.whole * max(self.leaf, 1.0)
        if self.split == "tanh":
            split = split * self.tables.leaf.numel()
        largest = torch.stack(
            [n_pixels * split * values.clamp(min=1), n_pixels * slope * self.whole, n_readers * split * weight]
        ).clamp(min=1e-30)
        return torch.exp2(torch.floor(62 - torch.log2(largest)).clamp(max=120)).float()


def _whole(split: str, device: torch.device) -> float:
    """The number that represents 1 in activations, votes and their products: WHOLE, or 1 where products are exact."""
    if split == "hard" or (not IS_INTERPRETED and torch.cuda.get_device_capability(device)[0] < 8):
        return 1.0
    return WHOLE


def _of_neurons(by_piece: Tensor, at: Tensor) -> Tensor:
    """The rows of neurons in an array (Q*EXITS,...); 0 for a neuron that is in no piece."""
    found = by_piece[at.clamp(min=0)] if len(by_piece) else by_piece
    return torch.where((at == UNUSED).reshape(-1, *[1] * (found.ndim - 1)), 0, found)
