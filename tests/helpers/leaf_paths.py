"""P(l) of the paper, the splits on the way to each leaf, found leaf by leaf: what wirings are compared with."""

from dataclasses import dataclass

import numpy as np

from hedgerow.kernels.constants import LEAF


@dataclass(frozen=True)
class LeafPaths:
    """P(l): the splits on the way to leaf l are node[start[l]:start[l+1]], root first.

    start: (L+1,) int64; node: (E,) int32; sign: (E,) int8, -1 where the path goes left and +1 where it goes right
    """

    start: np.ndarray
    node: np.ndarray
    sign: np.ndarray


def leaf_paths(forest):
    """The splits on the path to every leaf, with the side taken."""
    parent = np.full(forest.n_nodes, LEAF, np.int64)
    splits = np.flatnonzero(forest.is_split)
    parent[forest.left_child[splits]] = splits
    parent[forest.left_child[splits] + 1] = splits
    start, nodes, signs = [0], [], []
    for leaf in np.argsort(forest.leaf_index, kind="stable")[forest.n_nodes - forest.n_leaves :]:
        path, node = [], int(leaf)
        while parent[node] != LEAF:
            above = int(parent[node])
            path.append((above, 1 if node != forest.left_child[above] else -1))
            node = above
        nodes += [step[0] for step in reversed(path)]
        signs += [step[1] for step in reversed(path)]
        start.append(len(nodes))
    return LeafPaths(np.array(start, np.int64), np.array(nodes, np.int32), np.array(signs, np.int8))
