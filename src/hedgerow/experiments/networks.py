"""The two convolutional networks of the comparison: FCN and U-Net."""

import torch
from torch import nn
from torch.nn import functional

FUSED = 3  # strides whose class scores the FCN adds up


def _block(n_inputs: int, n_outputs: int) -> nn.Sequential:
    """Two 3 x 3 convolutions."""
    first = nn.Conv2d(n_inputs, n_outputs, 3, padding=1, bias=False)
    second = nn.Conv2d(n_outputs, n_outputs, 3, padding=1, bias=False)
    return nn.Sequential(first, *_activation(n_outputs), second, *_activation(n_outputs))


def _enlarging_block(n_inputs: int, n_outputs: int) -> nn.Sequential:
    """Twice the height and width; normalised, so that the coarse levels start as strong as the fine ones they join."""
    enlarge = nn.ConvTranspose2d(n_inputs, n_outputs, 2, stride=2, bias=False)
    return nn.Sequential(enlarge, *_activation(n_outputs))


def _activation(n_channels: int) -> tuple[nn.Module, nn.Module]:
    """Each channel is normalised over its own image: a step sees one, too few for statistics of a batch."""
    return nn.InstanceNorm2d(n_channels, affine=True), nn.ReLU(inplace=True)


def _padded(planes: torch.Tensor, stride: int) -> torch.Tensor:
    """(N,M,H,W) with zeros below and to the right, to multiples of the stride; zero is the mean, or missing.

    At least two strides: the coarsest level needs more than one pixel to be normalised.
    """
    height, width = (max(-(-side // stride), 2) * stride - side for side in planes.shape[2:])
    return functional.pad(planes, (0, width, 0, height))


class UNet(nn.Module):
    """Down to 1 / 2^n_down of the resolution and up again; on the way up, joined by the features of the way down."""

    def __init__(self, n_inputs: int, n_classes: int, base: int = 16, n_down: int = 4) -> None:
        super().__init__()
        widths = [base * 2**level for level in range(n_down + 1)]
        self.down = nn.ModuleList(map(_block, [n_inputs, *widths], widths))
        upwards = widths[-2::-1]
        self.up = nn.ModuleList(_enlarging_block(2 * width, width) for width in upwards)
        self.merge = nn.ModuleList(_block(2 * width, width) for width in upwards)
        self.score = nn.Conv2d(base, n_classes, 1, bias=False)
        self.class_bias = nn.Parameter(torch.zeros(n_classes, 1, 1))

    def forward(self, planes: torch.Tensor) -> torch.Tensor:
        """Class scores (N,C,H,W) of planes (N,M,H,W) of any height and width."""
        found = self.down[0](_padded(planes, 2 ** len(self.up)))
        passed_by = []
        for block in self.down[1:]:
            passed_by.append(found)
            found = block(functional.max_pool2d(found, 2))
        for up, merge in zip(self.up, self.merge, strict=True):
            found = merge(torch.cat([passed_by.pop(), up(found)], dim=1))
        return self.class_bias + self.score(found)[..., : planes.shape[2], : planes.shape[3]]


class FCN(nn.Module):
    """Down to 1 / 2^n_down of the resolution; the class scores of the three coarsest strides are enlarged and added."""

    def __init__(self, n_inputs: int, n_classes: int, base: int = 16, n_down: int = 4) -> None:
        super().__init__()
        widths = [base * 2**level for level in range(n_down + 1)]
        self.down = nn.ModuleList(map(_block, [n_inputs, *widths], widths))
        self.score = nn.ModuleList(nn.Conv2d(width, n_classes, 1, bias=False) for width in widths[1:][-FUSED:])
        self.class_bias = nn.Parameter(torch.zeros(n_classes, 1, 1))

    def forward(self, planes: torch.Tensor) -> torch.Tensor:
        """Class scores (N,C,H,W) of planes (N,M,H,W) of any height and width."""
        whole = _padded(planes, 2 ** (len(self.down) - 1))
        found = [self.down[0](whole)]
        for block in self.down[1:]:
            found.append(block(functional.max_pool2d(found[-1], 2)))
        total: torch.Tensor | None = None
        for score in reversed(self.score):
            here = score(found.pop())
            total = here if total is None else here + _enlarged(total, here)
        assert total is not None
        return self.class_bias + _enlarged(total, whole)[..., : planes.shape[2], : planes.shape[3]]


def _enlarged(class_scores: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Blended between pixels, to the height and width of the other."""
    return functional.interpolate(class_scores, size=like.shape[2:], mode="bilinear", align_corners=False)


NETWORKS: dict[str, type[UNet] | type[FCN]] = {"unet": UNet, "fcn": FCN}
