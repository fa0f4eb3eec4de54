"""The pixels that strokes and polygons cover. The page in the browser computes the same with the same arithmetic.

Points and radius are multiples of 1/8 of a pixel, so in eighths all numbers are integers. In double precision only the
last products that are compared, `across * across` and `radius^2 * length^2`, may be rounded: once each, in the same way
in every language.
"""

from collections.abc import Sequence

import numpy as np

Point = Sequence[float]


def is_near(row: float, column: float, points: Sequence[Point], radius: float) -> bool:
    """Whether a pixel lies within the radius of the polyline or is the nearest to one of its points."""
    y, x, reach = 8 * row, 8 * column, (8 * radius) * (8 * radius)
    for i, (first_row, first_column) in enumerate(points):
        if row == np.floor(first_row + 0.5) and column == np.floor(first_column + 0.5):
            return True
        ay, ax = 8 * first_row, 8 * first_column
        by, bx = (8 * at for at in points[min(i + 1, len(points) - 1)])
        dy, dx = by - ay, bx - ax
        length = dy * dy + dx * dx
        along = (y - ay) * dy + (x - ax) * dx
        if along <= 0:
            near = (y - ay) * (y - ay) + (x - ax) * (x - ax) <= reach
        elif along >= length:
            near = (y - by) * (y - by) + (x - bx) * (x - bx) <= reach
        else:
            across = (y - ay) * dx - (x - ax) * dy
            near = across * across <= reach * length
        if near:
            return True
    return False


def is_inside(row: float, column: float, points: Sequence[Point]) -> bool:
    """Whether a pixel's centre lies inside a polygon by the even-odd rule."""
    inside = False
    for (first_row, first_column), (last_row, last_column) in zip(points, [*points[1:], points[0]], strict=True):
        ay, ax, by, bx = 8 * first_row, 8 * first_column, 8 * last_row, 8 * last_column
        if (ay > 8 * row) == (by > 8 * row):
            continue
        if ay > by:
            ay, ax, by, bx = by, bx, ay, ax
        if (8 * column - ax) * (by - ay) < (bx - ax) * (8 * row - ay):
            inside = not inside
    return inside
