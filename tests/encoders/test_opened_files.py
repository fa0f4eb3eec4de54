"""Which ONNX files are opened for a model: those that the user named, and those in the store; no others."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper

import hedgerow as hr
from hedgerow.encoders import catalogue, onnx_network
from hedgerow.errors import ModelError
from hedgerow.features import layer_cache
from hedgerow.features.encoder import EncoderFeatures
from hedgerow.features.registry import rebuild
from helpers.refusals import assert_one_sentence, assert_refused


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HEDGEROW_ENCODERS", str(tmp_path / "encoders"))
    monkeypatch.setattr(catalogue, "_allowed", set())
    catalogue._onnx.cache_clear()


def network(seed=0):
    """An ONNX file's bytes: one convolution, "first", with a value for every second row and column."""
    kernels = np.random.default_rng(seed).normal(size=(4, 3, 3, 3)).astype(np.float32)
    node = helper.make_node("Conv", ["picture", "kernels"], ["first"], pads=[1] * 4, strides=[2, 2])
    shape = (1, 3, "height", "width")
    ends = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("picture", "first"))
    graph = helper.make_graph([node], "tiny", *([end] for end in ends), [numpy_helper.from_array(kernels, "kernels")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


@pytest.fixture
def trained(tmp_path, monkeypatch, example):
    """A model that reads nets/tiny.onnx, in a file, and what it predicts for an image; as a new process finds them."""
    monkeypatch.chdir(tmp_path)
    Path("nets").mkdir()
    Path("nets/tiny.onnx").write_bytes(network())
    config = hr.StackConfig(
        n_levels=1, n_trees=2, max_depth=4, features="encoder", held_out="none", drop_levels=False,
        encoder=hr.EncoderConfig(name="nets/tiny.onnx", layers=("first",), n_components=3),
    )  # fmt: skip
    stack = hr.fit_stack(example.images, example.labels, config)
    hr.save(stack, "model.hedge")
    expected = stack.predict(example.images[0])  # the user named the file in this process
    catalogue._allowed.clear()
    catalogue._onnx.cache_clear()
    layer_cache.forget()
    return example.images[0], expected


def test_a_path_in_a_model_is_not_opened(trained, monkeypatch):
    monkeypatch.setattr(onnx_network, "_content", lambda path: pytest.fail(f"{path} was opened"))
    model = hr.load("model.hedge")
    with pytest.raises(ModelError) as problem:
        model.predict(trained[0])
    assert_one_sentence(problem, "nets/tiny.onnx", "hedgerow encoders add tiny.onnx FILE")


@pytest.mark.parametrize(
    "name", [r"\\server\share\tiny.onnx", "//server/tiny.onnx", r"C:\nets\tiny.onnx", "../tiny.onnx"]
)
def test_names_that_lead_elsewhere_are_looked_up_in_the_store_alone(trained, tmp_path, name):
    model = hr.load("model.hedge")
    elsewhere = replace(model, features=replace(model.features, source=replace(model.features.source, encoder=name)))
    with pytest.raises(ModelError, match="may not choose which files are opened"):
        elsewhere.predict(trained[0])
    catalogue.add("tiny.onnx", Path("nets/tiny.onnx"))
    np.testing.assert_array_equal(elsewhere.predict(trained[0]), trained[1])
    assert catalogue.allowed(name) == str(tmp_path / "encoders" / "tiny.onnx")


def test_the_settings_in_a_model_do_not_open_files_either(trained, example):
    pytest.importorskip("torch")
    from hedgerow.deep.fitting import regrown
    from hedgerow.images.given import labelled_set
    from hedgerow.progress import silent

    net = hr.to_convnet(hr.load("model.hedge"))
    with pytest.raises(ModelError, match="may not choose which files are opened"):
        regrown(net, labelled_set(example.images, example.labels), silent)


def test_a_network_is_kept_once_and_read_from_then_on(hedgerow, trained, example, place):
    assert_refused(hedgerow("predict", "model.hedge", "images", "-o", "out"), "encoders add tiny.onnx FILE")
    finished = hedgerow("encoders", "add", "tiny.onnx", "nets/tiny.onnx")
    assert finished.code == 0, finished.err
    assert hedgerow("predict", "model.hedge", "images", "-o", "out").code == 0
    np.testing.assert_array_equal(hr.read_labels("out/a0.png"), trained[1])
    assert hedgerow("encoders", "add", "tiny.onnx", "nets/tiny.onnx").code == 0
    Path("other.onnx").write_bytes(network(seed=1))
    assert_refused(hedgerow("encoders", "add", "tiny.onnx", "other.onnx"), "already stored", "HEDGEROW_ENCODERS")
    assert_refused(hedgerow("encoders", "add", "a/tiny.onnx", "other.onnx"), "plain name")
    assert_refused(hedgerow("encoders", "add", "some.onnx", "images/a0.png"), "not an ONNX file")
    catalogue.add("other.onnx", Path("other.onnx"))
    os.replace("encoders/other.onnx", "encoders/tiny.onnx")
    assert_refused(hedgerow("predict", "model.hedge", "images", "-o", "again"), "trained with other weights")


def test_the_folder_of_encoders_may_be_named_for_one_command(trained, monkeypatch):
    monkeypatch.setenv("HEDGEROW_ENCODERS", "nets")
    np.testing.assert_array_equal(hr.load("model.hedge").predict(trained[0]), trained[1])


@pytest.mark.parametrize("layer", [["first", 4, 4], ["first", 2, 5], ["second", 2, 4]])
def test_layers_that_a_network_does_not_have_are_refused(trained, layer):
    catalogue.add("tiny.onnx", Path("nets/tiny.onnx"))
    features = hr.load("model.hedge").features
    arrays = features.arrays()
    arrays["projection"] = np.zeros((3, layer[2]), np.float32)
    changed = rebuild({**features.settings(), "layers": [layer]}, arrays)
    assert isinstance(changed, EncoderFeatures)
    with pytest.raises(hr.errors.HedgerowError) as problem:
        changed.network()
    assert_one_sentence(problem, "layer")
