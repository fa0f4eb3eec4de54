"""The U-Net: a convolutional network that looks at ever coarser scales and comes back to full resolution."""

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
"""What channels are normalised by: how they were in training, or how they are in the image at hand."""
NORMS: tuple[Norm, ...] = ("batch", "image")
TILE = 512
"""Networks run on tiles of this side with their surroundings, in a grid from the image's corner.

What surrounds a tile is the same whatever region is asked for, so the prediction is the same to the last bit.
"""


class ImageNorm(nn.Module):
    """Each channel is normalised over its own image; and ReLU.

    So a network follows images that are darker or coarser than those of its training. What it sees must then be the
    same however an image is cut into tiles; `TILE` sees to that.
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
    """(N,M,H,W) with zeros below and to the right, to multiples of the stride; zero is the mean, or missing."""
    height, width = (-side % stride for side in planes.shape[2:])
    return functional.pad(planes, (0, width, 0, height))


class UNet(nn.Module):
    """Down to 1 / 2^n_down of the resolution and up again; on the way up, joined by the features of the way down.

    widths:     channels on each scale, full resolution first
    also_reads: what it reads beside its planes, in words for people
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
        """Take over the published weights of an encoder; n_image: how many of the planes that are read are the image's,
        the first."""
        raise NotImplementedError("its kind of member names an encoder, but it has no such weights")

    @property
    def stride(self) -> int:
        """Pixels of the image to one of the coarsest scale."""
        return int(2 ** len(self.up))

    @property
    def reach(self) -> int:
        """How far, in pixels, a pixel's scores may depend on others, unless it `sees_all`; a multiple of the stride.

        Each scale has four 3 x 3 convolutions, the coarsest two; and where in a coarse pixel a fine one lies adds up to
        one coarse pixel more: 4 (2^n - 1) + 2 * 2^n + 2^n, rounded up.
        """
        return 7 * self.stride

    @property
    def sees_all(self) -> bool:
        """Whether all that is seen at once may decide about a pixel, and not just what is within reach."""
        return self.norm == "image"

    def beside(self, whole: Tensor) -> Sequence[Tensor | None]:
        """For each scale below full resolution what it reads of planes (N,M,H,W) beside its own features: nothing."""
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
    """Twice the height and width; normalised, so that the coarse levels start as strong as the fine ones they join."""
    enlarge = nn.ConvTranspose2d(n_inputs, n_outputs, 2, stride=2, bias=False)
    return nn.Sequential(enlarge, *_activation(n_outputs, norm))
