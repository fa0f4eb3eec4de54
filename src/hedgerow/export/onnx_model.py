"""A model as an ONNX file, which runs without Hedgerow, without Python even.

The graph is written node by node (`onnx.helper`), not traced by `torch.onnx.export`: a forest needs no PyTorch then,
the graph stays small however large the forest is, height and width are free, and every sum of the filters and of a hard
forest is taken in the order of our own code, so that it decides the same to the last bit.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hedgerow.deep.any_model import AnyModel, parts_of
from hedgerow.errors import ConfigError
from hedgerow.export.kinds import Exported, is_stretched, refuse_volumes
from hedgerow.extras import require
from hedgerow.files import PathLike, atomic_path
from hedgerow.forest.arrays import Forest, ForestStack

if TYPE_CHECKING:
    import onnx

    from hedgerow.export.onnx_features import Scene
    from hedgerow.export.onnx_graph import Graph
    from hedgerow.export.onnx_levels import Level
    from hedgerow.network.stacknet import LevelNet, StackNet

IMAGE, SIZE = "image", ["height", "width"]  # the names of an input, and of the sides of all of them


def export_onnx(model: AnyModel, path: PathLike, filters: bool = True) -> Path:
    """Write the model to `path` as ONNX, for images of any height and width.

    Inputs:  "image" (C,H,W) float32, as `predict` takes it but channels first and as they are; with filters=False
             "features" (F,H,W) float32, standardised, as `model.features.compute` gives them (`model.base.features` of
             a deep stack), for depth images "stretch" (H,W) float32, as `model.features.stretch` gives it, and for a
             deep stack "image" too
    Outputs: "proba" (classes,H,W) float32, "labels" (H,W) int64, class values as in the training labels
    """
    require("onnx", "the export to ONNX")
    data = build(model, filters).SerializeToString(deterministic=True)
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)
    return Path(path)


def write(model: AnyModel, path: Path, filters: bool, name: str | None) -> Exported:
    """`export_onnx`, as every export is called; ONNX has no use for a name"""
    return Exported((export_onnx(model, path, filters),))


def build(model: AnyModel, filters: bool) -> onnx.ModelProto:
    """The ONNX model; see `export_onnx`."""
    from onnx import helper

    from hedgerow.export.onnx_encoder import about_encoders
    from hedgerow.export.onnx_graph import INT, REAL, Graph

    graph, (stack, net, deep) = Graph(), parts_of(model)
    base = stack if net is None else net
    refuse_volumes(stack)
    inputs, scene = _scene(graph, base, filters, has_image=filters or deep is not None)
    proba = _stack_proba(graph, scene, base)
    about = {"classes": json.dumps(list(model.classes)), "receptive_field": str(model.receptive_field)}
    about |= about_encoders(base.features) if filters else {}
    if deep is not None:
        from hedgerow.export.onnx_deep import about_deep, deep_proba

        proba = deep_proba(graph, IMAGE, scene.features, proba, deep)
        about |= about_deep(deep)
    graph.rename(proba, "proba")
    best = graph.node("ArgMax", proba, axis=0, keepdims=0)
    graph.rename(graph.node("Gather", np.array(model.classes, np.int64), best), "labels")
    outputs = [
        helper.make_tensor_value_info("proba", REAL, [model.n_classes, *SIZE]),
        helper.make_tensor_value_info("labels", INT, SIZE),
    ]
    return graph.model(inputs, outputs, about)


def _scene(
    graph: Graph, model: ForestStack | StackNet, filters: bool, has_image: bool
) -> tuple[list[onnx.ValueInfoProto], Scene]:
    """The inputs of the file, and what the levels of a stack read.

    filters: features are computed; has_image: the image is among the inputs
    """
    from onnx import helper

    from hedgerow.export.onnx_features import given_features, image_features
    from hedgerow.export.onnx_graph import REAL

    features = model.features
    inputs = [helper.make_tensor_value_info(IMAGE, REAL, [features.n_inputs, *SIZE])] if has_image else []
    if filters:
        return inputs, image_features(graph, IMAGE, features, model.n_classes)
    inputs.append(helper.make_tensor_value_info("features", REAL, [features.n_features, *SIZE]))
    stretch = "stretch" if is_stretched(features) else None
    if stretch is not None:
        inputs.append(helper.make_tensor_value_info(stretch, REAL, SIZE))
    return inputs, given_features(graph, "features", stretch, features, model.n_classes)


def _stack_proba(graph: Graph, scene: Scene, model: ForestStack | StackNet) -> str:
    """(C,H,W) class probabilities of the last level of a stack."""
    from hedgerow.export.onnx_levels import level_scores, normalised

    levels = _levels(model)
    proba = ""
    for number, level in enumerate(levels):
        channels = graph.node("Concat", scene.features, proba, axis=0) if number else scene.features
        scores = level_scores(graph, scene, channels, level)
        if number + 1 == len(levels) and model.output == "softmax":
            proba = graph.node("Softmax", scores, axis=0)
        else:
            proba = normalised(graph, scores, model.n_classes)
    return proba


def _levels(model: ForestStack | StackNet) -> list[Level]:
    from hedgerow.export.onnx_levels import Level

    if isinstance(model, ForestStack) and not model.is_soft:
        return [Level(forest, "hard", "step") for forest in model.levels]
    if isinstance(model, ForestStack):
        return [Level(forest, "soft", "exp", tolerance=model.tolerance) for forest in model.levels]
    levels = []
    for number in range(model.n_levels):
        level = model.level(number)
        if level.connections != "frozen":
            raise ConfigError(
                f"the network's connections are {level.connections!r}, and only frozen ones can be exported to ONNX; "
                "map the stack with connections='frozen'."
            )
        tolerance = level.tolerance if level.split in ("soft", "crelu") else 0.0
        levels.append(Level(_with_weights(level), level.split, level.activation, level.sharpness.leaf, tolerance))
    return levels


def _with_weights(level: LevelNet) -> Forest:
    """The forest of a level, with the network's weights as its own, and thresholds where the splits' inputs are 0."""
    forest, wiring = level.forest, level.wiring
    weight, bias, votes = (
        tensor.detach().cpu().numpy() for tensor in (level.split_weight, level.split_bias, level.vote_weight)
    )
    weights, thresholds = np.zeros_like(forest.weight), np.zeros_like(forest.threshold)
    weights[wiring.node_split] = np.where(forest.weight[wiring.node_split] != 0, weight, 0)  # others are not read
    thresholds[wiring.node_split] = -bias
    return replace(forest, weight=weights, threshold=thresholds, votes=votes, leaf_index=wiring.leaf_of, sharpness=None)
