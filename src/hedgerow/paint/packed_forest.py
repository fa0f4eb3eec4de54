"""Byte codes of a region in the layout of the kernels, and forests that predict from them.

The kernels of `walk_codes` walk squares of SIDE x SIDE pixels down a tree together: most pixels of a square take the
same way, so few nodes are visited, and the result is the same as pixel by pixel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hedgerow.forest.planes import PlaneForest
from hedgerow.images.regions import Region
from hedgerow.kernels.cpu import walk_codes as kernels
from hedgerow.kernels.cpu.walk_codes import SIDE, SQUARE
from hedgerow.paint.overlays import OverlayTile
from hedgerow.threads import map_threads, row_blocks


@dataclass(frozen=True)
class EncodedRegion:
    """Codes of P features. codes: (n,m,P,SQUARE) uint8, padded at the edges; size: (h,w)"""

    codes: np.ndarray
    size: tuple[int, int]

    @classmethod
    def of(cls, values: np.ndarray, edges: np.ndarray) -> EncodedRegion:
        """The codes of values (P,h,w) float32 among edges (P,255)."""
        n_features, height, width = values.shape
        codes = np.empty((-(-height // SIDE), -(-width // SIDE), n_features, SQUARE), np.uint8)

        def encode(rows: tuple[int, int]) -> None:
            kernels.encode_squares(values, edges, *rows, codes)

        list(map_threads(encode, row_blocks(len(codes))))
        return cls(codes, (height, width))

    @property
    def nbytes(self) -> int:
        return int(self.codes.nbytes)

    def at(self, row: np.ndarray, column: np.ndarray) -> np.ndarray:
        """(S,P): the codes of single pixels."""
        return self.codes[row // SIDE, column // SIDE, :, row % SIDE * SIDE + column % SIDE]

    def image(self) -> np.ndarray:
        """(h,w,P)"""
        n, m, n_features, _ = self.codes.shape
        padded = self.codes.reshape(n, m, n_features, SIDE, SIDE).transpose(0, 3, 1, 4, 2)
        return padded.reshape(n * SIDE, m * SIDE, n_features)[: self.size[0], : self.size[1]]


@dataclass(frozen=True)
class PackedForest:
    """A forest on codes as the arrays that the kernels read."""

    root: np.ndarray
    depth: np.ndarray
    channel: np.ndarray
    cut: np.ndarray
    left: np.ndarray
    leaf: np.ndarray
    votes: np.ndarray

    @classmethod
    def of(cls, forest: PlaneForest) -> PackedForest:
        trees = forest.trees
        is_split = trees.is_split
        return cls(
            root=trees.root,
            depth=trees.tree_depths,
            channel=np.where(is_split, trees.channel[:, 0], 0).astype(np.int32),
            cut=np.where(is_split, np.maximum(trees.threshold, 0), 0).astype(np.uint8),
            left=np.where(is_split, trees.left_child, -1).astype(np.int32),
            leaf=np.where(is_split, 0, trees.leaf_index).astype(np.int32),
            votes=np.ascontiguousarray(trees.votes),
        )

    @property
    def n_trees(self) -> int:
        return len(self.root)

    def predict(self, encoded: EncodedRegion, window: Region | None = None) -> OverlayTile:
        """Classes and probabilities of all pixels, or of a window whose corner is a corner of a square."""
        window = window or Region.whole(encoded.size)
        shape = -(-window.height // SIDE), -(-window.width // SIDE)
        classes, proba = self._walk(encoded.codes, (window.top // SIDE, window.left // SIDE), shape)
        return OverlayTile(_without_squares(classes, window), _without_squares(proba, window))

    def predict_classes(self, codes: np.ndarray) -> np.ndarray:
        """(S,) uint8: the classes of single pixels with codes (S,P)."""
        n = -(-len(codes) // SQUARE)
        padded = np.zeros((n * SQUARE, codes.shape[1]), np.uint8)
        padded[: len(codes)] = codes
        squares = np.ascontiguousarray(padded.reshape(1, n, SQUARE, -1).swapaxes(2, 3))
        return self._walk(squares, (0, 0), (1, n))[0].ravel()[: len(codes)]

    def _walk(
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


def _without_squares(values: np.ndarray, window: Region) -> np.ndarray:
    """(...,h,w) from squares (...,n,m,SQUARE)."""
    *outer, n, m, _ = values.shape
    padded = values.reshape(*outer, n, m, SIDE, SIDE).swapaxes(-3, -2).reshape(*outer, n * SIDE, m * SIDE)
    return np.ascontiguousarray(padded[..., : window.height, : window.width])
