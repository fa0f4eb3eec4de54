"""Map Back 2: each leaf gets the mean of what the network's tree says about the pixels that reach it.

The votes of the last level can be fitted to the network's output afterwards; see `vote_fit`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from hedgerow.forest.arrays import Forest, ForestStack
from hedgerow.forest.level_input import LevelInput, level_input, tiles
from hedgerow.forest.walk import reached_leaves, run_level
from hedgerow.images.array_checks import to_planes
from hedgerow.images.regions import Region
from hedgerow.kernels import buffers
from hedgerow.kernels.definition.outputs import normalise, softmax
from hedgerow.network.layout import Grid, Source, lattice, region_grid
from hedgerow.network.stacknet import StackNet
from hedgerow.network.vote_fit import FitSamples, add_by_leaf
from hedgerow.progress import Report, reporting

KEPT = 2**28  # bytes of the network's activations that are kept from one level to the next


def leaf_means(
    net: StackNet,
    stack: ForestStack,
    images: Sequence[np.ndarray],
    progress: Report | None = None,
    samples: FitSamples | None = None,
    stride: int = 1,
) -> ForestStack:
    """The paper's Algorithm 1: new votes for `stack`, level by level, with the levels below already updated.

    stack: Map Back 1 of the network
    samples: receives what the last level's votes can be fitted to
    stride: use every stride-th row and column of the images, as the paper did to train the network

    The network's activations are kept for the next level as far as KEPT allows, and otherwise computed again, so memory
    stays bounded however many images there are. Large images are processed in tiles or, with a stride, whole.
    """
    total = net.n_levels * len(images)
    kept: dict[int, np.ndarray] = {}
    with reporting(progress) as report:
        for level in range(net.n_levels):
            walk, below, room = _Walk(net, stack, level), kept, KEPT
            kept, is_last = {}, level + 1 == net.n_levels
            for done, image in enumerate(images):
                report("mapping back", level * len(images) + done, total)
                planes = to_planes(image, f"image {done}", net.features.layout)
                for part in walk.add(planes, stride, below.pop(done, None)):
                    if samples is not None and is_last:
                        samples.add(part.size, part.region, part.leaves, part.said)
                    if part.is_whole and not is_last and part.said.nbytes <= room:
                        kept[done] = part.said
                        room -= part.said.nbytes
            stack = _with_level(stack, level, walk.sums.updated(stack.levels[level]))
        report("mapping back", total, total)
    buffers.release()
    return _called(stack, "leaf_mean")


def fitted_votes(means: ForestStack, samples: FitSamples | None) -> ForestStack:
    """Map Back 2 with the last level's votes fitted to the network; `samples` are those of `leaf_means`.

    None: for a network of hard splits, which the forests already equal.
    """
    last = means.n_levels - 1
    fitted = means if samples is None else _with_level(means, last, samples.fitted(means.levels[last]))
    return _called(fitted, "fitted")


def _with_level(stack: ForestStack, level: int, forest: Forest) -> ForestStack:
    return replace(stack, levels=(*stack.levels[:level], forest, *stack.levels[level + 1 :]))


def _called(stack: ForestStack, method: str) -> ForestStack:
    return replace(stack, settings={**stack.settings, "mapped_back": method})


class LeafSums:
    """Sums of a network's tree scores, (C,L), over the samples that reach each leaf, and their numbers, (L,)."""

    def __init__(self, forest: Forest) -> None:
        self.scores, self.counts = np.zeros(forest.votes.shape[::-1]), np.zeros(forest.n_leaves, np.int64)

    def add(self, leaf: np.ndarray, scores: np.ndarray) -> None:
        """leaf: (Z,H,W) of one tree; scores: (C,Z,H,W), what the network's tree says there."""
        self.counts += np.bincount(leaf.ravel(), minlength=len(self.counts))
        add_by_leaf(leaf.ravel(), scores.reshape(len(scores), -1), self.scores)

    def updated(self, forest: Forest) -> Forest:
        """The forest with the means as votes; a leaf that no sample reaches keeps its own."""
        means = (self.scores / np.maximum(self.counts, 1)).T
        votes = np.where(self.counts[:, None] > 0, means, forest.votes).astype(np.float32)
        return replace(forest, votes=votes)


@dataclass(frozen=True)
class _Part:
    """What was found in a region of an image, or of a lattice of its pixels.

    size:   (Z,H,W) of the whole image or lattice
    leaves: (T,Z,h,w) that the region's pixels reach in the stack
    said:   (C,Z,h,w), what the network's level says
    """

    size: tuple[int, int, int]
    region: Region
    leaves: np.ndarray
    said: np.ndarray

    @property
    def is_whole(self) -> bool:
        return self.region.shape == self.size


class _Walk:
    """Takes images through one level: the stack says which leaves are reached, the network what its trees say."""

    def __init__(self, net: StackNet, stack: ForestStack, level: int) -> None:
        self.net, self.stack, self.level = net, stack, level
        self.sums = LeafSums(stack.levels[level])

    def add(self, planes: np.ndarray, stride: int, below: np.ndarray | None) -> Iterator[_Part]:
        """Add an image (C,H,W), or its pixels on a lattice.

        below: what the network's level below says in the whole image, or on the lattice, if it is known
        """
        size = 1, planes.shape[1], planes.shape[2]
        if stride > 1:
            yield self._add_lattice(planes, lattice(planes.shape[1], planes.shape[2], stride), below)
            return
        for region in tiles(self.net, size[1:]):
            leaves = reached_leaves(self.stack.levels[self.level], self._stack_input(planes, region))
            given = level_input(self.net, self.net.run_level, planes, region, self.level, below)
            said = self._add_trees(leaves, self.net.region_source(given), region_grid(given.region))
            yield _Part(size, region, leaves, said)

    def _add_lattice(self, planes: np.ndarray, grid: Grid, below: np.ndarray | None) -> _Part:
        """As in training, the network knows the level below only on the lattice; the stack, being fast, everywhere."""
        net, whole = self.net, Region.whole(planes.shape[1:])
        given = self._stack_input(planes, whole)
        leaves = grid.of_volume(reached_leaves(self.stack.levels[self.level], given))
        source = net.region_source(replace(given, channels=given.channels[: net.features.n_features]))
        if self.level:
            with torch.no_grad():
                known = net(source, [grid] * self.level)[-1] if below is None else torch.as_tensor(below)
            source = replace(source, before=known.to(net.device), known=grid)
        return _Part(grid.size, Region.whole(grid.size), leaves, self._add_trees(leaves, source, grid))

    def _stack_input(self, planes: np.ndarray, region: Region) -> LevelInput:
        """What the stack's level reads for a region."""
        return level_input(self.stack, partial(run_level, self.stack), planes, region, self.level)

    def _add_trees(self, leaves: np.ndarray, source: Source, grid: Grid) -> np.ndarray:
        """Add what the trees say on a grid whose pixels reach leaves (T,Z,h,w); returns the level's output
        (C,Z,h,w)."""
        net = self.net
        total = np.zeros((net.n_classes, *grid.size), np.float32)
        with torch.no_grad():
            for leaf, scores in zip(leaves, net.level(self.level).tree_scores(source, grid), strict=True):
                said = scores.cpu().numpy()
                self.sums.add(leaf, said)
                total += said
        is_softmax = net.output == "softmax" and self.level + 1 == net.n_levels
        return softmax(total) if is_softmax else normalise(total)
