"""The arguments of the kernels of one level, and the arrays that they work in."""

from typing import NamedTuple

import numpy as np

from hedgerow.kernels.constants import CPU_GENERATIONS
from hedgerow.kernels.cpu.blocks import BLOCK

PIECE, FOOT = 2 ** (CPU_GENERATIONS + 1) - 1, 2**CPU_GENERATIONS  # nodes of a piece, and of its last generation


class Reading(NamedTuple):
    """values: (V + padding,) float32, see `LevelWork.padded`; the others as in `wiring.Reads`."""

    values: np.ndarray
    place: np.ndarray
    stride: int
    size: tuple[int, int]
    offset: np.ndarray
    row: np.ndarray
    column: np.ndarray
    stretch: np.ndarray
    planes: np.ndarray
    extent: tuple[int, int]


class Trees(NamedTuple):
    """As in `wiring.Wiring`."""

    root: np.ndarray
    left_child: np.ndarray
    split_of: np.ndarray
    leaf_of: np.ndarray
    leaf_group: np.ndarray


class Weights(NamedTuple):
    """Weights, or their gradients: split (N,J) and bias (N,) of the splits, votes (L,C), all float32."""

    split: np.ndarray
    bias: np.ndarray
    votes: np.ndarray


class Activation(NamedTuple):
    """The activations of splits and leaves.

    kind: of splits, a number of `constants`; leaf: alpha_2; normalised: whether softmax follows the leaves of a tree
    tolerance: a branch that carries at most this much at a pixel is dropped there
    """

    kind: int
    leaf: np.float32
    normalised: bool
    tolerance: np.float32


class Room(NamedTuple):
    """The working memory of one thread, for F pieces, each below an exit of the one before.

    node:    (F,PIECE) int32, nodes that are reached
    child:   (F,PIECE,2) int32, positions of left and right child in that list, or -1
    carry:   (F,PIECE+2,BLOCK); two more rows, since children are written before it is known whether they carry anything
    gate:    (F,PIECE,BLOCK)
    leaves, open_ends: (F,FOOT) int32, their positions in the list
    n_inner, n_open, n_done: (F,) int64, nodes above the foot, open ends, and open ends that are done (-1: a new piece)
    places:  (BLOCK,) int64; probe, mass: (BLOCK,); four: (4*BLOCK,)
    scores, sums, part: (C,BLOCK), of a block, of one of its trees, and of a group of that tree's leaves
    Only the backward pass uses the others:
    four_leaves: (4,) int64; slopes: (4*BLOCK,); d_input: (BLOCK,); d_sums: (C,BLOCK)
    mean:    (BLOCK,), 0 where nothing is normalised; nothing: (BLOCK,) 0
    """

    node: np.ndarray
    child: np.ndarray
    carry: np.ndarray
    gate: np.ndarray
    leaves: np.ndarray
    open_ends: np.ndarray
    n_inner: np.ndarray
    n_open: np.ndarray
    n_done: np.ndarray
    places: np.ndarray
    probe: np.ndarray
    mass: np.ndarray
    four: np.ndarray
    scores: np.ndarray
    sums: np.ndarray
    part: np.ndarray
    four_leaves: np.ndarray
    slopes: np.ndarray
    d_input: np.ndarray
    d_sums: np.ndarray
    mean: np.ndarray
    nothing: np.ndarray


def make_room(n_pieces: int, n_classes: int) -> Room:
    """n_pieces: F"""
    piece, of_classes = (n_pieces, PIECE), (n_classes, BLOCK)
    return Room(
        node=np.empty(piece, np.int32),
        child=np.empty((*piece, 2), np.int32),
        carry=np.empty((n_pieces, PIECE + 2, BLOCK), np.float32),
        gate=np.empty((*piece, BLOCK), np.float32),
        leaves=np.empty((n_pieces, FOOT), np.int32),
        open_ends=np.empty((n_pieces, FOOT), np.int32),
        n_inner=np.empty(n_pieces, np.int64),
        n_open=np.empty(n_pieces, np.int64),
        n_done=np.empty(n_pieces, np.int64),
        places=np.empty(BLOCK, np.int64),
        probe=np.empty(BLOCK, np.float32),
        mass=np.empty(BLOCK, np.float32),
        four=np.empty(4 * BLOCK, np.float32),
        scores=np.empty(of_classes, np.float32),
        sums=np.empty(of_classes, np.float32),
        part=np.empty(of_classes, np.float32),
        four_leaves=np.empty(4, np.int64),
        slopes=np.empty(4 * BLOCK, np.float32),
        d_input=np.empty(BLOCK, np.float32),
        d_sums=np.empty(of_classes, np.float32),
        mean=np.zeros(BLOCK, np.float32),
        nothing=np.zeros(BLOCK, np.float32),
    )
