"""Networks in model files: the same network comes back, and a file made to deceive is refused in one sentence."""

import copy
import json
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hedgerow import files
from hedgerow.config import Sharpness
from hedgerow.io.model_file import VERSION, load, save
from hedgerow.jobs.describing import description
from hedgerow.network import stacknet
from hedgerow.network.mapping import to_convnet
from hedgerow.network.stacknet import StackNet
from helpers.model_files import Contents, assert_same_model, refused
from helpers.refinements import assert_same_weights


@pytest.fixture(scope="module")
def net_file(refined, tmp_path_factory):
    path = tmp_path_factory.mktemp("net") / "net.hedge"
    save(refined, path)
    return path


@pytest.fixture
def contents(net_file):
    return Contents.of(net_file)


def assert_same_network(result, expected, image):
    assert isinstance(result, StackNet)
    assert_same_weights(result, expected)
    assert_same_model(result.stack, expected.stack)
    assert result.settings == expected.settings
    assert (result.split, result.output) == (expected.split, expected.output)
    for number in range(expected.n_levels):
        mine, its = result.level(number), expected.level(number)
        for name in ("split", "activation", "connections", "sharpness", "tolerance"):
            assert getattr(mine, name) == getattr(its, name), name
        assert [p.requires_grad for p in mine.parameters()] == [p.requires_grad for p in its.parameters()]
    for mine, its in zip(result.level_outputs(image), expected.level_outputs(image), strict=True):
        assert mine.tobytes() == its.tobytes()
    np.testing.assert_array_equal(result.predict(image), expected.predict(image))


def test_a_refined_network_comes_back_bit_for_bit(refined, net_file, example):
    assert_same_network(load(net_file), refined, example.images[0])
    assert load(net_file).refinements == refined.refinements


def test_the_same_network_gives_the_same_bytes(refined, net_file, tmp_path):
    content = net_file.read_bytes()
    for network in (refined, load(net_file)):
        assert save(network, tmp_path / "again.hedge") == len(content)
        assert (tmp_path / "again.hedge").read_bytes() == content


@pytest.mark.parametrize(
    "mapping",
    [
        {"split": "hard"},
        {"split": "tanh"},
        {"split": "crelu"},
        {"activation": "softmax"},
        {"sharpness": [Sharpness(7.0, 1.0, 0.1), Sharpness(1 / 3, 1.0, 2.0)]},
        {"split": "tanh", "connections": "sparse"},
        {"connections": "full"},
    ],
    ids=str,
)
def test_every_kind_of_network_comes_back(stack, example, tmp_path, mapping):
    net = to_convnet(stack, **mapping)
    if net.level(0).connections != "frozen":
        with torch.no_grad():  # as training leaves them, and numbers that only float32 holds
            for number in range(2):
                for weights in (net.level(number).leaf_weight, net.level(number).leaf_bias):
                    weights += 0.01 * torch.randn(weights.shape, generator=torch.Generator().manual_seed(number))
    net.set_tolerance(0.0 if net.split == "hard" else 1e-3)
    save(net, tmp_path / "net.hedge")
    assert_same_network(load(tmp_path / "net.hedge"), net, example.images[0])


@pytest.mark.parametrize("values", [(-0.0, 0.0), (1e-45, 3.4e38, -3.4e38, 1 / 3), (65504.0, 65505.0), (0.5, -2049.0)])
def test_hostile_but_legal_weights_come_back_bit_for_bit(stack, tmp_path, values):
    net = to_convnet(stack)
    with torch.no_grad():
        weights = net.level(1).split_bias
        weights.copy_(torch.from_numpy(np.resize(np.array(values, np.float32), len(weights))))
    save(net, tmp_path / "net.hedge")
    result = load(tmp_path / "net.hedge").level(1).split_bias.detach().numpy()
    assert result.tobytes() == net.level(1).split_bias.detach().numpy().tobytes()


def test_frozen_connections_take_no_space(stack, tmp_path):
    saved = {kind: to_convnet(stack, "tanh", connections=kind) for kind in ("frozen", "sparse")}
    for kind, net in saved.items():
        save(net, tmp_path / kind)
    assert not any("leaf_weight" in name for name in Contents.of(tmp_path / "frozen").arrays)
    assert sum("leaf_weight" in name for name in Contents.of(tmp_path / "sparse").arrays) == 2


def test_the_file_of_a_forest_is_what_it_was(stack, model_file, contents):
    """A network's file is the forest's, and its own weights beside it; the forest's holds nothing new."""
    forest = Contents.of(model_file)
    assert forest.version == VERSION
    assert set(forest.model) == {
        "kind",
        "features",
        "n_levels",
        "classes",
        "unlabelled",
        "image_dtype",
        "settings",
        "known",
    }
    assert forest.model["kind"] == "stack"
    assert {name.split(".")[0] for name in forest.arrays} == {"features", "level0", "level1"}
    assert_same_model(load(model_file), stack)
    assert {**contents.model, "kind": "stack"} == {**forest.model, "net": contents.model["net"]}
    for name, array in forest.arrays.items():
        np.testing.assert_array_equal(contents.arrays[name], array)
    assert {name.split(".")[0] for name in contents.arrays.keys() - forest.arrays.keys()} == {"net0", "net1"}


def test_the_description_for_people_is_plain_json(refined):
    described = description(refined)
    assert json.loads(json.dumps(described, allow_nan=False)) == described
    assert [layer["name"] for layer in described["layers"]] == ["H1", "H2", "H3", "H4", "H5", "output"]
    assert len(described["refined"]) == 1


# Without PyTorch


def test_a_network_without_pytorch_is_refused_and_a_forest_is_not(net_file, model_file, stack, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "pip install '.[net]'" in refused(net_file)
    assert_same_model(load(model_file), stack)


def test_a_forest_file_is_read_without_loading_pytorch(model_file):
    code = f"import sys, hedgerow; hedgerow.load({str(model_file)!r}); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Files made to deceive


def test_unchanged_contents_are_accepted(contents, refined, example, tmp_path):
    contents.write(tmp_path / "same.hedge")
    assert_same_network(load(tmp_path / "same.hedge"), refined, example.images[0])


def test_truncated_files_are_refused(net_file, tmp_path):
    content = net_file.read_bytes()
    for length in {*range(0, len(content), len(content) // 40), 7, 8, 9, len(content) - 1}:
        (tmp_path / "cut.hedge").write_bytes(content[:length])
        refused(tmp_path / "cut.hedge")


def test_changed_weights_do_not_fit_the_digest(contents, tmp_path):
    digest = files.digest([contents.version, contents.model], contents.arrays)
    contents.arrays["net0.split_bias"] = contents.arrays["net0.split_bias"] + np.float32(1)
    contents.write(tmp_path / "bent.hedge", digest)
    assert "digest" in refused(tmp_path / "bent.hedge")


WEIGHTS = ("split_weight", "split_bias", "vote_weight")
CHANGES = {
    "one too few": lambda a: a[:-1],
    "one too many": lambda a: np.concatenate([a, a[:1]]),
    "none": lambda a: a[:0],
    "flat or deep": lambda a: a.ravel() if a.ndim > 1 else a[:, None],
    "one number": lambda a: a.ravel()[0].reshape(()),
    "nan": lambda a: np.where(np.arange(len(a)).reshape(-1, *[1] * (a.ndim - 1)) == 1, np.nan, a).astype(np.float32),
    "infinite": lambda a: np.full_like(a, -np.inf),
    "beyond float32": lambda a: np.full(a.shape, 1e300),
    "between float32": lambda a: np.full(a.shape, 1 / 3),
    "whole numbers beyond float32": lambda a: np.full(a.shape, 2**53 + 1, np.int64),
    "complex": lambda a: (a + 1j).astype(np.complex64),
}


def refused_with(contents, name, change, folder):
    """The file with one array changed is refused."""
    bad = copy.copy(contents)
    array = contents.arrays[name].astype(np.float32)
    bad.arrays = {**contents.arrays, name: np.ascontiguousarray(CHANGES[change](array))}
    bad.write(folder / "bad.hedge")
    refused(folder / "bad.hedge")


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("change", CHANGES)
def test_weights_that_do_not_fit_are_refused(contents, tmp_path, name, change):
    for level in ("net0", "net1"):
        refused_with(contents, f"{level}.{name}", change, tmp_path)


@pytest.mark.parametrize("connections", ["sparse", "full"])
@pytest.mark.parametrize("change", ["one too few", "nan", "flat or deep"])
def test_connections_that_do_not_fit_are_refused(stack, tmp_path, connections, change):
    save(to_convnet(stack, "tanh", connections=connections), tmp_path / "net.hedge")
    contents = Contents.of(tmp_path / "net.hedge")
    for name in ("leaf_weight", "leaf_bias"):
        refused_with(contents, f"net1.{name}", change, tmp_path)


def test_missing_and_further_arrays_are_refused(contents, tmp_path):
    for name in contents.arrays:
        without = copy.copy(contents)
        without.arrays = {key: array for key, array in contents.arrays.items() if key != name}
        without.write(tmp_path / "bad.hedge")
        refused(tmp_path / "bad.hedge")
    for name in ("net2.split_bias", "net0.leaf_weight", "net0.surprise", "net0", "net", "network.a", "surprise", ""):
        further = copy.copy(contents)
        further.arrays = {**contents.arrays, name: np.zeros(3, np.float32)}
        further.write(tmp_path / "bad.hedge")
        refused(tmp_path / "bad.hedge")


def test_exchanged_levels_are_refused(contents, tmp_path):
    swap = {"net0": "net1", "net1": "net0"}
    parts = {name: name.split(".") for name in contents.arrays}
    contents.arrays = {f"{swap.get(a, a)}.{b}": contents.arrays[name] for name, (a, b) in parts.items()}
    contents.write(tmp_path / "bad.hedge")
    refused(tmp_path / "bad.hedge")


def test_a_forest_that_carries_weights_and_a_network_that_carries_none_are_refused(contents, tmp_path):
    as_stack = Contents(1, {**contents.model, "kind": "stack"}, contents.arrays)
    bare = Contents(1, contents.model, {k: a for k, a in contents.arrays.items() if not k.startswith("net")})
    for bad in (as_stack, bare):
        bad.write(tmp_path / "bad.hedge")
        refused(tmp_path / "bad.hedge")


def one_sharpness(**change):
    return [{"split": 40.0, "leaf": 1.0, "vote": 0.5} | change, {"split": 40.0, "leaf": 1.0, "vote": 0.5}]


DECEITS = {
    "split": ["firm", "SOFT", "", None, 3, ["soft"], {"soft": 1}, True, "soft\n", "tanh"],
    "activation": ["sigmoid", "relu", "", None, 3, ["exp"], {}],
    "connections": ["loose", "", None, 3, ["frozen"], "full", "sparse"],
    "tolerance": [-1e-9, 1.0, 2, float("nan"), float("inf"), "0", None, [0.0], {}],
    "sharpness": [
        None,
        5,
        "100",
        [],
        one_sharpness()[:1],
        one_sharpness() + one_sharpness(),
        [1.0, 2.0],
        one_sharpness(split=0.0),
        one_sharpness(split=-3.0),
        one_sharpness(split=1e7),
        one_sharpness(split=float("nan")),
        one_sharpness(split="40"),
        one_sharpness(split=None),
        one_sharpness(split=True),
        one_sharpness(leaf=2.0),
        one_sharpness(vote=float("inf")),
        one_sharpness(surprise=1.0),
        {"split": 1.0},
    ],
    "refined": [None, 5, "twice", {}],
    "relaxed": [None, 1, "yes"],
}


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in DECEITS.items() for value in values], ids=str
)
def test_descriptions_that_cannot_be_are_refused(contents, tmp_path, key, value):
    contents.model["net"][key] = value
    contents.write(tmp_path / "bad.hedge")
    refused(tmp_path / "bad.hedge")


@pytest.mark.parametrize("key", DECEITS)
def test_missing_entries_are_refused(contents, tmp_path, key):
    del contents.model["net"][key]
    contents.write(tmp_path / "bad.hedge")
    refused(tmp_path / "bad.hedge")


@pytest.mark.parametrize("value", [None, 5, [], "net"])
def test_a_network_without_a_description_is_refused(contents, tmp_path, value):
    contents.model["net"] = value
    contents.write(tmp_path / "bad.hedge")
    refused(tmp_path / "bad.hedge")
    del contents.model["net"]
    contents.write(tmp_path / "bad.hedge")
    refused(tmp_path / "bad.hedge")


STEP = {"step": 3, "loss": 0.5, "mean_dice": None}
REFINED = {
    "a number": [5],
    "no settings": [{"checks": [STEP]}],
    "settings that are text": [{"config": "x", "checks": [STEP]}],
    "no checks": [{"config": {}, "checks": []}],
    "scores that are text": [{"config": {}, "checks": [STEP], "refined": "x"}],
    "losses that are text": [{"config": {}, "checks": [{**STEP, "loss": "x"}]}],
    "steps that are text": [{"config": {}, "checks": [{**STEP, "step": "x"}]}],
    "checks that are numbers": [{"config": {}, "checks": [3]}],
    "a surprise": [{"config": {}, "checks": [STEP], "surprise": 1}],
}


@pytest.mark.parametrize("case", REFINED)
def test_a_history_that_cannot_be_is_refused(contents, tmp_path, case):
    contents.model["net"]["refined"] = REFINED[case]
    contents.write(tmp_path / "bad.hedge")
    refused(tmp_path / "bad.hedge")


def test_the_shortest_history_is_shown(contents, hedgerow, tmp_path):
    contents.model["net"]["refined"] = [{"config": {}, "checks": [STEP]}]
    contents.write(tmp_path / "short.hedge")
    assert "refined for 3 steps" in hedgerow("info", tmp_path / "short.hedge").out


def test_absurd_connections_are_refused_before_memory_is_asked_for(stack, tmp_path, monkeypatch):
    save(to_convnet(stack, connections="full"), tmp_path / "full.hedge")
    monkeypatch.setattr(stacknet, "MAX_DENSE_WEIGHTS", 10)
    assert "too many weights" in refused(tmp_path / "full.hedge")
