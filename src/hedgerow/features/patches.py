"""The grid of patches on which a pretrained network sees an image.

It is fixed to the image's corner: each patch is computed with a margin around it, always the same, whatever part of
the image is asked for. So what a pixel's features are is part of their definition, and tiles agree bit for bit.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from hedgerow.features.encoder_pictures import doubled, halved
from hedgerow.images.regions import Region

CORE, MARGIN = 1024, 128  # pixels of the network's input; multiples of every stride
SCALES = (0.5, 1.0, 2.0)
Planes = TypeVar("Planes", bound=Any)


@dataclass(frozen=True)
class Patch:
    """core: the pixels of the image it is for; seen: those the network is given; both in pixels of the image."""

    core: Region
    seen: Region


def patches(size: tuple[int, int], scale: float, needed: Region) -> Iterator[Patch]:
    """The patches of an image of this size (H,W) that hold some of the needed pixels."""
    core, margin, whole = int(CORE / scale), int(MARGIN / scale), Region.whole(size)
    for top in range(needed.top // core * core, needed.bottom, core):
        for left in range(needed.left // core * core, needed.right, core):
            here = Region(top, top + core, left, left + core).clipped(whole)
            yield Patch(here, here.grown(margin, whole))


def farthest(scale: float) -> int:
    """How far, in pixels of the image, a pixel's patch can reach from it."""
    return int((CORE + MARGIN) / scale)


def network_input(picture: np.ndarray, scale: float, multiple: int) -> np.ndarray:
    """A picture (3,h,w) at the size that the network is to see it, with its edge repeated up to whole multiples."""
    picture = doubled(picture) if scale == 2 else halved(picture) if scale == 0.5 else picture
    beyond = [(0, -side % multiple) for side in picture.shape[1:]]
    return np.ascontiguousarray(np.pad(picture, [(0, 0), *beyond], mode="edge"), np.float32)


def summed(planes: Sequence[Planes], strides: Sequence[int], doubled: Callable[[Planes], Planes]) -> Planes:
    """The sum (F,H,W) of planes (F,h,w) of several strides, fine ones first, at the finest stride.

    doubled: makes planes, be they arrays or tensors, twice as large
    """
    total, stride = planes[-1], strides[-1]
    for finer, its in zip(reversed(planes[:-1]), reversed(strides[:-1]), strict=True):
        while stride > its:
            total, stride = doubled(total), stride // 2
        total = total + finer
    return total


def own_part(planes: np.ndarray, patch: Patch, steps: float) -> np.ndarray:
    """What belongs to the patch's core, of planes (F,h,w) of what it has seen, one value per `steps` pixels."""
    inner = patch.core.within(patch.seen)
    top, left = int(inner.top / steps), int(inner.left / steps)
    bottom, right = (int(np.ceil(end / steps)) for end in (inner.bottom, inner.right))
    return planes[:, top:bottom, left:right]


def at_pixels(planes: np.ndarray, steps: int, corner: tuple[int, int], region: Region) -> np.ndarray:
    """Values (F,h,w) at the pixels of a region, of planes with a value per `steps` pixels.

    corner: the pixel at which the planes begin; beyond them is the image's edge, or they reach past the region
    """
    while steps > 1:
        planes, steps = doubled(planes), steps // 2
    return region.within(Region(corner[0], 0, corner[1], 0)).of(planes)
