"""EfficientNet-Lite0 and Lite2 as ONNX nodes; `encoders.lite0` is the definition."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hedgerow.encoders.lite0 import CENTRE, SPREAD, STAGES, Lite0, Stages
from hedgerow.encoders.protocol import TorchEncoder
from hedgerow.export.onnx_graph import Graph


def layers(graph: Graph, pictures: str, encoder: TorchEncoder, names: Sequence[str]) -> list[str]:
    """The named layers, each (N,c,h,w), of pictures (N,3,H,W) from 0 to 255, whose sides are multiples of 32."""
    scaled = graph.node("Div", graph.node("Sub", pictures, CENTRE), SPREAD)
    weights = {name: weight.detach().cpu().numpy() for name, weight in encoder.weights.items()}
    numbers = [int(name[1:]) for name in names]
    assert isinstance(encoder, Lite0)
    stages = stage_outputs(graph, scaled, weights, max(numbers), encoder.stages)
    return [stages[number - 1] for number in numbers]


def stage_outputs(
    graph: Graph, pictures: str, weights: Mapping[str, np.ndarray], n_stages: int, of_network: Stages = STAGES
) -> list[str]:
    """`lite0.stage_outputs`"""
    nodes = _Lite0Nodes(graph, weights)
    x = nodes.relu6(nodes.conv("stem", pictures, 2))
    stages, block = [], 0
    for n_blocks, _, stride, _, _ in of_network[:n_stages]:
        for place in range(n_blocks):
            # The first block of a stage changes the number of channels, so its input cannot be added.
            x = nodes.block(block, x, stride if place == 0 else 1, adds=place > 0)
            block += 1
        stages.append(x)
    return stages


@dataclass(frozen=True)
class _Lite0Nodes:
    """The functions of the network, which add nodes where the original computes."""

    graph: Graph
    weights: Mapping[str, np.ndarray]

    def block(self, number: int, x: str, stride: int, adds: bool) -> str:
        """A block; adds: whether its input is added to its output"""
        wide = self.relu6(self.conv(f"{number}.expand", x)) if number else x
        narrow = self.conv(f"{number}.project", self.relu6(self.conv(f"{number}.depthwise", wide, stride)))
        return self.graph.node("Add", narrow, x) if adds else narrow

    def relu6(self, x: str) -> str:
        return self.graph.node("Clip", x, 0.0, 6.0)

    def conv(self, name: str, x: str, stride: int = 1) -> str:
        """A convolution whose output i reads inputs around stride * i, padded with zeros."""
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        beyond = max(weight.shape[-1] - stride, 0)
        pads = [beyond // 2] * 2 + [beyond - beyond // 2] * 2
        groups = len(weight) if name.endswith("depthwise") else 1
        return self.graph.node("Conv", x, weight, bias, strides=[stride, stride], pads=pads, group=groups)
