"""Which pixels a stroke paints. The page computes the same pixels, by the same arithmetic in double precision.

Points and radius are multiples of 1/8 of a pixel. In eighths all numbers are integers, and of the products that are
compared only the last ones, `across * across` and `radius^2 * length^2`, may be rounded: once each, as in any language.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from hedgerow.images.regions import Region
from hedgerow.kernels.cpu import strokes as kernels

Point = Sequence[float]
OUTLINE = 0.5  # radius of the outline of a polygon: the pixels that the outline passes through
ROWS_AT_ONCE = 256  # rows of one mask, so that a long stroke on a large image needs little memory


def is_near(row: float, column: float, points: Sequence[Point], radius: float) -> bool:
    """Whether a pixel lies within the radius of the polyline or is the nearest to one of its points: the definition."""
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
    """Whether a pixel's centre lies inside a polygon by the even-odd rule: the definition."""
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


def covered(
    points: Sequence[Point], radius: float, size: tuple[int, int], *, is_polygon: bool = False
) -> Iterator[tuple[Region, np.ndarray]]:
    """Regions of an image of this size (H,W), from top to bottom, with masks (h,w) of the pixels that a polyline,
    or a polygon with its outline, paints there."""
    eighths = np.array(points, np.float64) * 8
    if is_polygon:
        radius, outline = OUTLINE, np.concatenate([eighths, eighths[:1]])
    else:
        outline = eighths
    lowest, highest = np.floor(eighths.min(axis=0) / 8 - radius), np.ceil(eighths.max(axis=0) / 8 + radius)
    top, left = (int(max(start, 0)) for start in lowest)
    bottom, right = int(min(highest[0] + 1, size[0])), int(min(highest[1] + 1, size[1]))
    if left >= right or top >= bottom:
        return
    for first in range(top // ROWS_AT_ONCE * ROWS_AT_ONCE, bottom, ROWS_AT_ONCE):
        region = Region(max(first, top), min(first + ROWS_AT_ONCE, bottom), left, right)
        mask = np.zeros((region.height, region.width), np.uint8)
        kernels.cover_segments(outline, 8 * radius, region.top, region.left, mask)
        if is_polygon:
            kernels.cover_polygon(eighths, region.top, region.left, mask)
        if mask.any():
            yield region, mask.view(bool)
