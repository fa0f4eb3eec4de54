"""Map Back 2: each leaf gets the mean of what the network's tree says of the pixels that reach it.

Those of the last level can be fitted to the network's output afterwards, see `vote_fit`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch

from hedgerow.context import Region, reached_leaves
from hedgerow.convnet import StackNet
from hedgerow.images import to_planes
from hedgerow.layout import Grid, Source, lattice, region_grid
from hedgerow.progress import Report, reporting
from hedgerow.threads import map_threads
from hedgerow.tiling import level_input, tiles
from hedgerow.trees import Forest, ForestStack, normalise, softmax
from hedgerow.vote_fit import Samples

KEPT = 2**28  # bytes of the network's activations that are kept from one level to the next


def leaf_means(
    net: StackNet,
    stack: ForestStack,
    images: Sequence[np.ndarray],
    progress: Report | None = None,
    samples: Samples | None = None,
    stride: int = 1,
) -> ForestStack:
    """The paper's Algorithm 1: level by level, the votes of `stack`, whose levels below have been updated already.

    stack: Map Back 1 of the network
    samples: gets what the last level's votes can be fitted to
    stride: take every stride-th row and column of the images, as the network was trained on in the paper

    The network's activations are kept for the next level as far as KEPT allows, and
    computed again where it does not: however many images there are, memory stays bounded.
    """
    total = net.n_levels * len(images)
    kept: dict[int, np.ndarray] = {}
    with reporting(progress) as report:
        for level in range(net.n_levels):
            sums, below, room = LeafSums(stack.levels[level]), kept, KEPT
            kept, is_last = {}, level + 1 == net.n_levels
            for done, image in enumerate(images):
                report("mapping back", level * len(images) + done, total)
                planes = to_planes(image, f"image {done}", net.features.kind)
                for size, region, leaves, said in _add_image(
                    sums, net, stack, level, planes, stride, below.pop(done, None)
                ):
                    if samples is not None and is_last:
                        samples.add(size, region, leaves, said)
                    if (region.height, region.width) == size and not is_last and said.nbytes <= room:
                        kept[done] = said
                        room -= said.nbytes
            stack = _with_level(stack, level, sums.updated(stack.levels[level]))
        report("mapping back", total, total)
    return _called(stack, "leaf_mean")


def fitted_votes(means: ForestStack, samples: Samples | None) -> ForestStack:
    """Map Back 2 with the last level's votes fitted to the network; `samples` are those of `leaf_means`.

    None: of a network of hard splits, which the forests equal already.
    """
    last = means.n_levels - 1
    fitted = means if samples is None else _with_level(means, last, samples.fitted(means.levels[last]))
    return _called(fitted, "fitted")


def _with_level(stack: ForestStack, level: int, forest: Forest) -> ForestStack:
    return replace(stack, levels=(*stack.levels[:level], forest, *stack.levels[level + 1 :]))


def _called(stack: ForestStack, method: str) -> ForestStack:
    return replace(stack, settings={**stack.settings, "mapped_back": method})


class LeafSums:
    """Sums of a network's tree scores, (C,L), and the numbers of samples, (L,), over those that reach each leaf."""

    def __init__(self, forest: Forest) -> None:
        self.scores, self.counts = np.zeros(forest.votes.shape[::-1]), np.zeros(forest.n_leaves, np.int64)

    def add(self, leaf: np.ndarray, scores: np.ndarray) -> None:
        """leaf: (H,W) of one tree; scores: (C,H,W), what the network's tree says there."""
        from hedgerow.ops.leaf_kernels import add_by_leaf

        leaf, planes = leaf.ravel(), scores.reshape(len(scores), -1)
        self.counts += np.bincount(leaf, minlength=len(self.counts))
        rows = (slice(c, c + 1) for c in range(len(planes)))  # a class is summed by itself, whoever does it
        list(map_threads(lambda row: add_by_leaf(leaf, planes[row], self.scores[row]), rows))

    def updated(self, forest: Forest) -> Forest:
        """With the means as votes; a leaf that no sample reaches keeps its own."""
        means = (self.scores / np.maximum(self.counts, 1)).T
        votes = np.where(self.counts[:, None] > 0, means, forest.votes).astype(np.float32)
        return replace(forest, votes=votes)


Part = tuple[tuple[int, int], Region, np.ndarray, np.ndarray]


def _add_image(
    sums: LeafSums,
    net: StackNet,
    stack: ForestStack,
    level: int,
    planes: np.ndarray,
    stride: int,
    below: np.ndarray | None,
) -> Iterator[Part]:
    """Add an image (C,H,W), or a lattice of its pixels: the stack says which leaves are reached, the network what its
    trees say there.

    below: what the network's level below says in the whole image, or on the lattice, if it is known
    Part by part: the size (H,W) of all of it, the part, the leaves (T,h,w), and what the network's level says (C,h,w).
    """
    size = planes.shape[1], planes.shape[2]
    if stride > 1:
        grid = lattice(*size, stride)
        yield (
            grid.size,
            Region(0, grid.height, 0, grid.width),
            *_add_lattice(sums, net, stack, level, planes, grid, below),
        )
        return
    for region in tiles(net, size):
        leaves = reached_leaves(stack.levels[level], *level_input(stack, planes, region, level))
        channels, inner, *around = level_input(net, planes, region, level, below)
        source = net.region_source(channels, *around)
        yield size, region, leaves, _add_trees(sums, net, level, leaves, source, region_grid(inner))


def _add_lattice(
    sums: LeafSums,
    net: StackNet,
    stack: ForestStack,
    level: int,
    planes: np.ndarray,
    grid: Grid,
    below: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    """As in training, the network knows its level below on the lattice only; the stack, which is quick, everywhere."""
    whole = Region(0, planes.shape[1], 0, planes.shape[2])
    leaves = grid.of(reached_leaves(stack.levels[level], *level_input(stack, planes, whole, level)))
    source = net.source(planes)
    if level:
        with torch.no_grad():
            before = net(source, [grid] * level)[-1] if below is None else torch.as_tensor(below, device=net.device)
        source = replace(source, before=before, known=grid)
    return leaves, _add_trees(sums, net, level, leaves, source, grid)


def _add_trees(sums: LeafSums, net: StackNet, level: int, leaves: np.ndarray, source: Source, grid: Grid) -> np.ndarray:
    """Add what the network's trees say on a grid, whose pixels reach leaves (T,h,w); what the level says, (C,h,w)."""
    total = np.zeros((net.n_classes, *grid.size), np.float32)
    with torch.no_grad():
        for leaf, scores in zip(leaves, net.level(level).tree_scores(source, grid), strict=True):
            said = scores.cpu().numpy()
            sums.add(leaf, said)
            total += said
    is_softmax = net.output == "softmax" and level + 1 == net.n_levels
    return softmax(total) if is_softmax else normalise(total)
