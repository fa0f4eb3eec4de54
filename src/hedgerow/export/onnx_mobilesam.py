"""The image encoder of MobileSAM as ONNX nodes; `encoders.mobilesam` is the definition."""

from collections.abc import Sequence
from math import isqrt, sqrt

import numpy as np

from hedgerow.encoders.mobilesam import NECK_EPSILON, NORM_EPSILON, STAGES, MobileSam, distances
from hedgerow.encoders.protocol import TorchEncoder
from hedgerow.export.onnx_graph import Graph

TO_LAST, TO_FIRST = [0, 2, 3, 1], [0, 3, 1, 2]  # channels: (N,C,H,W) -> (N,H,W,C), and back


def layers(graph: Graph, pictures: str, encoder: TorchEncoder, names: Sequence[str]) -> list[str]:
    """The named layers, each (N,c,h,w), of pictures (N,3,H,W) from 0 to 255, at a size that it accepts."""
    return _MobileSamNodes(graph, encoder).outputs(pictures, names)


class _MobileSamNodes:
    """The methods of the network, which add nodes where the original computes."""

    def __init__(self, graph: Graph, encoder: TorchEncoder) -> None:
        assert isinstance(encoder, MobileSam)
        self.graph, self.order, self.encoder = graph, [layer.name for layer in encoder.layers], encoder
        self.weights = {name: weight.detach().cpu().numpy() for name, weight in encoder.weights.items()}

    def outputs(self, pictures: str, names: Sequence[str]) -> list[str]:
        last = max(self.order.index(name) for name in names)
        mean, std = (np.array(values, np.float32)[:, None, None] for values in (self.encoder.mean, self.encoder.std))
        x = self.graph.node("Div", self.graph.node("Sub", pictures, mean), std)
        strides = self.encoder.strides
        stem_stride = isqrt(strides[0])
        x = self._conv("stem.1", self._gelu(self._conv("stem.0", x, stem_stride)), stem_stride)
        layers = {}
        for number, (n_blocks, width, heads, window) in enumerate(STAGES[: last + 1]):
            if number:
                x = self._merged(number - 1, x, strides[number] // strides[number - 1])
            for block in range(n_blocks):
                place = f"{number}.{block}"
                x = self._attentive_block(place, x, width, heads, window) if heads else self._conv_block(place, x)
            layers[f"l{number}"] = x
        if "neck" in names:
            layers["neck"] = self._neck(x)
        return [layers[name] for name in names]

    def _conv_block(self, place: str, x: str) -> str:
        wide = self._gelu(self._conv(f"{place}.expand", x))
        deep = self._gelu(self._conv(f"{place}.depthwise", wide))
        return self._gelu(self.graph.node("Add", self._conv(f"{place}.project", deep), x))

    def _merged(self, stage: int, x: str, stride: int) -> str:
        wide = self._gelu(self._conv(f"{stage}.merge.0", x))
        return self._conv(f"{stage}.merge.2", self._gelu(self._conv(f"{stage}.merge.1", wide, stride)))

    def _attentive_block(self, place: str, x: str, width: int, heads: int, window: int) -> str:
        node = self.graph.node
        seen = self._attention(place, node("Transpose", x, perm=TO_LAST), width, heads, window)
        x = self._conv(f"{place}.local", node("Add", x, node("Transpose", seen, perm=TO_FIRST)))
        unit = self._norm(f"{place}.before_up", node("Transpose", x, perm=TO_LAST))
        down = self._linear(f"{place}.down", self._gelu(self._linear(f"{place}.up", unit)))
        return node("Add", x, node("Transpose", down, perm=TO_FIRST))

    def _attention(self, place: str, x: str, channels: int, heads: int, window: int) -> str:
        """(N,H,W,C) of x (N,H,W,C); the last windows are padded with zeros at the bottom and on the right."""
        node = self.graph.node
        size = node("Shape", x, start=1, end=3)
        beyond = node("Mod", node("Neg", size), window)
        x = node("Pad", x, node("Concat", [0, 0, 0, 0, 0], beyond, [0], axis=0))
        padded = node("Add", size, beyond)
        rows, columns = self.graph.pieces(node("Div", padded, window), 2)
        x = node("Reshape", x, node("Concat", [-1], rows, [window], columns, [window, channels], axis=0))
        x = node("Reshape", node("Transpose", x, perm=[0, 1, 3, 2, 4, 5]), [-1, window**2, channels])
        x = self._in_windows(place, x, channels, heads, window)
        x = node("Reshape", x, node("Concat", [-1], rows, columns, [window, window, channels], axis=0))
        x = node("Transpose", x, perm=[0, 1, 3, 2, 4, 5])
        x = node("Reshape", x, node("Concat", [-1], padded, [channels], axis=0))
        return node("Slice", x, [0, 0], size, [1, 2])

    def _in_windows(self, place: str, x: str, channels: int, heads: int, window: int) -> str:
        """Attention among the pixels of each window: (windows, window², C) of x of that shape."""
        node, each = self.graph.node, channels // heads
        qkv = self._linear(f"{place}.qkv", self._norm(f"{place}.before_attention", x))
        qkv = node("Reshape", qkv, [-1, window**2, heads, 3, each])
        q, k, v = (
            node("Squeeze", part, [0]) for part in self.graph.pieces(node("Transpose", qkv, perm=[3, 0, 2, 1, 4]), 3)
        )
        likeness = node("MatMul", node("Mul", q, 1 / sqrt(each)), node("Transpose", k, perm=[0, 1, 3, 2]))
        # Looked up in the graph: stored in full, the biases of all blocks would take 5 MB of the file.
        biases = node("Gather", self.weights[f"{place}.distances"], self.graph.table(distances(window)), axis=1)
        seen = node("MatMul", node("Softmax", node("Add", likeness, biases), axis=-1), v)
        seen = node("Reshape", node("Transpose", seen, perm=[0, 2, 1, 3]), [-1, window**2, channels])
        return self._linear(f"{place}.out", seen)

    def _neck(self, x: str) -> str:
        for conv, norm in (("neck.0", "neck.1"), ("neck.2", "neck.3")):
            last = self.graph.node("Transpose", self._conv(conv, x), perm=TO_LAST)
            x = self.graph.node("Transpose", self._norm(norm, last, NECK_EPSILON), perm=TO_FIRST)
        return x

    def _gelu(self, x: str) -> str:
        node = self.graph.node
        return node("Mul", node("Mul", x, node("Add", node("Erf", node("Mul", x, 1 / sqrt(2))), 1.0)), 0.5)

    def _conv(self, name: str, x: str, stride: int = 1) -> str:
        """A convolution of x (N,C,H,W) padded with zeros; depthwise if its kernels have one channel."""
        weight, bias = self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias")
        pads, groups = [weight.shape[-1] // 2] * 4, len(weight) if weight.shape[1] == 1 else 1
        given = (x, weight) if bias is None else (x, weight, bias)
        return self.graph.node("Conv", *given, strides=[stride, stride], pads=pads, group=groups)

    def _linear(self, name: str, x: str) -> str:
        weight = np.ascontiguousarray(self.weights[f"{name}.weight"].T)
        return self.graph.node("Add", self.graph.node("MatMul", x, weight), self.weights[f"{name}.bias"])

    def _norm(self, name: str, x: str, epsilon: float = NORM_EPSILON) -> str:
        """Each pixel's channels (the last axis), normalised to mean 0 and variance 1, then scaled and shifted."""
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return self.graph.node("LayerNormalization", x, weight, bias, epsilon=epsilon)
