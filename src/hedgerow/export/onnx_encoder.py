"""Features from a pretrained network as ONNX nodes, its weights among them; `features.encoder` is the definition.

The network runs on the whole image at once, not on a grid of patches: for an image that is a single patch this is the
same, and a larger one has no seams where Hedgerow has (weak) ones.
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
from hedgerow.features.encoder import EncoderFeatures
from hedgerow.features.encoder_pictures import groups_of
from hedgerow.features.patches import CORE
from hedgerow.features.protocol import FeatureSet
from hedgerow.features.tuned import encoder_of

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
    # What padding added goes first: beyond the image's edge is the nearest value, here as in Python.
    last = int(steps) - 1
    components = _cropped(graph, components, node("Div", node("Add", size, last), int(steps)) if last else size)
    while steps > 1:
        components, steps = doubled(graph, components, features.n_features), steps / 2
    return (_cropped(graph, components, size) if last else components), None


def about_encoders(features: FeatureSet) -> dict[str, str]:
    """What the metadata of a file says about the networks that are part of it."""
    encoder = encoder_of(features)
    if encoder is None:
        return {}
    published, side = PUBLISHED[encoder.source.encoder], int(CORE / encoder.source.scale)
    return {
        "encoder": f"{published.title}; licence {published.licence}; it runs on the whole image at once, which is what "
        f"Hedgerow does with images of up to {side} pixels a side, and close to it for larger ones"
    }


def _network(name: str) -> Network:
    """What writes the nodes of a network, or a refusal that names the remedy."""
    if name not in onnx_encoders():
        raise InputError(
            f"the encoder {name[:60]} cannot be written into an ONNX file ({' and '.join(onnx_encoders())} can); "
            f"export the model {WITHOUT_FEATURES}"
        )
    network: Network = load(PUBLISHED[name].onnx_layers)
    return network


def _pictures(graph: Graph, image: str, features: EncoderFeatures, multiple: int) -> str:
    """Pictures (N,3,H,W) from 0 to 255, as large as the network is to see them, sides padded to whole multiples."""
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
    """Components (F,h,w) at the finest stride of layers (N,c,h,w): each is projected at its own stride."""
    node, source = graph.node, features.source
    n_pictures = len(groups_of(features.n_inputs, source.channels))
    widths = [n_pictures * layer.n_channels for layer in source.layers]
    parts = np.split(features.projection, np.cumsum(widths)[:-1], axis=1)
    components, stride = "", source.strides[-1]
    for layer, part, its, width in reversed(list(zip(layers, parts, source.strides, widths, strict=True))):
        while stride > its:
            components, stride = doubled(graph, components, features.n_features), stride // 2
        if n_pictures > 1:  # the channels of all pictures, one after another
            layer = node("Reshape", layer, node("Concat", [1, width], node("Shape", layer, start=2), axis=0))
        # A convolution with one pixel is the product with a matrix.
        own = node("Squeeze", node("Conv", layer, part[:, :, None, None]), [0])
        components = node("Add", components, own) if components else own
    return components


def doubled(graph: Graph, planes: str, n: int) -> str:
    """(n,2H,2W) of planes (n,H,W): `encoder_pictures.doubled`, rounded as it rounds."""
    width = graph.node("Shape", planes, start=2)
    # Behind one another in a row of twice the length, the two new rows of an old one only need to be cut apart.
    rows = graph.node("Concat", *_between(graph, planes, 1), axis=2)
    planes = graph.node("Reshape", rows, graph.node("Concat", [n, -1], width, axis=0))
    pairs = [graph.node("Unsqueeze", each, [3]) for each in _between(graph, planes, 2)]
    return graph.node("Reshape", graph.node("Concat", *pairs, axis=3), [0, 0, -1])


def _between(graph: Graph, planes: str, axis: int) -> list[str]:
    """Values a quarter before and a quarter behind each one, both of the shape of the planes (n,H,W)."""
    node, end = graph.node, np.iinfo(np.int64).max
    first, last = (node("Slice", planes, [a], [b], [axis]) for a, b in ((0, 1), (-1, end)))
    before = node("Concat", first, node("Slice", planes, [0], [-1], [axis]), axis=axis)
    after = node("Concat", node("Slice", planes, [1], [end], [axis]), last, axis=axis)
    most = node("Mul", planes, 0.75)
    return [node("Add", most, node("Mul", beside, 0.25)) for beside in (before, after)]


def halved(graph: Graph, planes: str) -> str:
    """(n,ceil(H/2),ceil(W/2)) of planes (n,H,W): `encoder_pictures.halved`, rounded as it rounds."""
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
