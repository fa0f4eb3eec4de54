"""Networks of the package timm as encoders, with weights that are already on this machine: nothing is downloaded."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

from hedgerow.encoders.protocol import MAX_STRIDE, EncoderLayer, TorchEncoder
from hedgerow.encoders.store import tensors_checksum
from hedgerow.encoders.torch_devices import device
from hedgerow.errors import ConfigError, one_line
from hedgerow.extras import require

MULTIPLE = 32


class TimmNetwork(TorchEncoder):
    """weights: all parameters and statistics of the network, by timm's names; layers: f0, f1, ... in timm's order."""

    def __init__(self, name: str) -> None:
        require("timm", f"the encoder timm:{name[:60]}")
        self.name = f"timm:{name}"
        self._network = _made(name).to(device())
        for parameter in self._network.parameters():
            parameter.requires_grad_(False)  # training requests gradients itself, as for other encoders
        self.weights: dict[str, Tensor] = dict(self._network.state_dict())
        self.checksum = tensors_checksum(self.weights)
        settings = self._network.pretrained_cfg
        self._mean, self._std = settings["mean"], settings["std"]  # of values from 0 to 1
        info = self._network.feature_info
        self.layers = tuple(
            EncoderLayer(f"f{number}", stride, channels)
            for number, (stride, channels) in enumerate(zip(info.reduction(), info.channels(), strict=True))
        )
        self.default_layers = tuple(layer.name for layer in self.layers)
        self.multiple = max([MULTIPLE, *(layer.stride for layer in self.layers)])
        self._refuse_other_shapes()

    def outputs(self, picture: Tensor, names: Sequence[str]) -> list[Tensor]:
        mean, std = (picture.new_tensor(values)[:, None, None] for values in (self._mean, self._std))
        weights = {name: weight.to(picture.device) for name, weight in self.weights.items()}
        layers = functional_call(self._network, weights, (((picture / 255 - mean) / std)[None],))
        return [layers[int(name[1:])][0].contiguous() for name in names]

    def _refuse_other_shapes(self) -> None:
        """Run the network once: some take pictures of one size only, or put channels last."""
        height, width = 2 * self.multiple, 4 * self.multiple
        try:
            outputs = self.run(np.zeros((3, height, width), np.float32), self.default_layers)
        except Exception as problem:  # the network's own code can raise anything
            raise ConfigError(
                f"{self.name} cannot be run on a picture of {height} x {width} pixels ({one_line(problem)}); "
                "choose a network that accepts any size."
            ) from problem
        for layer, output in zip(self.layers, outputs, strict=True):
            expected = (layer.n_channels, height // layer.stride, width // layer.stride)
            if layer.stride > MAX_STRIDE or layer.stride & (layer.stride - 1) or output.shape != expected:
                raise ConfigError(
                    f"the layer {layer.name} of {self.name} has shape {output.shape} for a picture of {height} x "
                    f"{width} pixels, expected one value per 1, 2, 4, ... or {MAX_STRIDE} pixels in each direction; "
                    "choose another network."
                )


def _made(name: str) -> Any:
    """timm's network of this name with its weights, as a module that returns a list of layers (1,C,h,w)."""
    with _offline():
        import timm

        if not timm.is_model(name):
            raise ConfigError(f"timm has no network {name[:60]!r}; choose one from timm.list_models(pretrained=True).")
        try:
            return timm.create_model(name, features_only=True, pretrained=True).eval()
        except Exception as problem:  # from the network, the hub or the disk
            _refuse_without_layers(name)
            raise ConfigError(
                f"the weights of timm:{name[:60]} are not on this machine ({one_line(problem)}); with an internet "
                f"connection, run timm.create_model({name[:60]!r}, pretrained=True) in Python once."
            ) from problem


def _refuse_without_layers(name: str) -> None:
    """Raise ConfigError if timm cannot make this network even without weights."""
    import timm

    try:
        timm.create_model(name, features_only=True, pretrained=False)
    except Exception as problem:  # the network's own code can raise anything
        raise ConfigError(
            f"timm does not offer the inner layers of {name[:60]} ({one_line(problem)}); choose another network."
        ) from problem


@contextmanager
def _offline() -> Iterator[None]:
    """Within the block, neither Hugging Face's hub nor PyTorch's downloads anything."""
    before = os.environ.get("HF_HUB_OFFLINE")
    os.environ["HF_HUB_OFFLINE"] = "1"
    # The hub reads the variable when it is imported, and this constant afterwards.
    constants: Any = sys.modules.get("huggingface_hub.constants")
    constant = getattr(constants, "HF_HUB_OFFLINE", None)
    if constants is not None:
        constants.HF_HUB_OFFLINE = True
    hub: Any = torch.hub
    opened = hub.urlopen
    hub.urlopen = _refuse_download
    try:
        yield
    finally:
        hub.urlopen = opened
        if constants is not None:
            constants.HF_HUB_OFFLINE = constant
        if before is None:
            del os.environ["HF_HUB_OFFLINE"]
        else:
            os.environ["HF_HUB_OFFLINE"] = before


def _refuse_download(*arguments: object, **options: object) -> None:
    raise OSError("nothing is downloaded")
