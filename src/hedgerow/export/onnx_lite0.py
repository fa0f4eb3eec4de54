"""EfficientNet-Lite0 as ONNX nodes; `encoders.lite0` is the definition."""

from collections.abc import Sequence

from hedgerow.encoders.lite0 import CENTRE, SPREAD
from hedgerow.encoders.protocol import TorchEncoder
from hedgerow.encoders.stages import LITE0 as STAGES
from hedgerow.export.onnx_graph import Graph


def layers(graph: Graph, pictures: str, encoder: TorchEncoder, names: Sequence[str]) -> list[str]:
    """The named layers, each (N,c,h,w), of pictures (N,3,H,W) from 0 to 255, whose sides are multiples of 32."""
    return _Nodes(graph, encoder).outputs(pictures, names)


class _Nodes:
    """The network's methods, each adding nodes where the original computes."""

    def __init__(self, graph: Graph, encoder: TorchEncoder) -> None:
        self.graph = graph
        self.weights = {name: weight.detach().cpu().numpy() for name, weight in encoder.weights.items()}

    def outputs(self, pictures: str, names: Sequence[str]) -> list[str]:
        scaled = self.graph.node("Div", self.graph.node("Sub", pictures, CENTRE), SPREAD)
        x = self._relu6(self._conv("stem", scaled, 2))
        found, block, last = {}, 0, max(int(name[1:]) for name in names)
        for number, (n_blocks, _, stride, _, _) in enumerate(STAGES[:last], 1):
            for place in range(n_blocks):
                # The first block of every stage changes the number of channels, so that its input cannot be added.
                x = self._block(block, x, stride if place == 0 else 1, adds=place > 0)
                block += 1
            found[f"s{number}"] = x
        return [found[name] for name in names]

    def _block(self, number: int, x: str, stride: int, adds: bool) -> str:
        """adds: its input, of the same shape as its output, is added to this"""
        wide = self._relu6(self._conv(f"{number}.expand", x)) if number else x
        narrow = self._conv(f"{number}.project", self._relu6(self._conv(f"{number}.depthwise", wide, stride)))
        return self.graph.node("Add", narrow, x) if adds else narrow

    def _relu6(self, x: str) -> str:
        return self.graph.node("Clip", x, 0.0, 6.0)

    def _conv(self, name: str, x: str, stride: int = 1) -> str:
        """A convolution whose output i looks at inputs around stride * i, with zeros beyond."""
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        beyond = max(weight.shape[-1] - stride, 0)
        pads = [beyond // 2] * 2 + [beyond - beyond // 2] * 2
        groups = len(weight) if name.endswith("depthwise") else 1
        return self.graph.node("Conv", x, weight, bias, strides=[stride, stride], pads=pads, group=groups)
