"""Mapping a network back to a stack of forests that keeps what the network learned.

Map Back 1 takes thresholds and votes from the weights. In Map Back 2 the votes of a leaf become the mean output of the
network's tree over the pixels that reach it; those of the last level can then be fitted to the network's output, see
`vote_fit`. A level of soft splits can also become a forest of soft splits, which equals it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from hedgerow.errors import ConfigError, InputError, ModelError
from hedgerow.forest.arrays import Forest, ForestStack
from hedgerow.forest.level_input import LevelInput, dimensions_of, level_input, tiles
from hedgerow.forest.walk import reached_leaves, run_level
from hedgerow.images.array_checks import as_volumes, to_planes
from hedgerow.images.given import given_planes
from hedgerow.images.labelled import Images
from hedgerow.images.regions import Region
from hedgerow.kernels import buffers
from hedgerow.kernels.definition.outputs import normalise, softmax
from hedgerow.network import soft_levels
from hedgerow.network.layout import Grid, Source, lattice, region_grid
from hedgerow.network.mapping import check_choice
from hedgerow.network.soft_levels import soft_forest, split_weights, with_votes
from hedgerow.network.stacknet import LevelNet, StackNet
from hedgerow.network.vote_fit import FitSamples, add_by_leaf
from hedgerow.progress import Report, reporting

METHODS = ("weights", "leaf_mean", "fitted", "soft")
FROM_IMAGES = ("leaf_mean", "fitted")
MAX_THRESHOLD = np.float32(1e25)  # beyond all values, yet small enough to be multiplied by a sharpness
ACTIVATION_MEMORY = 2**28  # bytes of the network's activations that are cached from one level to the next


def to_forest(
    net: StackNet,
    images: Images | None = None,
    method: str = "fitted",
    *,
    stride: int = 1,
    tolerance: float | None = None,
    axes: str | None = None,
    progress: Report | None = None,
) -> ForestStack:
    """The stack of forests that a network maps back to, which keeps what the network learned.

    method: "weights", the paper's Map Back 1: thresholds -b / w, and the network's votes
            "leaf_mean", Map Back 2: in addition, the votes of a leaf become the mean output of the network's tree over
            the pixels that reach it in `images`, (H,W[,C]) each, or one image; or in volumes
            "fitted": Map Back 2, and then the last level's votes are fitted together to the network's output
            "soft": exactly the network; a split goes both ways, as in a fuzzy tree
    stride: "leaf_mean", "fitted": use every stride-th row and column of the images, which helps if the network is slow
    tolerance: "soft": branches reached at a pixel with at most this probability are left out. For each of them, the
            output of a tree changes by at most this much, times its votes; None: as in the network
    axes:   of the arrays of images, as of `predict`

    >>> images, labels = hr.synthetic.somites(n_images=2, size=(40, 48))
    >>> stack = hr.fit_stack(images, labels, hr.StackConfig(n_levels=1, n_trees=2))
    >>> small = hr.to_forest(hr.to_convnet(stack), images)
    >>> small.settings["mapped_back"]
    'fitted'
    """
    if not isinstance(net, StackNet):
        raise InputError(f"a {type(net).__name__} was given to to_forest; give a network, e.g. from refine(...).")
    if type(net) is not StackNet:
        raise InputError(
            f"a {type(net).__name__} has parts that forests cannot represent; map back the network of its forests."
        )
    check_choice("method", method, METHODS)
    if tolerance is not None and (method != "soft" or not 0 <= tolerance < 1):
        raise ConfigError(f"the tolerance is {tolerance}; it needs method 'soft' and must be at least 0 and below 1.")
    if not isinstance(stride, int) or stride < 1:
        raise ConfigError(f"the stride is {stride}; it must be a whole number of at least 1.")
    if stride > 1 and method not in FROM_IMAGES:
        raise ConfigError(f"the stride is {stride}, but {method!r} does not use images; leave it out, or use 'fitted'.")
    features, is_volume = net.features, dimensions_of(net) == 3
    pictures = given_planes(() if images is None else images, features.n_inputs, features.layout, is_volume, axes)
    if method in FROM_IMAGES and not len(pictures):
        raise InputError(f"{method!r} needs images, but there are none; give the training images, or use 'weights'.")
    back = soft_back if method == "soft" else weights_back
    levels = tuple(back(net.level(k)) for k in range(net.n_levels))
    settings = {**net.settings, "mapped_back": method}
    stack = replace(net.stack, features=net.features, levels=levels, output=net.output, settings=settings, device="cpu")
    if method == "soft":  # this continues the network's history; the others start a new one
        # Softmax leaves divide by a sum, from which small branches would be missing; a forest does not divide.
        own = net.level(0).tolerance if net.level(0).activation == "exp" else 0.0
        kept = own if tolerance is None else tolerance
        return replace(stack, tolerance=kept, refinements=net.refinements, relaxed=net.relaxed)
    stack = replace(stack, tolerance=0.0, refinements=(), relaxed=False)
    if method == "weights":
        return stack
    samples = FitSamples(len(pictures)) if method == "fitted" and net.output == "softmax" else None
    means = leaf_means(net, stack, pictures, progress, samples, stride)
    return means if method == "leaf_mean" else fitted_votes(means, samples)


def weights_back(level: LevelNet) -> Forest:
    """Map Back 1 of one level: theta = -b / w, and the votes that the leaves have in the network.

    A split that did not train keeps its values, since multiplying and then dividing may give another number. If it did
    train and has one probe, its weight becomes 1 again, and its children are swapped if the weight was negative; it
    decides as the network's split does for any value. Splits with several probes keep the network's weights.
    """
    _check_finite(level)
    forest, weight, bias = level.forest, *split_weights(level)
    splits, mapped = level.wiring.node_split, level.mapped_splits()
    is_changed = (mapped[0] != weight).any(axis=1) | (mapped[1] != bias)
    is_swapped, theta = np.zeros(len(splits), bool), -bias
    if weight.shape[1] == 1:
        is_changed |= forest.weight[splits, 0] != 1  # in a soft forest
        is_swapped = is_changed & (weight[:, 0] < 0)
        weight, theta = np.ones_like(weight), _threshold(weight[:, 0], bias)
    of_node = {name: getattr(forest, name).copy() for name in ("weight", "threshold")}
    of_node["weight"][splits[is_changed]] = weight[is_changed]
    of_node["threshold"][splits[is_changed]] = theta[is_changed]
    return _swapped(with_votes(replace(forest, **of_node, sharpness=None), level), splits[is_swapped])


def soft_back(level: LevelNet) -> Forest:
    """The forest that equals a level of soft splits."""
    if level.split != "soft" or level.connections != "frozen":
        raise ConfigError(
            f"no soft forest equals a network of {level.split} splits and {level.connections} connections; use method "
            "'leaf_mean', or refine a network from to_convnet(stack, split='soft')."
        )
    _check_finite(level)
    return soft_forest(level)


def _check_finite(level: LevelNet) -> None:
    if not all(np.isfinite(weights.detach().cpu().numpy()).all() for weights in level.parameters()):
        raise ModelError("a weight of the network is not finite; refine an earlier network at a lower learning rate.")


def _threshold(weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """(N,) float32: the smallest value from which on a split with one probe decides as it does for large values.

    It is found by bisecting the ordered list of all float32 numbers with the network's own arithmetic, since rounding
    decides near -b / w. If the weight is 0, all values go the same way, and the threshold lies beyond them.
    """
    highest = int(MAX_THRESHOLD.view(np.int32))
    below, rank = np.full(len(weight), -highest - 1, np.int64), np.full(len(weight), highest, np.int64)
    with np.errstate(under="ignore"):
        while (rank - below > 1).any():
            middle = (below + rank) // 2
            is_right = weight * _ranked(middle) + bias >= 0
            is_beyond = np.where(weight < 0, ~is_right, is_right)
            below, rank = np.where(is_beyond, below, middle), np.where(is_beyond, middle, rank)
    return _ranked(rank)


def _ranked(rank: np.ndarray) -> np.ndarray:
    """The float32 numbers of these ranks: rank 0 is 0.0, and negative numbers have negative ranks."""
    return np.sign(rank).astype(np.float32) * np.abs(rank).astype(np.int32).view(np.float32)


def _swapped(forest: Forest, splits: np.ndarray) -> Forest:
    """The forest with the left and right children of these nodes swapped; two children are neighbours in the arrays."""
    order, left = np.arange(forest.n_nodes), forest.left_child[splits]
    order[left], order[left + 1] = left + 1, left
    names = ("left_child", "threshold", "channel", "offset", "radius", "weight", "leaf_index")
    return replace(forest, **{name: getattr(forest, name)[order] for name in names})


def leaf_means(
    net: StackNet,
    stack: ForestStack,
    images: Sequence[np.ndarray],
    progress: Report | None = None,
    samples: FitSamples | None = None,
    stride: int = 1,
    memory: int = ACTIVATION_MEMORY,
) -> ForestStack:
    """The paper's Algorithm 1: new votes for `stack`, level by level; each level reads those already updated.

    stack: Map Back 1 of the network
    images: (H,W[,C]) each, or planes (C,Z,H,W) of volumes
    samples: receives the samples that the last level's votes can be fitted to
    stride: use every stride-th row and column of the images, as the paper did to train the network
    memory: bytes of the network's outputs to cache for the next level; others are computed again, so memory does not
            grow with the number of images. Large images are processed in tiles or, with a stride, whole
    """
    total = net.n_levels * len(images)
    cached: dict[int, np.ndarray] = {}
    with reporting(progress) as report:
        for level in range(net.n_levels):
            walk, below, left = _Walk(net, stack, level), cached, memory
            cached, is_last = {}, level + 1 == net.n_levels
            for done, image in enumerate(images):
                report("mapping back", level * len(images) + done, total)
                planes = to_planes(image, f"image {done}", "planes" if np.ndim(image) == 4 else net.features.layout)
                for part in walk.add(planes, stride, below.pop(done, None)):
                    if samples is not None and is_last:
                        samples.add(part.size, part.region, part.leaves, part.output)
                    if part.is_whole and not is_last and part.output.nbytes <= left:
                        cached[done] = part.output
                        left -= part.output.nbytes
            stack = _with_level(stack, level, walk.updated())
        report("mapping back", total, total)
    buffers.release()
    return _called(stack, "leaf_mean")


def fitted_votes(means: ForestStack, samples: FitSamples | None) -> ForestStack:
    """Map Back 2 with the last level's votes fitted to the network.

    samples: from `leaf_means`; None: for a network of hard splits, which the forests already equal
    """
    last = means.n_levels - 1
    fitted = means if samples is None else _with_level(means, last, samples.fitted(means.levels[last]))
    return _called(fitted, "fitted")


def _with_level(stack: ForestStack, level: int, forest: Forest) -> ForestStack:
    return replace(stack, levels=(*stack.levels[:level], forest, *stack.levels[level + 1 :]))


def _called(stack: ForestStack, method: str) -> ForestStack:
    return replace(stack, settings={**stack.settings, "mapped_back": method})


@dataclass(frozen=True)
class _Part:
    """A region of an image, or of a lattice of its pixels.

    size:   (Z,H,W) of the whole image or lattice
    leaves: (T,Z,h,w), reached in the stack
    output: (C,Z,h,w), of the network's level
    """

    size: tuple[int, int, int]
    region: Region
    leaves: np.ndarray
    output: np.ndarray

    @property
    def is_whole(self) -> bool:
        return self.region.shape == self.size


class _Walk:
    """One level: the leaves that images reach in the stack, and the scores of the network's trees there.

    scores: (C,L) sums of the tree scores over the samples that reach each leaf; counts: (L,) their numbers
    """

    def __init__(self, net: StackNet, stack: ForestStack, level: int) -> None:
        self.net, self.stack, self.level, self.forest = net, stack, level, stack.levels[level]
        self.scores = np.zeros(self.forest.votes.shape[::-1])
        self.counts = np.zeros(self.forest.n_leaves, np.int64)

    def updated(self) -> Forest:
        """The forest with the means as votes; a leaf that no sample reaches keeps its votes."""
        means = (self.scores / np.maximum(self.counts, 1)).T
        votes = np.where(self.counts[:, None] > 0, means, self.forest.votes).astype(np.float32)
        return replace(self.forest, votes=votes)

    def add(self, planes: np.ndarray, stride: int, below: np.ndarray | None) -> Iterator[_Part]:
        """Add an image (C,H,W) or a volume (C,Z,H,W), or its pixels on a lattice.

        below: output of the network's level below in the whole image, or on the lattice; None: compute it
        """
        _, depth, height, width = as_volumes(planes).shape
        if stride > 1:
            yield self._add_lattice(planes, lattice(height, width, stride, depth=depth), below)
            return
        size, run_network_level = (depth, height, width), partial(soft_levels.run_level, self.net)
        for region in tiles(self.net, planes.shape[1:]):
            leaves = reached_leaves(self.forest, self._stack_input(planes, region))
            network_input = level_input(self.net, run_network_level, planes, region, self.level, below)
            source, grid = self.net.region_source(network_input), region_grid(network_input.region)
            yield _Part(size, region, leaves, self._add_trees(leaves, source, grid))

    def _add_lattice(self, planes: np.ndarray, grid: Grid, below: np.ndarray | None) -> _Part:
        """As in training, the network's level below is known only on the lattice; the stack's is known everywhere."""
        net, whole = self.net, Region.whole(planes.shape[1:])
        stack_input = self._stack_input(planes, whole)
        leaves = grid.of_volume(reached_leaves(self.forest, stack_input))
        source = net.region_source(replace(stack_input, channels=stack_input.channels[: net.features.n_features]))
        if self.level:
            with torch.no_grad():
                known = net(source, [grid] * self.level)[-1] if below is None else torch.as_tensor(below)
            source = replace(source, before=known.to(net.device), known=grid)
        return _Part(grid.size, Region.whole(grid.size), leaves, self._add_trees(leaves, source, grid))

    def _stack_input(self, planes: np.ndarray, region: Region) -> LevelInput:
        """The input of the stack's level for a region."""
        return level_input(self.stack, partial(run_level, self.stack), planes, region, self.level)

    def _add_trees(self, leaves: np.ndarray, source: Source, grid: Grid) -> np.ndarray:
        """Add the scores of the trees on a grid whose pixels reach leaves (T,Z,h,w); returns the level's output
        (C,Z,h,w)."""
        net = self.net
        total = np.zeros((net.n_classes, *grid.size), np.float32)
        with torch.no_grad():
            for leaf, scores in zip(leaves, net.level(self.level).tree_scores(source, grid), strict=True):
                of_tree = scores.cpu().numpy()
                self.counts += np.bincount(leaf.ravel(), minlength=len(self.counts))
                add_by_leaf(leaf.ravel(), of_tree.reshape(len(of_tree), -1), self.scores)
                total += of_tree
        is_softmax = net.output == "softmax" and self.level + 1 == net.n_levels
        return softmax(total) if is_softmax else normalise(total)
