"""Separable filters as ONNX nodes with the rounding of `kernels.cpu.filters`: the same products, in the same order.

A Conv would be shorter, but it adds in an order of its own, so a feature that lies on a threshold could fall on either
side.
"""

from dataclasses import dataclass

import numpy as np

from hedgerow.export.onnx_graph import Graph


@dataclass(frozen=True)
class Border:
    """The places that are read beyond the ends of an axis, by the names of tensors.

    place:  (n + 2 margin,) int64, the place that is read for each place from -margin on
    middle: (n,) int64, the indices of the axis itself in `place`; own: (n,) its places
    """

    place: str
    middle: str
    own: str


def mirrored(graph: Graph, length: str, margin: int) -> Border:
    """The axis is mirrored at its ends, and the pixel at the end is repeated."""
    node = graph.node
    place, period = node("Range", -margin, node("Add", length, margin), 1), node("Mul", length, 2)
    place = node("Mod", place, period)
    return _border(graph, node("Min", place, node("Sub", node("Sub", period, 1), place)), length, margin)


def clamped(graph: Graph, length: str, margin: int) -> Border:
    """The pixel at the end repeats."""
    node = graph.node
    place = node("Range", -margin, node("Add", length, margin), 1)
    return _border(graph, node("Max", node("Min", place, node("Sub", length, 1)), 0), length, margin)


def padded(graph: Graph, length: str, margin: int) -> Border:
    """The planes already extend beyond the axis by the margin on both sides."""
    place = graph.node("Range", 0, graph.node("Add", length, 2 * margin), 1)
    return _border(graph, place, length, margin)


def _border(graph: Graph, place: str, length: str, margin: int) -> Border:
    middle = graph.node("Range", margin, graph.node("Add", length, margin), 1)
    return Border(place, middle, graph.node("Gather", place, middle))


def down_columns(graph: Graph, planes: str, border: Border, weights: np.ndarray) -> list[str]:
    """(B,H,W) for each order: the weighted sums over rows of planes (B,.,W).

    weights: (n,1+R) of orders 0, 1, 2 at distances 0..R, R a multiple of 4 within the border; order 1 is odd
    """
    n_fours = (weights.shape[1] - 1) // 4
    distances = np.arange(1, 1 + 4 * n_fours).reshape(n_fours, 4, 1)
    fours = weights[:, 1:].reshape(-1, n_fours, 4, 1, 1)

    def add_four(inner: Graph, number: str, *totals: str) -> list[str]:
        node, distance = inner.node, inner.node("Gather", distances, number)
        ahead, behind = (
            node("Gather", planes, node("Gather", border.place, node(side, border.middle, distance)), axis=1)
            for side in ("Add", "Sub")
        )
        even, odd = node("Add", ahead, behind), node("Sub", ahead, behind) if len(weights) > 1 else ""
        added = []
        for order, total in enumerate(totals):
            weighted = node("Mul", odd if order == 1 else even, node("Gather", fours[order], number))
            added.append(node("Add", total, inner.sum_in_order(weighted, 4, axis=1)))
        return added

    own = graph.node("Gather", planes, border.own, axis=1)
    return graph.loop(n_fours, add_four, [graph.node("Mul", own, each[0]) for each in weights])


def turned(graph: Graph, planes: str) -> str:
    """(B,W,H) of (B,H,W)."""
    return graph.node("Transpose", planes, perm=[0, 2, 1])


def smoothed(graph: Graph, planes: str, rows: Border, columns: Border, weights: np.ndarray) -> str:
    """(B,H,W): planes filtered down the columns, then along the rows, with weights (1,1+R)."""
    (down,) = down_columns(graph, planes, rows, weights)
    (both,) = down_columns(graph, turned(graph, down), columns, weights)
    return turned(graph, both)
