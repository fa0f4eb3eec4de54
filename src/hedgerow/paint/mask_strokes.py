"""Strokes whose pixels follow the image or its segmentation: accepted segmentation, the wand and the smart brush.

Their pixels are written into the journal: the model that they came from may be gone when the journal is read.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import ndimage, spatial

from hedgerow.images.array_checks import UNLABELLED_INDEX as UNPAINTED
from hedgerow.images.regions import Region
from hedgerow.paint.class_list import index_of
from hedgerow.paint.code_cache import CodeCache
from hedgerow.paint.labels import FILL_REACH, TILE
from hedgerow.paint.messages import MASK_TOOL, MASK_TOOLS, Refused
from hedgerow.paint.overlays import Overlay
from hedgerow.paint.project import Project
from hedgerow.paint.raster import MAX_PART_SIDE, Parts, covered

MAX_SMART_PIXELS = 2**20  # around a stroke of the smart brush
CELL_SIDES = 4.0, 16.0  # of the areas that the smart brush takes or leaves, before they follow edges
CELL_PER_RADIUS = 0.6
CONTRAST_PER_SIDE = 0.3  # standard deviations of brightness that weigh as much as the side of an area
N_ROUNDS = 5
MIDDLE = 0.25  # part of the radius within which a stroke shows what it is to paint
MAX_AWAY = 2.0  # by which an area may differ from the middle of the stroke, in units of CONTRAST_PER_SIDE


class MaskStrokes:
    """Finds the pixels of such strokes on the images of a project."""

    def __init__(self, project: Project, codes: CodeCache) -> None:
        self.project, self.codes = project, codes

    def parts(self, stroke: dict[str, Any], shown: Overlay | None) -> Parts | None:
        """The pixels of a stroke; None: they follow from its points. shown: the segmentation on the screen

        Raises Refused, also if there are none.
        """
        if stroke["tool"] not in MASK_TOOLS or self.project.has_stroke(stroke["id"]):
            return None
        self.project.check_image(stroke["image"], stroke["id"])
        if stroke["tool"] in ("accept", "accept-class"):
            parts = self._accepted(stroke, shown)
        else:
            find = {"wand": self._wand, "smart": self._smart}[stroke["tool"]]
            region, mask = find(stroke)
            parts = [
                (stroke["class"], part, part.within(region).of(mask))
                for part in region.tiles((1, MAX_PART_SIDE, MAX_PART_SIDE))
            ]
        known = {a_class.id for a_class in self.project.classes}
        parts = [part for part in parts if part[0] in known and part[2].any()]
        if not parts:
            raise Refused("there is nothing to paint here; it is painted already, or not segmented.", stroke["id"])
        return parts

    def _accepted(self, stroke: dict[str, Any], shown: Overlay | None) -> Parts:
        """The segmentation of unpainted pixels: of a class, of the area around a point, or within a lasso."""
        if shown is None:
            raise Refused("there is no segmentation to accept yet.", stroke["id"])
        whole, points = Region.whole(shown.size), stroke["points"]
        if stroke["tool"] == "accept-class":
            regions = whole.tiles((1, MAX_PART_SIDE, MAX_PART_SIDE))
            return [part for region in regions for part in self._unpainted(stroke, shown, region, [stroke["class"]])]
        if len(points) > 2:
            lasso = covered(points, 0.0, shown.size, is_polygon=True)
            return [part for region, mask in lasso for part in self._unpainted(stroke, shown, region, None, mask)]
        row, column = (int(at + 0.5) for at in points[0])
        near = Region(row, row + 1, column, column + 1).grown(FILL_REACH, whole).clipped(Region(*stroke["within"]))
        if not (near.top <= row < near.bottom and near.left <= column < near.right):
            return []
        classes = classes_in(shown, near)
        value = int(classes[row - near.top, column - near.left])
        areas, _ = ndimage.label(classes == value)
        mask = areas == areas[row - near.top, column - near.left]
        return [] if value == UNPAINTED else [
            part for region in near.tiles((1, MAX_PART_SIDE, MAX_PART_SIDE))
            for part in self._unpainted(stroke, shown, region, [value], region.within(near).of(mask))
        ]  # fmt: skip

    def _unpainted(
        self, stroke: dict[str, Any], shown: Overlay, region: Region, values: list[int] | None, mask: Any = True
    ) -> Iterator[tuple[int, Region, np.ndarray]]:
        with self.project.lock:
            is_free = self.project.labels[stroke["image"]].region(region) == UNPAINTED
        classes = classes_in(shown, region)
        for value in values if values is not None else np.unique(classes).tolist():
            if value != UNPAINTED:
                yield value, region, (classes == value) & is_free & mask

    def _wand(self, stroke: dict[str, Any]) -> tuple[Region, np.ndarray]:
        """The connected area whose brightness is like that of a point, in all channels."""
        row, column = (int(at + 0.5) for at in stroke["points"][0])
        pyramid = self.codes.pyramid(stroke["image"])
        near = Region(row, row + 1, column, column + 1).grown(FILL_REACH // 2, Region.whole(pyramid.size(0)))
        near = near.clipped(Region(*stroke["within"]))
        if not (near.top <= row < near.bottom and near.left <= column < near.right):
            return near, np.zeros((near.height, near.width), bool)
        planes = ndimage.gaussian_filter(pyramid.planes(0, near), (0, 1, 1))
        seed = planes[:, row - near.top, column - near.left]
        spread = np.maximum(np.ptp(planes, axis=(1, 2)), 1e-12)
        away = (np.abs(planes - seed[:, None, None]) / spread[:, None, None]).max(axis=0)
        areas, _ = ndimage.label(away <= stroke["tolerance"] / 100)
        return near, areas == areas[row - near.top, column - near.left]

    def _smart(self, stroke: dict[str, Any]) -> tuple[Region, np.ndarray]:
        """The areas of which the stroke covers at least half, and that look like its middle."""
        pyramid = self.codes.pyramid(stroke["image"])
        size = pyramid.size(0)
        parts = [region for region, _ in covered(stroke["points"], stroke["radius"], size)]
        if not parts:
            return Region(0, 0, 0, 0), np.zeros((0, 0), bool)
        hull = parts[0].hull(*parts)
        side = int(np.clip(CELL_PER_RADIUS * stroke["radius"], *CELL_SIDES))
        region = hull.grown(2 * side, Region.whole(size))
        if region.height * region.width > MAX_SMART_PIXELS:
            raise Refused("the stroke of the smart brush is too long; paint it in parts.", stroke["id"])
        drawn, middle = (np.zeros((region.height, region.width), bool) for _ in range(2))
        for target, radius in ((drawn, stroke["radius"]), (middle, stroke["radius"] * MIDDLE)):
            for part, mask in covered(stroke["points"], radius, size):
                part.within(region).of(target)[...] |= mask
        cells, brightness = _cells(pyramid.planes(0, region), region, side)
        n, n_drawn = np.bincount(cells.ravel()), np.bincount(cells.ravel(), drawn.ravel())
        taken = np.unique(cells[middle if middle.any() else drawn])
        half = np.flatnonzero((n > 0) & (n_drawn >= 0.5 * n))
        away, _ = spatial.cKDTree(brightness[:, taken].T).query(brightness[:, half].T)
        snapped = np.isin(cells, half[away <= MAX_AWAY])
        return region, snapped if snapped.any() else drawn


def _cells(planes: np.ndarray, region: Region, side: int) -> tuple[np.ndarray, np.ndarray]:
    """(h,w) numbers of areas of about side x side pixels whose borders follow the edges of planes (C,h,w), and their
    brightness (C,N): superpixels, that is means of place and brightness, from a grid of the image, so that they hardly
    depend on the stroke."""
    smooth = ndimage.gaussian_filter(planes, (0, 1, 1))
    smooth /= np.maximum(smooth.std(axis=(1, 2), keepdims=True), 1e-12) * CONTRAST_PER_SIDE
    row, column = np.mgrid[: region.height, : region.width].astype(np.float32) / side
    features = np.stack([row, column, *smooth]).reshape(2 + len(smooth), -1)
    grid_row = np.arange(region.top, region.bottom) // side - region.top // side + 1
    grid_column = np.arange(region.left, region.right) // side - region.left // side + 1
    width = int(grid_column[-1]) + 2  # of the grid, with a border of empty cells
    home = (grid_row[:, None] * width + grid_column[None]).ravel()
    n_cells, cells = (int(grid_row[-1]) + 2) * width, home
    for _ in range(N_ROUNDS):
        n = np.bincount(cells, minlength=n_cells)
        means = np.stack([np.bincount(cells, own, n_cells) for own in features]) / np.maximum(n, 1)
        means[:, n == 0] = np.inf
        nearest = np.full(len(home), np.inf)
        cells = home
        for step in (down * width + across for down in (-1, 0, 1) for across in (-1, 0, 1)):
            distance = ((features - means[:, home + step]) ** 2).sum(axis=0)
            cells = np.where(distance < nearest, home + step, cells)
            nearest = np.minimum(nearest, distance)
    return cells.reshape(region.height, region.width), means[2:]


def classes_in(shown: Overlay, region: Region) -> np.ndarray:
    """(h,w) uint8: the classes of a segmentation in a region, UNPAINTED where it is not known."""
    classes = np.full((region.height, region.width), UNPAINTED, np.uint8)
    for place in ((row, column) for row in region.tile_places(TILE)[0] for column in region.tile_places(TILE)[1]):
        tile_region = Region.tile_at(place, TILE).clipped(Region.whole(shown.size))
        tile = shown.tile(0, *place, "classes")
        here = region.clipped(tile_region)
        if tile is not None and not here.is_empty:
            here.within(region).of(classes)[...] = here.within(tile_region).of(tile)
    return classes


def merge_class(project: Project, id: int, into: int | None) -> list[dict[str, Any]]:
    """Remove a class, and paint its pixels as another one, or erase them (None); returns the `painted` messages.

    Undo takes it back: first the removal, then the pixels of each image. Raises Refused.
    """
    with project.lock:
        for own in [project.classes[index_of(project.classes, each)] for each in (id, into) if each is not None]:
            if own.locked:
                raise Refused(f"{own.name} is locked; unlock it first.")
        if id == into:
            raise Refused("choose another class to merge with.")
        painted = []
        for image in range(len(project.images)):
            labels, parts = project.labels[image], Parts()
            if id in labels.pixels:
                for region in Region.whole(labels.size).tiles((1, MAX_PART_SIDE, MAX_PART_SIDE)):
                    parts.append((UNPAINTED if into is None else into, region, labels.region(region) == id))
                stroke = {"do": "paint", "id": uuid.uuid4().hex, "image": image, "tool": MASK_TOOL, "class": None}
                painted.append(project.paint(stroke, [part for part in parts if part[2].any()]))
        project.change_class({"id": id, "remove": True})
        return painted
