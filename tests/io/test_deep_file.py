"""Files of deep stacks that are damaged or made to deceive: one sentence refuses them, before memory is asked for."""

import copy

import numpy as np
import pytest

pytest.importorskip("torch")

import hedgerow as hr
from hedgerow.errors import ConfigError, ModelError
from hedgerow.io import deep_file
from helpers.deep import pictures, small_deep
from helpers.model_files import Contents, refused
from helpers.refusals import assert_one_sentence

WEIGHT = "deep.alone.0.down.0.0.weight"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("deep") / "deep.hedge"
    hr.save(small_deep(*pictures()), path)
    return Contents.of(path)


@pytest.fixture
def contents(whole):
    return copy.deepcopy(whole)


def test_files_that_do_not_say_how_channels_are_normalised_are_read(contents, tmp_path):
    assert contents.model["deep"].pop("norm") == "batch"
    contents.write(tmp_path / "first.hedge")
    assert hr.load(tmp_path / "first.hedge").nets["alone"][0].network.norm == "batch"


def test_in_files_that_do_not_say_who_reads_the_stack_it_is_the_member_of_that_name(contents, tmp_path):
    assert contents.model["deep"].pop("readers") == ["reading"]
    contents.write(tmp_path / "older.hedge")
    nets = hr.load(tmp_path / "older.hedge").nets
    assert {name: some[0].reads for name, some in nets.items()} == {"alone": False, "reading": True}


def test_unchanged_contents_are_accepted(contents, tmp_path):
    contents.write(tmp_path / "same.hedge")
    assert isinstance(hr.load(tmp_path / "same.hedge"), hr.DeepStack)


@pytest.mark.parametrize(
    "change",
    [
        {"base": 3},
        {"base": 10**9},
        {"base": "2"},
        {"norm": "none"},
        {"norm": "image"},
        {"n_down": 7},
        {"widest": 0},
        {"members": {}},
        {"members": {"alone": 2}},
        {"members": {"alone": 2, "reading": 10**6}},
        {"members": {"alone": 2, "stranger": 2}},
        {"members": [1, 2]},
        {"readers": []},
        {"readers": ["alone", "reading"]},
        {"readers": ["stranger", "reading"]},
        {"readers": [["reading"]]},
        {"readers": "reading"},
        {"weights": {"stack": 0.5, "alone": 0.5}},
        {"weights": {"stack": 1.0, "alone": 1.0, "reading": -1.0}},
        {"weights": {"stack": 0.1, "alone": 0.1, "reading": 0.1}},
        {"weights": {"stack": "all", "alone": 0.5, "reading": 0.5}},
        {"features": [0, 10**6]},
        {"features": [3, 1]},
        {"features": [0]},
        {"orientations": 9},
        {"orientations": 0},
        {"record": {"scores": {"stack": 2.0}}},
        {"record": {"held": "nothing"}},
        {"record": "good"},
    ],
    ids=str,
)
def test_impossible_descriptions_are_refused(contents, tmp_path, change):
    contents.model["deep"] |= change
    contents.write(tmp_path / "bad.hedge")
    refused(tmp_path / "bad.hedge")


@pytest.mark.parametrize("missing", ["base", "members", "weights", "features", "orientations", "record"])
def test_missing_entries_are_refused(contents, tmp_path, missing):
    del contents.model["deep"][missing]
    contents.write(tmp_path / "bad.hedge")
    refused(tmp_path / "bad.hedge")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (WEIGHT, lambda array: array[:1]),
        (WEIGHT, lambda array: array * np.float32(np.nan)),
        ("deep.reading.1.score.weight", lambda array: array[:, :, 0]),
        ("deep.alone.0.down.0.1.running_var", lambda array: -1 - np.abs(array)),
        ("deep.mean", lambda array: np.append(array, array)),
        ("deep.std", lambda array: 0 * array),
    ],
)
def test_arrays_that_do_not_fit_are_refused(contents, tmp_path, name, change):
    contents.arrays[name] = np.ascontiguousarray(change(contents.arrays[name]))
    contents.write(tmp_path / "bad.hedge")
    refused(tmp_path / "bad.hedge")


def test_missing_and_further_arrays_are_refused(contents, tmp_path):
    taken = contents.arrays.pop(WEIGHT)
    contents.write(tmp_path / "missing.hedge")
    refused(tmp_path / "missing.hedge")
    contents.arrays |= {WEIGHT: taken, "deep.alone.7.class_bias": taken}
    contents.write(tmp_path / "further.hedge")
    refused(tmp_path / "further.hedge")


def test_networks_in_a_file_without_the_level_are_refused(contents, tmp_path):
    contents.model["kind"] = "net"
    contents.write(tmp_path / "bad.hedge")
    refused(tmp_path / "bad.hedge")


def test_a_huge_network_is_refused_before_it_is_made(contents, tmp_path, monkeypatch):
    """Its shapes are known without memory: on the device `meta`."""
    created = []
    whole = deep_file.UNet.__init__

    def noted(self, *sizes, **named):
        whole(self, *sizes, **named)
        created.append(next(self.parameters()).device.type)

    monkeypatch.setattr(deep_file.UNet, "__init__", noted)
    contents.model["deep"] |= {"base": 1024, "n_down": 6, "widest": 4096}
    contents.write(tmp_path / "huge.hedge")
    refused(tmp_path / "huge.hedge")
    assert created == ["meta"]


def test_networks_narrower_than_their_first_level_are_refused(contents, tmp_path):
    """Their shapes could agree with the arrays, and the last convolution would still not fit."""
    contents.model["deep"] |= {"base": 4, "widest": 2}
    contents.write(tmp_path / "bad.hedge")
    with pytest.raises(ModelError, match="sizes of its networks"):
        hr.load(tmp_path / "bad.hedge")
    with pytest.raises(ConfigError, match="at most widest"):
        hr.ConvConfig(base=64, widest=16)


def test_weights_so_large_that_nothing_can_be_computed_are_one_sentence(contents, tmp_path):
    for name, array in contents.arrays.items():
        if name.startswith("deep.") and name.endswith("weight"):
            contents.arrays[name] = np.clip(array.astype(np.float64) * 1e30, -3e38, 3e38).astype(np.float32)
    contents.write(tmp_path / "huge.hedge")
    model = hr.load(tmp_path / "huge.hedge")
    with pytest.raises(ModelError) as problem:
        model.predict(pictures()[0][0])
    assert_one_sentence(problem, "give no finite probabilities", "copy the model file again")
