"""The current image (H,W[,C]) of a layer, which may be one image, a stack of planes, or channels."""

from dataclasses import dataclass
from typing import Any

import numpy as np

import hedgerow as hr


@dataclass(frozen=True)
class ImageData:
    """The data of an image layer: (H,W), a stack (n,H,W), colours (H,W,3|4), a stack of these, or channels (C,H,W).

    array:        the data of the layer, possibly lazy
    is_rgb:       the last axis is colours
    has_channels: the first axis is channels, not planes
    name:         for messages
    """

    array: Any
    is_rgb: bool
    has_channels: bool
    name: str

    def __post_init__(self) -> None:
        n_axes = len(self.array.shape) - self.is_rgb
        if n_axes > 3:
            raise hr.InputError(
                f"{self.name} has shape {tuple(self.array.shape)}, which is a series of volumes or more, expected one "
                "image or a stack of planes; select a part with fewer axes."
            )
        if self.has_channels and (n_axes != 3 or self.is_rgb):
            raise hr.InputError(
                f"{self.name} has shape {tuple(self.array.shape)}, expected channels x rows x columns; switch off "
                "'First axis is channels'."
            )

    @property
    def size(self) -> tuple[int, int]:
        """(H,W)"""
        height, width = self.array.shape[-3:-1] if self.is_rgb else self.array.shape[-2:]
        return int(height), int(width)

    @property
    def n_planes(self) -> int | None:
        """The number of planes of a stack; None: it is one image."""
        is_stack = len(self.array.shape) - self.is_rgb == 3 and not self.has_channels
        return int(self.array.shape[0]) if is_stack else None

    @property
    def label_shape(self) -> tuple[int, ...]:
        """(H,W), or (n,H,W) for a stack."""
        return self.size if self.n_planes is None else (self.n_planes, *self.size)

    def plane(self, position: int) -> Any:
        """(H,W[,C]): the image, or this plane of the stack; lazy if the data are. Transparency is dropped."""
        plane = self.array if self.n_planes is None else self.array[within(position, self.n_planes)]
        if self.is_rgb:
            return plane[..., :3]
        return Channels(plane) if self.has_channels else plane


@dataclass(frozen=True)
class Channels:
    """An array (C,H,W) that NumPy reads as (H,W,C)."""

    array: Any

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.moveaxis(np.asarray(self.array, dtype), 0, 2)


def painted_plane(array: Any, position: int, size: tuple[int, int], name: str) -> np.ndarray:
    """A copy of a labels layer's data (H,W), or of one plane of (n,H,W); size: (H,W) of the image."""
    shape = tuple(array.shape)
    if len(shape) not in (2, 3) or shape[-2:] != size:
        raise hr.InputError(
            f"the labels {name} have shape {shape}, expected {size[0]} rows x {size[1]} columns as in the image; "
            "create a new labels layer for the image."
        )
    return np.array(array if len(shape) == 2 else array[within(position, shape[0])])


def within(position: int, n: int) -> int:
    """The number of the nearest existing plane."""
    return min(max(position, 0), n - 1)
