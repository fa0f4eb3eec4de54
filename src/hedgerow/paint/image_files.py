"""The images of a project: what their files say, without reading their pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hedgerow.errors import HedgerowError, InputError
from hedgerow.images.pairing import FilesSpec, by_stem, find_files
from hedgerow.images.reading import described_image

MAX_IMAGES = 10_000


@dataclass(frozen=True)
class ImageFile:
    """An image file. size: (H,W)"""

    path: Path
    size: tuple[int, int]
    n_channels: int
    dtype: np.dtype

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def n_bytes(self) -> int:
        """Of its pixels."""
        return self.n_channels * self.size[0] * self.size[1] * self.dtype.itemsize

    def described(self) -> dict[str, Any]:
        """JSON-ready, for project.json."""
        return {"name": self.name, "height": self.size[0], "width": self.size[1], "channels": self.n_channels}


def image_files(spec: FilesSpec) -> tuple[list[ImageFile], list[str]]:
    """The images to paint on, and a sentence for each file that cannot be: all need the channels of the first."""
    found: list[ImageFile] = []
    left_out: list[str] = []
    paths = list(by_stem(find_files(spec)).values())  # two of one name could not be told apart as label maps
    if len(paths) > MAX_IMAGES:
        raise InputError(f"there are {len(paths):,} images; give at most {MAX_IMAGES:,}.")
    for path in paths:
        try:
            page = described_image(path)
        except HedgerowError as problem:
            left_out.append(str(problem))
            continue
        image = ImageFile(path, (page.height, page.width), page.n_channels, page.dtype)
        if found and image.n_channels != found[0].n_channels:
            left_out.append(
                f"{path} has {image.n_channels} channel(s) and {found[0].path} has {found[0].n_channels}; it is left "
                "out, since one model reads images of one kind."
            )
            continue
        found.append(image)
    if not found:
        raise InputError(f"none of the images can be read: {_first(left_out)}")
    return found, left_out


def _first(left_out: Sequence[str]) -> str:
    return left_out[0] if left_out else "there are none"
