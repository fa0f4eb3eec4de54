"""A model as an ONNX file, which runs without Hedgerow and even without Python.

The graph is written node by node (`onnx.helper`), not traced by `torch.onnx.export`. So a forest needs no PyTorch, the
graph stays small for a large forest, height and width are free, and every sum of the filters and of a hard forest is
computed in the order of our own code, so that decisions are the same to the last bit.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hedgerow.deep.any_model import AnyModel, parts_of
from hedgerow.export.kinds import Exported, refuse_volumes
from hedgerow.extras import require
from hedgerow.files import PathLike, atomic_path

if TYPE_CHECKING:
    import onnx


def export_onnx(model: AnyModel, path: PathLike, filters: bool = True) -> Path:
    """Write the model to `path` as ONNX, for images of any height and width.

    Inputs:  "image" (C,H,W) float32, the image that `predict` takes, with channels first and unscaled. With
             filters=False instead "features" (F,H,W) float32, standardised, from `model.features.compute`
             (`model.base.features` for a deep stack); for depth images also "stretch" (H,W) float32, from
             `model.features.stretch`; and for a deep stack also "image"
    Outputs: "proba" (classes,H,W) float32, "labels" (H,W) int64, class values as in the training labels
    """
    require("onnx", "the export to ONNX")
    data = build(model, filters).SerializeToString(deterministic=True)
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)
    return Path(path)


def write(model: AnyModel, path: Path, filters: bool, name: str | None) -> Exported:
    """`export_onnx` with the arguments and the result that all exports have; ONNX does not use the name"""
    return Exported((export_onnx(model, path, filters),))


def build(model: AnyModel, filters: bool) -> onnx.ModelProto:
    """The ONNX model; see `export_onnx`."""
    from onnx import helper

    from hedgerow.export.onnx_encoder import about_encoders
    from hedgerow.export.onnx_features import IMAGE, SIDE_NAMES, input_scene
    from hedgerow.export.onnx_graph import INTEGER, REAL, Graph
    from hedgerow.export.onnx_levels import stack_proba

    graph, (stack, net, deep) = Graph(), parts_of(model)
    base = stack if net is None else net
    refuse_volumes(stack)
    inputs, scene = input_scene(graph, base, filters, has_image=filters or deep is not None)
    proba = stack_proba(graph, scene, base)
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
        helper.make_tensor_value_info("proba", REAL, [model.n_classes, *SIDE_NAMES]),
        helper.make_tensor_value_info("labels", INTEGER, SIDE_NAMES),
    ]
    return graph.model(inputs, outputs, about)
