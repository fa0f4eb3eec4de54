"""Trees cut into pieces of equal shape for the GPU: each piece is a full tree of GPU_GENERATIONS. In NumPy.

The nodes of a piece lie in heap order: its top at 1, the children of h at 2h and 2h+1; position 0 is empty. If a branch
ends above the foot of its piece, padding (places without a split) passes its leaf on to the left, down to the foot.
The exits at the foot of a piece are leaves, open ends (each the top of another piece), or exits that nothing reaches.
"""

from dataclasses import dataclass

import numpy as np

from hedgerow.kernels.constants import EXITS, GPU_GENERATIONS, UNUSED
from hedgerow.kernels.weak_cache import WeakCache
from hedgerow.kernels.wiring import Wiring


@dataclass(frozen=True)
class Pieces:
    """Q pieces, tree after tree and depth first: each piece is followed by the pieces below it.

    first:  (T+1,) int32, first piece of each tree
    split:  (Q,EXITS) int32, H1 neuron of each position in the heap, or UNUSED
    leaf:   (Q,EXITS) int32, H2 neuron of each exit, or UNUSED
    slot:   (Q,) int32, where the carry of the top is stored: 0 at a root; below: (Q,) int32, slot of the first exit
    is_open: (Q,) int32, 1 if an exit is an open end; opens: (Q,EXITS) int32, 1 for those exits
    after:  (Q,) int32, the piece that follows if this piece and all below it are skipped
    n_slots: number of slots needed
    The backward pass visits a piece with open ends twice, going down and coming up, and other pieces once, coming up:
    first_visit (T+1,), visited (X,) pieces, is_up (X,), visit_after (X,), all int32
    split_at, leaf_at: (N,) and (L,) int64, flat position of each neuron in `split` and `leaf`; UNUSED if in neither
    """

    first: np.ndarray
    split: np.ndarray
    leaf: np.ndarray
    slot: np.ndarray
    below: np.ndarray
    is_open: np.ndarray
    opens: np.ndarray
    after: np.ndarray
    n_slots: int
    first_visit: np.ndarray
    visited: np.ndarray
    is_up: np.ndarray
    visit_after: np.ndarray
    split_at: np.ndarray
    leaf_at: np.ndarray


_CUT = WeakCache()


def pieces_of(wiring: Wiring) -> Pieces:
    """The pieces of a wiring, cached for as long as it lives."""
    return _CUT.get(wiring, None, lambda: cut(wiring))


def cut(wiring: Wiring) -> Pieces:
    layers = [_heaps(wiring, wiring.root, _first_generations(wiring))]
    above, exit_of = [np.arange(wiring.n_trees)], [np.zeros(wiring.n_trees, int)]
    while True:
        parents, exits = np.nonzero(_is_open(wiring, layers[-1]))
        if not len(parents):
            break
        layers.append(_heaps(wiring, layers[-1][parents, EXITS + exits]))
        above.append(parents)
        exit_of.append(exits)

    opens = [_is_open(wiring, heaps) for heaps in layers]
    start, size = _tour(above, [np.ones(len(heaps), int) for heaps in layers])
    order = np.argsort(np.concatenate(start))
    visit, n_visits = _tour(above, [np.where(is_open.any(axis=1), 2, 1) for is_open in opens])
    heaps, is_open = np.concatenate(layers)[order], np.concatenate(opens)[order]
    layer = np.concatenate([np.full(len(each), number) for number, each in enumerate(layers)])[order]
    from_exit = np.concatenate(exit_of)[order]

    nodes, feet = heaps[:, :EXITS], heaps[:, EXITS:]
    # A node that is passed on to the left is not split here but further down.
    is_passed = nodes == heaps[:, 0 : 2 * EXITS : 2]
    split = np.where((nodes == UNUSED) | is_passed, UNUSED, wiring.split_of[nodes])
    leaf = np.where(feet == UNUSED, UNUSED, wiring.leaf_of[feet])
    begin, length = np.concatenate(visit)[order], np.concatenate(n_visits)[order]
    visited, is_up = np.empty(length[layer == 0].sum(), np.int32), np.zeros(length[layer == 0].sum(), np.int32)
    visited[begin] = visited[begin + length - 1] = np.arange(len(order))
    is_up[begin + length - 1] = 1
    visit_after = (begin + length)[visited]
    return Pieces(
        first=_ends(start[0], size[0]),
        split=split.astype(np.int32),
        leaf=leaf.astype(np.int32),
        slot=np.where(layer == 0, 0, 1 + EXITS * (layer - 1) + from_exit).astype(np.int32),
        below=(1 + EXITS * layer).astype(np.int32),
        is_open=np.any(is_open, axis=1).astype(np.int32),
        opens=is_open.astype(np.int32),
        after=(np.arange(len(order)) + np.concatenate(size)[order]).astype(np.int32),
        n_slots=1 + EXITS * (len(layers) - 1),
        first_visit=_ends(visit[0], n_visits[0]),
        visited=visited,
        is_up=is_up,
        visit_after=visit_after.astype(np.int32),
        split_at=_inverse(split, wiring.n_splits),
        leaf_at=_inverse(leaf, wiring.n_leaves),
    )


def _first_generations(wiring: Wiring) -> np.ndarray:
    """(T,) generations of each tree's first piece, 1 to GPU_GENERATIONS, so that there are as few pieces as possible.

    A full tree of depth 9 then has one generation and two layers of full pieces, and no layer of nearly empty ones.
    """
    n_splits = []  # (T,) for each generation
    node, tree = wiring.root.astype(np.int64), np.arange(wiring.n_trees)
    while len(node):
        is_split = wiring.left_child[node] >= 0
        node, tree = wiring.left_child[node[is_split]].astype(np.int64), tree[is_split]
        n_splits.append(np.bincount(tree, minlength=wiring.n_trees))
        node, tree = np.concatenate([node, node + 1]), np.concatenate([tree, tree])
    n_splits += [np.zeros(wiring.n_trees, np.int64)] * (GPU_GENERATIONS + 1)
    counts = [np.sum(n_splits[first::GPU_GENERATIONS], axis=0) for first in range(GPU_GENERATIONS, 0, -1)]
    return GPU_GENERATIONS - np.argmin(counts, axis=0)


def _heaps(wiring: Wiring, tops: np.ndarray, generations: np.ndarray | int = GPU_GENERATIONS) -> np.ndarray:
    """(n, 2*EXITS) nodes of the pieces below n tops, in heap order; UNUSED where there is none.

    generations: (n,) how many may split
    """
    heaps = np.full((len(tops), 2 * EXITS), UNUSED, np.int64)
    heaps[:, 1] = tops
    for h in range(1, EXITS):
        node = heaps[:, h]
        left = np.where(node == UNUSED, UNUSED, wiring.left_child[node])
        is_split = (left >= 0) & (h.bit_length() <= generations)
        heaps[:, 2 * h] = np.where(is_split, left, node)
        heaps[:, 2 * h + 1] = np.where(is_split, left + 1, UNUSED)
    return heaps


def _is_open(wiring: Wiring, heaps: np.ndarray) -> np.ndarray:
    feet = heaps[:, EXITS:]
    return (feet != UNUSED) & (wiring.left_child[feet] >= 0)


def _tour(above: list[np.ndarray], own: list[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Start and total length of each piece in a depth-first tour, layer by layer; a piece itself is `own` long.

    above: for each layer, the number of the piece above in the layer above, ascending
    """
    size = [one.astype(np.int64) for one in own]
    for layer in range(len(own) - 1, 0, -1):
        np.add.at(size[layer - 1], above[layer], size[layer])
    start = [np.cumsum(size[0]) - size[0]]
    for layer in range(1, len(own)):
        before = np.cumsum(size[layer]) - size[layer]  # total length of earlier pieces in this layer
        is_first = np.diff(above[layer], prepend=-1) > 0
        siblings = before - before[is_first][np.cumsum(is_first) - 1]
        start.append(start[layer - 1][above[layer]] + 1 + siblings)
    return start, size


def _ends(start: np.ndarray, size: np.ndarray) -> np.ndarray:
    return np.append(start, start[-1] + size[-1]).astype(np.int32)


def _inverse(table: np.ndarray, n: int) -> np.ndarray:
    """(n,) flat position of each number in a table that holds it at most once; UNUSED if it is not there."""
    flat = table.ravel()
    at = np.full(n, UNUSED, np.int64)
    at[flat[flat != UNUSED]] = np.flatnonzero(flat != UNUSED)
    return at
