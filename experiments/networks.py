"""The FCN of the comparison; the U-Net is the one in `deep/`."""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from hedgerow.deep.unet import Norm, UNet, block, padded

FUSED = 3  # number of strides whose class scores the FCN adds


class FCN(nn.Module):
    """Down to 1 / 2^n_down of the resolution; the class scores of the three coarsest strides are enlarged and added."""

    def __init__(self, n_inputs: int, n_classes: int, base: int, n_down: int, widest: int, norm: Norm) -> None:
        super().__init__()
        widths = [min(base * 2**level, widest) for level in range(n_down + 1)]
        self.down = nn.ModuleList(map(partial(block, norm=norm), [n_inputs, *widths], widths))
        self.score = nn.ModuleList(nn.Conv2d(width, n_classes, 1, bias=False) for width in widths[1:][-FUSED:])
        self.class_bias = nn.Parameter(torch.zeros(n_classes, 1, 1))

    @property
    def stride(self) -> int:
        """Pixels of the image to one of the coarsest scale."""
        return int(2 ** (len(self.down) - 1))

    def forward(self, planes: Tensor) -> Tensor:
        """Class scores (N,C,H,W) of planes (N,M,H,W) of any height and width."""
        whole = padded(planes, self.stride)
        levels = [self.down[0](whole)]
        for deeper in self.down[1:]:
            levels.append(deeper(functional.max_pool2d(levels[-1], 2)))
        total: Tensor | None = None
        for score in reversed(self.score):
            here = score(levels.pop())
            total = here if total is None else here + enlarged(total, here)
        assert total is not None
        return self.class_bias + enlarged(total, whole)[..., : planes.shape[2], : planes.shape[3]]


def enlarged(class_scores: Tensor, like: Tensor) -> Tensor:
    """Class scores, interpolated to the height and width of another tensor."""
    return functional.interpolate(class_scores, size=like.shape[2:], mode="bilinear", align_corners=False)


NETWORKS: dict[str, type[UNet] | type[FCN]] = {"unet": UNet, "fcn": FCN}
