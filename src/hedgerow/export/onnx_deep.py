"""The convolutional level of a deep stack as ONNX nodes, including its weights; `deep.deepstack` is the definition.

Networks run on the whole image at once, not on tiles. A tile has surroundings as wide as the network sees, and begins
where a coarse pixel begins, so both agree up to rounding. Only networks that see their whole input (`UNet.sees_all`)
give another result for images of several tiles.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import numpy as np
from torch import Tensor, nn

from hedgerow.deep.convnet import ConvNet, InputScale
from hedgerow.deep.deepstack import DeepStack
from hedgerow.deep.pretrained import PICTURE, PretrainedUNet
from hedgerow.deep.record import STACK
from hedgerow.deep.unet import UNET_TILE, ImageNorm, UNet
from hedgerow.encoders.onnx_network import MAX_ONNX_BYTES
from hedgerow.errors import InputError
from hedgerow.export.onnx_graph import REAL, Graph
from hedgerow.export.onnx_lite0 import stage_outputs
from hedgerow.kernels.definition.norm import EPSILON

FLIPPED = ((), (2,), (2, 3), (3,))  # axes to reverse for 0 to 3 quarter turns; 1 and 3 begin with a transposition


def deep_proba(graph: Graph, image: str, features: str, before: str, model: DeepStack) -> str:
    """(C,H,W) class probabilities of an image (M,H,W), from all members.

    features: (F,H,W), standardised; before: (C,H,W) class probabilities from the network of the stack
    """
    _check_size(model)
    probabilities = {STACK: before}
    for name, nets in model.nets.items():
        probabilities[name] = _mean(graph, [_net_proba(graph, net, image, features, before) for net in nets])
    parts = [graph.node("Mul", probabilities[name], float(weight)) for name, weight in model.weights.items()]
    return graph.node("Sum", *parts)


def about_deep(model: DeepStack) -> dict[str, str]:
    """The metadata of a file about the convolutional level."""
    networks = [net.network for nets in model.nets.values() for net in nets]
    stride = max((network.stride for network in networks), default=1)
    sees_all = any(network.sees_all for network in networks)
    agrees = f"the same only for images of up to {UNET_TILE} pixels per side" if sees_all else "the same up to rounding"
    return {
        "convolutional_level": "it runs on the whole image at once, whereas Hedgerow runs it on squares of "
        f"{UNET_TILE} pixels with their surroundings; the results are {agrees}; parts of an image that are run on "
        f"their own must begin at multiples of {stride} pixels"
    }


def _check_size(model: DeepStack) -> None:
    networks = [net.network for nets in model.nets.values() for net in nets]
    size = sum(4 * weight.numel() for network in networks for weight in network.parameters())
    if size > MAX_ONNX_BYTES:
        raise InputError(
            f"the {len(networks)} convolutional networks have {size / 1e9:.1f} GB of weights, but an ONNX file cannot "
            f"hold more than {MAX_ONNX_BYTES / 1e9:g} GB; deepen the stack with fewer networks (n_networks) or smaller "
            "ones."
        )


def _net_proba(graph: Graph, net: ConvNet, image: str, features: str, before: str) -> str:
    """`ConvNet.proba`: (C,H,W)"""
    node, network = graph.node, _Network(graph, net.network)
    planes = _read(graph, net, image, features, before)
    size = node("Shape", planes, start=1)
    beyond = node("Mod", node("Neg", size), net.network.stride)
    whole = node("Unsqueeze", node("Pad", planes, node("Concat", [0, 0, 0, 0], beyond, axis=0)), [0])
    oriented = []
    for number in range(net.orientations):
        scores = network.scores(_turned(graph, whole, number))
        oriented.append(_turned_back(graph, node("Softmax", scores, axis=1), number))
    return node("Slice", node("Squeeze", _mean(graph, oriented), [0]), [0, 0], size, [1, 2])


def _read(graph: Graph, net: ConvNet, image: str, features: str, before: str) -> str:
    """`ConvNet.read`: (M,H,W)"""
    inputs = [_scaled(graph, image, net.scale)]
    first, end = net.features
    if first < end:
        inputs.append(graph.node("Slice", features, [first], [end], [0]))
    if net.reads:
        inputs.append(before)
    return graph.node("Concat", *inputs, axis=0)


def _scaled(graph: Graph, image: str, scale: InputScale) -> str:
    """`InputScale.apply`: (M,H,W), or (M+1,H,W) where pixels can be blank."""
    node, shape = graph.node, (-1, 1, 1)
    scaled = node("Div", node("Sub", image, scale.mean.reshape(shape)), scale.std.reshape(shape))
    if scale.blank is None:
        return scaled
    is_seen = node("Not", node("Equal", image, float(scale.blank)))
    seen = node("ReduceMin", node("Cast", is_seen, to=REAL), axes=[0])  # in every channel
    return node("Concat", node("Where", node("Greater", seen, 0.0), scaled, 0.0), seen, axis=0)


def _mean(graph: Graph, parts: list[str]) -> str:
    return graph.node("Div", graph.node("Sum", *parts), float(len(parts)))


def _turned(graph: Graph, planes: str, number: int) -> str:
    """`convnet.turned`"""
    return _quarter_turns(graph, _flipped(graph, planes, (3,)) if number >= 4 else planes, number)


def _turned_back(graph: Graph, planes: str, number: int) -> str:
    """`convnet.turned_back`"""
    back = _quarter_turns(graph, planes, -number)
    return _flipped(graph, back, (3,)) if number >= 4 else back


def _quarter_turns(graph: Graph, planes: str, number: int) -> str:
    """Planes (N,M,H,W) turned as `torch.rot90` does."""
    if number % 2:
        planes = graph.node("Transpose", planes, perm=[0, 1, 3, 2])
    return _flipped(graph, planes, FLIPPED[number % 4])


def _flipped(graph: Graph, planes: str, axes: tuple[int, ...]) -> str:
    if not axes:
        return planes
    n, before_first = len(axes), int(np.iinfo(np.int64).min)
    return graph.node("Slice", planes, [-1] * n, [before_first] * n, list(axes), [-1] * n)


@dataclass(frozen=True)
class _Layer:
    """A convolution and its normalisation.

    constants: names of its weight, and of its bias if the normalisation is folded into both
    norm:      names of the weight and the bias of a normalisation over the image, or empty
    """

    operator: str
    constants: list[str]
    norm: list[str]
    pads: list[int]
    strides: list[int]

    def add(self, graph: Graph, planes: str) -> str:
        """(N,M',H',W') of planes (N,M,H,W)"""
        out = graph.node(self.operator, planes, *self.constants, pads=self.pads, strides=self.strides)
        return graph.node("InstanceNormalization", out, *self.norm, epsilon=EPSILON) if self.norm else out


class _Network:
    """A U-Net, whose weights are added once as constants, and whose nodes are added for every orientation."""

    def __init__(self, graph: Graph, network: UNet) -> None:
        self.graph, self.network = graph, network
        self.down, self.up, self.merge = (
            [_layers(graph, cast(nn.Sequential, part)) for part in parts]
            for parts in (network.down, network.up, network.merge)
        )
        self.score = graph.constant(_array(network.score.weight)), graph.constant(_array(network.class_bias).ravel())

    def scores(self, planes: str) -> str:
        """`UNet.forward`: class scores (N,C,H,W) of planes (N,M,H,W) whose sides are multiples of the stride."""
        node = self.graph.node
        inner, skipped = self._through(self.down[0], planes), []
        for deeper, beside in zip(self.down[1:], self._beside(planes), strict=True):
            skipped.append(inner)
            inner = node("MaxPool", inner, kernel_shape=[2, 2], strides=[2, 2])
            inner = self._through(deeper, inner if beside is None else node("Concat", inner, beside, axis=1))
        for up, merge in zip(self.up, self.merge, strict=True):
            inner = self._through(merge, node("Concat", skipped.pop(), self._through(up, inner), axis=1))
        return node("Conv", inner, *self.score)

    def _beside(self, planes: str) -> list[str | None]:
        """`UNet.beside`"""
        network = self.network
        if not isinstance(network, PretrainedUNet):
            return [None] * network.n_down
        picture = self.graph.node("Conv", planes, _array(network.pretrained[PICTURE]))
        weights = {name: _array(weight) for name, weight in network.published().items()}
        stages = stage_outputs(self.graph, picture, weights, network.n_stages)
        return [None if stage is None else stages[stage - 1] for stage in network.joining]

    def _through(self, layers: list[_Layer], planes: str) -> str:
        for layer in layers:
            planes = self.graph.node("Relu", layer.add(self.graph, planes))
        return planes


def _layers(graph: Graph, block: Iterable[nn.Module]) -> list[_Layer]:
    """The convolutions of a block, each followed by its normalisation and ReLU."""
    modules, layers = list(block), []
    for module, norm in zip(modules[::3], modules[1::3], strict=True):
        convolution = cast("nn.Conv2d | nn.ConvTranspose2d", module)
        operator = "ConvTranspose" if convolution.transposed else "Conv"
        apart: list[Tensor] = [norm.weight, norm.bias] if isinstance(norm, ImageNorm) else []
        weights = [_array(convolution.weight)] if apart else _folded(convolution, cast(nn.BatchNorm2d, norm))
        constants = [graph.constant(array) for array in weights]
        of_norm = [graph.constant(_array(tensor)) for tensor in apart]
        layers.append(_Layer(operator, constants, of_norm, 2 * [*convolution.padding], [*convolution.stride]))
    return layers


def _folded(convolution: nn.Conv2d | nn.ConvTranspose2d, norm: nn.BatchNorm2d) -> tuple[np.ndarray, np.ndarray]:
    """The weights and the bias (M,), both float32, of a convolution combined with its normalisation."""
    stored = norm.state_dict()
    scale, shift, mean, variance = (
        _array(stored[name].double()) for name in ("weight", "bias", "running_mean", "running_var")
    )
    factor = scale / np.sqrt(variance + norm.eps)
    shape = (1, -1, 1, 1) if convolution.transposed else (-1, 1, 1, 1)  # (in,out,h,w) or (out,in,h,w)
    weight = _array(convolution.weight.double()) * factor.reshape(shape)
    return weight.astype(np.float32), (shift - mean * factor).astype(np.float32)


def _array(tensor: Tensor) -> np.ndarray:
    array: np.ndarray = tensor.detach().cpu().numpy()
    return array
