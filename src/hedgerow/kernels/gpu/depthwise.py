"""Depthwise convolution on a GPU: the Triton kernels behind `definition.depthwise.depthwise`.

Libraries are made for convolutions that mix channels. For these they have kernels that take many times as long as
reading and writing the planes, most of all for the gradient of the weights. Channels lie together here, as they do in
`norm`; sums are of float32 and added up in a fixed order.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from hedgerow.kernels.definition.depthwise import beyond

PIXELS, CHANNELS = 64, 32  # of a block
PROGRAMS = 1024  # about as many are wanted at once, to keep all multiprocessors busy
VARIES = ["height", "width", "out_height", "out_width", "n_channels", "n_pixels", "per_part"]


@triton.jit
def _channels(n_channels, M: tl.constexpr):
    """(M,) the numbers of this program's channels, and which of them there are."""
    channel = tl.program_id(1) * M + tl.arange(0, M)
    return channel, channel < n_channels


@triton.jit
def _at(image, row, column, height, width, channel, n_channels):
    """(P,M): where the channels of pixels lie."""
    return ((image.to(tl.int64) * height + row) * width + column)[:, None] * n_channels + channel[None, :]


@triton.jit
def _seen(
    image, i, k, is_here, height, width, channel, is_one, n_channels,
    tap: tl.constexpr, K: tl.constexpr, STRIDE: tl.constexpr, ABOVE: tl.constexpr,
):  # fmt: skip
    """(P,M): where what a tap sees for the outputs (i, k) lies, and whether that is in the image."""
    row, column = i * STRIDE + (tap // K - ABOVE), k * STRIDE + (tap % K - ABOVE)
    is_inside = is_here & (row >= 0) & (row < height) & (column >= 0) & (column < width)
    return _at(image, row, column, height, width, channel, n_channels), is_inside[:, None] & is_one[None, :]


@triton.jit
def _times(values, at, is_inside, weight, channel, is_one, tap: tl.constexpr, K: tl.constexpr):
    """(P,M): values times the weight of a tap."""
    value = tl.load(values + at, mask=is_inside, other=0.0).to(tl.float32)
    return value * tl.load(weight + channel * (K * K) + tap, mask=is_one, other=0.0).to(tl.float32)[None, :]


@triton.jit(do_not_specialize=VARIES)
def _forward(
    planes, weight, bias, out, height, width, out_height, out_width, n_channels, n_pixels,
    K: tl.constexpr, STRIDE: tl.constexpr, ABOVE: tl.constexpr, P: tl.constexpr, M: tl.constexpr,
):  # fmt: skip
    """A block of the output; n_pixels: of the outputs of all images."""
    channel, is_one = _channels(n_channels, M)
    pixel = tl.program_id(0) * P + tl.arange(0, P)
    is_here = pixel < n_pixels
    image, place = pixel // (out_height * out_width), pixel % (out_height * out_width)
    i, k = place // out_width, place % out_width
    total = tl.zeros((P, M), tl.float32) + tl.load(bias + channel, mask=is_one, other=0.0).to(tl.float32)[None, :]
    for tap in tl.static_range(K * K):
        at, is_inside = _seen(image, i, k, is_here, height, width, channel, is_one, n_channels, tap, K, STRIDE, ABOVE)
        total += _times(planes, at, is_inside, weight, channel, is_one, tap, K)
    at = _at(image, i, k, out_height, out_width, channel, n_channels)
    tl.store(out + at, total, mask=is_here[:, None] & is_one[None, :])


@triton.jit(do_not_specialize=VARIES)
def _to_planes(
    slope, weight, out, height, width, out_height, out_width, n_channels, n_pixels,
    K: tl.constexpr, STRIDE: tl.constexpr, ABOVE: tl.constexpr, P: tl.constexpr, M: tl.constexpr,
):  # fmt: skip
    """A block of the gradient of the planes; n_pixels: of all images."""
    channel, is_one = _channels(n_channels, M)
    pixel = tl.program_id(0) * P + tl.arange(0, P)
    is_here = pixel < n_pixels
    image, place = pixel // (height * width), pixel % (height * width)
    row, column = place // width, place % width
    total = tl.zeros((P, M), tl.float32)
    for tap in tl.static_range(K * K):
        down, across = row + (ABOVE - tap // K), column + (ABOVE - tap % K)
        i, k = down // STRIDE, across // STRIDE
        is_inside = is_here & (down >= 0) & (i < out_height) & (across >= 0) & (k < out_width)
        is_inside &= (i * STRIDE == down) & (k * STRIDE == across)
        at = _at(image, i, k, out_height, out_width, channel, n_channels)
        total += _times(slope, at, is_inside[:, None] & is_one[None, :], weight, channel, is_one, tap, K)
    at = _at(image, row, column, height, width, channel, n_channels)
    tl.store(out + at, total, mask=is_here[:, None] & is_one[None, :])


@triton.jit(do_not_specialize=VARIES)
def _to_weights(
    planes, slope, sums, height, width, out_height, out_width, n_channels, n_pixels, per_part,
    K: tl.constexpr, STRIDE: tl.constexpr, ABOVE: tl.constexpr, P: tl.constexpr, M: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """What a part of the outputs adds to the gradient of weights and bias; sums: (parts,ROWS,M), the bias after the
    weights."""
    channel, is_one = _channels(n_channels, M)
    start = tl.program_id(0) * per_part
    last = tl.minimum(start + per_part, n_pixels)
    number = tl.arange(0, ROWS)
    total = tl.zeros((ROWS, M), tl.float32)
    while start < last:
        pixel = start + tl.arange(0, P)
        is_here = pixel < last
        image, place = pixel // (out_height * out_width), pixel % (out_height * out_width)
        i, k = place // out_width, place % out_width
        at = _at(image, i, k, out_height, out_width, channel, n_channels)
        given = tl.load(slope + at, mask=is_here[:, None] & is_one[None, :], other=0.0).to(tl.float32)
        total += tl.where((number == K * K)[:, None], tl.sum(given, axis=0)[None, :], 0.0)
        for tap in tl.static_range(K * K):
            at, is_inside = _seen(
                image, i, k, is_here, height, width, channel, is_one, n_channels, tap, K, STRIDE, ABOVE
            )
            value = tl.load(planes + at, mask=is_inside, other=0.0).to(tl.float32)
            total += tl.where((number == tap)[:, None], tl.sum(value * given, axis=0)[None, :], 0.0)
        start += P
    at = (tl.program_id(0) * ROWS + number)[:, None] * n_channels + channel[None, :]
    tl.store(sums + at, total, mask=is_one[None, :])


class _Work:
    """How a convolution of planes (N,M,H,W) is shared out."""

    def __init__(self, planes: Tensor, weight: Tensor, stride: int) -> None:
        n_images, self.n_channels, height, width = planes.shape
        self.kernel = weight.shape[-1]
        out = -(-height // stride), -(-width // stride)
        self.n_in, self.n_out = n_images * height * width, n_images * out[0] * out[1]
        self.shape = n_images, self.n_channels, *out
        self.sizes = height, width, *out, self.n_channels
        self.fixed = {
            "K": self.kernel, "STRIDE": stride, "ABOVE": beyond(self.kernel, stride)[0], "P": PIXELS, "M": CHANNELS
        }  # fmt: skip
        self.across = triton.cdiv(self.n_channels, CHANNELS)

    def forward(self, planes: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        order = torch.channels_last
        out = torch.empty(self.shape, dtype=planes.dtype, device=planes.device, memory_format=order)
        grid = triton.cdiv(self.n_out, PIXELS), self.across
        _forward[grid](planes, weight, bias, out, *self.sizes, self.n_out, **self.fixed)
        return out

    def to_planes(self, slope: Tensor, weight: Tensor, planes: Tensor) -> Tensor:
        out = torch.empty_like(planes, memory_format=torch.channels_last)
        grid = triton.cdiv(self.n_in, PIXELS), self.across
        _to_planes[grid](slope, weight, out, *self.sizes, self.n_in, **self.fixed)
        return out

    def to_weights(self, planes: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
        """(M,1,k,k) and (M,)"""
        n_blocks, n_taps = triton.cdiv(self.n_out, PIXELS), self.kernel**2
        per_part = triton.cdiv(n_blocks, max(PROGRAMS // self.across, 1)) * PIXELS
        n_parts, rows = triton.cdiv(self.n_out, per_part), triton.next_power_of_2(n_taps + 1)
        sums = planes.new_empty((n_parts, rows, self.n_channels), dtype=torch.float32)
        given = planes, slope, sums, *self.sizes, self.n_out, per_part
        _to_weights[n_parts, self.across](*given, **self.fixed, ROWS=rows)
        found = sums.sum(0)
        return found[:n_taps].T.reshape(self.n_channels, 1, self.kernel, self.kernel), found[n_taps]


class _Depthwise(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, planes: Tensor, weight: Tensor, bias: Tensor, stride: int) -> Tensor:
        planes, weight = planes.contiguous(memory_format=torch.channels_last), weight.contiguous()
        context.save_for_backward(planes, weight)
        context.stride = stride
        return _Work(planes, weight, stride).forward(planes, weight, bias)

    @staticmethod
    def backward(context: Any, *slopes: Tensor) -> Any:
        planes, weight = context.saved_tensors
        slope, work = slopes[0].contiguous(memory_format=torch.channels_last), _Work(planes, weight, context.stride)
        gradient = work.to_planes(slope, weight, planes) if context.needs_input_grad[0] else None
        if not (context.needs_input_grad[1] or context.needs_input_grad[2]):
            return gradient, None, None, None
        d_weight, d_bias = work.to_weights(planes, slope)
        return gradient, d_weight.to(weight.dtype), d_bias.to(weight.dtype), None


def depthwise(planes: Tensor, weight: Tensor, bias: Tensor, stride: int) -> Tensor:
    """(N,M,H/stride,W/stride) as the definition has it, of the planes' type, its channels together."""
    found: Tensor = _Depthwise.apply(planes, weight, bias, stride)
    return found
