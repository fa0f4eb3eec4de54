"""The U-Net: a convolutional network that computes coarser and coarser scales and returns to full resolution."""

from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from hedgerow.kernels.backends import backend_for
from hedgerow.kernels.definition import norm as definition

Norm = Literal["batch", "image"]
"""Channels are normalised by statistics of the training, or of the image itself."""
NORMS: tuple[Norm, ...] = ("batch", "image")
UNET_TILE = 512
"""Networks run on tiles of this side with their surroundings, in a grid from the image's corner.

The surroundings of a tile do not depend on the region that is predicted, so the prediction is the same to the last bit.
"""


class ImageNorm(nn.Module):
    """Normalises each channel over its own image, and applies ReLU.

    This adapts a network to images that are darker or coarser than its training images. Its input must then be the same
    for any tiling of an image, which `UNET_TILE` ensures.
    """

    def __init__(self, n_channels: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(n_channels)), nn.Parameter(torch.zeros(n_channels))

    def forward(self, planes: Tensor) -> Tensor:
        """(N,M,H,W) of planes (N,M,H,W)"""
        kernels = definition
        if planes.is_cuda and backend_for("cuda").name == "gpu":
            kernels = import_module("hedgerow.kernels.gpu.norm")
        return kernels.image_norm(planes, self.weight, self.bias)


def block(n_inputs: int, n_outputs: int, norm: Norm) -> nn.Sequential:
    """Two 3 x 3 convolutions."""
    first = nn.Conv2d(n_inputs, n_outputs, 3, padding=1, bias=False)
    second = nn.Conv2d(n_outputs, n_outputs, 3, padding=1, bias=False)
    return nn.Sequential(first, *_activation(n_outputs, norm), second, *_activation(n_outputs, norm))


def _activation(n_channels: int, norm: Norm) -> tuple[nn.Module, nn.Module]:
    """Normalisation and ReLU."""
    if norm == "image":
        return ImageNorm(n_channels), nn.Identity()
    return nn.BatchNorm2d(n_channels), nn.ReLU(inplace=True)


def padded(planes: Tensor, stride: int) -> Tensor:
    """(N,M,H,W) padded below and to the right to multiples of the stride with zero, which is the mean, or blank."""
    height, width = (-side % stride for side in planes.shape[2:])
    return functional.pad(planes, (0, width, 0, height))


class UNet(nn.Module):
    """Down to 1 / 2^n_down of the resolution and up again; on the way up, features of the way down are appended.

    widths:     channels on each scale, full resolution first
    also_reads: what it reads besides its planes, in words
    """

    also_reads: ClassVar[str] = ""

    def __init__(
        self, n_inputs: int, n_classes: int, base: int, n_down: int, widest: int, norm: Norm = "batch"
    ) -> None:
        super().__init__()
        self.base, self.n_down, self.widest, self.norm = base, n_down, widest, norm
        self.widths = widths = [min(base * 2**level, widest) for level in range(n_down + 1)]
        self.down = nn.ModuleList(map(partial(block, norm=norm), [n_inputs, *widths], widths))
        self.up = nn.ModuleList(map(partial(_enlarging, norm=norm), widths[:0:-1], widths[-2::-1]))
        self.merge = nn.ModuleList(block(2 * width, width, norm) for width in widths[-2::-1])
        self.score = nn.Conv2d(base, n_classes, 1, bias=False)
        self.class_bias = nn.Parameter(torch.zeros(n_classes, 1, 1))

    def start_from(self, weights: Mapping[str, Tensor], n_image: int) -> None:
        """Copy the published weights of an encoder.

        n_image: number of input planes of the image, which come first
        """
        raise NotImplementedError("a kind of member with an encoder needs a network that can start from its weights")

    @property
    def stride(self) -> int:
        """Pixels of the image per pixel of the coarsest scale, in each direction."""
        return int(2 ** len(self.up))

    @property
    def reach(self) -> int:
        """How far, in pixels, a pixel's scores may depend on others unless the network `sees_all`; a multiple of the
        stride.

        Each scale has four 3 x 3 convolutions, the coarsest two; the position of a fine pixel in a coarse one adds at
        most one coarse pixel: 4 (2^n - 1) + 2 * 2^n + 2^n, rounded up.
        """
        return 7 * self.stride

    @property
    def sees_all(self) -> bool:
        """Whether a pixel's scores may depend on the whole input, and not just on pixels within `reach`."""
        return self.norm == "image"

    def beside(self, whole: Tensor) -> Sequence[Tensor | None]:
        """For each scale below full resolution, additional features computed from planes (N,M,H,W), or None."""
        return [None] * self.n_down

    def forward(self, planes: Tensor) -> Tensor:
        """Class scores (N,C,H,W) of planes (N,M,H,W) of any height and width."""
        whole = padded(planes, self.stride)
        features = self.down[0](whole)
        passed_by = []
        for deeper, beside in zip(self.down[1:], self.beside(whole), strict=True):
            passed_by.append(features)
            features = functional.max_pool2d(features, 2)
            features = deeper(features if beside is None else torch.cat([features, beside], dim=1))
        for up, merge in zip(self.up, self.merge, strict=True):
            features = merge(torch.cat([passed_by.pop(), up(features)], dim=1))
        return self.class_bias + self.score(features)[..., : planes.shape[2], : planes.shape[3]]


def _enlarging(n_inputs: int, n_outputs: int, norm: Norm) -> nn.Sequential:
    """Doubles height and width; normalised, so that coarse features start with the same strength as fine ones."""
    enlarge = nn.ConvTranspose2d(n_inputs, n_outputs, 2, stride=2, bias=False)
    return nn.Sequential(enlarge, *_activation(n_outputs, norm))
