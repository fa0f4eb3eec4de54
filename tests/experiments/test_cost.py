"""The cost of models: operations as counted by hand, and C code that predicts the same."""

import shutil

import numpy as np
import pytest

pytest.importorskip("torch")

import hedgerow as hr
from experiments import cost
from hedgerow.predict.tiling import predict_indices
from hedgerow.progress import silent

SETTINGS = hr.StackConfig(n_levels=1, drop_levels=False, n_trees=2, max_depth=1, sigmas=(1.0,))


@pytest.fixture(scope="module")
def stump():
    """Two trees of one split and two leaves each, for two classes."""
    images, labels = hr.synthetic.somites(n_images=2, size=(40, 44), seed=0)
    stack = hr.fit_stack(images, [(label > 0).astype(np.uint8) for label in labels], SETTINGS, progress=silent)
    assert [forest.n_nodes for forest in stack.levels] == [6]
    return stack, images[0].astype(np.float32)[None]


def test_a_forest_takes_one_path_per_tree(stump):
    stack, planes = stump
    assert cost.operations(stack, planes) == 2 * 1 * 2 + 2 * 2 + 2 * 2  # splits, votes of two classes, normalisation


def test_a_network_computes_all_neurons(stump):
    stack, planes = stump
    splits, edges, leaves, votes = 2 * (2 + 1), 4 * 2, 4, 4 * 2 * 2
    assert cost.operations(hr.to_convnet(stack, "tanh"), planes) == splits + edges + leaves + votes + 2 * 2


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_the_c_code_must_label_as_python_does(stump):
    stack, planes = stump
    labels = predict_indices(stack, planes)
    found = cost.in_c(stack, [planes], [labels])
    assert found["c_bytes"] > 0
    assert found.get("c_instructions", 1000) > 100
    with pytest.raises(hr.InputError, match="labels pixels differently"):
        cost.in_c(stack, [planes], [1 - labels])
