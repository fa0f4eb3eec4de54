"""A plain model of the labels of a project: what docs/paint-protocol.md says, written down once more and slowly.

It shares no code with the server or the page, both of which must paint the same pixels.
"""

import numpy as np

UNPAINTED = 255


def near(size, points, radius):
    """Mask (H,W) of the pixels within the radius of a polyline, and of those nearest to its points."""
    rows, cols = np.indices(size, np.float64)
    mask = np.zeros(size, bool)
    for (ay, ax), (by, bx) in zip(points, points[1:] or points, strict=False):
        dy, dx = by - ay, bx - ax
        length = dy * dy + dx * dx
        vy, vx = rows - ay, cols - ax
        along = vy * dy + vx * dx
        to_start = vy * vy + vx * vx <= radius * radius
        to_end = (rows - by) ** 2 + (cols - bx) ** 2 <= radius * radius
        cross = vy * dx - vx * dy
        beside = cross * cross <= radius * radius * length
        mask |= np.where(along <= 0, to_start, np.where(along >= length, to_end, beside))
    for y, x in points:
        row, col = int(np.floor(y + 0.5)), int(np.floor(x + 0.5))
        if 0 <= row < size[0] and 0 <= col < size[1]:
            mask[row, col] = True
    return mask


def inside(size, points):
    """Mask (H,W) of the pixels inside a polygon by the even-odd rule, and of its outline."""
    rows, cols = np.indices(size, np.float64)
    odd = np.zeros(size, bool)
    for (ay, ax), (by, bx) in zip(points, [*points[1:], points[0]], strict=True):
        if ay == by:
            continue
        crosses = (ay <= rows) != (by <= rows)
        odd ^= crosses & (cols < ax + (rows - ay) * (bx - ax) / (by - ay))
    return odd | near(size, [*points, points[0]], 0.5)


def filled(labels, point, within):
    """Mask (H,W) of the 4-connected area around a point that has its label, within [r0, r1, c0, c1]."""
    r0, r1, c0, c1 = within
    start = (int(point[0]), int(point[1]))
    mask = np.zeros(labels.shape, bool)
    waiting = [start]
    while waiting:
        row, col = waiting.pop()
        if r0 <= row < r1 and c0 <= col < c1 and not mask[row, col] and labels[row, col] == labels[start]:
            mask[row, col] = True
            waiting += [(row - 1, col), (row + 1, col), (row, col - 1), (row, col + 1)]
    return mask


class PlainLabels:
    """Labels (H,W) uint8 of one image, with all earlier states for undo."""

    def __init__(self, size):
        self.states = [np.full(size, UNPAINTED, np.uint8)]
        self.undone = []

    @property
    def labels(self):
        return self.states[-1]

    def paint(self, stroke, locked=()):
        """Paints a stroke as it is sent to the server."""
        size, tool, points = self.labels.shape, stroke["tool"], stroke["points"]
        if tool == "polygon":
            mask = inside(size, points)
        elif tool == "fill":
            mask = filled(self.labels, points[0], stroke["within"])
        else:
            mask = near(size, points, stroke["radius"])
        after = self.labels.copy()
        after[mask & ~np.isin(self.labels, list(locked))] = UNPAINTED if tool == "eraser" else stroke["class"]
        self.states.append(after)
        self.undone.clear()

    def undo(self):
        if len(self.states) > 1:
            self.undone.append(self.states.pop())

    def redo(self):
        if self.undone:
            self.states.append(self.undone.pop())
