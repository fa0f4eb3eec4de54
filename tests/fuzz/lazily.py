"""Reading an image in parts, as predictions of large images do; it must agree with reading it whole."""

import numpy as np

from fuzz.outcomes import require
from hedgerow.images.reading import open_image
from hedgerow.images.regions import Region
from hedgerow.scale.shards import grid_for

HIGH, WIDE = 40, 50  # of the parts that are read, larger than the whole files that cases begin with


def read_in_parts(path, level=0, pages=None):
    """The image, of which the first and the last part were read, and the first of them (C,h,w)."""
    image = open_image(path, level=level, pages=pages)
    image.check_memory()
    n_channels, height, width = image.shape
    require(min(image.shape) > 0 and min(image.chunk) > 0, f"an image of shape {image.shape}, chunk {image.chunk}")
    shards = grid_for(image.size, bytes_per_pixel=4).shards(0)
    require(next(iter(shards)).region.top == 0, "the first shard is not at the top")  # if all are listed, it takes long
    first = Region(0, min(HIGH, height), 0, min(WIDE, width))
    last = Region(max(height - HIGH, 0), height, max(width - WIDE, 0), width)
    parts = []
    for part in dict.fromkeys((first, last)):
        result = image.planes(part)
        require(result.shape == (n_channels, part.height, part.width), f"a part of shape {result.shape}")
        require(bool(np.isfinite(result).all()), "values that are not finite")
        parts.append(result)
    return image, parts[0]


def require_same(whole, in_parts, *, values=True):
    """What was read whole (C,H,W) and in parts, if both were, is the same."""
    if whole is None or in_parts is None:
        return
    image, first = in_parts
    require(image.shape == whole.shape, f"{whole.shape} read whole, {image.shape} in parts")
    require(not values or np.array_equal(first, whole[:, :HIGH, :WIDE]), "other values read in parts than read whole")
