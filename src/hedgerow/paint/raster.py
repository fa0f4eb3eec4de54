"""Which pixels a stroke paints; `kernels/definition/strokes.py` defines it."""

from collections.abc import Iterator, Sequence

import numpy as np

from hedgerow.images.regions import Region
from hedgerow.kernels.cpu import strokes as kernels

OUTLINE_RADIUS = 0.5  # of the outline of a polygon: the pixels that the outline passes through
ROWS_AT_ONCE = 256  # rows of one mask, so that a long stroke on a large image needs little memory


def covered(
    points: Sequence[Sequence[float]], radius: float, size: tuple[int, int], *, is_polygon: bool = False
) -> Iterator[tuple[Region, np.ndarray]]:
    """Regions of an image of this size (H,W), from top to bottom, with masks (h,w) of the pixels that a polyline,
    or a polygon with its outline, paints there."""
    eighths = np.array(points, np.float64) * 8
    if is_polygon:
        radius, outline = OUTLINE_RADIUS, np.concatenate([eighths, eighths[:1]])
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
