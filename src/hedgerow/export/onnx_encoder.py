"""Features from a pretrained network as ONNX nodes, including its weights; `features.encoder` is the definition.

The network runs on the whole image at once, not on a grid of patches. The result is the same for an image that is a
single patch; a larger one has no seams, where Hedgerow has weak ones.
"""

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np

from hedgerow.choices import load
from hedgerow.encoders.catalogue import PUBLISHED
from hedgerow.encoders.protocol import TorchEncoder
from hedgerow.errors import InputError
from hedgerow.export.kinds import WITHOUT_FEATURES, onnx_encoders
from hedgerow.export.onnx_graph import Graph
from hedgerow.features.encoder import EncoderFeatures, encoder_of
from hedgerow.features.encoder_pictures import groups_of
from hedgerow.features.patches import patch_of
from hedgerow.features.protocol import FeatureSet

Network = Callable[[Graph, str, TorchEncoder, Sequence[str]], list[str]]
"""The named layers, each (N,c,h,w), of pictures (N,3,H,W) with values from 0 to 255."""


def encoder_features(graph: Graph, image: str, features: EncoderFeatures) -> tuple[str, None]:
    """Raw features (F,H,W) of an image (C,H,W)."""
    source, node = features.source, graph.node
    network = _network(source.encoder)
    names = [layer.name for layer in source.layers]
    encoder = cast(TorchEncoder, features.network())
    layers = network(graph, _pictures(graph, image, features, encoder.multiple), encoder, names)
    components = _projected(graph, layers, features)

    size, steps = node("Shape", image, start=1), source.strides[0] / source.scale
    while steps < 1:
        components, steps = halved(graph, components), steps * 2
    # Padding is removed first, because the image continues with the nearest value beyond its edge, as in Python.
    last = int(steps) - 1
    components = _cropped(graph, components, node("Div", node("Add", size, last), int(steps)) if last else size)
    while steps > 1:
        components, steps = doubled(graph, components, features.n_features), steps / 2
    return (_cropped(graph, components, size) if last else components), None


def about_encoders(features: FeatureSet) -> dict[str, str]:
    """The metadata of a file about the pretrained network that it contains."""
    encoder = encoder_of(features)
    if encoder is None:
        return {}
    name, scale = encoder.source.encoder, encoder.source.scale
    published, side = PUBLISHED[name], int(patch_of(name)[0] / scale)
    return {
        "encoder": f"{published.title}; licence {published.licence}; it runs on the whole image at once: for images of "
        f"up to {side} pixels per side, the result is that of Hedgerow, and for larger ones it is close"
    }


def _network(name: str) -> Network:
    """The function that adds the nodes of a network; raises InputError if there is none."""
    if name not in onnx_encoders():
        raise InputError(
            f"the encoder {name[:60]} cannot be exported to ONNX ({', '.join(onnx_encoders())} can); export the "
            f"model {WITHOUT_FEATURES}"
        )
    network: Network = load(PUBLISHED[name].onnx_layers)
    return network


def _pictures(graph: Graph, image: str, features: EncoderFeatures, multiple: int) -> str:
    """Pictures (N,3,H,W) from 0 to 255, at the size that the network sees, with sides padded to whole multiples."""
    node, shape, n = graph.node, (-1, 1, 1), features.n_inputs
    factor = np.float32(255) / (features.high - features.low)
    planes = node("Mul", node("Sub", image, features.low.reshape(shape)), factor.reshape(shape))
    planes = node("Clip", planes, 0.0, 255.0)
    groups = groups_of(n, features.source.channels)
    if len(groups[-1]) == 2:  # the last two channels are shown with their mean
        pair = (node("Gather", planes, [channel], axis=0) for channel in groups[-1])
        planes = node("Concat", planes, node("Div", node("Add", *pair), 2.0), axis=0)
        groups[-1].append(n)
        n += 1
    if features.source.scale == 2:
        planes = doubled(graph, planes, n)
    elif features.source.scale == 0.5:
        planes = halved(graph, planes)
    planes = _extended(graph, planes, multiple)
    shown = [channel for group in groups for channel in (group if len(group) == 3 else 3 * group)]
    size = node("Concat", [-1, 3], node("Shape", planes, start=1), axis=0)
    return node("Reshape", node("Gather", planes, shown, axis=0), size)


def _projected(graph: Graph, layers: Sequence[str], features: EncoderFeatures) -> str:
    """Components (F,h,w), at the finest stride, of layers (N,c,h,w), each of which is projected at its own stride."""
    node, source = graph.node, features.source
    n_pictures = len(groups_of(features.n_inputs, source.channels))
    widths = [n_pictures * layer.n_channels for layer in source.layers]
    parts = np.split(features.projection, np.cumsum(widths)[:-1], axis=1)
    components, stride = "", source.strides[-1]
    for layer, part, its, width in reversed(list(zip(layers, parts, source.strides, widths, strict=True))):
        while stride > its:
            components, stride = doubled(graph, components, features.n_features), stride // 2
        if n_pictures > 1:  # the channels of all pictures in turn
            layer = node("Reshape", layer, node("Concat", [1, width], node("Shape", layer, start=2), axis=0))
        # A convolution of one pixel is a matrix product.
        own = node("Squeeze", node("Conv", layer, part[:, :, None, None]), [0])
        components = node("Add", components, own) if components else own
    return components


def doubled(graph: Graph, planes: str, n: int) -> str:
    """(n,2H,2W) of planes (n,H,W): `encoder_pictures.doubled` with the same rounding."""
    width = graph.node("Shape", planes, start=2)
    # The two new rows of each old one are joined in a row of twice the length, which Reshape cuts in two.
    rows = graph.node("Concat", *_between(graph, planes, 1), axis=2)
    planes = graph.node("Reshape", rows, graph.node("Concat", [n, -1], width, axis=0))
    pairs = [graph.node("Unsqueeze", each, [3]) for each in _between(graph, planes, 2)]
    return graph.node("Reshape", graph.node("Concat", *pairs, axis=3), [0, 0, -1])


def _between(graph: Graph, planes: str, axis: int) -> list[str]:
    """The values a quarter before and a quarter after each one, both in the shape of the planes (n,H,W)."""
    node, end = graph.node, np.iinfo(np.int64).max
    first, last = (node("Slice", planes, [a], [b], [axis]) for a, b in ((0, 1), (-1, end)))
    before = node("Concat", first, node("Slice", planes, [0], [-1], [axis]), axis=axis)
    after = node("Concat", node("Slice", planes, [1], [end], [axis]), last, axis=axis)
    most = node("Mul", planes, 0.75)
    return [node("Add", most, node("Mul", beside, 0.25)) for beside in (before, after)]


def halved(graph: Graph, planes: str) -> str:
    """(n,ceil(H/2),ceil(W/2)) of planes (n,H,W): `encoder_pictures.halved` with the same rounding."""
    planes = _extended(graph, planes, 2)
    for axis in (1, 2):
        end = np.iinfo(np.int64).max
        pairs = [graph.node("Slice", planes, [first], [end], [axis], [2]) for first in (0, 1)]
        planes = graph.node("Add", *pairs)
    return graph.node("Mul", planes, 0.25)


def _extended(graph: Graph, planes: str, multiple: int) -> str:
    """Planes (n,H,W) with their last row and column repeated until both sides are multiples."""
    beyond = graph.node("Mod", graph.node("Neg", graph.node("Shape", planes, start=1)), multiple)
    return graph.node("Pad", planes, graph.node("Concat", [0, 0, 0, 0], beyond, axis=0), mode="edge")


def _cropped(graph: Graph, planes: str, size: str) -> str:
    """The first rows and columns of planes (n,H,W); size: (2,)"""
    return graph.node("Slice", planes, [0, 0], size, [1, 2])
