"""The values that the probes of a level read, as ONNX nodes; `forest.walk` and `kernels.cpu.walk` do the same.

Planes are laid out once per level in a flat array; a read is then one Gather. Tables (J,N) have a row per probe and a
column per node; the caller's `pick` selects the columns for a block of B pixels.

Both kinds of reads have the same methods: `of_block` returns all that `values` needs to know about pixels, given their
numbers (B,), and `values` returns the values that the probes read, in the shape that `pick` gives.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hedgerow.export.onnx_features import Scene
from hedgerow.export.onnx_filters import clamped, padded, smoothed
from hedgerow.export.onnx_graph import INTEGER, Graph
from hedgerow.forest.arrays import Forest
from hedgerow.kernels.definition.gaussian import box_weights

Pick = Callable[[str], str]
"""From a table (J,N) to its columns for a block: (J,T,B), one for every tree and pixel, or (J,N,1), all of them."""


def reads_of(graph: Graph, scene: Scene, channels: str, forest: Forest, nodes: np.ndarray) -> OnnxReads:
    """The reads of the probes of these nodes of a forest in the channels (M,H,W)."""
    used = ((forest.weight != 0) & forest.is_split[:, None])[nodes].T
    channel, radius = forest.channel[nodes].T, forest.radius[nodes].T
    # Sorted by radius, then by the constant outside, so that each kind of averaging happens once.
    constants = np.zeros(forest.n_channels, np.float32) if scene.outside is None else scene.outside
    keys = np.stack([radius, np.unique(constants, return_inverse=True)[1][channel], channel], axis=-1)[used]
    wanted, plane_of_used = np.unique(keys, axis=0, return_inverse=True) if used.any() else (np.zeros((1, 3), int), 0)
    plane = np.zeros(used.shape, np.int64)  # unused probes read any plane; their weight is 0
    plane[used] = np.ravel(plane_of_used)
    offset = np.where(used[..., None], forest.offset[nodes, :, 1:].transpose(1, 0, 2), 0)
    planes = []
    for r, kind in np.unique(wanted[:, :2], axis=0).tolist():
        alike = wanted[(wanted[:, :2] == (r, kind)).all(axis=1), 2]
        some = graph.node("Gather", channels, alike, axis=0)
        planes.append(_box_averaged(graph, scene, some, r, float(constants[alike[0]])) if r else some)
    laid_out = graph.node("Concat", *planes, axis=0)
    if scene.stretch is None:
        return FixedReads(graph, scene, laid_out, plane, offset.astype(np.int64), forest.reach)
    return StretchedReads(graph, scene, scene.stretch, laid_out, constants[wanted[:, 2]], plane, offset)


class FixedReads:
    """Offsets are the same at every pixel: planes are padded, and probes are at a constant distance from the pixel."""

    def __init__(
        self, graph: Graph, scene: Scene, planes: str, plane: np.ndarray, offset: np.ndarray, reach: int
    ) -> None:
        node = graph.node
        # Offsets longer than the image end at its edge.
        margin = node("Min", reach, node("Max", scene.height, scene.width))
        laid_out = node("Pad", planes, node("Mul", margin, [0, 1, 1, 0, 1, 1]), mode="edge")
        stride = node("Add", scene.width, node("Mul", margin, 2))
        area = node("Mul", stride, node("Add", scene.height, node("Mul", margin, 2)))
        down, right = (
            node("Add", node("Max", node("Min", graph.table(each), margin), node("Neg", margin)), margin)
            for each in (offset[..., 0], offset[..., 1])
        )
        place = node("Add", node("Mul", graph.table(plane), area), node("Mul", down, stride))
        self._place, self._flat = node("Add", place, right), node("Reshape", laid_out, [-1])
        self._width, self._stride = scene.width, stride

    def of_block(self, graph: Graph, pixel: str) -> tuple[str, ...]:
        row = graph.node("Div", pixel, self._width)
        column = graph.node("Mod", pixel, self._width)
        return (graph.node("Add", graph.node("Mul", row, self._stride), column),)

    def values(self, graph: Graph, pick: Pick, block: tuple[str, ...]) -> str:
        return graph.look_up(self._flat, graph.node("Add", pick(self._place), block[0]))


class StretchedReads:
    """Offsets are stretched at each pixel: planes have the size of the image, each followed by its constant outside."""

    def __init__(
        self,
        graph: Graph,
        scene: Scene,
        stretch: str,
        planes: str,
        constants: np.ndarray,
        plane: np.ndarray,
        offset: np.ndarray,
    ) -> None:
        node = graph.node
        self._size, self._area = (scene.height, scene.width), node("Mul", scene.height, scene.width)
        flat = node("Reshape", planes, [len(constants), -1])
        self._flat = node("Reshape", node("Concat", flat, constants.reshape(-1, 1), axis=1), [-1])
        self._start = node("Mul", graph.table(plane), node("Add", self._area, 1))
        self._offset = [node("Identity", np.ascontiguousarray(offset[..., axis])) for axis in (0, 1)]
        self._stretch = node("Reshape", stretch, [-1])

    def of_block(self, graph: Graph, pixel: str) -> tuple[str, ...]:
        row, column = graph.node("Div", pixel, self._size[1]), graph.node("Mod", pixel, self._size[1])
        return row, column, graph.look_up(self._stretch, pixel)

    def values(self, graph: Graph, pick: Pick, block: tuple[str, ...]) -> str:
        node, places, tests = graph.node, [], []
        for position, offset, length in zip(block[:2], self._offset, self._size, strict=True):
            shift = node("Floor", node("Add", node("Mul", pick(offset), block[2]), 0.5))
            place = node("Add", node("Cast", shift, to=INTEGER), position)
            tests += [node("GreaterOrEqual", place, 0), node("Less", place, length)]
            places.append(place)
        is_inside = node("And", node("And", tests[0], tests[1]), node("And", tests[2], tests[3]))
        place = node("Add", node("Mul", places[0], self._size[1]), places[1])
        place = node("Add", node("Where", is_inside, place, self._area), pick(self._start))
        return graph.look_up(self._flat, place)


OnnxReads = FixedReads | StretchedReads


def _box_averaged(graph: Graph, scene: Scene, planes: str, radius: int, outside: float) -> str:
    """(P,H,W) means over the box of `radius` around each pixel; see `kernels.cpu.plane_ops.box_averaged`."""
    weights = box_weights(radius)
    margin = weights.shape[1] - 1
    if scene.outside is not None:
        planes = graph.node("Pad", planes, [0, margin, margin, 0, margin, margin], outside)
    border = clamped if scene.outside is None else padded
    rows, columns = border(graph, scene.height, margin), border(graph, scene.width, margin)
    return smoothed(graph, planes, rows, columns, weights)
