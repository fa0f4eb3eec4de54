"""A small residual convolution in front of the filter bank, trained together with the network.

It shows that gradients reach the image through every level, the features and the filters.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from experiments.bench import Bench, Row
from hedgerow.errors import InputError
from hedgerow.features.bank import Bank
from hedgerow.features.protocol import FeatureSet
from hedgerow.kernels.definition.bank import bank
from hedgerow.network.layout import Source
from hedgerow.network.mapping import to_convnet
from hedgerow.network.stacknet import StackNet

HIDDEN, SIDE = 8, 5  # channels between the two convolutions, and the side of each


class Front(nn.Module):
    """Adds two convolutions of an image (C,H,W) to it; the second starts at zero, so that the image is unchanged."""

    def __init__(self, n_inputs: int, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.first = nn.Conv2d(n_inputs, HIDDEN, SIDE, padding="same", padding_mode="replicate")
            self.second = nn.Conv2d(HIDDEN, n_inputs, SIDE, padding="same", padding_mode="replicate")
        for weights in self.second.parameters():
            nn.init.zeros_(weights)

    def forward(self, image: Tensor) -> Tensor:
        changed: Tensor = self.second(torch.relu(self.first(image[None])))[0]
        return image + changed


@dataclass(frozen=True)
class FrontedBank(FeatureSet):
    """The filter bank of the output of the front."""

    kind: ClassVar[str] = "fronted"

    n_inputs: int
    bank: Bank
    front: Front
    mean: np.ndarray
    std: np.ndarray

    @property
    def names(self) -> tuple[str, ...]:
        return self.bank.names

    @property
    def halo(self) -> int:
        return self.bank.halo + 2 * (SIDE // 2)

    def raw(self, image: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return self.differentiable(image).cpu().numpy()

    def differentiable(self, image: np.ndarray) -> Tensor:
        """Raw features (F,H,W) of an image (C,H,W), on the front's device, with gradients."""
        centred = (image - self.bank.input_mean[:, None, None]) / self.bank.input_std[:, None, None]
        given = torch.from_numpy(centred).to(self.front.first.weight.device)
        shape = self.bank.proportions
        return bank(self.front(given), self.bank.sigmas, shape.dog_ratio, shape.structure_ratio, shape.truncate)


class FrontedNet(StackNet):
    """A stack's network behind a front."""

    def __init__(self, net: StackNet, seed: int) -> None:
        levels = [net.level(number) for number in range(net.n_levels)]
        super().__init__(net.stack, levels, net.output)
        if not isinstance(net.stack.features, Bank):
            raise InputError(f"a front needs a filter bank behind it, but these features are {net.features.kind!r}.")
        self.refinements, self.relaxed = net.refinements, net.relaxed
        self.set_tolerance(net.level(0).tolerance)
        self.front = Front(net.stack.features.n_inputs, seed)

    @property
    def features(self) -> FeatureSet:
        inner = self.stack.features
        assert isinstance(inner, Bank)
        return FrontedBank(inner.n_inputs, inner, self.front, inner.mean, inner.std)

    def source(self, planes: np.ndarray) -> Source:
        features = self.features
        assert isinstance(features, FrontedBank)
        raw = features.differentiable(planes)
        mean, scale = (torch.from_numpy(a[:, None, None]).to(raw.device) for a in (features.mean, 1 / features.std))
        return Source(((raw - mean) * scale)[:, None])


def front(bench: Bench) -> list[Row]:
    """Hedgerow's network refined behind a front; the part `front-none` is the same without one."""
    stack, grown = bench.grown("own", bench.protocol.own_stack, bench.train)
    net = FrontedNet(to_convnet(stack), bench.seed)
    name = "ConvNet behind a front"
    return [bench.refined("front", name, net, bench.train, bench.protocol.own_refine, grown)]


def front_none(bench: Bench) -> list[Row]:
    """The network alone, refined as in `front`."""
    stack, grown = bench.grown("own", bench.protocol.own_stack, bench.train)
    return [bench.refined("front-none", "ConvNet", to_convnet(stack), bench.train, bench.protocol.own_refine, grown)]
