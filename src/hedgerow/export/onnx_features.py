"""The features of an image as ONNX nodes; `compute` of each kind of feature is the definition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper

from hedgerow.export.kinds import entry_of, is_stretched
from hedgerow.export.onnx_encoder import encoder_features
from hedgerow.export.onnx_filters import Border, down_columns, mirrored, smoothed, turned
from hedgerow.export.onnx_graph import REAL, Graph
from hedgerow.features.bank import Bank, Proportions
from hedgerow.features.channels import Channels
from hedgerow.features.depth import Depth
from hedgerow.features.joined import Joined
from hedgerow.features.protocol import FeatureSet
from hedgerow.forest.arrays import ForestStack

if TYPE_CHECKING:
    from hedgerow.network.stacknet import StackNet  # needs PyTorch

IMAGE, SIDE_NAMES = "image", ["height", "width"]  # the names of an input, and of the sides of all inputs


@dataclass(frozen=True)
class Scene:
    """The input of the levels for an image, by the names of tensors.

    features: (F,H,W) float32; height, width: int64 scalars
    stretch:  (H,W) float32 factor for the offsets at each pixel, or None; outside: (F+C,) constants, or None
    """

    features: str
    height: str
    width: str
    stretch: str | None = None
    outside: np.ndarray | None = None


def input_scene(
    graph: Graph, model: ForestStack | StackNet, filters: bool, has_image: bool
) -> tuple[list[onnx.ValueInfoProto], Scene]:
    """The inputs of a file, and the scene that the levels of a stack read.

    filters: whether features are computed; has_image: whether the image is among the inputs
    """
    features = model.features
    inputs = [helper.make_tensor_value_info(IMAGE, REAL, [features.n_inputs, *SIDE_NAMES])] if has_image else []
    if filters:
        return inputs, image_features(graph, IMAGE, features, model.n_classes)
    inputs.append(helper.make_tensor_value_info("features", REAL, [features.n_features, *SIDE_NAMES]))
    stretch = "stretch" if is_stretched(features) else None
    if stretch is not None:
        inputs.append(helper.make_tensor_value_info(stretch, REAL, SIDE_NAMES))
    return inputs, Scene("features", *_size(graph, "features"), stretch, features.outside(model.n_classes))


def image_features(graph: Graph, image: str, features: FeatureSet, n_classes: int) -> Scene:
    """The scene of an image (C,H,W)."""
    raw, stretch = _raw(graph, image, features)
    shape = (-1, 1, 1)
    centred = graph.node("Sub", raw, features.mean.reshape(shape))
    standardised = graph.node("Mul", centred, (np.float32(1) / features.std).reshape(shape))
    return Scene(standardised, *_size(graph, image), stretch, features.outside(n_classes))


def _size(graph: Graph, planes: str) -> tuple[str, str]:
    shape = graph.node("Shape", planes)
    return graph.node("Gather", shape, 1), graph.node("Gather", shape, 2)


def _raw(graph: Graph, image: str, features: FeatureSet) -> tuple[str, str | None]:
    """Raw features (F,H,W), and the factor (H,W) for offsets, or None."""
    return entry_of(features, BUILDERS, "ONNX")(graph, image, features)


def _channels(graph: Graph, image: str, features: Channels) -> tuple[str, None]:
    return image, None


def _joined(graph: Graph, image: str, features: Joined) -> tuple[str, None]:
    parts = [_raw(graph, image, member)[0] for member in features.members]
    return graph.node("Concat", *parts, axis=0), None


def _depth(graph: Graph, image: str, features: Depth) -> tuple[str, str]:
    """(2,H,W) depth in metres and whether it was measured; and (H,W) one over the metres."""
    nearest, background = float(features.nearest), float(features.background)
    is_present = graph.node("Greater", image, 0.0)
    metres = graph.node("Div", image, float(features.depth_unit))
    metres = graph.node("Clip", metres, nearest, background)
    metres = graph.node("Where", is_present, metres, background)
    stretch = graph.node("Squeeze", graph.node("Div", 1.0, metres), [0])
    return graph.node("Concat", metres, graph.node("Cast", is_present, to=REAL), axis=0), stretch


def _opponents(graph: Graph, planes: str) -> str:
    """(3,H,W), as `bank.opponents`."""
    red, green, blue = (graph.node("Gather", planes, [c], axis=0) for c in range(3))
    both = graph.node("Add", red, green)
    light = graph.node("Div", graph.node("Add", both, blue), 3.0)
    yellow = graph.node("Div", both, 2.0)
    parts = light, graph.node("Sub", red, green), graph.node("Sub", blue, yellow)
    return graph.node("Concat", *parts, axis=0)


def _bank(graph: Graph, image: str, features: Bank) -> tuple[str, None]:
    """(F,H,W): for every image channel, its intensity and `bank.FILTERS` at each scale."""
    shape, n = (-1, 1, 1), features.n_inputs
    centred = graph.node("Sub", image, features.input_mean.reshape(shape))
    centred = graph.node("Div", centred, features.input_std.reshape(shape))
    if features.opponent:
        centred = _opponents(graph, centred)
    ratios = (1.0, features.proportions.structure_ratio)  # the other filter of `dog` is always narrower
    widest = max(features.proportions.weights(r * sigma).shape[1] - 1 for sigma in features.sigmas for r in ratios)
    rows, columns = (mirrored(graph, length, widest) for length in _size(graph, image))
    bank = _Filters(graph, features.proportions, rows, columns, n)
    kinds = [centred, *(kind for sigma in features.sigmas for kind in bank.scale(centred, sigma))]
    order = np.arange(len(kinds) * n).reshape(-1, n).T.ravel()  # all of the first channel, then of the second
    return graph.node("Gather", graph.node("Concat", *kinds, axis=0), order, axis=0), None


BUILDERS: dict[str, Callable[[Graph, str, Any], tuple[str, str | None]]] = {
    "bank": _bank,
    "channels": _channels,
    "depth": _depth,
    "encoder": encoder_features,
    "joined": _joined,
}


class _Filters:
    """Gaussian filters for all channels of an image at once. Borders mirror, edge pixel included."""

    def __init__(self, graph: Graph, proportions: Proportions, rows: Border, columns: Border, n_inputs: int) -> None:
        self.graph, self.proportions, self.rows, self.columns = graph, proportions, rows, columns
        self.n_inputs = n_inputs

    def scale(self, planes: str, sigma: float) -> list[str]:
        """`bank.FILTERS` at one scale, each (C,H,W) like the planes."""
        graph, node, n = self.graph, self.graph.node, self.n_inputs
        weights = self.proportions.weights(sigma)
        down = node("Concat", *down_columns(graph, planes, self.rows, weights), axis=0)
        # Each of the three is filtered at three orders along the rows; six of the nine are needed.
        both = [turned(graph, each) for each in down_columns(graph, turned(graph, down), self.columns, weights)]
        (smooth, d_r, d_rr), (d_c, d_rc, _), (d_cc, *_) = (graph.pieces(each, 3, each=n) for each in both)
        rr, rc, cc = node("Mul", d_r, d_r), node("Mul", d_r, d_c), node("Mul", d_c, d_c)
        gradient = node("Sqrt", node("Add", rr, cc))
        laplacian = node("Add", d_rr, d_cc)
        dog = node("Sub", self._smoothed(planes, self.proportions.dog_ratio * sigma), smooth)
        tensor = self._smoothed(node("Concat", rr, rc, cc, axis=0), self.proportions.structure_ratio * sigma)
        structure = self._eigenvalues(*graph.pieces(tensor, 3, each=n))
        return [smooth, laplacian, gradient, dog, *structure, *self._eigenvalues(d_rr, d_rc, d_cc)]

    def _smoothed(self, planes: str, sigma: float) -> str:
        return smoothed(self.graph, planes, self.rows, self.columns, self.proportions.weights(sigma)[:1])

    def _eigenvalues(self, rr: str, rc: str, cc: str) -> tuple[str, str]:
        node = self.graph.node
        mean = node("Mul", node("Add", rr, cc), 0.5)
        spread = node("Mul", node("Sub", rr, cc), 0.5)
        root = node("Sqrt", node("Add", node("Mul", spread, spread), node("Mul", rc, rc)))
        return node("Add", mean, root), node("Sub", mean, root)
