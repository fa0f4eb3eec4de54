"""`EncoderFeatures` in PyTorch, with a gradient for the weights of the encoder's last stage.

The steps and the patches are the same; values agree up to rounding. Memory is bounded: if an image has several patches
or pictures, each is computed again for its gradient, so only one at a time is in memory.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from hedgerow.encoders.protocol import TorchEncoder
from hedgerow.encoders.torch_devices import OneThread, device, full_precision
from hedgerow.features.encoder import EncoderFeatures
from hedgerow.features.encoder_pictures import to_pictures
from hedgerow.features.joined import Joined
from hedgerow.features.patches import Patch, network_input, own_part, summed
from hedgerow.features.protocol import FeatureSet

Weights = Mapping[str, Tensor]


def standardised(features: FeatureSet, image: np.ndarray, weights: Weights) -> Tensor:
    """Features (F,H,W) of an image (C,H,W), or (F,Z,H,W) of a volume (C,Z,H,W), as `features.compute` returns them, on
    the device of the weights.

    weights: replace the encoder's own weights of the same names, and receive gradients. On a CPU, gradients have the
             same bits for any number of threads if they, too, are computed within `OneThread`
    """
    members = features.members if isinstance(features, Joined) else (features,)
    first = next(iter(weights.values()))
    parts = [
        raw(member, image, weights) if isinstance(member, EncoderFeatures) else torch.from_numpy(member.own_raw(image))
        for member in members
    ]
    not_scaled = torch.cat([part.to(first) for part in parts])
    per_feature = (-1, *[1] * (not_scaled.ndim - 1))
    mean, scale = (torch.from_numpy(a).reshape(per_feature).to(first) for a in (features.mean, 1 / features.std))
    return (not_scaled - mean) * scale


def raw(features: EncoderFeatures, image: np.ndarray, weights: Weights) -> Tensor:
    """Raw features (F,H,W) of an image (C,H,W), or of each slice of a volume, on the encoder's device."""
    if image.ndim == 4:
        return torch.stack([raw(features, image[:, z], weights) for z in range(image.shape[1])], dim=1)
    height, width = image.shape[1:]
    steps = features.source.steps
    grid = list(features.source.patches((height, width)))
    with OneThread(), full_precision():
        planes = [(patch.core.top, _patch_planes(features, image, patch, weights, len(grid) > 1)) for patch in grid]
        rows = [torch.cat([part for _, part in row], dim=2) for _, row in groupby(planes, key=lambda item: item[0])]
        whole = torch.cat(rows, dim=1)
        while steps > 1:
            whole, steps = doubled(whole), steps // 2
    return whole[:, :height, :width]


def _patch_planes(
    features: EncoderFeatures, image: np.ndarray, patch: Patch, weights: Weights, is_one_of_many: bool
) -> Tensor:
    """Components (F,h,w) of a patch's core at the finest stride, or at every pixel if the stride is finer."""
    source, encoder = features.source, cast(TorchEncoder, features.network())
    names, like = list(weights), next(iter(weights.values()))
    layers = [layer.name for layer in source.layers]
    pictures = to_pictures(patch.seen.of(image), features.low, features.high, source.channels)
    total: Tensor | None = None
    for number, picture in enumerate(pictures):
        network_picture = torch.from_numpy(network_input(picture, source.scale, encoder.multiple)).to(
            device(), like.dtype
        )
        columns = [torch.from_numpy(part).to(network_picture) for part in _columns(features, number, len(pictures))]

        def planes(
            *tensors: Tensor, network_picture: Tensor = network_picture, columns: Sequence[Tensor] = columns
        ) -> Tensor:
            network = encoder.with_weights(dict(zip(names, tensors, strict=True)))
            outputs = network.outputs(network_picture, layers)
            parts = [torch.tensordot(a, b, 1) for a, b in zip(columns, outputs, strict=True)]
            return summed(parts, source.strides, doubled)

        if is_one_of_many or len(pictures) > 1:
            components = checkpoint(planes, *weights.values(), use_reentrant=False, preserve_rng_state=False)
        else:
            components = planes(*weights.values())
        total = components if total is None else total + components
    assert total is not None
    return own_part(total, patch, source.strides[0] / source.scale, halved)


def _columns(features: EncoderFeatures, picture: int, n_pictures: int) -> list[np.ndarray]:
    """For each layer, the part (F,c) of the projection by which one of the pictures is multiplied."""
    columns, start = [], 0
    for layer in features.source.layers:
        first = start + picture * layer.n_channels
        columns.append(np.ascontiguousarray(features.projection[:, first : first + layer.n_channels]))
        start += n_pictures * layer.n_channels
    return columns


def doubled(planes: Tensor) -> Tensor:
    """(C,2H,2W): `encoder_pictures.doubled` of planes (C,H,W)."""
    for axis in (1, 2):
        n = planes.shape[axis]
        before = torch.cat([planes.narrow(axis, 0, 1), planes.narrow(axis, 0, n - 1)], dim=axis)
        after = torch.cat([planes.narrow(axis, 1, n - 1), planes.narrow(axis, n - 1, 1)], dim=axis)
        most = planes * 0.75
        both = torch.stack([most + before * 0.25, most + after * 0.25], dim=axis + 1)
        planes = both.flatten(axis, axis + 1)
    return planes


def halved(planes: Tensor) -> Tensor:
    """(C,ceil(H/2),ceil(W/2)): `encoder_pictures.halved` of planes (C,H,W)."""
    for axis in (1, 2):
        n = planes.shape[axis]
        if n % 2:
            planes = torch.cat([planes, planes.narrow(axis, n - 1, 1)], dim=axis)
    rows = planes[:, ::2] + planes[:, 1::2]
    return (rows[:, :, ::2] + rows[:, :, 1::2]) * 0.25
