"""Labels, undo and redo, against a plain model: one array, and copies of it."""

import json

import numpy as np
import pytest

from hedgerow.images.regions import Region
from hedgerow.kernels.definition import strokes
from hedgerow.paint import raster
from hedgerow.paint.labels import TILE, UNPAINTED, Labels
from hedgerow.paint.messages import MAX_FILL, parse
from hedgerow.paint.project import Project
from helpers.paint import open_project, stroke

SIZE = (2 * TILE + 61, TILE + 30)


def reopened(project):
    project.close()
    return Project(project.folder, project.images)


def plain_mask(message, labels, size):
    """(H,W) bool: the pixels of a stroke by the definitions alone."""
    points, tool = message["points"], message["tool"]
    mask = np.zeros(size, bool)
    if tool == "fill":
        row, column = (int(one) for one in points[0])
        waiting, seen = [(row, column)], {(row, column)}
        top, bottom, left, right = message["within"]
        while waiting:
            at = waiting.pop()
            mask[at] = True
            for step in ((1, 0), (-1, 0), (0, 1), (0, -1)):
                near = at[0] + step[0], at[1] + step[1]
                inside = top <= near[0] < bottom and left <= near[1] < right
                if inside and near not in seen and labels[near] == labels[row, column]:
                    seen.add(near)
                    waiting.append(near)
        return mask
    radius = message.get("radius", raster.OUTLINE_RADIUS)
    rows, columns = zip(*points, strict=True)
    outline = [*points, points[0]] if tool == "polygon" else points
    for row in range(max(int(min(rows) - radius) - 1, 0), min(int(max(rows) + radius) + 2, size[0])):
        for column in range(max(int(min(columns) - radius) - 1, 0), min(int(max(columns) + radius) + 2, size[1])):
            mask[row, column] = strokes.is_near(row, column, outline, radius)
            if tool == "polygon":
                mask[row, column] |= strokes.is_inside(row, column, points)
    return mask


class Plain:
    """The labels as one array, with all earlier states."""

    def __init__(self, size):
        self.states, self.at = [np.full(size, UNPAINTED, np.uint8)], 0

    @property
    def labels(self):
        return self.states[self.at]

    def paint(self, message, locked):
        new = self.labels.copy()
        mask = plain_mask(message, new, new.shape) & ~np.isin(new, locked)
        new[mask] = message.get("class", UNPAINTED)
        self.states[self.at + 1 :] = [new]
        self.at += 1


def random_message(rng, n, size):
    tool = ("brush", "brush", "eraser", "line", "polygon", "fill")[rng.integers(6)]
    middle = rng.integers(0, size, 2)
    count = {"fill": 1, "line": 2, "polygon": 4}.get(tool, int(rng.integers(1, 4)))
    points = (middle + rng.integers(-120, 120, (count, 2)) / 8).tolist()
    more = {}
    if tool == "fill":
        points = [middle.tolist()]
        top, left = np.maximum(middle - 20, 0).tolist()
        bottom, right = np.minimum(middle + 21, size).tolist()
        more["within"] = [top, bottom, left, right]
    radius = int(rng.integers(0, 60)) / 8
    return stroke(f"r{n}", 0, tool, int(rng.integers(0, 4)), radius, points, **more)


@pytest.mark.parametrize("seed", range(2))
def test_200_random_strokes_undos_and_redos_against_a_plain_model(tmp_path, seed):
    rng = np.random.default_rng(seed)
    project, plain = open_project(tmp_path, size=SIZE), Plain(SIZE)
    for _ in range(2):
        project.change_class({"id": None})
    project = reopened(project)  # those changes can no longer be undone
    locked = []
    for n in range(200):
        choice = rng.random()
        if choice < 0.15:
            assert (project.undo_or_redo("undo") is None) == (plain.at == 0)
            plain.at = max(plain.at - 1, 0)
        elif choice < 0.25:
            assert (project.undo_or_redo("redo") is None) == (plain.at == len(plain.states) - 1)
            plain.at = min(plain.at + 1, len(plain.states) - 1)
        else:
            if rng.random() < 0.1:
                locked = [int(rng.integers(4))] if not locked else []
                for one in range(4):
                    project.change_class({"id": one, "locked": one in locked})
            message = parse(json.dumps(random_message(rng, n, SIZE)))
            project.paint(message)
            plain.paint({name: value for name, value in message.items() if value is not None}, locked)
        if n % 40 == 39:
            project = reopened(project)  # the journal restores the same state
        counts = {int(v): int(c) for v, c in zip(*np.unique(plain.labels, return_counts=True), strict=True)}
        counts.pop(UNPAINTED, None)
        assert project.labels[0].pixels == counts
        assert (project.n_undo, project.n_redo) == (plain.at, len(plain.states) - 1 - plain.at)
    assert np.array_equal(project.labels[0].whole(), plain.labels)
    while project.undo_or_redo("undo"):
        pass
    assert project.labels[0].pixels == {}
    assert not project.labels[0]._tiles
    project.close()


def painted_labels(rng, size=SIZE):
    labels = Labels(size)
    for _ in range(12):
        at = rng.integers(0, size, 2)
        masks = raster.covered([at.tolist(), (at + rng.integers(-60, 60, 2)).tolist()], 3, size)
        labels.paint(masks, int(rng.integers(0, 3)))
    return labels


@pytest.mark.parametrize("level", range(4))
def test_tiles_of_levels_are_the_smallest_of_each_block(level):
    labels = painted_labels(np.random.default_rng(0))
    whole = labels.whole()
    side = 1 << level
    padded = np.pad(whole, ((0, -whole.shape[0] % side), (0, -whole.shape[1] % side)), constant_values=UNPAINTED)
    expected = padded.reshape(padded.shape[0] // side, side, -1, side).min(axis=(1, 3))
    for row in range(-(-expected.shape[0] // TILE)):
        for column in range(-(-expected.shape[1] // TILE)):
            part = expected[row * TILE : (row + 1) * TILE, column * TILE : (column + 1) * TILE]
            found = labels.shrunk(level, row, column)
            assert np.array_equal(part, np.full_like(part, UNPAINTED) if found is None else found)
    rows, columns, values = labels.painted(level)
    assert np.array_equal(expected[rows, columns], values)
    assert len(values) == np.count_nonzero(expected != UNPAINTED)
    assert labels.shrunk(level, 40, 0) is None


def test_many_tiles_that_share_a_pixel_of_a_coarse_level():
    labels = Labels((3000, 3000))
    for value, at in ((3, 100), (1, 400), (2, 2900)):
        labels.paint(raster.covered([[at, at]], 1, (3000, 3000)), value)
    rows, columns, values = labels.painted(9)
    assert (rows.tolist(), columns.tolist(), values.tolist()) == ([0, 5], [0, 5], [1, 2])


def test_a_region_is_what_it_is_of_the_whole():
    labels = painted_labels(np.random.default_rng(1))
    region = Region(200, 400, 100, 270)
    assert np.array_equal(labels.region(region), region.of(labels.whole()))


def test_a_large_image_costs_what_is_painted():
    labels = Labels((20_000, 20_000))
    labels.paint(raster.covered([[10, 10], [19_990, 19_990]], 2, labels.size), 1)
    assert len(labels._tiles) < 300
    assert labels.pixels[1] > 19_980


def test_an_area_that_is_too_large_is_refused(tmp_path):
    labels = Labels((5000, 5000))
    assert labels.same_area(2500, 2500, Region(0, 5000, 0, 5000), MAX_FILL) is None
    _, mask = labels.same_area(2500, 2500, Region(2490, 2510, 2400, 2600), MAX_FILL)
    assert (mask.all(), mask.size) == (True, 4000)
    assert not labels.same_area(1, 1, Region(2490, 2510, 2400, 2600), MAX_FILL)[1].any()
