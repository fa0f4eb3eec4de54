"""EfficientNet-Lite0, trained on ImageNet: its seven stages, in a few lines of PyTorch.

Tan and Le, "EfficientNet" (2019); the Lite variants have ReLU6 and no squeeze-and-excitation. Normalisation is folded
into the weights of the convolution before it, so statistics stay those of ImageNet whatever is trained.
"""

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from hedgerow.encoders.published import PublishedEncoder
from hedgerow.encoders.stages import LAYERS
from hedgerow.encoders.stages import LITE0 as STAGES

EPSILON = 1e-3  # of its normalisation
CENTRE, SPREAD = 127.0, 128.0  # of its input


class Lite0(PublishedEncoder):
    """weights: "stem", and "BLOCK.expand", "BLOCK.depthwise", "BLOCK.project", each with ".weight" and ".bias"."""

    name = "lite0"
    layers = LAYERS[name]
    usual = ("s1", "s2", "s3", "s5")
    multiple = 32

    def outputs(self, picture: Tensor, names: Sequence[str]) -> list[Tensor]:
        here = {name: weight.to(picture.device) for name, weight in self.weights.items()}
        numbers = [int(name[1:]) for name in names]
        found = stage_outputs(here, (picture[None] - CENTRE) / SPREAD, max(numbers))
        return [found[number - 1][0] for number in numbers]


def stage_outputs(weights: Mapping[str, Tensor], pictures: Tensor, n_stages: int) -> list[Tensor]:
    """(N,c,h,w) of each of the first stages, of pictures (N,3,H,W) about 0; sides are multiples of the strides."""
    x = F.relu6(_conv(weights, "stem", pictures, 2))
    found, block = [], 0
    for n_blocks, _, stride, _, _ in STAGES[:n_stages]:
        for first in range(n_blocks):
            x = _block(weights, block, x, stride if first == 0 else 1)
            block += 1
        found.append(x)
    return found


def _block(weights: Mapping[str, Tensor], number: int, x: Tensor, stride: int) -> Tensor:
    wide = F.relu6(_conv(weights, f"{number}.expand", x)) if number else x
    deep = F.relu6(_conv(weights, f"{number}.depthwise", wide, stride, groups=wide.shape[1]))
    narrow = _conv(weights, f"{number}.project", deep)
    return narrow + x if stride == 1 and narrow.shape == x.shape else narrow


def _conv(weights: Mapping[str, Tensor], name: str, x: Tensor, stride: int = 1, groups: int = 1) -> Tensor:
    """A convolution whose output i looks at inputs around stride * i, with zeros beyond (TensorFlow's "same")."""
    weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
    beyond = weight.shape[-1] - stride  # sides are multiples of the stride
    if beyond % 2:
        x, beyond = F.pad(x, (beyond // 2, beyond - beyond // 2) * 2), 0  # one more at the end than at the beginning
    return F.conv2d(x, weight, bias, stride, padding=max(beyond, 0) // 2, groups=groups)


def folded(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of `Lite0` from those of the published file, where each convolution has a normalisation after it."""
    pairs = {"stem": ("_conv_stem", "_bn0")}
    for block in range(sum(stage[0] for stage in STAGES)):
        parts = [("depthwise", "_depthwise_conv", "_bn1"), ("project", "_project_conv", "_bn2")]
        if block:
            parts.insert(0, ("expand", "_expand_conv", "_bn0"))
        pairs |= {f"{block}.{ours}": (f"_blocks.{block}.{a}", f"_blocks.{block}.{b}") for ours, a, b in parts}
    found = {}
    for ours, (conv, norm) in pairs.items():
        scale, shift, mean, variance = (
            stored[f"{norm}.{part}"].double() for part in ("weight", "bias", "running_mean", "running_var")
        )
        factor = scale / torch.sqrt(variance + EPSILON)
        found[f"{ours}.weight"] = (stored[f"{conv}.weight"].double() * factor[:, None, None, None]).float()
        found[f"{ours}.bias"] = (shift - mean * factor).float()
    return found
