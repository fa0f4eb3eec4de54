"""The wiring of one level of the network: which splits lead to each leaf, and where each probe reads. In NumPy."""

import math
from dataclasses import dataclass, field

import numpy as np

from hedgerow.errors import ConfigError
from hedgerow.kernels.constants import CPU_GENERATIONS, LEAF, UNUSED

LEAVES_PER_SUM = 256  # leaves that are summed together before they are added to the others


@dataclass(frozen=True)
class Wiring:
    """H1 has one neuron per split (N), H2 one per leaf (L), and E edges connect leaves to the splits on their paths.

    root:       (T,) int32, node of each tree's root
    left_child: (nodes,) int32, LEAF at a leaf; the right child is the next node
    split_of:   (nodes,) int32, number of the node's neuron in H1, or UNUSED; leaf_of: the same for H2
    node_split, node_leaf: (N,) and (L,) int32, the nodes of the neurons
    leaf_tree:  (L,) int64, tree of each leaf
    leaf_group: (L,) int32, number of the group of leaves that is summed together, ascending from piece to piece
    edge_split, edge_leaf: (E,) int64; edge_sign: (E,) int8, +1 where the path goes right, -1 where it goes left
    path_length: (L,) int64, |P(l)|
    """

    root: np.ndarray
    left_child: np.ndarray
    split_of: np.ndarray
    leaf_of: np.ndarray
    node_split: np.ndarray
    node_leaf: np.ndarray
    leaf_tree: np.ndarray
    leaf_group: np.ndarray
    edge_split: np.ndarray
    edge_leaf: np.ndarray
    edge_sign: np.ndarray
    path_length: np.ndarray

    @property
    def n_splits(self) -> int:
        return len(self.node_split)

    @property
    def n_leaves(self) -> int:
        return len(self.node_leaf)

    @property
    def n_trees(self) -> int:
        return len(self.root)


def wire(root: np.ndarray, left_child: np.ndarray) -> Wiring:
    """The wiring of trees with these roots (T,), ascending, and left children (nodes,).

    Neurons are numbered in the order of their nodes.
    """
    is_split = left_child != LEAF
    node_split, node_leaf = np.flatnonzero(is_split), np.flatnonzero(~is_split)
    split_of = np.where(is_split, np.cumsum(is_split) - 1, UNUSED).astype(np.int32)
    leaf_of = np.where(is_split, UNUSED, np.cumsum(~is_split) - 1).astype(np.int32)
    parent = np.full(len(left_child), UNUSED, np.int64)
    parent[left_child[node_split]] = node_split
    parent[left_child[node_split] + 1] = node_split
    # All leaves climb together, one step per round; edges are sorted at the end so that each path starts at its root.
    leaves, splits, signs, rounds = [], [], [], []
    leaf, below, step = np.arange(len(node_leaf)), node_leaf, 0
    while len(leaf):
        on = parent[below] != UNUSED
        leaf, below = leaf[on], below[on]
        above = parent[below]
        leaves.append(leaf)
        splits.append(split_of[above])
        signs.append(np.where(below == left_child[above], -1, 1))
        rounds.append(np.full(len(leaf), -step))
        below, step = above, step + 1
    leaf_tree = np.searchsorted(root, node_leaf, side="right").astype(np.int64) - 1
    order = np.lexsort((np.concatenate(rounds), np.concatenate(leaves)))
    edge_leaf = np.concatenate(leaves)[order].astype(np.int64)
    return Wiring(
        root=root,
        left_child=left_child.astype(np.int32),
        split_of=split_of,
        leaf_of=leaf_of,
        node_split=node_split.astype(np.int32),
        node_leaf=node_leaf.astype(np.int32),
        leaf_tree=leaf_tree,
        leaf_group=_leaf_groups(root, left_child, leaf_of),
        edge_split=np.concatenate(splits)[order].astype(np.int64),
        edge_leaf=edge_leaf,
        edge_sign=np.concatenate(signs)[order].astype(np.int8),
        path_length=np.bincount(edge_leaf, minlength=len(node_leaf)),
    )


def _leaf_groups(roots: np.ndarray, left_child: np.ndarray, leaf_of: np.ndarray) -> np.ndarray:
    """(L,) int32: the group of each leaf, of LEAVES_PER_SUM consecutive leaves of a tree, piece after piece."""
    group, splits = np.empty(int((leaf_of != UNUSED).sum()), np.int32), left_child != LEAF
    first = 0
    for root in roots:
        tops, rank = [root], 0
        while tops:
            generation = np.array([tops.pop()])
            for level in range(CPU_GENERATIONS + 1):
                is_split = splits[generation]
                leaves = generation[~is_split]
                group[leaf_of[leaves]] = first + (rank + np.arange(len(leaves))) // LEAVES_PER_SUM
                rank += len(leaves)
                generation = generation[is_split]
                if level < CPU_GENERATIONS:
                    left = left_child[generation]
                    generation = np.stack([left, left + 1], axis=1).ravel()
            tops.extend(generation[::-1])
        first += -(-rank // LEAVES_PER_SUM)
    return group


@dataclass(frozen=True)
class Reads:
    """Where the probes of a level read for a grid of Z slices of h x w pixels, in one flat array of V values.

    Fixed offsets are the same for all pixels. The volumes of the channels are padded, and for the pixel (z, i, k) of
    the grid, probe j of split n reads the value at `place[n, j] + z * slice_stride + i * stride + k`. Kernels compute
    one slice at a time: each uses the same places, counted from `slice_start`.
    Stretched offsets differ from pixel to pixel (depth images). There is one slice, its planes are not padded, and
    `place` holds the number of the probe's plane; see `places`.

    size:    (Z, h, w)
    place:   (N,J) int64, UNUSED where a split has fewer probes
    stride:  from one row of the padded volumes to the next; slice_stride: from one slice to the next; 0 if stretched
    carried: index of the first value from the level before; those before it come from the features
    Only for stretched offsets:
    offset:  (N,J,2) float32, rows and columns; row, column: (S,) int64, of the pixels; stretch: (S,) float32
    planes:  (P,6) int64, start, height, width, top, left and step of each plane's grid
    extent:  (H,W) of the image if offsets beyond it read a constant; (0,0) if they read the edge
    features_train: whether the features have a gradient, too; if not, kernels save that work
    """

    size: tuple[int, int, int]
    place: np.ndarray
    stride: int
    slice_stride: int
    carried: int
    offset: np.ndarray = field(default_factory=lambda: np.zeros((0, 0, 2), np.float32))
    row: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    column: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    stretch: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    planes: np.ndarray = field(default_factory=lambda: np.zeros((0, 6), np.int64))
    extent: tuple[int, int] = (0, 0)
    features_train: bool = False

    @property
    def is_stretched(self) -> bool:
        return self.stride == 0

    @property
    def n_pixels(self) -> int:
        """S = Z h w"""
        return math.prod(self.size)

    def slice_start(self, z: int) -> int:
        """The index that the places of slice z of the grid are counted from."""
        return z * self.slice_stride

    @property
    def first_trained(self) -> int:
        """The index from which on values have a gradient."""
        return 0 if self.features_train else self.carried

    def check_split(self, split: str) -> None:
        """Raise ConfigError if the features train but this kind of split has no gradient."""
        if split == "hard" and self.features_train:
            raise ConfigError(
                "the features need a gradient, but hard splits have none; map the stack with split='soft', 'tanh' or "
                "'crelu', or detach the features."
            )


def places(reads: Reads, first: int, last: int) -> np.ndarray:
    """(N,J,S) int64: indices of the values that probes read for the pixels first..last of the grid; 0 if unused."""
    if not reads.is_stretched:
        z, i, k = np.unravel_index(np.arange(first, last), reads.size)
        pixel = z * reads.slice_stride + i * reads.stride + k
        return np.where(reads.place[..., None] == UNUSED, 0, reads.place[..., None] + pixel)
    start, height, width, top, left, step = np.moveaxis(reads.planes[reads.place][..., None, :], -1, 0)
    stretch = reads.stretch[first:last, None]
    shift = np.floor(reads.offset[..., None, :] * stretch + np.float32(0.5)).astype(np.int64)
    row, column = reads.row[first:last] + shift[..., 0], reads.column[first:last] + shift[..., 1]
    is_inside = (row >= 0) & (row < reads.extent[0]) & (column >= 0) & (column < reads.extent[1])
    is_inside |= reads.extent[0] == 0
    # The nearest point of the plane's grid; the constant outside the image follows each plane.
    i = np.clip((row - top + step // 2) // step, 0, height - 1)
    k = np.clip((column - left + step // 2) // step, 0, width - 1)
    place = start + np.where(is_inside, i * width + k, height * width)
    return np.where(reads.place[..., None] == UNUSED, 0, place)
