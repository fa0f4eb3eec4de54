"""Forests on a GPU, or by Triton's interpreter: labels exactly those of the CPU, soft splits within tolerance."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton", reason="Triton is not installed")

from hedgerow.errors import ConfigError
from hedgerow.forest.level_input import LevelInput
from hedgerow.forest.walk import run_forest
from hedgerow.images.regions import Region
from hedgerow.kernels import backends
from hedgerow.model_methods import ModelMethods
from hedgerow.network.mapback import to_forest
from hedgerow.network.mapping import to_convnet
from hedgerow.predict import devices, gpu_forest
from helpers.forests import GROWN, grown_stack, random_forest
from helpers.refusals import assert_one_sentence, assert_refused


@pytest.fixture(autouse=True)
def _needs_kernels(gpu):
    pass


def there(stack, gpu):
    """The stack on the GPU; the interpreter's device is the CPU, whose forests have a way of their own."""
    if gpu == "cuda":
        return stack.to("cuda")

    class Interpreted(ModelMethods):
        """A model that runs itself, as those that are no forests do."""

        def __getattr__(self, name):
            return getattr(stack, name)

        def run_level(self, level, given):
            return gpu_forest.run_level(stack, level, given)

    return Interpreted()


# The interpreter takes its time with windows as wide as those of depth images.
@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind == "depth")) for kind in GROWN])
def test_stacks_give_the_labels_of_the_cpu(gpu, kind):
    stack, image = grown_stack(kind)
    for expected, found in zip(stack.level_outputs(image), there(stack, gpu).level_outputs(image), strict=True):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(there(stack, gpu).predict(image), stack.predict(image))


@pytest.mark.parametrize(
    ("size", "region"), [((1, 11, 13), Region(1, 11, 2, 9)), ((4, 5, 6), Region(0, 5, 1, 6, 1, 4))]
)
@pytest.mark.parametrize("n_probes", [1, 3])
@pytest.mark.parametrize("is_softmax", [False, True])
def test_values_that_meet_thresholds_go_the_same_way(gpu, n_probes, is_softmax, size, region):
    rng = np.random.default_rng(3)
    forest = random_forest(rng, n_probes=n_probes, radii=(0, 1), leaf_chance=0.3, reach_z=2)
    forest = replace(forest, threshold=np.round(forest.threshold * 4) / 4, weight=np.round(forest.weight * 2) / 2)
    channels = (rng.integers(-4, 5, (4, *size)) / 4).astype(np.float32)
    given = LevelInput(channels, region)
    expected = run_forest(forest, given, is_softmax)
    found = gpu_forest.run_forest(forest, given, is_softmax, 0.0, gpu)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("kind", "tolerance"),
    [("offsets", 0.0), ("offsets", 1e-3), *(pytest.param("depth", t, marks=pytest.mark.slow) for t in (1e-3, 0.0))],
)
def test_soft_forests_are_those_of_the_cpu_within_tolerance(gpu, kind, tolerance):
    stack, image = grown_stack(kind)
    image = np.ascontiguousarray(image[8:21, 9:26])  # the interpreter takes its time
    assert len(np.unique(image)) > 9
    soft = to_forest(to_convnet(stack), method="soft", tolerance=tolerance)
    for expected, found in zip(soft.level_outputs(image), there(soft, gpu).level_outputs(image), strict=True):
        np.testing.assert_allclose(found, expected, atol=2e-5)


def test_where_there_is_no_cuda_one_sentence_says_so(monkeypatch, grown_one):
    monkeypatch.setattr(devices, "no_cuda", lambda: "PyTorch finds no CUDA device")
    with pytest.raises(ConfigError) as problem:
        grown_one.to("cuda")
    assert_one_sentence(problem, "CUDA", "cpu")
    with pytest.raises(ConfigError, match="abacus"):
        grown_one.to("abacus")
    assert grown_one.to("cpu") == grown_one


@pytest.fixture
def grown_one():
    return grown_stack("offsets")[0]


def test_commands_refuse_a_device_that_is_not_there(monkeypatch, hedgerow, net_file, trained_place):
    monkeypatch.setattr(devices, "no_cuda", lambda: "PyTorch finds no CUDA device")
    images, labels = trained_place / "images", trained_place / "labels"
    for command in (
        ("predict", net_file, images, "-o", trained_place / "out"),
        ("evaluate", net_file, images, labels),
        ("back", net_file, images, "-o", trained_place / "small.hedge"),
        ("refine", trained_place / "model.hedge", images, labels, "-o", trained_place / "net.hedge"),
    ):
        assert_refused(hedgerow(*command, "--device", "cuda"), "CUDA", "cpu")


def test_info_says_what_this_machine_computes_with(hedgerow):
    done = hedgerow("info", "--system")
    assert done.code == 0
    assert "networks on cpu: fused kernels, compiled by Numba" in done.out
    assert set(json.loads(hedgerow("info", "--system", "--json").out)) >= {"torch", "triton", "cores", "threads"}
    assert hedgerow("info").code == 2


@pytest.mark.parametrize(
    ("device", "is_there", "name"),
    [
        ("cpu", True, "cpu"),
        ("cuda", True, "gpu"),
        ("cuda", False, "definition"),
        ("mps", True, "definition"),
    ],
)
def test_the_backend_depends_on_the_device_and_on_triton(monkeypatch, device, is_there, name):
    monkeypatch.setattr(backends, "find_spec", lambda package: object() if is_there else None)
    assert backends.backend_for.__wrapped__(device).name == name


def test_a_machine_without_cuda_never_imports_triton():
    code = """
import sys
sys.path.insert(0, sys.argv[1])
import hedgerow as hr
from helpers.forests import grown_stack
stack, image = grown_stack("offsets")
hr.to_convnet(stack).predict(image, progress=lambda *given: None)
assert "torch" in sys.modules
assert "triton" not in sys.modules
"""
    here = str(Path(__file__).parents[1])
    subprocess.run([sys.executable, "-c", code, here], check=True, timeout=300)
