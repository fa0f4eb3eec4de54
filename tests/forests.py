"""Random forests for tests: any shape the representation allows."""

from __future__ import annotations

import numpy as np

from hedgerow.trees import LEAF, Forest


def random_forest(
    rng: np.random.Generator,
    n_trees: int = 3,
    max_depth: int = 5,
    n_channels: int = 4,
    n_classes: int = 3,
    n_probes: int = 1,
    reach: int = 6,
    radii: tuple[int, ...] = (0,),
    leaf_chance: float = 0.2,
) -> Forest:
    left_child: list[int] = []
    roots = []
    for _ in range(n_trees):
        roots.append(len(left_child))
        left_child.append(LEAF)
        frontier = [(roots[-1], 0)]
        while frontier:
            node, depth = frontier.pop(0)
            if depth < max_depth and rng.random() >= leaf_chance:
                left_child[node] = len(left_child)
                left_child += [LEAF, LEAF]
                frontier += [(left_child[node], depth + 1), (left_child[node] + 1, depth + 1)]
    children = np.array(left_child, np.int32)
    is_leaf, n = children == LEAF, len(children)
    weight = np.ones((n, 1)) if n_probes == 1 else rng.standard_normal((n, n_probes))
    return Forest(
        root=np.array(roots, np.int32),
        left_child=children,
        threshold=np.where(is_leaf, 0, rng.standard_normal(n) / 2).astype(np.float32),
        channel=rng.integers(0, n_channels, (n, n_probes)).astype(np.int32),
        offset=rng.integers(-reach, reach + 1, (n, n_probes, 2)).astype(np.float32),
        radius=rng.choice(radii, (n, n_probes)).astype(np.int32),
        weight=weight.astype(np.float32),
        leaf_index=np.where(is_leaf, np.cumsum(is_leaf) - 1, LEAF).astype(np.int32),
        votes=rng.random((int(is_leaf.sum()), n_classes)).astype(np.float32),
        n_channels=n_channels,
    )
