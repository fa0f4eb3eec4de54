"""Trees cut into pieces for the GPU: every neuron is in one place, and a walk through them is one down the tree."""

import numpy as np
import pytest

from hedgerow.kernels.constants import EXITS, GPU_GENERATIONS, UNUSED
from hedgerow.kernels.gpu.pieces import cut, pieces_of
from hedgerow.kernels.wiring import wire
from helpers.forests import random_forest

SHAPES = [
    {"max_depth": 0},
    {"max_depth": 1, "leaf_chance": 0},
    {"max_depth": 9, "n_trees": 5, "leaf_chance": 0.1},
    {"max_depth": 15, "n_trees": 6, "leaf_chance": 0.3},
    {"max_depth": 8, "n_trees": 2, "leaf_chance": 0},
]


def random_wiring(seed, **shape):
    forest = random_forest(np.random.default_rng(seed), **shape)
    return wire(forest.root, forest.left_child)


def heap_of(pieces, wiring, piece, top):
    """The nodes of a piece below its top, as the kernels go down: by position, UNUSED where nothing arrives."""
    nodes = {1: top}
    for h in range(1, EXITS):
        is_split = pieces.split[piece, h] != UNUSED
        if is_split:
            assert pieces.split[piece, h] == wiring.split_of[nodes[h]]
        left = wiring.left_child[nodes[h]] if is_split else nodes[h]
        nodes[2 * h], nodes[2 * h + 1] = left, left + 1 if is_split else UNUSED
    return nodes


@pytest.mark.parametrize("shape", SHAPES)
def test_every_neuron_is_reached_where_it_is_listed(shape):
    wiring = random_wiring(0, **shape)
    pieces = cut(wiring)
    assert sorted(pieces.split[pieces.split != UNUSED]) == list(range(wiring.n_splits))
    assert sorted(pieces.leaf[pieces.leaf != UNUSED]) == list(range(wiring.n_leaves))
    np.testing.assert_array_equal(pieces.split.ravel()[pieces.split_at], np.arange(wiring.n_splits))
    np.testing.assert_array_equal(pieces.leaf.ravel()[pieces.leaf_at], np.arange(wiring.n_leaves))
    for tree in range(wiring.n_trees):
        slots = {0: wiring.root[tree]}
        for piece in range(pieces.first[tree], pieces.first[tree + 1]):
            nodes = heap_of(pieces, wiring, piece, slots[pieces.slot[piece]])
            for exit in range(EXITS):
                node = nodes[EXITS + exit]
                is_open = node != UNUSED and wiring.left_child[node] >= 0
                assert pieces.leaf[piece, exit] == (UNUSED if node == UNUSED or is_open else wiring.leaf_of[node])
                assert pieces.opens[piece, exit] == is_open
                if is_open:
                    slots[pieces.below[piece] + exit] = node
            assert pieces.is_open[piece] == pieces.opens[piece].any()
            assert max(slots) < pieces.n_slots


@pytest.mark.parametrize("shape", SHAPES)
def test_pieces_are_visited_on_the_way_down_and_up(shape):
    wiring = random_wiring(1, **shape)
    pieces = cut(wiring)
    waiting = []
    for visit, piece in enumerate(pieces.visited):
        if pieces.is_up[visit] and pieces.is_open[piece]:
            assert waiting.pop() == piece, "what lies below is done first"
        elif not pieces.is_up[visit]:
            assert pieces.is_open[piece]
            waiting.append(piece)
            after = pieces.visit_after[visit]
            assert pieces.visited[after - 1] == piece
            assert pieces.is_up[after - 1]
        assert pieces.after[piece] > piece
    assert not waiting
    ups = pieces.visited[pieces.is_up == 1]
    assert sorted(ups) == list(range(len(pieces.slot)))


def test_a_full_tree_has_no_layer_of_almost_empty_pieces():
    wiring = random_wiring(0, n_trees=1, max_depth=2 * GPU_GENERATIONS + 1, leaf_chance=0)
    assert len(cut(wiring).slot) == 1 + 2 + 2 * EXITS


def test_pieces_are_cut_once_and_forgotten_with_their_wiring():
    wiring = random_wiring(0)
    assert pieces_of(wiring) is pieces_of(wiring)
