"""The grid of patches in which a pretrained network sees an image.

The grid starts at the image's corner, and each patch is always computed with the same margin, whatever part of the
image is requested. So the patch of a pixel is part of the definition of its features, and tiles agree bit for bit.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from hedgerow.encoders.catalogue import PUBLISHED
from hedgerow.features.encoder_pictures import doubled, halved
from hedgerow.images.regions import Region

PATCH_CORE, PATCH_MARGIN = 1024, 128  # pixels of the network's input, unless it has its own; multiples of every stride
SCALES = (0.5, 1.0, 2.0)
Planes = TypeVar("Planes", bound=Any)


@dataclass(frozen=True)
class Patch:
    """core: the pixels of the image that it is for; seen: the pixels that the network sees."""

    core: Region
    seen: Region


def patches(size: tuple[int, int], encoder: str, scale: float, needed: Region) -> Iterator[Patch]:
    """The patches of an image of this size (H,W) that contain needed pixels."""
    (core, margin), whole = (int(side / scale) for side in patch_of(encoder)), Region.whole(size)
    for top in range(needed.top // core * core, needed.bottom, core):
        for left in range(needed.left // core * core, needed.right, core):
            here = Region(top, top + core, left, left + core).clipped(whole)
            yield Patch(here, here.grown(margin, whole))


def patch_of(encoder: str) -> tuple[int, int]:
    """The side of a patch and its margin, in pixels of the network's input."""
    published = PUBLISHED.get(encoder)
    return (PATCH_CORE, PATCH_MARGIN) if published is None or published.patch is None else published.patch


def farthest(encoder: str, scale: float) -> int:
    """How far a pixel's patch extends from the pixel at most, in pixels of the image."""
    return int(sum(patch_of(encoder)) / scale)


def network_input(picture: np.ndarray, scale: float, multiple: int) -> np.ndarray:
    """A picture (3,h,w) at the size that the network sees, with its edge repeated up to whole multiples."""
    picture = doubled(picture) if scale == 2 else halved(picture) if scale == 0.5 else picture
    beyond = [(0, -side % multiple) for side in picture.shape[1:]]
    return np.ascontiguousarray(np.pad(picture, [(0, 0), *beyond], mode="edge"), np.float32)


def summed(planes: Sequence[Planes], strides: Sequence[int], doubled: Callable[[Planes], Planes]) -> Planes:
    """The sum (F,H,W), at the finest stride, of planes (F,h,w) of several strides, the finest first.

    doubled: enlarges planes, arrays or tensors, to twice their size
    """
    total, stride = planes[-1], strides[-1]
    for finer, its in zip(reversed(planes[:-1]), reversed(strides[:-1]), strict=True):
        while stride > its:
            total, stride = doubled(total), stride // 2
        total = total + finer
    return total


def own_part(planes: Planes, patch: Patch, steps: float, halved: Callable[[Planes], Planes]) -> Planes:
    """The values of the patch's core, out of planes (F,h,w) of all that was seen, at every pixel if they are finer.

    steps:  pixels per value; halved: reduces planes, arrays or tensors, to half their size
    """
    while steps < 1:
        planes, steps = halved(planes), steps * 2
    inner = patch.core.within(patch.seen)
    top, left = int(inner.top / steps), int(inner.left / steps)
    bottom, right = (int(np.ceil(end / steps)) for end in (inner.bottom, inner.right))
    return planes[:, top:bottom, left:right]


def at_pixels(planes: np.ndarray, steps: int, corner: tuple[int, int], region: Region) -> np.ndarray:
    """Values (F,h,w) at the pixels of a region, from planes with one value per `steps` pixels.

    corner: the pixel at which the planes begin; they extend beyond the region unless the image ends there
    """
    while steps > 1:
        planes, steps = doubled(planes), steps // 2
    return region.within(Region(corner[0], 0, corner[1], 0)).of(planes)
