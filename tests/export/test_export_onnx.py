"""A model as ONNX answers as it does in Python: hard forests to the last bit, all others to float rounding."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

import hedgerow as hr
from hedgerow.export import onnx_levels
from hedgerow.export.onnx_features import image_features
from hedgerow.export.onnx_graph import REAL, Graph
from hedgerow.export.onnx_model import build, export_onnx
from hedgerow.forest.arrays import ForestStack
from hedgerow.images.array_checks import to_planes
from helpers.forests import grown_stack, random_forest
from helpers.refusals import assert_one_sentence

DOCS = Path(__file__).parents[2] / "docs" / "export.md"
SIZES = [(1, 1), (1, 30), (17, 1), (23, 31)]
NETWORKS = [("tanh", None), ("soft", None), ("soft", "softmax"), ("crelu", None)]
ATOL = 1e-5  # five times what was measured: sharp splits make more of how the level before was rounded


def session_of(model, threads=1):
    """The ONNX model in onnxruntime, checked before."""
    onnx.checker.check_model(model, full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def answer(model, image, filters=False):
    """proba (C,H,W) and labels (H,W) of the exported model, for an image as `predict` takes it."""
    planes = to_planes(image, layout=model.features.layout)
    given = {"image": planes}
    if not filters:
        given = {"features": model.features.compute(planes), "stretch": model.features.stretch(planes)}
    session = session_of(build(model, filters))
    names = [each.name for each in session.get_inputs()]
    return session.run(["proba", "labels"], {name: given[name] for name in names})


def assert_same(model, image, filters=False):
    proba, labels = answer(model, image, filters)
    np.testing.assert_array_equal(proba, model.predict_proba(image))
    np.testing.assert_array_equal(labels, model.predict(image))
    assert proba.dtype == np.float32
    assert labels.dtype == np.int64


def assert_close(model, image, filters=False, atol=ATOL):
    proba, labels = answer(model, image, filters)
    expected = model.predict_proba(image)
    np.testing.assert_allclose(proba, expected, rtol=0, atol=atol)
    first, second = np.sort(expected, axis=0)[[-1, -2]]
    clear = first - second > 2 * atol
    assert clear.mean() > 0.5
    np.testing.assert_array_equal(labels[clear], model.predict(image)[clear])


def softened(stack, sharpness=20.0, **changes):
    """The stack with soft splits, some sharper than others."""
    rng = np.random.default_rng(3)
    levels = (
        replace(forest, sharpness=(sharpness * rng.uniform(0.5, 2, forest.n_nodes)).astype(np.float32))
        for forest in stack.levels
    )
    return replace(stack, levels=tuple(levels), **changes)


def n_nodes(graph):
    """Nodes of a graph and of the bodies of its loops."""
    bodies = (attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g"))
    return len(graph.node) + sum(n_nodes(body) for body in bodies)


def random_stack(seed=0, n_classes=3, n_levels=2, **shape):
    """Random forests over two channels of the user's own, as they are; their votes of both signs."""
    features = replace(grown_stack("channels")[0].features, mean=np.zeros(2, np.float32), std=np.ones(2, np.float32))
    rng, levels = np.random.default_rng(seed), []
    for level in range(n_levels):
        n_channels = 2 + n_classes * (level > 0)
        forest = random_forest(rng, n_channels=n_channels, n_classes=n_classes, **{"max_depth": 4, **shape})
        # Whole thresholds meet whole numbers exactly.
        threshold = np.rint(forest.threshold) if level == 0 else forest.threshold
        levels.append(replace(forest, threshold=threshold, votes=forest.votes - np.float32(0.2)))
    return ForestStack(features, tuple(levels), tuple(range(10, 10 + n_classes)))


def whole_numbers(size, seed=0):
    return np.random.default_rng(seed).integers(-3, 4, (2, *size)).astype(np.float32)


@pytest.mark.parametrize("filters", [True, False])
def test_a_hard_forest_is_the_same_to_the_last_bit(grown, filters):
    assert_same(*grown, filters)


def test_a_hard_forest_that_ends_in_softmax():
    stack, image = grown_stack("offsets")
    assert_close(replace(stack, output="softmax"), image, atol=1e-6)


def test_a_hard_network_is_the_same_to_the_last_bit(grown):
    pytest.importorskip("torch")
    stack, image = grown
    assert_same(hr.to_convnet(stack, "hard"), image)


def test_soft_forests(grown):
    stack, image = grown
    assert_close(softened(stack), image)
    assert_close(softened(stack, output="softmax"), image, filters=True)


@pytest.mark.parametrize(("split", "activation"), NETWORKS)
def test_networks(grown, split, activation):
    torch = pytest.importorskip("torch")
    stack, image = grown
    net = hr.to_convnet(stack, split, activation=activation)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():  # as training would leave them
        for number in range(net.n_levels):
            level = net.level(number)
            for weights in (level.split_weight, level.split_bias, level.vote_weight):
                weights += 0.1 * weights.abs().mean() * torch.randn(weights.shape, generator=generator)
    assert_close(net, image)


@pytest.mark.parametrize(("split", "activation"), NETWORKS)
def test_networks_with_their_filters(split, activation):
    pytest.importorskip("torch")
    stack, image = grown_stack("colour")
    assert_close(hr.to_convnet(stack, split, activation=activation), image, filters=True)


@pytest.mark.parametrize("tolerance", [1e-3, 0.3])
def test_branches_are_left_out_as_in_python(tolerance):
    torch = pytest.importorskip("torch")
    stack, image = grown_stack("channels")
    assert_close(softened(stack, 2.0, tolerance=tolerance), image)
    for split, activation in NETWORKS[1:]:
        net = hr.to_convnet(stack, split, hr.Sharpness(2.0, 1.0, 0.5), activation=activation)
        net.set_tolerance(tolerance)
        with torch.no_grad():
            assert_close(net, image)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "shape", [{}, {"radii": (0, 1, 4, 6)}, {"n_probes": 3}, {"reach": 40}, {"max_depth": 0}, {"n_classes": 1}], ids=str
)
def test_any_size_and_shape(size, shape):
    image, stack = whole_numbers(size), random_stack(**shape)
    assert_same(stack, image)
    proba, _ = answer(softened(stack, 3.0), image)
    np.testing.assert_allclose(proba, softened(stack, 3.0).predict_proba(image), rtol=0, atol=ATOL)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["offsets", "depth"])
def test_images_of_any_size(kind, size):
    image = np.random.default_rng(1).integers(0, 5000, size).astype(np.uint16)
    assert_same(grown_stack(kind)[0], image, filters=True)


def test_boxes_beyond_a_depth_image_hold_its_background():
    rng = np.random.default_rng(0)
    stack, image = grown_stack("depth")
    boxes = (
        replace(forest, radius=rng.choice([0, 2, 5], forest.radius.shape).astype(np.int32)) for forest in stack.levels
    )
    assert_same(replace(stack, levels=tuple(boxes)), image)


def test_unused_probes_count_for_nothing():
    stack = random_stack(n_probes=3)
    for forest in stack.levels:
        forest.weight[np.random.default_rng(0).random(forest.weight.shape) < 0.5] = 0
    assert_same(stack, whole_numbers((12, 15)))


def test_blocks_change_nothing(monkeypatch):
    image, stack = whole_numbers((23, 31)), random_stack()
    soft = answer(softened(stack), image)
    monkeypatch.setattr(onnx_levels, "WALKED_VALUES", 150)
    monkeypatch.setattr(onnx_levels, "CARRIED_VALUES", 1000)
    assert_same(stack, image)
    np.testing.assert_allclose(answer(softened(stack), image)[0], soft[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize(("split", "activation"), [("hard", None), *NETWORKS])
def test_threads_change_nothing(split, activation):
    pytest.importorskip("torch")
    image, stack = whole_numbers((40, 50)), random_stack(n_levels=1, n_trees=4, max_depth=9)
    model = build(hr.to_convnet(stack, split, activation=activation), True)
    one, four = (session_of(model, threads).run(["proba"], {"image": image})[0] for threads in (1, 4))
    np.testing.assert_allclose(four, one, rtol=0, atol=0 if split == "hard" else 1e-6)


@pytest.mark.parametrize("kind", ["colour", "opponent"])
@pytest.mark.parametrize("size", [*SIZES, (60, 47)])
def test_features_are_the_same_to_the_last_bit(size, kind):
    features = grown_stack(kind)[0].features
    rng = np.random.default_rng(0)
    image = np.stack([rng.integers(0, most, size) for most in (4000, 4000, 9)]).astype(np.float32)
    graph = Graph()
    graph.rename(image_features(graph, "image", features, 3).features, "features")
    sides = ["height", "width"]
    given = onnx.helper.make_tensor_value_info("image", REAL, [3, *sides])
    made = onnx.helper.make_tensor_value_info("features", REAL, [features.n_features, *sides])
    computed = session_of(graph.model([given], [made], {})).run(None, {"image": image})[0]
    np.testing.assert_array_equal(computed, features.compute(image))


def test_one_file_takes_images_of_every_size(stack, tmp_path):
    path = export_onnx(stack, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for size in ((24, 32), (7, 50), (1, 1)):
        image = np.random.default_rng(2).integers(0, 256, size).astype(np.uint8)
        proba, labels = session.run(None, {"image": image[None].astype(np.float32)})
        assert proba.shape == (3, *size)
        np.testing.assert_array_equal(labels, stack.predict(image))
    about = session.get_modelmeta().custom_metadata_map
    assert about == {"classes": "[3, 77, 200]", "receptive_field": str(stack.receptive_field)}


def test_parts_that_overlap_agree_with_the_whole(stack):
    image = np.random.default_rng(4).integers(0, 256, (20, 120)).astype(np.uint8)
    part, cut = image[:, 30:], stack.receptive_field
    assert cut < 60
    np.testing.assert_array_equal(answer(stack, part, True)[0][..., cut:], stack.predict_proba(image)[..., 30 + cut :])


@pytest.mark.parametrize("classes", [(-70, 3, 5), (0, 255, 256), (1, 2, 2**40)])
def test_labels_are_the_users_class_values(classes):
    assert_same(replace(random_stack(), classes=classes), whole_numbers((9, 14)))


def test_the_graph_does_not_grow_with_the_forest():
    small, large = random_stack(n_trees=2, max_depth=2), random_stack(n_trees=6, max_depth=8)
    assert n_nodes(build(small, True).graph) == n_nodes(build(large, True).graph) < 300
    assert n_nodes(build(softened(large), True).graph) < 350


def test_the_same_bytes_twice(stack, tmp_path):
    hr.save(stack, tmp_path / "model.hedge")
    first = export_onnx(stack, tmp_path / "first.onnx").read_bytes()
    second = export_onnx(hr.load(tmp_path / "model.hedge"), tmp_path / "second.onnx").read_bytes()
    assert first == second


@pytest.mark.parametrize("connections", ["sparse", "full"])
def test_trained_connections_are_refused(stack, tmp_path, connections):
    pytest.importorskip("torch")
    with pytest.raises(hr.ConfigError) as problem:
        export_onnx(hr.to_convnet(stack, "tanh", connections=connections), tmp_path / "net.onnx")
    assert_one_sentence(problem, connections, "frozen")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_refused(stack, tmp_path):
    for path in (tmp_path / "none" / "model.onnx", tmp_path):
        with pytest.raises(hr.InputError) as problem:
            export_onnx(stack, path)
        assert_one_sentence(problem, path)
    assert not list(tmp_path.iterdir())


def test_the_missing_package_is_named(stack, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(hr.HedgerowError) as problem:
        export_onnx(stack, tmp_path / "model.onnx")
    assert_one_sentence(problem, "onnx", ".[onnx]")


def test_the_example_of_the_docs_runs(stack, tmp_path, monkeypatch):
    section = DOCS.read_text().split("\n## ONNX\n")[1]
    (code,) = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    assert len(code.splitlines()) <= 10
    assert "hedgerow" not in code
    monkeypatch.chdir(tmp_path)
    export_onnx(stack, "model.onnx")
    exec(compile(code, "the example of docs/export.md", "exec"), {})
    labels = np.load("labels.npy")
    assert labels.ndim == 2
    assert set(np.unique(labels)) <= {3, 77, 200}
