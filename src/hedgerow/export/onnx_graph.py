"""A thin builder of ONNX graphs: nodes keep the order in which they are added, and a value is a tensor's name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

# Nothing newer is needed, and onnxruntime has read them since 1.12.
OPSET, IR_VERSION = 17, 8
INTEGER, REAL = onnx.TensorProto.INT64, onnx.TensorProto.FLOAT

Value = str | int | float | list[int] | np.ndarray | np.generic
"""The name of a tensor, or a constant: an int is an int64 scalar, a float a float32 scalar."""


class Graph:
    """A graph that is being built, or the body of a loop; a body sees everything that was added outside before it."""

    def __init__(self, around: Graph | None = None) -> None:
        self._top: Graph = self if around is None else around._top
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[tuple[Any, ...], onnx.TensorProto] = {}  # of the whole model, in the top graph
        self._n_names = 0

    def node(self, operator: str, *inputs: Value, **attributes: int | float | str | list[int]) -> str:
        """Add a node with one output."""
        return self._add(operator, inputs, 1, attributes)[0]

    def constant(self, value: Value) -> str:
        """The name of a constant of the whole model; equal constants are stored once."""
        array, held = np.asarray(value), self._top._constants
        if isinstance(value, float):
            array = array.astype(np.float32)
        key = (str(array.dtype), array.shape, array.tobytes())
        if key not in held:
            held[key] = numpy_helper.from_array(array, self._name("constant"))
        return held[key].name

    def pieces(self, value: str, n: int, axis: int = 0, each: int = 1) -> list[str]:
        """A tensor cut into n pieces along an axis of length n * each; the axis stays."""
        return self._add("Split", (value, np.full(n, each)), n, {"axis": axis})

    def sum_in_order(self, value: str, n: int, axis: int = 0) -> str:
        """The sum over an axis of length n, from first to last: ReduceSum may round in any order."""
        return self.node("Squeeze", self.node("Sum", *self.pieces(value, n, axis)), [axis])

    def look_up(self, table: Value, index: str) -> str:
        """The values of a flat table at every place of `index`; in onnxruntime ten times as fast as Gather."""
        values = self.node("GatherElements", table, self.node("Reshape", index, [-1]))
        return self.node("Reshape", values, self.node("Shape", index))

    def table(self, whole: np.ndarray) -> str:
        """Whole numbers as int64, stored as int32, which halves the file."""
        return self.node("Cast", whole.astype(np.int32), to=INTEGER)

    def loop(
        self,
        count: Value,
        body: Callable[..., Sequence[str]],
        carried: Sequence[str] = (),
        carried_type: int = REAL,
        n_collected: int = 0,
    ) -> list[str]:
        """Run body(graph, number, *carried) `count` times; it returns the new carried values, then float32 to collect.

        Returns the carried values at the end, then the collected ones, stacked along a new first axis.
        """
        inner = Graph(self)
        number, going_on = inner._name("number"), inner._name("condition")
        inner_carried = [inner._name("carried") for _ in carried]
        results = [inner.node("Identity", going_on), *body(inner, number, *inner_carried)]
        types = [carried_type] * len(carried) + [REAL] * n_collected
        inputs = [
            helper.make_tensor_value_info(number, INTEGER, []),
            helper.make_tensor_value_info(going_on, onnx.TensorProto.BOOL, []),
            *(helper.make_tensor_value_info(each, carried_type, None) for each in inner_carried),
        ]
        outputs = [
            helper.make_tensor_value_info(each, kind, [] if each == results[0] else None)
            for each, kind in zip(results, [onnx.TensorProto.BOOL, *types], strict=True)
        ]
        graph = helper.make_graph(inner._nodes, self._name("body"), inputs, outputs)
        return self._add("Loop", (count, "", *carried), len(types), {"body": graph})

    def model(
        self, inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[onnx.ValueInfoProto], about: dict[str, str]
    ) -> onnx.ModelProto:
        """The finished model; `about` becomes its metadata."""
        constants = list(self._constants.values())
        graph = helper.make_graph(self._nodes, "hedgerow", inputs, outputs, constants)
        opset = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, producer_name="hedgerow", ir_version=IR_VERSION, opset_imports=opset)
        helper.set_model_props(model, about)
        return model

    def rename(self, value: str, name: str) -> None:
        """Give a tensor the name that a user sees."""
        self._nodes.append(helper.make_node("Identity", [value], [name]))

    def _add(self, operator: str, inputs: Sequence[Value], n_outputs: int, attributes: dict[str, Any]) -> list[str]:
        names = [each if isinstance(each, str) else self.constant(each) for each in inputs]
        outputs = [self._name(operator) for _ in range(n_outputs)]
        self._nodes.append(helper.make_node(operator, names, outputs, **attributes))
        return outputs

    def _name(self, about: str) -> str:
        self._top._n_names += 1
        return f"{about.lower()}_{self._top._n_names}"
