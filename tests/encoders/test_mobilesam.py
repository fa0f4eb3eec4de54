"""MobileSAM's encoder against plain definitions of its pieces, and against numbers of the published implementation."""

import math
import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F

from hedgerow.encoders.catalogue import last_shapes
from hedgerow.encoders.mobilesam import MobileSam, distances
from helpers.mobilesam import DEPTHS, HEADS, WIDTHS, WINDOWS, random_weights, shapes

NAMES = ("l0", "l1", "l2", "l3", "neck")
# The published implementation's answer to `waves(96, 160)`: the values at 0, 1/3, 1/2 and the end of each layer, laid
# out in a row, and the mean of the magnitudes of all.
PUBLISHED = {
    "l0": ((2.11481, 2.88804, 3.20659, 2.7094), 1.61149),
    "l1": ((-0.63414, -1.08837, 1.86555, -0.102037), 1.30235),
    "l2": ((-3.37649, -1.45121, 2.94238, -1.14751), 1.22045),
    "l3": ((14.4798, -0.196492, -0.609898, 2.76987), 1.46662),
    "neck": ((-0.00758237, 0.00166148, -0.0441961, -0.0734018), 0.0680231),
}


def waves(height, width):
    """A picture (3,H,W) float32 from 0 to 255, by a formula."""
    r, c = np.mgrid[:height, :width]
    planes = [np.sin(0.11 * r * (k + 1) + 0.07 * c + k) * np.cos(0.05 * c * (k + 1) - 0.03 * r) for k in range(3)]
    return (127.5 * (1 + np.stack(planes))).astype(np.float32)


@pytest.fixture(scope="module")
def stored():
    return random_weights()


@pytest.fixture(scope="module")
def encoder(stored):
    return MobileSam(MobileSam.folded(stored))


@cache
def apart(side):
    """Which bias belongs to two pixels of a window, one pair after the other."""
    places = [(row, column) for row in range(side) for column in range(side)]
    return torch.tensor([[abs(r - s) * side + abs(c - d) for s, d in places] for r, c in places])


class Plain:
    """The same network as its definition reads: (C,H,W) of doubles, nothing folded, windows and heads one by one."""

    def __init__(self, stored):
        self.stored = {name.removeprefix("image_encoder."): values.double() for name, values in stored.items()}

    def conv(self, name, x, stride=1):
        weight = self.stored[f"{name}.c.weight"]
        groups = len(x) // weight.shape[1]
        y = F.conv2d(x[None], weight, stride=stride, padding=weight.shape[-1] // 2, groups=groups)
        parts = [self.stored[f"{name}.bn.{part}"] for part in ("running_mean", "running_var", "weight", "bias")]
        return F.batch_norm(y, *parts, eps=1e-5)[0]

    def three(self, name, x, stride=1):
        x = F.gelu(self.conv(f"{name}.conv1", x))
        return self.conv(f"{name}.conv3", F.gelu(self.conv(f"{name}.conv2", x, stride)))

    def linear(self, name, x):
        return x @ self.stored[f"{name}.weight"].T + self.stored[f"{name}.bias"]

    def norm(self, name, x, epsilon=1e-5):
        centred = x - x.mean(-1, keepdim=True)
        unit = centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + epsilon)
        return unit * self.stored[f"{name}.weight"] + self.stored[f"{name}.bias"]

    def window(self, name, pixels, heads, side):
        """What the pixels (side², C) of one window learn from one another."""
        size = pixels.shape[1] // heads
        qkv = self.linear(f"{name}.qkv", self.norm(f"{name}.norm", pixels))
        biases = self.stored[f"{name}.attention_biases"]
        seen = []
        for head in range(heads):
            own = qkv[:, 3 * size * head : 3 * size * (head + 1)]
            q, k, v = own[:, :size], own[:, size : 2 * size], own[:, 2 * size :]
            logits = q @ k.T / math.sqrt(size)
            seen.append((logits + biases[head, apart(side)]).softmax(-1) @ v)
        return self.linear(f"{name}.proj", torch.cat(seen, 1))

    def attention(self, name, x, heads, side):
        """Of (C,H,W), window by window; beyond the picture are zeros."""
        channels, height, width = x.shape
        attended = torch.empty_like(x)
        for top in range(0, height, side):
            for left in range(0, width, side):
                part = x[:, top : top + side, left : left + side]
                h, w = part.shape[1:]
                full = torch.zeros(channels, side, side, dtype=x.dtype)
                full[:, :h, :w] = part
                answer = self.window(name, full.flatten(1).T, heads, side).T.view(channels, side, side)
                attended[:, top : top + h, left : left + w] = answer[:, :h, :w]
        return attended

    def pixelwise(self, function, x):
        return function(x.permute(1, 2, 0)).permute(2, 0, 1)

    def mlp(self, name, x):
        return self.linear(f"{name}.fc2", F.gelu(self.linear(f"{name}.fc1", self.norm(f"{name}.norm", x))))

    def layers(self, picture):
        mean, std = np.array([123.675, 116.28, 103.53]), np.array([58.395, 57.12, 57.375])
        x = torch.from_numpy((picture - mean[:, None, None]) / std[:, None, None])
        x = self.conv("patch_embed.seq.2", F.gelu(self.conv("patch_embed.seq.0", x, 2)), 2)
        outputs = {}
        for stage in range(4):
            for block in range(DEPTHS[stage]):
                name = f"layers.{stage}.blocks.{block}"
                if stage == 0:
                    x = F.gelu(x + self.three(name, x))
                else:
                    x = x + self.attention(f"{name}.attn", x, HEADS[stage], WINDOWS[stage])
                    x = self.conv(f"{name}.local_conv", x)
                    x = x + self.pixelwise(lambda y, name=name: self.mlp(f"{name}.mlp", y), x)
            outputs[f"l{stage}"] = x
            if stage < 3:
                x = self.three(f"layers.{stage}.downsample", x, 2 if stage < 2 else 1)
        for conv, norm in ((0, 1), (2, 3)):
            x = F.conv2d(x[None], self.stored[f"neck.{conv}.weight"], padding=conv // 2)[0]
            x = self.pixelwise(lambda y, norm=norm: self.norm(f"neck.{norm}", y, 1e-6), x)
        return outputs | {"neck": x}


def test_every_layer_is_what_its_definition_says(stored, encoder):
    picture = waves(80, 48)  # at no stride a multiple of the windows
    plain = Plain(stored).layers(picture)
    for name, found in zip(NAMES, encoder.run(picture, NAMES), strict=True):
        wanted = plain[name].numpy()
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max(), err_msg=name)


@pytest.mark.parametrize(("stage", "size"), [(1, (7, 7)), (1, (9, 17)), (1, (3, 14)), (2, (1, 1)), (2, (16, 5))])
def test_attention_in_windows_fills_the_last_ones_with_zeros(stored, encoder, stage, size):
    x = torch.randn((WIDTHS[stage], *size), generator=torch.Generator().manual_seed(1))
    heads, window = HEADS[stage], WINDOWS[stage]
    wanted = Plain(stored).attention(f"layers.{stage}.blocks.0.attn", x.double(), heads, window)
    found = encoder._attention(f"{stage}.0", x.permute(1, 2, 0)[None], heads, window)[0].permute(2, 0, 1)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_pixels_equally_far_apart_share_a_bias():
    table = distances(3)
    assert table[0].tolist() == list(range(9))
    assert (table == table.T).all()
    assert table[4].tolist() == [4, 3, 4, 1, 0, 1, 4, 3, 4]  # seen from the middle


def test_normalisation_is_folded_into_the_convolution_before_it(stored, encoder):
    x = torch.randn((3, 8, 12), generator=torch.Generator().manual_seed(2))
    wanted = Plain(stored).conv("patch_embed.seq.0", x.double(), 2)
    np.testing.assert_allclose(encoder._conv("stem.0", x[None], 2)[0], wanted, atol=1e-5)


def test_only_what_the_layers_need_is_kept(stored, encoder):
    n_needed = sum(
        math.prod(shape)
        for name, shape in shapes().items()
        if not name.startswith(("head", "norm_head"))
        and not name.endswith(("running_mean", "running_var", "bn.weight"))
    )
    assert sum(weight.numel() for weight in encoder.weights.values()) == n_needed
    assert all(weight.dtype == torch.float32 for weight in encoder.weights.values())


@pytest.mark.parametrize("size", [(16, 16), (32, 176), (112, 112)])
def test_every_multiple_is_a_size_that_works(encoder, size):
    assert all(side % encoder.multiple == 0 for side in size)
    for layer, outputs in zip(encoder.layers, encoder.run(waves(*size), NAMES), strict=True):
        assert outputs.shape == (layer.n_channels, size[0] // layer.stride, size[1] // layer.stride)
        assert outputs.dtype == np.float32
        assert outputs.flags.c_contiguous
        assert np.isfinite(outputs).all()


def test_layers_come_in_the_order_they_are_asked_for(encoder):
    picture = waves(48, 64)
    all_of_them = dict(zip(NAMES, encoder.run(picture, NAMES), strict=True))
    for names in (("l0",), ("l2", "l0"), ("neck", "l1"), ("neck", "l3")):
        for name, found in zip(names, encoder.run(picture, names), strict=True):
            np.testing.assert_array_equal(found, all_of_them[name])


def test_gradients_reach_the_picture_and_every_weight(encoder):
    weights = {name: weight.clone().requires_grad_() for name, weight in encoder.weights.items()}
    picture = torch.from_numpy(waves(32, 48)).requires_grad_()
    sum(layer.square().sum() for layer in MobileSam(weights).outputs(picture, NAMES)).backward()
    assert picture.grad.abs().max() > 0
    assert [name for name, weight in weights.items() if weight.grad is None or not weight.grad.isfinite().all()] == []


def test_the_published_weights_answer_as_published():
    place = os.environ.get("HEDGEROW_MOBILESAM")
    if not place or not Path(place).is_file():
        pytest.skip("HEDGEROW_MOBILESAM does not name the file mobile_sam.pt")
    encoder = MobileSam(MobileSam.folded(torch.load(place, map_location="cpu", weights_only=True)))
    for name, found in zip(NAMES, encoder.run(waves(96, 160), NAMES), strict=True):
        values, magnitude = PUBLISHED[name]
        row = found.ravel()
        picked = row[[0, len(row) // 3, len(row) // 2, len(row) - 1]]
        np.testing.assert_allclose(picked, values, rtol=1e-4, atol=1e-4 * magnitude, err_msg=name)
        assert np.abs(row).mean() == pytest.approx(magnitude, rel=1e-5)


def test_the_shapes_known_in_code_are_those_of_the_weights(encoder):
    """Those of each stage, none twice; the stem and what leads from stage to stage belong to none."""
    shapes_by_layer = [last_shapes("mobilesam", NAMES[: number + 1]) for number in range(len(NAMES))]
    for known in shapes_by_layer:
        assert known == {name: tuple(encoder.weights[name].shape) for name in known}
    names = [name for known in shapes_by_layer for name in known]
    assert len(names) == len(set(names))
    assert {name for name in encoder.weights if "stem" not in name and "merge" not in name} == set(names)


def test_all_is_computed_where_the_picture_is(encoder):
    """On another device than the CPU, one that has no numbers; a tensor that stayed behind would be refused."""
    found = encoder.outputs(torch.zeros(3, 96, 160, device="meta"), NAMES)
    assert [(layer.device.type, tuple(layer.shape)) for layer in found] == [
        ("meta", (layer.n_channels, 96 // layer.stride, 160 // layer.stride)) for layer in encoder.layers
    ]
