"""Masks: compute only where a mask image is not 0, or where the image is brighter or darker than a threshold."""

import re
from dataclasses import dataclass

import numpy as np

from hedgerow.errors import InputError
from hedgerow.images.reading import ImageSource, opened
from hedgerow.images.regions import Region
from hedgerow.images.remote import absolute
from hedgerow.images.stored import ImageSpec
from hedgerow.scale.costs import refuse_endless

THRESHOLD_SIDE = 64
"""A threshold selects whole tiles of this side, in a grid from the corner: single pixels would be noise."""
_THRESHOLD = re.compile(r"\s*([<>])\s*([-+]?(?:[0-9]+[.]?[0-9]*|[.][0-9]+)(?:e[-+]?[0-9]+)?)\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Mask:
    """The pixels to compute.

    path:        an image of the same proportions at any size: its pixels that are not 0 are computed; "": none
    stamp:       identifies the run, as in `ImageSpec`
    sign, bound: "<" or ">" and a threshold: tiles with a pixel beyond it in any channel are computed
    """

    path: str = ""
    sign: str = ""
    bound: float = 0.0
    stamp: str = ""

    def allowed(self, image: ImageSource, region: Region) -> np.ndarray:
        """(h,w) bool: the pixels of a region of the image that are computed."""
        return self._of_file(image, region) if self.path else self._of_values(image, region)

    def _of_values(self, image: ImageSource, region: Region) -> np.ndarray:
        around = region.aligned(THRESHOLD_SIDE, image.whole)
        values = image.read(around)
        passes = ((values > self.bound) if self.sign == ">" else (values < self.bound)).any(axis=0)
        padded = np.pad(passes, [(0, -side % THRESHOLD_SIDE) for side in passes.shape])
        passing = padded.reshape(len(padded) // THRESHOLD_SIDE, THRESHOLD_SIDE, -1, THRESHOLD_SIDE).any(axis=(1, 3))
        spread = passing.repeat(THRESHOLD_SIDE, axis=0).repeat(THRESHOLD_SIDE, axis=1)
        return np.ascontiguousarray(region.within(around).of(spread))

    def _of_file(self, image: ImageSource, region: Region) -> np.ndarray:
        mask = self._file
        rows = _nearest(np.arange(region.top, region.bottom), mask.size[0], image.size[0])
        columns = _nearest(np.arange(region.left, region.right), mask.size[1], image.size[1])
        part = Region.of_pixels(rows, columns)
        values = (mask.read(part) != 0).any(axis=0)
        return np.ascontiguousarray(values[np.ix_(rows - part.top, columns - part.left)])

    @property
    def _file(self) -> ImageSource:
        return opened(ImageSpec(self.path, stamp=self.stamp))

    def check(self, image: ImageSource) -> None:
        """Refuse a mask of other proportions."""
        if not self.path:
            return
        mask = self._file
        refuse_endless(mask, mask.whole)
        shrinkage = [a / b for a, b in zip(image.size, mask.size, strict=True)]
        slack = max(1 / min(mask.size), 0.01)
        if abs(shrinkage[0] / shrinkage[1] - 1) > slack:
            raise InputError(
                f"the mask {self.path} has {mask.size[0]} x {mask.size[1]} pixels and {image.name} {image.size[0]} x "
                f"{image.size[1]}, which are other proportions; draw it on the same image."
            )

    @property
    def identity(self) -> dict[str, object]:
        file = dict(self._file.identity) if self.path else {}
        return {"file": file, "sign": self.sign, "bound": self.bound}


def _nearest(positions: np.ndarray, n_there: int, n_here: int) -> np.ndarray:
    """The rows of an image with n_there rows at which rows of one with n_here lie."""
    return np.minimum(((2 * positions + 1) * n_there) // (2 * n_here), n_there - 1)


def mask_of(text: str | None, stamp: str = "") -> Mask | None:
    """The mask of a user's text: the name of a file, or a threshold such as "> 30"."""
    if text is None:
        return None
    match = _THRESHOLD.fullmatch(text)
    if match:
        return Mask(sign=match[1], bound=float(match[2]))
    if text.lstrip()[:1] in ("<", ">"):
        raise InputError(f"the mask is {text!r}; give the name of an image, or a threshold such as '> 30' or '< 220'.")
    return Mask(path=absolute(text), stamp=stamp)


def region_of(text: str | None, size: tuple[int, ...]) -> Region:
    """The part of an image that "TOP:BOTTOM,LEFT:RIGHT" names, as slices in Python do; None: all."""
    whole = Region.whole(size)
    if text is None:
        return whole
    match = re.fullmatch(r"\s*(\d*)\s*:\s*(\d*)\s*,\s*(\d*)\s*:\s*(\d*)\s*", text)
    if match:
        ends = (0, size[0], 0, size[1])
        region = Region(*(int(number) if number else end for number, end in zip(match.groups(), ends, strict=True)))
        if region.intersection(whole) == region:
            return region
    raise InputError(
        f"the region is {text!r}; give rows and columns within {size[0]} x {size[1]} pixels as TOP:BOTTOM,LEFT:RIGHT, "
        f"e.g. 0:{size[0] // 2},0:{size[1] // 2}."
    )
