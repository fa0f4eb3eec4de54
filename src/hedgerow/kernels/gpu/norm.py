"""Normalisation over an image, and ReLU, on a GPU: the Triton kernels behind `definition.norm.image_norm`.

PyTorch's own function needs the channels of an image one after the other, but its convolutions are faster when the
channels of a pixel lie together ("channels last"), so every image would be copied twice. These kernels take channels
last, read images twice, write them once, and store only the input for the gradient.

Each image is cut into parts whose sums are computed in parallel and then added in a fixed order.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from hedgerow.kernels.definition.norm import EPSILON

BLOCK = 4096  # numbers that a program processes at a time
MOST_CHANNELS = 64  # per program
PROGRAMS = 1024  # about how many keep all multiprocessors busy
GPU_EPSILON = tl.constexpr(EPSILON)  # a Triton kernel can read only globals that are `constexpr`
VARIES = ["n_pixels", "n_channels", "per_part"]  # one compiled kernel serves all values of these


@triton.jit
def _block(image, first, last, channel, n_pixels, n_channels, P: tl.constexpr):
    """Indices of an image's pixels from `first` on, (P,M), and a mask of those before `last`."""
    pixel = first + tl.arange(0, P)
    at = (image.to(tl.int64) * n_pixels + pixel)[:, None] * n_channels + channel[None, :]
    return at, (pixel < last)[:, None] & (channel < n_channels)[None, :]


@triton.jit
def _scale(moments, weight, bias, image, channel, n_pixels, n_channels):
    """Mean, 1 / standard deviation, weight and bias of channels, (M,) each; moments: (2,N,M) sums, sums of squares."""
    is_one = channel < n_channels
    at = image * n_channels + channel
    mean = tl.load(moments + at, mask=is_one, other=0.0) / n_pixels
    squares = tl.load(moments + tl.num_programs(2) * n_channels + at, mask=is_one, other=0.0) / n_pixels
    spread = 1.0 / tl.sqrt(tl.maximum(squares - mean * mean, 0.0) + GPU_EPSILON)
    times = tl.load(weight + channel, mask=is_one, other=0.0)
    return mean, spread, times, tl.load(bias + channel, mask=is_one, other=0.0)


@triton.jit
def _slopes(planes, slope, at, is_here, mean, spread, times, plus):
    """(P,M) each: normalised values, before their weight, and the slope of the loss before ReLU."""
    value = tl.load(planes + at, mask=is_here, other=0.0).to(tl.float32)
    even = (value - mean[None, :]) * spread[None, :]
    given = tl.load(slope + at, mask=is_here, other=0.0).to(tl.float32)
    return even, tl.where(even * times[None, :] + plus[None, :] <= 0, 0.0, given)


@triton.jit
def _store(sums, first, second, image, channel, n_channels):
    """Store two sums (M,) of this program's part; sums: (2,N,parts,M)"""
    n_parts = tl.num_programs(0)
    at = (image * n_parts + tl.program_id(0)) * n_channels + channel
    tl.store(sums + at, first, mask=channel < n_channels)
    tl.store(sums + tl.num_programs(2) * n_parts * n_channels + at, second, mask=channel < n_channels)


@triton.jit(do_not_specialize=VARIES)
def _moments(planes, sums, n_pixels, n_channels, per_part, P: tl.constexpr, M: tl.constexpr):
    """The sums of a part's channels and of their squares."""
    image, channel = tl.program_id(2), tl.program_id(1) * M + tl.arange(0, M)
    start = tl.program_id(0) * per_part
    last = tl.minimum(start + per_part, n_pixels)
    total, squares = tl.zeros((M,), tl.float32), tl.zeros((M,), tl.float32)
    while start < last:
        at, is_here = _block(image, start, last, channel, n_pixels, n_channels, P)
        value = tl.load(planes + at, mask=is_here, other=0.0).to(tl.float32)
        total += tl.sum(value, axis=0)
        squares += tl.sum(value * value, axis=0)
        start += P
    _store(sums, total, squares, image, channel, n_channels)


@triton.jit(do_not_specialize=VARIES)
def _normalise(planes, moments, weight, bias, out, n_pixels, n_channels, P: tl.constexpr, M: tl.constexpr):
    """Normalise a block; NaN stays NaN."""
    image, channel = tl.program_id(2), tl.program_id(1) * M + tl.arange(0, M)
    at, is_here = _block(image, tl.program_id(0) * P, n_pixels, channel, n_pixels, n_channels, P)
    value = tl.load(planes + at, mask=is_here, other=0.0).to(tl.float32)
    mean, spread, times, plus = _scale(moments, weight, bias, image, channel, n_pixels, n_channels)
    score = (value - mean[None, :]) * spread[None, :] * times[None, :] + plus[None, :]
    tl.store(out + at, tl.where(score <= 0, 0.0, score), mask=is_here)


@triton.jit(do_not_specialize=VARIES)
def _slope_sums(
    planes, slope, moments, weight, bias, sums, n_pixels, n_channels, per_part,
    P: tl.constexpr, M: tl.constexpr,
):  # fmt: skip
    """The sums of a part's slopes, and of slopes times normalised values: the gradients of bias and weight."""
    image, channel = tl.program_id(2), tl.program_id(1) * M + tl.arange(0, M)
    start = tl.program_id(0) * per_part
    last = tl.minimum(start + per_part, n_pixels)
    mean, spread, times, plus = _scale(moments, weight, bias, image, channel, n_pixels, n_channels)
    total, along = tl.zeros((M,), tl.float32), tl.zeros((M,), tl.float32)
    while start < last:
        at, is_here = _block(image, start, last, channel, n_pixels, n_channels, P)
        even, before = _slopes(planes, slope, at, is_here, mean, spread, times, plus)
        total += tl.sum(before, axis=0)
        along += tl.sum(before * even, axis=0)
        start += P
    _store(sums, total, along, image, channel, n_channels)


@triton.jit(do_not_specialize=VARIES)
def _gradient(
    planes, slope, moments, weight, bias, slopes, out, n_pixels, n_channels, P: tl.constexpr, M: tl.constexpr
):
    """The gradient of a block; slopes: (2,N,M) the sums of `_slope_sums`."""
    image, channel = tl.program_id(2), tl.program_id(1) * M + tl.arange(0, M)
    at, is_here = _block(image, tl.program_id(0) * P, n_pixels, channel, n_pixels, n_channels, P)
    mean, spread, times, plus = _scale(moments, weight, bias, image, channel, n_pixels, n_channels)
    even, before = _slopes(planes, slope, at, is_here, mean, spread, times, plus)
    is_one, of = channel < n_channels, slopes + image * n_channels + channel
    total = tl.load(of, mask=is_one, other=0.0) / n_pixels
    along = tl.load(of + tl.num_programs(2) * n_channels, mask=is_one, other=0.0) / n_pixels
    tl.store(out + at, (times * spread)[None, :] * (before - total[None, :] - even * along[None, :]), mask=is_here)


class _Shares:
    """How the work on planes (N,M,H,W), channels last, is divided."""

    def __init__(self, planes: Tensor) -> None:
        self.n_images, self.n_channels, height, width = planes.shape
        self.n_pixels = height * width
        self.channels = min(triton.next_power_of_2(self.n_channels), MOST_CHANNELS)
        self.pixels = BLOCK // self.channels
        self.n_blocks = triton.cdiv(self.n_pixels, self.pixels)
        self.across = triton.cdiv(self.n_channels, self.channels)
        n_parts = min(self.n_blocks, max(PROGRAMS // (self.n_images * self.across), 1))
        self.per_part = triton.cdiv(self.n_blocks, n_parts) * self.pixels
        self.n_parts = triton.cdiv(self.n_pixels, self.per_part)

    def sums(self, kernel: Any, *arguments: Any) -> Tensor:
        """(2,N,M): the two sums that a kernel computes."""
        sums = arguments[0].new_empty((2, self.n_images, self.n_parts, self.n_channels), dtype=torch.float32)
        numbers = self.n_pixels, self.n_channels, self.per_part
        kernel[self.n_parts, self.across, self.n_images](*arguments, sums, *numbers, P=self.pixels, M=self.channels)
        return sums.sum(2)

    def planes(self, kernel: Any, *arguments: Any) -> Tensor:
        """The output of a kernel, in the shape of its first argument."""
        out = torch.empty_like(arguments[0], memory_format=torch.channels_last)
        numbers = self.n_pixels, self.n_channels
        kernel[self.n_blocks, self.across, self.n_images](*arguments, out, *numbers, P=self.pixels, M=self.channels)
        return out


class _ImageNorm(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, planes: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        planes = planes.contiguous(memory_format=torch.channels_last)
        work = _Shares(planes)
        moments = work.sums(_moments, planes)
        context.save_for_backward(planes, moments, weight, bias)
        return work.planes(_normalise, planes, moments, weight, bias)

    @staticmethod
    def backward(context: Any, *slopes: Tensor) -> Any:
        planes, moments, weight, bias = context.saved_tensors
        slope = slopes[0].contiguous(memory_format=torch.channels_last)
        work = _Shares(planes)
        sums = work.sums(_slope_sums, planes, slope, moments, weight, bias)
        gradient = work.planes(_gradient, planes, slope, moments, weight, bias, sums)
        d_bias, d_weight = sums.sum(1).to(weight.dtype)
        return gradient, d_weight, d_bias


def image_norm(planes: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """(N,M,H,W) as in the definition, channels last; sums are float32 whatever the type of the planes."""
    return _ImageNorm.apply(planes, weight, bias)
