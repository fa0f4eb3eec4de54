"""Depthwise convolution: what is true."""

import torch.nn.functional as F
from torch import Tensor


def beyond(kernel: int, stride: int) -> tuple[int, int]:
    """Rows of zeros above an image, and below it; its sides are multiples of the stride (TensorFlow's "same")."""
    both = max(kernel - stride, 0)
    return both // 2, both - both // 2


def depthwise(planes: Tensor, weight: Tensor, bias: Tensor, stride: int) -> Tensor:
    """(N,M,H/stride,W/stride): each channel of planes (N,M,H,W) by its own weight (M,1,k,k), plus its bias (M,)."""
    padded = F.pad(planes, beyond(weight.shape[-1], stride) * 2)
    return F.conv2d(padded, weight, bias, stride, groups=planes.shape[1])
