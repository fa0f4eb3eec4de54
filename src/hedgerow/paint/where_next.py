"""Where next in a project: `suggest` on the segmentation that is shown, or on that of other images."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from hedgerow.paint import suggest
from hedgerow.paint.labels import TILE
from hedgerow.paint.live import BLOCK
from hedgerow.paint.messages import Refused
from hedgerow.paint.pyramid import level_size, n_levels
from hedgerow.paint.results import uncertainty
from hedgerow.paint.segmenting import Segmenter
from hedgerow.paint.telling import Teller

LOOKED_AT = 1_200_000  # pixels of an image that are looked at, at most: larger ones are looked at on a coarser level
SECONDS = 4.0  # after which no further image is looked at


def where_next(segmenter: Segmenter, teller: Teller, image: int | None, shown: int) -> dict[str, Any]:
    """What to tell: the best place in an image, or of all images that can be looked at in a few seconds.

    shown: the image on the screen, which is looked at first
    """
    project = segmenter.project
    if image is not None:
        images = [image]
    else:
        rest = [one for one in range(len(project.images)) if one != shown]
        unpainted = [one for one in rest if not project.labels[one].n_painted]
        images = [shown, *unpainted, *(one for one in rest if one not in unpainted)]
    began, found = time.monotonic(), []
    for one in images:
        looked = _best(segmenter, teller, one)
        if looked is not None:
            found.append((one, *looked))
        if time.monotonic() - began > SECONDS:
            break
    if not found:
        raise Refused("no place can be suggested yet; paint with two classes first.")
    best, level, place = max(found, key=lambda each: each[2].score)
    height, width = project.images[best].size
    return {
        "say": "next",
        "image": best,
        "row": min(place.row << level, height - 1),
        "col": min(place.column << level, width - 1),
        "why": place.why,
    }


def _best(segmenter: Segmenter, teller: Teller, image: int) -> tuple[int, suggest.Place] | None:
    """The level that was looked at, and the best place of an image there."""
    size = segmenter.project.images[image].size
    last = n_levels(size) - 1
    level = next((k for k in range(last) if np.prod(level_size(size, k)) <= LOOKED_AT), last)
    walkable = segmenter.walkable(teller, image, level)
    if walkable is None:
        return None
    height, width = level_size(size, level)
    cells = -(-height // suggest.CELL), -(-width // suggest.CELL)
    n_planes = segmenter.codes.fitted(level)[0].n_features
    unsure, looks = np.zeros(cells, np.float32), np.zeros((*cells, n_planes), np.float32)
    for row in range(-(-height // BLOCK)):
        for column in range(-(-width // BLOCK)):
            codes = segmenter.codes.block(image, level, (row, column))
            block = walkable.walked(codes)
            part = suggest.cell_means(uncertainty(block.proba)) / 255
            at = row * BLOCK // suggest.CELL, column * BLOCK // suggest.CELL
            place = slice(at[0], at[0] + part.shape[0]), slice(at[1], at[1] + part.shape[1])
            unsure[place], looks[place] = part, suggest.cell_means(codes.image())
    painted = np.zeros(cells, bool)
    known = []
    for one in segmenter.used(image, level):
        table = segmenter.codes.table(one, level)
        known.append(suggest.painted_looks(table.codes, table.row, table.column))
        if one == image:
            painted[table.row // suggest.CELL, table.column // suggest.CELL] = True
    place_found = suggest.suggested(unsure, looks, painted, np.concatenate(known))
    return None if place_found is None else (level, place_found)


assert BLOCK % suggest.CELL == 0 and BLOCK % TILE == 0  # noqa: PT018 (cells and tiles do not cross blocks)
