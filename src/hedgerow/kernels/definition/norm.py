"""Normalisation over an image, and ReLU: what is true."""

import torch
from torch import Tensor

EPSILON = 1e-5  # added to a variance


def image_norm(planes: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """(N,M,H,W): each channel of each image with mean 0 and variance 1, times its weight (M,), plus its bias (M,); and
    ReLU. What varies not at all becomes the bias."""
    return torch.relu(torch.instance_norm(planes, weight, bias, None, None, True, 0.0, EPSILON, True))
