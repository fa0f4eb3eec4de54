"""The pixels that strokes and polygons cover, as defined in `kernels/definition/strokes.py`.

Lengths are in eighths of a pixel, so that all but the last products are exact. In each row a segment covers an
interval, whose ends are estimated from the geometry and then moved until the exact test holds.
"""

import numpy as np

from hedgerow.kernels.compiling import kernel, kernel_part


@kernel_part
def _is_near(y, x, dy, dx, length, reach):
    """Whether (y, x), relative to the first end of a segment to (dy, dx), is within the radius.

    length, reach: squares of the segment's length and of the radius
    """
    along = y * dy + x * dx
    if along <= 0.0:
        return y * y + x * x <= reach
    if along >= length:
        return (y - dy) * (y - dy) + (x - dx) * (x - dx) <= reach
    across = y * dx - x * dy
    return across * across <= reach * length


@kernel
def cover_segments(points, radius, top, left, out):
    """Set out (h,w) uint8, whose first pixel is (top, left), within the radius of a polyline, points (N,2), and at the
    pixel nearest to each point."""
    height, width = out.shape
    ends = np.zeros((height, width + 1), np.int32)
    reach = radius * radius
    for i in range(points.shape[0]):
        row = int(np.floor(points[i, 0] / 8.0 + 0.5)) - top
        column = int(np.floor(points[i, 1] / 8.0 + 0.5)) - left
        if 0 <= row < height and 0 <= column < width:
            out[row, column] = 1
    for i in range(max(points.shape[0] - 1, 1)):
        ay, ax = points[i, 0], points[i, 1]
        last = min(i + 1, points.shape[0] - 1)
        dy, dx = points[last, 0] - ay, points[last, 1] - ax
        length = dy * dy + dx * dx
        side = radius * np.sqrt(length)
        first_row = max(int(np.ceil((min(ay, ay + dy) - radius) / 8.0)), top)
        last_row = min(int(np.floor((max(ay, ay + dy) + radius) / 8.0)), top + height - 1)
        for row in range(first_row, last_row + 1):
            y = 8.0 * row - ay
            low, high = np.inf, -np.inf
            for end in range(2):
                from_end = y - end * dy
                if abs(from_end) <= radius:
                    half = np.sqrt(reach - from_end * from_end)
                    low, high = min(low, end * dx - half), max(high, end * dx + half)
            if dy != 0.0:
                for sign in (-1.0, 1.0):
                    x = (y * dx + sign * side) / dy
                    along = y * dy + x * dx
                    if 0.0 <= along <= length:
                        low, high = min(low, x), max(high, x)
            if low > high:
                continue
            begin = max(int(np.floor((ax + low) / 8.0)) - 1, left)
            end = min(int(np.ceil((ax + high) / 8.0)) + 1, left + width - 1)
            while begin <= end and not _is_near(y, 8.0 * begin - ax, dy, dx, length, reach):
                begin += 1
            while end >= begin and not _is_near(y, 8.0 * end - ax, dy, dx, length, reach):
                end -= 1
            if begin <= end:
                ends[row - top, begin - left] += 1
                ends[row - top, end - left + 1] -= 1
    for row in range(height):
        n = 0
        for column in range(width):
            n += ends[row, column]
            if n > 0:
                out[row, column] = 1


@kernel
def cover_polygon(points, top, left, out):
    """Set out (h,w) uint8, whose first pixel is (top, left), where a pixel's centre is inside a polygon, points (N,2).

    The even-odd rule decides.
    """
    height, width = out.shape
    turns = np.zeros(width + 1, np.uint8)
    n = points.shape[0]
    for row in range(height):
        y = 8.0 * (top + row)
        turns[:] = 0
        for i in range(n):
            ay, ax = points[i, 0], points[i, 1]
            by, bx = points[(i + 1) % n, 0], points[(i + 1) % n, 1]
            if (ay > y) == (by > y):
                continue
            if ay > by:
                ay, ax, by, bx = by, bx, ay, ax
            # The number of pixels of the row that lie left of the edge.
            column = int(np.floor((ax + (bx - ax) * (y - ay) / (by - ay)) / 8.0)) - 1
            while (8.0 * column - ax) * (by - ay) < (bx - ax) * (y - ay):
                column += 1
            turns[min(max(column - left, 0), width)] ^= 1
        inside = np.uint8(0)
        for column in range(width - 1, -1, -1):
            inside ^= turns[column + 1]
            if inside:
                out[row, column] = 1
