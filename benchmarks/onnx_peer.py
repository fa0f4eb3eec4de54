"""onnxruntime as a contender: scikit-learn's forests as ONNX, in sessions that allow a fair measurement."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from measure import THREADS

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from sklearn.ensemble import RandomForestClassifier

OPSET, TREE_OPSET = 17, 3


def write_forest(forest: RandomForestClassifier, path: Path) -> None:
    """Input "rows" (N,F) float32; output "proba" (N,C) float32, in the order of `forest.classes_`."""
    import onnx
    from onnx import helper

    real, whole = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    node = helper.make_node(
        "TreeEnsembleClassifier",
        ["rows"],
        ["label", "proba"],
        domain="ai.onnx.ml",
        classlabels_int64s=[int(value) for value in forest.classes_],
        post_transform="NONE",
        **_tables(forest),
    )
    graph = helper.make_graph(
        [node],
        "forest",
        [helper.make_tensor_value_info("rows", real, ["samples", forest.n_features_in_])],
        [
            helper.make_tensor_value_info("label", whole, ["samples"]),
            helper.make_tensor_value_info("proba", real, ["samples", len(forest.classes_)]),
        ],
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", TREE_OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets))
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())


def _tables(forest: RandomForestClassifier) -> dict[str, list]:
    """The operator's parallel lists: one entry per node, and one for each class that a leaf votes for."""
    parts: list[dict[str, np.ndarray]] = []
    for number, estimator in enumerate(forest.estimators_):
        tree = estimator.tree_
        is_split = tree.children_left >= 0
        votes = tree.value[:, 0] / tree.value[:, 0].sum(axis=1, keepdims=True) / len(forest.estimators_)
        # Votes of zero are left out, which saves additions; with two classes, the runtime needs both.
        told = (votes > 0) | (votes.shape[1] == 2)
        node, label = np.nonzero(told & ~is_split[:, None])
        parts.append(
            {
                "nodes_treeids": np.full(tree.node_count, number),
                "nodes_nodeids": np.arange(tree.node_count),
                "nodes_featureids": np.where(is_split, tree.feature, 0),
                "nodes_values": np.where(is_split, _rounded_down(tree.threshold), 0),
                "nodes_modes": np.where(is_split, "BRANCH_LEQ", "LEAF"),
                "nodes_truenodeids": np.where(is_split, tree.children_left, 0),
                "nodes_falsenodeids": np.where(is_split, tree.children_right, 0),
                "class_treeids": np.full(len(node), number),
                "class_nodeids": node,
                "class_ids": label,
                "class_weights": votes[node, label],
            }
        )
    return {name: np.concatenate([part[name] for part in parts]).tolist() for name in parts[0]}


def _rounded_down(threshold: np.ndarray) -> np.ndarray:
    """The largest float32 up to each float64, so that x <= t is the same decision for every float32 x."""
    nearest = threshold.astype(np.float32)
    return np.where(nearest > threshold, np.nextafter(nearest, np.float32(-np.inf)), nearest)


def open_session(path: Path) -> InferenceSession:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    # Threads that wait for work in a loop would add CPU seconds.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def answer(path: Path, output: str, inputs: dict[str, np.ndarray]) -> Any:
    """One output, by a session that goes again: one that has run keeps memory, which a measurement would not see."""
    return open_session(path).run([output], inputs)[0]
