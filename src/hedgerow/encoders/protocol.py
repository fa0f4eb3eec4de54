"""`Encoder`: the interface of a pretrained network for features that read its inner layers."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np

from hedgerow.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

MAX_STRIDE = 128


@dataclass(frozen=True)
class EncoderLayer:
    """An inner layer: its output has one value per `stride` rows and columns of the input, in `n_channels` channels."""

    name: str
    stride: int
    n_channels: int


class Encoder(Protocol):
    """A network with its weights; its input is pictures of three channels with values from 0 to 255.

    name:     as users type it: lite0, mobilesam, timm:NAME, or the path of an ONNX file
    checksum: of the weights, by which a model recognises those that it was trained with
    layers:   those that can be read, the finest first
    default_layers: the names of those that are read by default
    multiple: the sides of its input must be multiples of this
    usual_scale: the factor by which images are enlarged for it unless the settings give one
    """

    name: str
    checksum: str
    layers: tuple[EncoderLayer, ...]
    default_layers: tuple[str, ...]
    multiple: int
    usual_scale: float = 1.0

    def run(self, picture: np.ndarray, names: Sequence[str]) -> list[np.ndarray]:
        """The named layers (C,h,w) float32 of a picture (3,H,W) float32, whose sides are multiples of `multiple`."""
        ...


class TorchEncoder(Encoder, Protocol):
    """An encoder that gradients go through."""

    weights: "dict[str, Tensor]"

    def run(self, picture: np.ndarray, names: Sequence[str]) -> list[np.ndarray]:
        """The named layers, computed in one thread and without gradients."""
        import torch

        from hedgerow.encoders.torch_devices import OneThread, device, full_precision

        with torch.inference_mode(), OneThread(), full_precision():
            layers = self.outputs(torch.from_numpy(picture).to(device()), names)
            return [layer.cpu().numpy() for layer in layers]

    def outputs(self, picture: "Tensor", names: Sequence[str]) -> "list[Tensor]":
        """The same as `run`, for tensors."""
        ...

    def with_weights(self, changed: "Mapping[str, Tensor]") -> Self:
        """The same network with these tensors instead of its own of the same names."""
        other = copy.copy(self)
        other.weights = {**self.weights, **changed}
        return other


def chosen_layers(encoder: Encoder, names: Sequence[str]) -> tuple[EncoderLayer, ...]:
    """The layers of these names, the finest first; by default, the encoder's default layers."""
    known = {layer.name: layer for layer in encoder.layers}
    for name in names:
        if name not in known:
            shown = ", ".join(list(known)[:12]) + (", ..." if len(known) > 12 else "")
            raise ConfigError(f"the encoder {encoder.name} has no layer {name[:60]!r}; its layers are {shown}.")
    wanted = names or encoder.default_layers
    return tuple(layer for layer in encoder.layers if layer.name in wanted)
