"""Outlines of objects along the edges of pixels: filled again, they give exactly the pixels of the object."""

from dataclasses import dataclass

import numpy as np

from hedgerow.images.components import components

# A step along an edge of a pixel, with the object on its right: east, south, west, north.
_ROW_STEP, _COLUMN_STEP = np.array([0, 1, 0, -1]), np.array([1, 0, -1, 0])
# From the corner at which a step ends, the pixels ahead on its left and on its right; a pixel is named by its first
# corner, and the map has a margin of one pixel.
_LEFT_ROW, _LEFT_COLUMN = np.array([0, 1, 1, 0]), np.array([1, 1, 0, 0])
_RIGHT_ROW, _RIGHT_COLUMN = np.array([1, 1, 0, 0]), np.array([1, 0, 0, 1])


@dataclass(frozen=True, eq=False)
class Polygon:
    """An area without its holes: closed lines of (row, column) corners, (n,2) int32, each given once.

    Corners count from the upper left of the first pixel. No line touches itself; two may meet at a corner.
    """

    outer: np.ndarray
    holes: tuple[np.ndarray, ...] = ()


def outlines(numbers: np.ndarray) -> list[list[Polygon]]:
    """The outlines of objects (H,W), numbered from 1, 0: none, in their order.

    An object whose parts hang together by corners only has a polygon for each of them: as one line, it would touch
    itself, which many programs refuse.
    """
    parts, of_object = components(numbers, 4)
    n_objects = int(numbers.max(initial=0))
    rings, of_ring, is_outer = _rings(np.where(numbers > 0, parts, -1))
    outer: dict[int, np.ndarray] = {}
    holes: dict[int, list[np.ndarray]] = {}
    for ring, part, is_outside in zip(rings, of_ring.tolist(), is_outer.tolist(), strict=True):
        if is_outside:
            outer[part] = ring
        else:
            holes.setdefault(part, []).append(ring)
    polygons: list[list[Polygon]] = [[] for _ in range(n_objects)]
    for part in sorted(outer):
        polygons[int(of_object[part]) - 1].append(Polygon(outer[part], tuple(holes.get(part, ()))))
    return polygons


@dataclass(frozen=True, eq=False)
class _Runs:
    """Straight lines along the edges of pixels, with the object on their right, as long as they go.

    row, column: (K,) corner at which each begins; way: (K,) 0 to 3: east, south, west, north
    end_row, end_column: (K,) corner at which it ends; next_way: (K,) where to go from there
    part: (K,) the object
    """

    row: np.ndarray
    column: np.ndarray
    way: np.ndarray
    end_row: np.ndarray
    end_column: np.ndarray
    next_way: np.ndarray
    part: np.ndarray


def _rings(parts: np.ndarray) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Closed lines of corners around the parts (H,W), numbered from 0, -1: none; the part (R,) of each line, and
    whether (R,) the part is inside the line."""
    padded = np.pad(parts, 1, constant_values=-1)
    found = [_runs(padded, way) for way in range(4)]
    runs = _Runs(*(np.concatenate([getattr(one, name) for one in found]) for name in _Runs.__annotations__))
    n_columns = parts.shape[1] + 1
    starts = (runs.row.astype(np.int64) * n_columns + runs.column) * 4 + runs.way
    ends = (runs.end_row.astype(np.int64) * n_columns + runs.end_column) * 4 + runs.next_way
    order = np.argsort(starts)
    following = order[np.searchsorted(starts[order], ends)].tolist()
    sequence: list[int] = []
    begins: list[int] = []
    seen = bytearray(len(following))  # each run once: along a line until it closes
    for first in range(len(following)):
        if seen[first]:
            continue
        begins.append(len(sequence))
        run = first
        while not seen[run]:
            seen[run] = 1
            sequence.append(run)
            run = following[run]
    chosen = np.array(sequence, np.int64)
    corners = np.stack([runs.row[chosen], runs.column[chosen]], axis=1).astype(np.int32)
    if not begins:
        return [], np.zeros(0, np.int64), np.zeros(0, bool)
    # Of the area inside a line, in its upright sides alone: positive where they go down on the right.
    share = runs.column.astype(np.int64) * (runs.end_row - runs.row)
    area = np.add.reduceat(share[chosen], begins)
    return np.split(corners, begins[1:]), runs.part[chosen[begins]], area > 0


def _runs(padded: np.ndarray, way: int) -> _Runs:
    """All runs in one direction."""
    inner = padded[1:-1, 1:-1]
    height, width = inner.shape
    # The pixels on the left of the step: above for one to the east, on the right for one to the south, ...
    top, left_most = 1 + _ROW_STEP[way - 1], 1 + _COLUMN_STEP[way - 1]
    is_edge = (inner >= 0) & (padded[top : top + height, left_most : left_most + width] != inner)
    if way % 2 == 0:
        row, column = np.nonzero(is_edge)
    else:
        column, row = np.nonzero(is_edge.T)  # one after another along the line
    if way in (2, 3):
        row, column = row[::-1], column[::-1]
    part = inner[row, column]
    # The corners at which the edge begins and ends.
    row_begin, column_begin = row + (way in (2, 3)), column + (way in (1, 2))
    row_end, column_end = row_begin + _ROW_STEP[way], column_begin + _COLUMN_STEP[way]
    left = padded[row_end + _LEFT_ROW[way], column_end + _LEFT_COLUMN[way]] == part
    right = padded[row_end + _RIGHT_ROW[way], column_end + _RIGHT_COLUMN[way]] == part
    # Where the object goes on across a corner, along both of its pixels: within a part, they hang together elsewhere,
    # so that a hole is closed here.
    goes_on = right & ~left
    next_way = np.where(left, (way - 1) % 4, (way + 1) % 4)
    last = ~goes_on
    first = np.ones(len(last), bool)
    first[1:] = last[:-1]
    return _Runs(
        row_begin[first],
        column_begin[first],
        np.full(int(first.sum()), way),
        row_end[last],
        column_end[last],
        next_way[last],
        part[first],
    )
