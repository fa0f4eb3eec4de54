"""Anyone's ONNX file as an encoder: what its layers answer, and what is refused, in one sentence each."""

import hashlib
import os
import sys

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper
from scipy import ndimage

from hedgerow.encoders import onnx_network
from hedgerow.encoders.onnx_network import OnnxNetwork
from hedgerow.encoders.protocol import EncoderLayer
from hedgerow.errors import ConfigError, HedgerowError, InputError
from helpers.refusals import assert_one_sentence

KERNELS = np.random.default_rng(5).normal(size=(4, 3, 3, 3)).astype(np.float32)
FREE = (1, 3, "height", "width")


def network(shape=FREE, kind=TensorProto.FLOAT, more_inputs=(), kernels=KERNELS):
    """A tiny model: conv (stride 2) -> relu -> "half/pool" (stride 4) -> "mean" (1 x 1) -> "flat" (1,4)."""
    nodes = [
        helper.make_node("Conv", ["picture", "kernels"], ["first"], pads=[1] * 4, strides=[2, 2]),
        helper.make_node("Relu", ["first"], ["second"]),
        helper.make_node("MaxPool", ["second"], ["half/pool"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("MaxPool", ["second"], ["thirds"], kernel_shape=[3, 3], strides=[3, 3]),
        helper.make_node("Transpose", ["second"], ["turned"], perm=[0, 1, 3, 2]),
        helper.make_node("Cast", ["second"], ["whole"], to=TensorProto.INT32),
        helper.make_node("GlobalAveragePool", ["half/pool"], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["flat"]),
    ]
    inputs = [helper.make_tensor_value_info("picture", kind, shape)]
    inputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1,)) for name in more_inputs]
    outputs = [helper.make_tensor_value_info("flat", TensorProto.FLOAT, (1, len(kernels)))]
    graph = helper.make_graph(nodes, "tiny", inputs, outputs, [numpy_helper.from_array(kernels, "kernels")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def saved(tmp_path):
    """Writes a model: saved(model) -> its path."""

    def save(model):
        path = tmp_path / "tiny.onnx"
        path.write_bytes(model.SerializeToString())
        return path

    return save


def first_layer(picture):
    """ "first" (4,h,w) of a picture (3,H,W), in double precision with scipy."""
    scaled = (picture.astype(np.float64) - 127) / 128
    sums = [
        sum(ndimage.correlate(scaled[c], kernel[c].astype(np.float64), mode="constant") for c in range(3))
        for kernel in KERNELS
    ]
    return np.stack(sums)[:, ::2, ::2]


def test_layers_are_found_and_read_by_name(saved):
    path = saved(network())
    encoder = OnnxNetwork(path, ["half/pool", "first"])
    assert encoder.name == str(path)
    assert encoder.checksum == hashlib.sha256(path.read_bytes()).hexdigest()
    assert encoder.layers == (EncoderLayer("first", 2, 4), EncoderLayer("half/pool", 4, 4))  # fine ones first
    assert encoder.default_layers == ("first", "half/pool")
    picture = np.random.default_rng(0).uniform(0, 255, (3, 64, 96)).astype(np.float32)
    pooled, first = encoder.run(picture, ["half/pool", "first"])
    wanted = first_layer(picture)
    np.testing.assert_allclose(first, wanted, atol=1e-4)
    blocks = np.maximum(wanted, 0).reshape(4, 16, 2, 24, 2)
    np.testing.assert_allclose(pooled, blocks.max(axis=(2, 4)), atol=1e-4)
    assert first.dtype == np.float32


def test_the_same_picture_gives_the_same_bits(saved):
    encoder = OnnxNetwork(saved(network()), ["first"])
    picture = np.random.default_rng(1).uniform(0, 255, (3, 64, 64)).astype(np.float32)
    (once,), (again,) = encoder.run(picture, ["first"]), encoder.run(picture, ["first"])
    np.testing.assert_array_equal(once, again)


@pytest.mark.parametrize("batch", ["batch", None])
def test_the_batch_may_be_free(saved, batch):
    assert OnnxNetwork(saved(network((batch, 3, None, None))), ["second"]).layers == (EncoderLayer("second", 2, 4),)


def test_inputs_must_be_multiples_of_the_coarsest_stride(saved):
    model = network()
    for number, (source, target) in enumerate([("half/pool", "a"), ("a", "b"), ("b", "c"), ("c", "d")]):
        pool = helper.make_node("MaxPool", [source], [target], kernel_shape=[2, 2], strides=[2, 2])
        model.graph.node.insert(3 + number, pool)
    path = saved(model)
    assert OnnxNetwork(path, ["c"]).multiple == 32
    assert OnnxNetwork(path, ["first", "d"]).multiple == 64


def test_weights_that_an_old_file_lists_as_inputs_are_no_inputs(saved):
    model = network()
    model.graph.input.append(helper.make_tensor_value_info("kernels", TensorProto.FLOAT, KERNELS.shape))
    assert OnnxNetwork(saved(model), ["first"]).default_layers == ("first",)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (network((1, 4, "h", "w"), kernels=np.ones((4, 4, 3, 3), np.float32)), ("4 channel(s)", "expected 3")),
        (network((1, "c", "h", "w")), ("any number of channels", "expected 3")),
        (network((2, 3, "h", "w")), ("2 pictures at once",)),
        (network((1, 3, 224, 224)), ("224 x 224", "export it with dynamic height and width")),
        (network((1, 3, "h", 224)), ("any x 224", "export it with dynamic height and width")),
        (network(kind=TensorProto.UINT8), ("does not take a picture", "float32")),
        (network((1, 3, "h")), ("does not take a picture", "(1,3,height,width)")),
        (network(more_inputs=("prompt",)), ("2 inputs", "expected a picture only")),
    ],
    ids=["four channels", "any channels", "two pictures", "fixed", "half fixed", "bytes", "3-D", "two inputs"],
)
def test_a_network_that_does_not_take_one_picture_of_any_size_is_refused(saved, model, words):
    path = saved(model)
    with pytest.raises(InputError) as problem:
        OnnxNetwork(path, ["first"])
    assert_one_sentence(problem, path, *words)


def test_an_unknown_layer_is_refused_with_those_there_are(saved):
    with pytest.raises(ConfigError) as problem:
        OnnxNetwork(saved(network()), ["first", "third"])
    assert_one_sentence(problem, "no layer 'third'", "first, second, half/pool")
    assert "flat" not in str(problem.value)  # it has no rows and columns


def test_layers_must_be_named(saved):
    with pytest.raises(ConfigError) as problem:
        OnnxNetwork(saved(network()), [])
    assert_one_sentence(problem, "no layers of", "--layers", "first, second, half/pool")


def test_at_most_a_dozen_layers_are_listed(saved):
    model = network()
    for number in range(20):
        model.graph.node.append(helper.make_node("Relu", ["first"], [f"more{number}"]))
    with pytest.raises(ConfigError) as problem:
        OnnxNetwork(saved(model), [])
    assert_one_sentence(problem, ", ...")
    assert "more19" not in str(problem.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("flat", ("float32 of shape (1, 4)", "(1,channels,height,width)")),
        ("whole", ("int32", "expected float32")),
        ("mean", ("1 x 1 values", "128 x 256 pixels")),
        ("thirds", ("21 x 42 values",)),
        ("turned", ("128 x 64 values",)),
    ],
)
def test_a_tensor_that_is_no_layer_is_refused(saved, name, words):
    with pytest.raises(ConfigError) as problem:
        OnnxNetwork(saved(network()), ["first", name])
    assert_one_sentence(problem, repr(name), "choose another", *words)


@pytest.mark.parametrize("content", [b"", b"not a network at all", b"\x08\x08", bytes(range(256)) * 9])
def test_what_is_not_onnx_is_refused(tmp_path, content):
    path = tmp_path / "a.onnx"
    path.write_bytes(content)
    with pytest.raises(InputError) as problem:
        OnnxNetwork(path, ["first"])
    assert_one_sentence(problem, path, "not an ONNX file")


def test_a_file_that_is_cut_off_is_refused(saved):
    path = saved(network())
    data = path.read_bytes()
    for length in range(1, len(data), 7):
        path.write_bytes(data[:length])
        with pytest.raises(HedgerowError) as problem:
            OnnxNetwork(path, ["first"])
        assert_one_sentence(problem, path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path, words in ((tmp_path / "none.onnx", "check its name"), (tmp_path, "not a file")):
        with pytest.raises(InputError) as problem:
            OnnxNetwork(path, ["first"])
        assert_one_sentence(problem, path, words)


def test_a_huge_file_is_refused_before_it_is_read(tmp_path, monkeypatch):
    path = tmp_path / "huge.onnx"
    path.touch()
    os.truncate(path, onnx_network.MAX_ONNX_BYTES + 1)  # takes no room on the disk
    monkeypatch.setattr(type(path), "read_bytes", lambda self: pytest.fail("it was read"))
    with pytest.raises(InputError) as problem:
        OnnxNetwork(path, ["first"])
    assert_one_sentence(problem, path, "at most")


@pytest.mark.parametrize("inside", [False, True], ids=["of the graph", "of a node"])
def test_weights_in_other_files_are_refused(saved, tmp_path, inside):
    (tmp_path / "secret").write_bytes(KERNELS.tobytes())
    model = network()
    tensor = model.graph.initializer[0]
    if inside:
        constant = helper.make_node("Constant", [], ["another"], value=numpy_helper.from_array(KERNELS))
        model.graph.node.append(constant)
        tensor = model.graph.node[-1].attribute[0].t
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="secret")
    with pytest.raises(InputError) as problem:
        OnnxNetwork(saved(model), ["first"])
    assert_one_sentence(problem, "other files", "as a single file")


def test_operators_of_others_are_refused(saved, capfd):
    model = network()
    model.graph.node[1].op_type, model.graph.node[1].domain = "Magic", "others"
    model.opset_import.append(helper.make_opsetid("others", 1))
    path = saved(model)
    with pytest.raises(InputError) as problem:
        OnnxNetwork(path, ["second"])
    assert_one_sentence(problem, path, "onnxruntime refuses")
    assert capfd.readouterr().err == ""
    assert OnnxNetwork(path, ["first"]).default_layers == ("first",)  # which does not need it


def test_graphs_within_nodes_keep_what_they_take_from_outside(saved):
    model = network()
    branches = {
        "then_branch": helper.make_graph(
            [helper.make_node("Neg", ["second"], ["negative"])], "then", [], [onnx.ValueInfoProto(name="negative")]
        ),
        "else_branch": helper.make_graph(
            [helper.make_node("Abs", ["first"], ["positive"])], "else", [], [onnx.ValueInfoProto(name="positive")]
        ),
    }
    model.graph.initializer.append(numpy_helper.from_array(np.array(False), "never"))
    model.graph.node.append(helper.make_node("If", ["never"], ["chosen"], **branches))
    picture = np.random.default_rng(2).uniform(0, 255, (3, 32, 32)).astype(np.float32)
    (found,) = OnnxNetwork(saved(model), ["chosen"]).run(picture, ["chosen"])
    np.testing.assert_allclose(found, np.abs(first_layer(picture)), atol=1e-4)


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_missing_package_is_named_with_the_remedy(saved, monkeypatch, package):
    path = saved(network())
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(HedgerowError) as problem:
        OnnxNetwork(path, ["first"])
    assert_one_sentence(problem, f"needs {package}", "pip install")


def test_a_gpu_is_used_where_onnxruntime_and_pytorch_have_one(monkeypatch):
    torch = pytest.importorskip("torch")
    import onnxruntime

    from hedgerow.encoders import torch_devices

    both = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    for offered, device, wanted in ((both, "cuda", both), (both, "cpu", both[1:]), (both[1:], "cuda", both[1:])):
        monkeypatch.setattr(onnxruntime, "get_available_providers", lambda offered=offered: offered)
        monkeypatch.setattr(torch_devices, "device", lambda device=device: torch.device(device))
        assert onnx_network._providers() == wanted
