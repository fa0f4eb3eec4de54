"""Which pixels a stroke paints; `kernels/definition/strokes.py` defines it. Entries of the journal may hold them."""

import base64
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hedgerow.images.array_checks import UNLABELLED_INDEX as UNPAINTED
from hedgerow.images.regions import Region
from hedgerow.kernels.cpu import strokes as kernels
from hedgerow.paint.labels import Labels, Masks
from hedgerow.paint.messages import MASK_TOOL, MAX_FILL, Refused

MAX_POLYGON_PIXELS = 2**26  # of the region around a polygon, so that one message cannot fill the memory
MAX_PART_SIDE = 1024  # of the mask of one entry: even noise fits into a line of the journal
Parts = list[tuple[int, Region, np.ndarray]]
"""Class values, regions, and masks (h,w) of the pixels that are painted there."""

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


def masks_of(entry: dict[str, Any], labels: Labels, most: int | None = None) -> Masks:
    """The pixels that an entry paints; raises Refused. most: pixels that are filled without asking"""
    points, tool = entry["points"], entry["tool"]
    if tool == MASK_TOOL:
        return [mask_of(entry, labels.size)]
    if tool == "fill":
        row, column = (int(at + 0.5) for at in points[0])
        within = Region(*entry["within"]).clipped(Region.whole(labels.size))
        area = labels.same_area(row, column, within, MAX_FILL)
        if area is None:
            raise Refused(f"the area to fill has more than {MAX_FILL:,} pixels; zoom in.", entry["id"])
        n = int(np.count_nonzero(area[1]))
        if most is not None and n > most:
            raise Refused(f"the area has {n:,} pixels; confirm to fill it.", entry["id"], n)
        return [area]
    if tool == "polygon":
        rows, columns = ([point[axis] for point in points] for axis in (0, 1))
        if (max(rows) - min(rows) + 2) * (max(columns) - min(columns) + 2) > MAX_POLYGON_PIXELS:
            raise Refused("the polygon is too large; zoom in.", entry["id"])
    return covered(points, entry["radius"] or 0.0, labels.size, is_polygon=tool == "polygon")


def mask_of(entry: dict[str, Any], size: tuple[int, int]) -> tuple[Region, np.ndarray]:
    """The region and mask (h,w) of an entry that holds its pixels; raises Refused."""
    region = Region(*entry["within"])
    n_bytes = -(-region.height * region.width // 8)
    try:
        content = zlib.decompressobj().decompress(base64.b64decode(entry["mask"], validate=True), n_bytes + 1)
    except (ValueError, zlib.error) as problem:
        raise Refused("its mask is damaged", entry["id"]) from problem
    if region.is_empty or region != region.clipped(Region.whole(size)) or len(content) != n_bytes:
        raise Refused("its mask is not of its region", entry["id"])
    bits = np.unpackbits(np.frombuffer(content, np.uint8), count=region.height * region.width)
    return region, bits.reshape(region.height, region.width).view(bool)


def as_entries(entry: dict[str, Any], parts: Parts) -> Iterator[dict[str, Any]]:
    """Entries of the journal that hold these pixels and belong together, made from that of their stroke."""
    kept = {name: entry[name] for name in ("do", "image", "locked", "at")}
    for n, (value, region, mask) in enumerate(parts):
        yield {
            **kept,
            "id": entry["id"] if n == 0 else f"{entry['id'][:56]}.{n}",
            **({} if n == 0 else {"joins": entry["id"]}),
            "tool": MASK_TOOL,
            "class": None if value == UNPAINTED else value,
            "points": [[region.top, region.left]],
            "within": [region.top, region.bottom, region.left, region.right],
            "mask": base64.b64encode(zlib.compress(np.packbits(mask).tobytes(), 6)).decode(),
        }
