"""`PublishedEncoder`: a network that others have published, and everything that Hedgerow knows about it.

A new one is a subclass in its own file, and a line in `choices.ENCODERS`; `lite0` is an example. Its module must import
without PyTorch, because model files are checked without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, TYPE_CHECKING

from hedgerow.encoders.download import Archive
from hedgerow.encoders.protocol import TorchEncoder

if TYPE_CHECKING:
    from torch import Tensor

Shapes = dict[str, tuple[int, ...]]


class PublishedEncoder(TorchEncoder):
    """A subclass describes the network in the attributes below; an instance holds the weights.

    title:        the name for people
    file, n_bytes, sha256: of the published file
    checksum:     of the tensors that `folded` makes from that file, see `store.tensors_checksum`; models store it
    licence:      of the weights
    good_for:     the images for which it is a good choice
    archive:      where `hedgerow encoders add NAME` finds the file; None: the user needs to have it
    package:      a Python package that contains the file in its folder `models`; "": there is none
    patch:        sides of the patches that it sees, and of the margin around each, in pixels of its input; None: those
                  of `features.patches`
    onnx_layers:  "module:function" that writes the layers as ONNX nodes, see `export.onnx_encoder`; "": it cannot be
                  exported to ONNX
    """

    title: str
    file: str
    n_bytes: int
    sha256: str
    licence: str
    good_for: str = ""
    archive: Archive | None = None
    package: str = ""
    patch: tuple[int, int] | None = None
    onnx_layers: str = ""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self.weights = dict(weights)

    @classmethod
    def read(cls, file: IO[bytes]) -> Mapping[str, Tensor]:
        """The tensors of the published file; a reader builds tensors and nothing else, so no code in the file runs."""
        import torch

        stored: Mapping[str, Tensor] = torch.load(file, map_location="cpu", weights_only=True)
        return stored

    @classmethod
    def folded(cls, stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The weights, under this network's own names, from the tensors of the published file."""
        return dict(stored)

    @classmethod
    def layer_shapes(cls, layer: str) -> Shapes:
        """Name -> shape of the weights between the previous layer and this one; empty if they cannot be trained."""
        return {}


def weight_and_bias(name: str, *shape: int) -> Shapes:
    """The shapes of the weight and the bias of one layer; `shape` begins with the number of its outputs."""
    return {f"{name}.weight": shape, f"{name}.bias": shape[:1]}


def folded_convolutions(
    stored: Mapping[str, Tensor], pairs: Mapping[str, tuple[str, str]], epsilon: float
) -> dict[str, Tensor]:
    """Weights and biases of convolutions, each combined with the batch normalisation that follows it.

    pairs:   our name of a convolution -> the published names of its kernels and of its normalisation
    epsilon: of the normalisations
    """
    weights = {}
    for ours, (kernels, norm) in pairs.items():
        scale, shift, mean, variance = (
            stored[f"{norm}.{part}"].double() for part in ("weight", "bias", "running_mean", "running_var")
        )
        factor = scale / (variance + epsilon).sqrt()
        weights[f"{ours}.weight"] = (stored[kernels].double() * factor[:, None, None, None]).float()
        weights[f"{ours}.bias"] = (shift - mean * factor).float()
    return weights
