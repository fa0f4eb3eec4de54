"""Weights of MobileSAM's encoder for tests: random ones, of the shapes and names of the published file."""

import math

import torch

# Of the four stages, written out: blocks, channels, heads, side of a window.
DEPTHS, WIDTHS, HEADS, WINDOWS = (2, 2, 6, 2), (64, 128, 160, 320), (0, 4, 5, 10), (0, 7, 14, 7)


def shapes():
    """Shapes of all tensors of a published file, less the decoder's, by their published names."""
    result = {}

    def conv(name, out, into, side):
        result[f"{name}.c.weight"] = (out, into, side, side)
        for part in ("weight", "bias", "running_mean", "running_var"):
            result[f"{name}.bn.{part}"] = (out,)

    def pair(name, *shape):
        result[f"{name}.weight"], result[f"{name}.bias"] = shape, shape[:1]

    conv("patch_embed.seq.0", 32, 3, 3)
    conv("patch_embed.seq.2", 64, 32, 3)
    for stage, (depth, width, heads, window) in enumerate(zip(DEPTHS, WIDTHS, HEADS, WINDOWS, strict=True)):
        for block in range(depth):
            name = f"layers.{stage}.blocks.{block}"
            if stage == 0:
                conv(f"{name}.conv1", 4 * width, width, 1)
                conv(f"{name}.conv2", 4 * width, 1, 3)
                conv(f"{name}.conv3", width, 4 * width, 1)
                continue
            result[f"{name}.attn.attention_biases"] = (heads, window**2)
            pair(f"{name}.attn.norm", width)
            pair(f"{name}.attn.qkv", 3 * width, width)
            pair(f"{name}.attn.proj", width, width)
            pair(f"{name}.mlp.norm", width)
            pair(f"{name}.mlp.fc1", 4 * width, width)
            pair(f"{name}.mlp.fc2", width, 4 * width)
            conv(f"{name}.local_conv", width, 1, 3)
        if stage < 3:
            wider = WIDTHS[stage + 1]
            conv(f"layers.{stage}.downsample.conv1", wider, width, 1)
            conv(f"layers.{stage}.downsample.conv2", wider, 1, 3)
            conv(f"layers.{stage}.downsample.conv3", wider, wider, 1)
    result["neck.0.weight"], result["neck.2.weight"] = (256, 320, 1, 1), (256, 256, 3, 3)
    pair("neck.1", 256)
    pair("neck.3", 256)
    pair("norm_head", 320)
    pair("head", 1000, 320)
    return result


def random_weights():
    """Random weights as a published file has them, of sizes that keep values moderate."""
    random = torch.Generator().manual_seed(3)
    result = {"mask_decoder.iou_token.weight": torch.zeros(1, 256)}
    for name, shape in shapes().items():
        values = torch.randn(shape, generator=random) / math.sqrt(math.prod(shape[1:]))
        if name.endswith("running_var"):
            values = values.abs() + 0.5
        elif len(shape) == 1:
            values = 0.2 * values + (1.0 if name.endswith("weight") else 0.0)
        result[f"image_encoder.{name}"] = values
    return result
