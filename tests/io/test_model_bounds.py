"""A model file asks for no more than the settings allow, and a small one for little; texts in it harm no terminal."""

import dataclasses
import json
import tracemalloc

import numpy as np
import pytest
from safetensors.numpy import save as to_bytes

from hedgerow.documents import MAX_DESCRIPTION
from hedgerow.errors import ModelError
from hedgerow.forest import arrays
from hedgerow.forest.arrays import MAX_DEPTH, MAX_TREES, MAX_VOTE
from hedgerow.io import model_file as model_file_module
from hedgerow.io.model_file import MAX_HEADER, VERSION, load, save
from hedgerow.kernels.constants import LEAF
from helpers.forests import grown_stack
from helpers.model_files import Contents, refusal, refused


@pytest.fixture
def contents(model_file):
    return Contents.of(model_file)


def peak(action, *arguments):
    """The most memory that Python and NumPy held at once for an action."""
    tracemalloc.start()
    try:
        action(*arguments)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# The header


@pytest.mark.parametrize("kind", ["arrays", "description"])
def test_a_header_that_would_become_gigabytes_is_not_parsed(tmp_path, monkeypatch, kind):
    """Of 90 MB of names of empty arrays, safetensors made 1.4 GB."""
    array = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    many = {f"a{i}": array for i in range(MAX_HEADER // 60)}
    lists = json.dumps({"version": VERSION, "model": "[]" * (MAX_DESCRIPTION // 2)})
    header = {"__metadata__": {"hedgerow": "{}" if kind == "arrays" else lists}, **(many if kind == "arrays" else {})}
    text = json.dumps(header).encode()
    path = tmp_path / "model.hedge"
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    if kind == "arrays":
        monkeypatch.setattr(model_file_module, "safe_open", lambda *a, **o: pytest.fail("it was parsed"))
    words = "its header has" if kind == "arrays" else "its description has"
    with pytest.raises(ModelError, match=f"{words} [0-9,]+ (bytes|characters), expected at most "):
        load(path)


# Trees


def put_path(contents, depth, level="level0"):
    """In place of a level, one tree of `depth` splits below one another, with votes for three classes."""
    n = 2 * depth + 1
    node = np.arange(n)
    is_split = (node % 2 == 0) & (node < n - 1)
    parts = {
        "root": np.zeros(1),
        "left_child": np.where(is_split, node + 1, LEAF),
        "threshold": np.zeros(n),
        "channel": np.zeros((n, 1)),
        "offset": np.zeros((n, 1, 3)),
        "radius": np.zeros((n, 1)),
        "weight": np.ones((n, 1)),
        "leaf_index": np.where(is_split, LEAF, np.cumsum(~is_split) - 1),
        "votes": np.ones((depth + 1, 3)),
    }
    for name, array in parts.items():
        contents.arrays[f"{level}.{name}"] = array.astype(np.int32)
    if contents.model.get("soft"):
        contents.arrays[f"{level}.sharpness"] = np.ones(n, np.uint8)


def test_the_deepest_tree_loads_and_predicts(contents, example, tmp_path):
    put_path(contents, MAX_DEPTH)
    contents.write(tmp_path / "deep.hedge")
    model = load(tmp_path / "deep.hedge")
    assert model.levels[0].tree_depths.tolist() == [MAX_DEPTH]
    assert model.predict(example.images[0]).shape == example.images[0].shape


def test_deeper_trees_are_refused_before_they_are_walked(contents, tmp_path, monkeypatch):
    put_path(contents, MAX_DEPTH + 1)
    assert f"more than {MAX_DEPTH} splits deep" in refusal(contents, tmp_path)
    put_path(contents, 20_000)
    contents.write(tmp_path / "deep.hedge")
    rounds = []
    monkeypatch.setattr(arrays, "refuse_unless", counting(rounds, arrays.refuse_unless))
    assert peak(refused, tmp_path / "deep.hedge") < 30e6
    assert len(rounds) == MAX_DEPTH + 1, "it was walked on"


def counting(rounds, refuse_unless):
    def count(holds, complaint):
        if "splits deep" in complaint:
            rounds.append(holds)
        refuse_unless(holds, complaint)

    return count


def test_too_many_trees_are_refused(contents, tmp_path):
    n = MAX_TREES + 1
    for name, shape in {"channel": (n, 1), "offset": (n, 1, 3), "radius": (n, 1), "weight": (n, 1)}.items():
        contents.arrays[f"level0.{name}"] = np.zeros(shape, np.uint8)
    contents.arrays |= {"level0.root": np.arange(n), "level0.left_child": np.full(n, LEAF)}
    contents.arrays |= {"level0.threshold": np.zeros(n), "level0.leaf_index": np.zeros(n, np.uint8)}
    contents.arrays["level0.votes"] = np.ones((1, 3), np.uint8)
    assert "too many" in refusal(contents, tmp_path)


def test_more_probes_than_the_settings_allow_are_refused(contents, tmp_path):
    for name in ("channel", "offset", "radius", "weight"):
        contents.arrays[f"level0.{name}"] = np.repeat(contents.arrays[f"level0.{name}"], 17, axis=1)
    assert "probe arrays" in refusal(contents, tmp_path)


# Votes, and what becomes of them


@pytest.mark.parametrize(("vote", "words"), [(1e38, "out of range"), (-1e38, "out of range"), (-1e-3, "negative")])
def test_votes_that_give_no_probabilities_are_refused(contents, tmp_path, vote, words):
    votes = contents.arrays["level1.votes"].astype(np.float32)
    votes[0] = vote
    contents.arrays["level1.votes"] = votes
    assert words in refusal(contents, tmp_path)


def test_the_largest_votes_and_the_smallest_give_probabilities(stack, example, tmp_path):
    for vote in (MAX_VOTE, 1e-45, 0.0):
        levels = [dataclasses.replace(one, votes=np.full_like(one.votes, vote)) for one in stack.levels]
        save(dataclasses.replace(stack, levels=tuple(levels)), tmp_path / "a.hedge")
        proba = load(tmp_path / "a.hedge").predict_proba(example.images[0])
        np.testing.assert_allclose(proba, 1 / 3, atol=1e-6)


@pytest.fixture
def soft_contents(stack, tmp_path):
    """Of a stack of soft splits, whose votes may have either sign, since a softmax follows."""
    forests = [dataclasses.replace(one, sharpness=np.ones(one.n_nodes, np.float32)) for one in stack.levels]
    forests = [dataclasses.replace(one, votes=one.votes - np.float32(0.5)) for one in forests]
    save(dataclasses.replace(stack, levels=tuple(forests), output="softmax"), tmp_path / "soft.hedge")
    return Contents.of(tmp_path / "soft.hedge")


def test_votes_of_networks_may_be_negative_and_not_endless(soft_contents, tmp_path):
    assert (soft_contents.arrays["level0.votes"] < 0).any()
    soft_contents.arrays["level0.votes"] = -3e38 * np.ones_like(soft_contents.arrays["level0.votes"])
    assert "out of range" in refusal(soft_contents, tmp_path)


@pytest.mark.parametrize(
    "case", [{"sharpness": 1e38, "weight": 10}, {"sharpness": 1e38, "threshold": 10}, {"weight": 1e30}]
)
def test_soft_splits_that_overflow_are_refused(soft_contents, tmp_path, case):
    for name, value in case.items():
        array = soft_contents.arrays[f"level0.{name}"]
        soft_contents.arrays[f"level0.{name}"] = np.full(array.shape, value, np.float32)
    assert "sharpness" in refusal(soft_contents, tmp_path)


def test_a_small_file_of_soft_splits_needs_little_memory(soft_contents, tmp_path, example):
    soft_contents.model["tolerance"] = 1e-3
    put_path(soft_contents, 20_000)
    soft_contents.write(tmp_path / "deep.hedge")
    assert (tmp_path / "deep.hedge").stat().st_size < 2e6
    assert peak(refused, tmp_path / "deep.hedge") < 30e6


# Classes


@pytest.mark.parametrize("unlabelled", [3, 77, 200])
def test_an_unlabelled_value_that_is_a_class_is_refused(contents, tmp_path, unlabelled):
    contents.model["unlabelled"] = unlabelled
    assert "one of its classes" in refusal(contents, tmp_path)


@pytest.mark.parametrize("value", [True, 2**31, -(2**31) - 1, 2**32 - 1, 255.0])
def test_an_unlabelled_value_that_no_label_map_holds_is_refused(contents, tmp_path, value):
    contents.model["unlabelled"] = value
    refusal(contents, tmp_path)


# Features


@pytest.mark.parametrize(
    ("sigmas", "proportions"),
    [([0.7, 1000.0], {}), ([0.29, 2.0], {}), ([0.7, 500.0], {"truncate": 5.0}), ([0.7, 500.0], {"structure_ratio": 1})],
)
def test_filters_wider_than_the_settings_allow_are_refused(contents, tmp_path, sigmas, proportions):
    contents.model["features"] |= {"sigmas": sigmas}
    contents.model["features"]["proportions"] |= proportions
    assert "feature settings" in refusal(contents, tmp_path)


def test_the_widest_filters_of_the_settings_are_accepted(contents, tmp_path):
    contents.model["features"]["sigmas"] = [0.3, 500.0]
    contents.write(tmp_path / "wide.hedge")
    assert load(tmp_path / "wide.hedge").features.halo == 3000


@pytest.mark.parametrize(("name", "value"), [("std", 1e-30), ("std", 1e35), ("mean", 3e38), ("input_std", 1e-40)])
def test_statistics_that_overflow_are_refused(contents, tmp_path, name, value):
    array = contents.arrays[f"features.{name}"]
    contents.arrays[f"features.{name}"] = np.full(array.shape, value, np.float32)
    assert "feature settings" in refusal(contents, tmp_path)


def test_a_kind_of_feature_is_joined_once(tmp_path):
    save(grown_stack("joined")[0], tmp_path / "joined.hedge")
    contents = Contents.of(tmp_path / "joined.hedge")
    features, result = contents.model["features"], contents.arrays
    features["members"] = [features["members"][0]] * 2
    for name in ("mean", "std", "input_mean", "input_std"):
        result[f"features.1.{name}"] = result[f"features.0.{name}"]
    for name in ("mean", "std"):
        result[f"features.{name}"] = np.concatenate([result[f"features.0.{name}"]] * 2)
    assert "feature settings" in refusal(contents, tmp_path)


def test_many_joined_channels_take_little_memory(tmp_path):
    save(grown_stack("joined")[0], tmp_path / "joined.hedge")
    contents, n = Contents.of(tmp_path / "joined.hedge"), 100_000
    for one in (contents.model["features"], *contents.model["features"]["members"]):
        one["n_inputs"] = n
    for name in ("0.input_mean", "0.input_std", "1.mean", "1.std"):
        contents.arrays[f"features.{name}"] = np.ones(n, np.uint8)
    for name in ("mean", "std"):
        contents.arrays[f"features.0.{name}"] = np.ones(17 * n, np.uint8)
        contents.arrays[f"features.{name}"] = np.ones(18 * n, np.uint8)
    contents.write(tmp_path / "many.hedge")
    assert peak(load, tmp_path / "many.hedge") < 12 * (tmp_path / "many.hedge").stat().st_size


# Words and numbers


TEXTS = ("\x1b[31mred", "\x1b]0;title\x07", "two\nlines", "\x00", "\u202eback", "\x7f", "x" * 300)


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
@pytest.mark.parametrize(
    "put",
    [
        lambda model, text: model["features"].update(kind=text),
        lambda model, text: model["settings"].update(mapped_back=text),
        lambda model, text: model["settings"]["config"].update(criterion=text),
        lambda model, text: model["settings"].update({text: 1}),
        lambda model, text: model.update(surprise=[{"a": text}]),
        lambda model, text: model.update(image_dtype=text),
    ],
    ids=["kind", "way back", "config", "key", "unknown", "image type"],
)
def test_no_text_commands_the_terminal_or_floods_it(contents, tmp_path, text, put):
    put(contents.model, text)
    message = refusal(contents, tmp_path)
    assert message.isprintable()
    assert len(message) < 300 + len(str(tmp_path))


@pytest.mark.parametrize(
    "number", ["1" + "0" * 400, "-1" + "0" * 20, str(2**63), "1e999", "NaN", "Infinity", "-Infinity"]
)
@pytest.mark.parametrize("place", ["settings", "accuracy"])
def test_numbers_out_of_range_are_refused_wherever_they_are(contents, tmp_path, number, place):
    if place == "accuracy":
        contents.model["settings"]["held_out"][0]["accuracy"] = 0.125125
    else:
        contents.model["settings"]["surprise"] = 0.125125
    assert "out of range" in text_refusal(contents, tmp_path, "0.125125", number)


def text_refusal(contents, folder, old, new):
    """What is said of a file whose text was changed."""
    text = json.dumps({"version": VERSION, "model": contents.model, "digest": "0" * 64})
    assert text.count(old) == 1
    path = folder / "text.hedge"
    path.write_bytes(to_bytes(contents.arrays, metadata={"hedgerow": text.replace(old, new)}))
    return refused(path)


def test_what_is_said_twice_is_refused(contents, tmp_path):
    assert "twice" in text_refusal(contents, tmp_path, '"unlabelled": 255', '"unlabelled": 3, "unlabelled": 255')


@pytest.mark.parametrize("depth", [17, 900, 50_000])
def test_deep_nesting_is_refused(contents, tmp_path, depth):
    nested = '"unlabelled": ' + "[" * depth + "]" * depth
    message = text_refusal(contents, tmp_path, '"unlabelled": 255', nested)
    assert ("nested" if depth < 900 else "text") in message or "nested" in message


@pytest.mark.parametrize(
    "change",
    [
        {"config": "a string"},
        {"config": [1]},
        {"config": None},
        {"held_out": [{"mean_dice": 1.5}]},
        {"held_out": [{"mean_dice": None}]},
        {"held_out": "scores"},
        {"n_images": 0},
        {"mapped_back": ["soft"]},
    ],
    ids=str,
)
def test_settings_of_another_type_are_refused(contents, tmp_path, change):
    contents.model["settings"] |= change
    refusal(contents, tmp_path)


@pytest.mark.parametrize("whole", ["[]", '"model"', "3", "null"])
def test_a_description_that_is_no_table_is_refused(contents, tmp_path, whole):
    (tmp_path / "a.hedge").write_bytes(to_bytes(contents.arrays, metadata={"hedgerow": whole}))
    assert "table" in refused(tmp_path / "a.hedge")
