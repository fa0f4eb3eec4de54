"""Byte codes of a part of an image in squares, as `walk_codes` reads them, and forests that walk them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hedgerow.forest.planes import PlaneForest
from hedgerow.images.regions import Region
from hedgerow.kernels.cpu import walk_codes as kernels
from hedgerow.kernels.cpu.walk_codes import SIDE, SQUARE
from hedgerow.paint.results import Block
from hedgerow.threads import map_threads, row_blocks


@dataclass(frozen=True)
class Squares:
    """Codes of P features. codes: (n,m,P,SQUARE) uint8, those at the edges filled up; size: (h,w)"""

    codes: np.ndarray
    size: tuple[int, int]

    @classmethod
    def of(cls, values: np.ndarray, edges: np.ndarray) -> Squares:
        """The codes of values (P,h,w) float32 among edges (P,255)."""
        n_planes, height, width = values.shape
        codes = np.empty((-(-height // SIDE), -(-width // SIDE), n_planes, SQUARE), np.uint8)

        def put(rows: tuple[int, int]) -> None:
            kernels.encode_squares(values, edges, *rows, codes)

        list(map_threads(put, row_blocks(len(codes))))
        return cls(codes, (height, width))

    @property
    def nbytes(self) -> int:
        return int(self.codes.nbytes)

    def at(self, row: np.ndarray, column: np.ndarray) -> np.ndarray:
        """(S,P) of some pixels."""
        return self.codes[row // SIDE, column // SIDE, :, row % SIDE * SIDE + column % SIDE]

    def image(self) -> np.ndarray:
        """(h,w,P)"""
        n, m, n_planes, _ = self.codes.shape
        whole = self.codes.reshape(n, m, n_planes, SIDE, SIDE).transpose(0, 3, 1, 4, 2)
        return whole.reshape(n * SIDE, m * SIDE, n_planes)[: self.size[0], : self.size[1]]


@dataclass(frozen=True)
class Walkable:
    """A forest on codes as `walk_codes` reads it."""

    root: np.ndarray
    depth: np.ndarray
    channel: np.ndarray
    cut: np.ndarray
    left: np.ndarray
    leaf: np.ndarray
    votes: np.ndarray

    @classmethod
    def of(cls, grown: PlaneForest) -> Walkable:
        forest = grown.trees
        is_split = forest.is_split
        return cls(
            root=forest.root,
            depth=forest.tree_depths,
            channel=np.where(is_split, forest.channel[:, 0], 0).astype(np.int32),
            cut=np.where(is_split, np.maximum(forest.threshold, 0), 0).astype(np.uint8),
            left=np.where(is_split, forest.left_child, -1).astype(np.int32),
            leaf=np.where(is_split, 0, forest.leaf_index).astype(np.int32),
            votes=np.ascontiguousarray(forest.votes),
        )

    def walked(self, squares: Squares, window: Region | None = None) -> Block:
        """Classes and probabilities of all, or in a window whose corner is that of a square."""
        window = window or Region(0, squares.size[0], 0, squares.size[1])
        shape = -(-window.height // SIDE), -(-window.width // SIDE)
        found = self._walked(squares.codes, (window.top // SIDE, window.left // SIDE), shape)
        return Block(*(_joined(one, window) for one in found))

    def classes_of(self, codes: np.ndarray) -> np.ndarray:
        """(S,) uint8: the classes of single pixels with codes (S,P)."""
        n = -(-len(codes) // SQUARE)
        filled = np.zeros((n * SQUARE, codes.shape[1]), np.uint8)
        filled[: len(codes)] = codes
        squares = np.ascontiguousarray(filled.reshape(1, n, SQUARE, -1).swapaxes(2, 3))
        return self._walked(squares, (0, 0), (1, n))[0].ravel()[: len(codes)]

    def _walked(
        self, codes: np.ndarray, corner: tuple[int, int], shape: tuple[int, int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Classes (n,m,SQUARE) and probabilities (C,n,m,SQUARE) of n x m squares."""
        classes = np.empty((*shape, SQUARE), np.uint8)
        proba = np.empty((self.votes.shape[1], *shape, SQUARE), np.uint8)
        kernels.walk_squares(
            codes, *corner, self.root, self.depth, self.channel, self.cut, self.left, self.leaf, self.votes,
            classes, proba,
        )  # fmt: skip
        return classes, proba


def _joined(squares: np.ndarray, window: Region) -> np.ndarray:
    """(...,h,w) of squares (...,n,m,SQUARE)."""
    *outer, n, m, _ = squares.shape
    whole = squares.reshape(*outer, n, m, SIDE, SIDE).swapaxes(-3, -2).reshape(*outer, n * SIDE, m * SIDE)
    return np.ascontiguousarray(whole[..., : window.height, : window.width])
