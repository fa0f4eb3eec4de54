"""Model files made to deceive: code for data, and whole files (the digest fits) around a model that must not run."""

import copy
import hashlib
import json
import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from safetensors.numpy import save as to_bytes

from hedgerow.errors import ModelError
from hedgerow.forest.level_input import dimensions_of
from hedgerow.io.model_file import VERSION, load, save
from helpers.forests import grown_stack
from helpers.model_files import FEW, Contents, assert_same_model, refused


@pytest.fixture
def contents(model_file):
    return Contents.of(model_file)


def test_pickles_are_never_opened(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    (tmp_path / "trap.hedge").write_bytes(pickle.dumps(Trap()))
    refused(tmp_path / "trap.hedge")
    assert not (tmp_path / "sprung").exists()


def test_unchanged_contents_are_accepted(contents, stack, tmp_path):
    contents.write(tmp_path / "same.hedge")
    assert_same_model(load(tmp_path / "same.hedge"), stack)


def test_the_digest_is_checked(contents, tmp_path):
    contents.write(tmp_path / "a.hedge", digest=hashlib.sha256(b"").hexdigest())
    assert "digest" in refused(tmp_path / "a.hedge")


@pytest.mark.parametrize("version", [VERSION + 1, 99, 2**31 - 1])
def test_a_newer_version_asks_for_a_newer_hedgerow(contents, tmp_path, version):
    contents.version = version
    contents.write(tmp_path / "new.hedge")
    assert "newer Hedgerow" in refused(tmp_path / "new.hedge")


@pytest.mark.parametrize("version", [0, -1, "1", 1.5, None, True, [1], 10**30])
def test_versions_that_never_were_are_refused(contents, tmp_path, version):
    contents.version = version
    contents.write(tmp_path / "odd.hedge")
    refused(tmp_path / "odd.hedge")


# Arrays


def change_array(name, change, level="level1"):
    """A deceit: one array of the model, as int64 or float64 (or whatever the change returns)."""

    def deceive(contents):
        key = f"{level}.{name}"
        array = contents.arrays[key]
        wide = array.astype(np.int64 if array.dtype.kind in "iu" else np.float64)
        contents.arrays[key] = np.ascontiguousarray(change(wide))

    return deceive


def put(index, value):
    def change(array):
        array = array.astype(np.result_type(array, type(value)))
        array[index] = value
        return array

    return change


def put_child(left_child, number, value):
    """Another left child for the split of this number."""
    left_child[np.flatnonzero(left_child >= 0)[number]] = value
    return left_child


def two_parents(array):
    splits = np.flatnonzero(array >= 0)
    array[splits[0]] = array[splits[1]]
    return array


ARRAY_DECEITS = {
    "child before its parent": change_array("left_child", lambda a: put_child(a, -1, 0)),
    "child is its own parent": change_array("left_child", lambda a: put_child(a, 0, 0)),
    "child beyond the end": change_array("left_child", lambda a: put_child(a, -1, len(a))),
    "right child beyond the end": change_array("left_child", lambda a: put_child(a, -1, len(a) - 1)),
    "child far beyond the end": change_array("left_child", lambda a: put_child(a, 0, 2**31 - 1)),
    "child that wraps to a legal one": change_array("left_child", lambda a: put_child(a, 0, 2**32 + 1)),
    "child that overflows": change_array("left_child", lambda a: put_child(a, 0, 2**62)),
    "negative child": change_array("left_child", lambda a: put_child(a, 0, -2)),
    "child in another tree": change_array("left_child", lambda a: put_child(a, 0, len(a) - 2)),
    "two parents": change_array("left_child", two_parents),
    "unreachable nodes": change_array("left_child", lambda a: put_child(a, 0, -1)),
    "children as floats": change_array("left_child", lambda a: a + 0.5),
    "children as NaN": change_array("left_child", put(0, np.nan)),
    "no nodes": change_array("left_child", lambda a: a[:0]),
    "children of two axes": change_array("left_child", lambda a: a[:, None]),
    "root not at 0": change_array("root", put(0, 1)),
    "negative root": change_array("root", put(0, -1)),
    "roots out of order": change_array("root", lambda a: a[::-1]),
    "root beyond the end": change_array("root", put(-1, 10**6)),
    "root within a tree": change_array("root", lambda a: a + np.arange(len(a)) * 2),
    "no trees": change_array("root", lambda a: a[:0]),
    "root of two axes": change_array("root", lambda a: a[None]),
    "a tree too few": change_array("root", lambda a: a[:-1]),
    "channel that does not exist": change_array("channel", put((0, 0), 10**6)),
    "channel one too far": change_array("channel", put((0, 0), 17 + 3)),
    "proba channel in the first level": change_array("channel", put((0, 0), 17), "level0"),
    "negative channel": change_array("channel", put((0, 0), -1)),
    "channel that wraps": change_array("channel", put((0, 0), 2**32)),
    "channels of another shape": change_array("channel", lambda a: a[:, 0]),
    "no probes": change_array("channel", lambda a: a[:, :0]),
    "too many probes": change_array("channel", lambda a: np.repeat(a, 65, axis=1)),
    "NaN threshold": change_array("threshold", put(0, np.nan)),
    "infinite threshold": change_array("threshold", put(0, np.inf)),
    "threshold beyond float32": change_array("threshold", put(0, 1e300)),
    "a threshold too few": change_array("threshold", lambda a: a[:-1]),
    "NaN offset": change_array("offset", put((0, 0, 0), np.nan)),
    "offset of gigabytes": change_array("offset", put((0, 0, 1), 999_999)),
    "offset beyond the widest window": change_array("offset", put((0, 0, 2), -2049)),
    "offset beyond integers": change_array("offset", put((0, 0, 1), 1e30)),
    "offset in slices of gigabytes": change_array("offset", put((0, 0, 0), 999_999)),
    "offset beyond the deepest window": change_array("offset", put((0, 0, 0), -129)),
    "offset in slices beyond integers": change_array("offset", put((0, 0, 0), -1e30)),
    "offsets of one axis": change_array("offset", lambda a: a[:, :, :1]),
    "offsets of rows and columns alone": change_array("offset", lambda a: a[:, :, 1:]),
    "offsets of four axes": change_array("offset", lambda a: np.concatenate([a, a[..., :1]], axis=2)),
    "negative radius": change_array("radius", put((0, 0), -1)),
    "radius of gigabytes": change_array("radius", put((0, 0), 4096)),
    "radius that wraps": change_array("radius", put((0, 0), 2**33)),
    "NaN weight": change_array("weight", put((0, 0), np.nan)),
    "leaf without votes": change_array("leaf_index", lambda a: np.where(a == a.max(), a + 1, a)),
    "negative leaf": change_array("leaf_index", lambda a: np.where(a == a.max(), -1, a)),
    "split with votes": change_array("leaf_index", lambda a: np.where(a == -1, 0, a)),
    "NaN votes": change_array("votes", put((0, 0), np.nan)),
    "infinite votes": change_array("votes", put((0, 0), -np.inf)),
    "votes for a class too many": change_array("votes", lambda a: np.pad(a, ((0, 0), (0, 1)))),
    "votes for a class too few": change_array("votes", lambda a: a[:, :-1]),
    "no votes": change_array("votes", lambda a: a[:0]),
    "votes of one axis": change_array("votes", lambda a: a.ravel()),
    "zero deviation": change_array("std", put(0, 0), "features"),
    "negative deviation": change_array("std", put(0, -1), "features"),
    "NaN deviation": change_array("std", put(0, np.nan), "features"),
    "a mean too many": change_array("mean", lambda a: np.pad(a, (0, 1)), "features"),
    "means of two axes": change_array("mean", lambda a: a[:, None], "features"),
    "input mean of none": change_array("input_mean", lambda a: a[:0], "features"),
    "complex numbers": change_array("threshold", lambda a: (a + 1j).astype(np.complex64)),
}


@pytest.mark.parametrize("name", ARRAY_DECEITS)
def test_arrays_that_would_mislead_a_kernel_are_refused(contents, tmp_path, name):
    before = {key: array.copy() for key, array in contents.arrays.items()}
    ARRAY_DECEITS[name](contents)
    assert any(
        array.shape != before[key].shape or not np.array_equal(array, before[key])
        for key, array in contents.arrays.items()
    ), "the deceit changes nothing"
    contents.write(tmp_path / "deceit.hedge")
    refused(tmp_path / "deceit.hedge")


@pytest.mark.parametrize("version", [1, 2])
def test_offsets_in_slices_are_refused_in_a_version_that_had_none(contents, tmp_path, version):
    contents.version = version
    contents.write(tmp_path / "deceit.hedge")
    refused(tmp_path / "deceit.hedge")


def test_missing_and_further_arrays_are_refused(contents, tmp_path):
    path = tmp_path / "deceit.hedge"
    for name in list(contents.arrays):
        without = copy.copy(contents)
        without.arrays = {key: array for key, array in contents.arrays.items() if key != name}
        without.write(path)
        refused(path)
    for name in ("level2.root", "level01.root", "surprise", ""):
        further = copy.copy(contents)
        further.arrays = {**contents.arrays, name: np.zeros(3, np.float32)}
        further.write(path)
        refused(path)


def test_exchanged_levels_are_refused(contents, tmp_path):
    arrays = contents.arrays
    swap = {"level0": "level1", "level1": "level0"}
    contents.arrays = {".".join([swap.get(k.split(".")[0], "features"), k.split(".")[1]]): arrays[k] for k in arrays}
    contents.write(tmp_path / "deceit.hedge")
    refused(tmp_path / "deceit.hedge")


@FEW
@given(data=st.data())
def test_random_edits_with_a_fitting_digest_are_refused_or_run(contents, example, tmp_path, data):
    """Whatever passes the checks must also predict, and give class values of the model."""
    changed = Contents(contents.version, contents.model, {k: a.copy() for k, a in contents.arrays.items()})
    name = data.draw(st.sampled_from(sorted(n for n in changed.arrays if n.startswith("level"))))
    array = changed.arrays[name]
    raw = array.reshape(-1).view(np.uint8)
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, raw.size - 1))] = data.draw(st.integers(0, 255))
    assume(not np.array_equal(array, contents.arrays[name]))
    changed.write(tmp_path / "edited.hedge")
    try:
        loaded = load(tmp_path / "edited.hedge")
    except ModelError:
        return
    # Legal offsets reach far beyond so small an image; what is read there is its edge.
    assume(loaded.receptive_field < 300)
    assume(dimensions_of(loaded) == 2)  # a model of volumes refuses an image
    found = loaded.predict(example.images[0])
    assert found.shape == example.images[0].shape
    assert set(np.unique(found)) <= set(loaded.classes)


# Descriptions


MODEL_DECEITS = {
    "n_levels": [0, -1, 1, 3, 21, 10**12, 10**400, 2.0, "2", None, True, [2], float("inf"), float("nan")],
    "classes": [
        [],
        [3],
        [3, 77],
        [3, 77, 77],
        [3, 77, 200, 201],
        [3, 77, 2**31],
        [3, 77, 10**30],
        [3, 77, 200.5],
        ["3", "77", "200"],
        [3, 77, None],
        [3, 77, True],
        "123",
        {"3": 0, "77": 1, "200": 2},
        None,
        7,
        list(range(300)),
    ],
    "unlabelled": [None, "255", 2.5, 10**40, [255], float("nan")],
    "image_dtype": [None, 8, "u" * 1000, "uint8\n", "\x1b[2J"],
    "settings": [
        None,
        5,
        [],
        {"held_out": 5},
        {"held_out": [{}]},
        {"held_out": [{"mean_dice": "x"}]},
        {"n_images": "x"},
    ],
    "kind": ["net", None, 3],
    "features": [None, [], {}, "bank"],
}


FEATURE_DECEITS = {
    "kind": ["wavelets", None, ["bank"], "channels", "depth"],
    "n_inputs": [0, -1, 2, 10**9, 10**400, 1.0, "1", True, None, float("nan")],
    "sigmas": [
        [],
        [0.7],
        [0.7, 0.0],
        [0.7, -1.0],
        [0.7, 1e9],
        [0.7, float("nan")],
        [0.7, float("inf")],
        [0.7, "2"],
        [1.0] * 101,
        "ab",
        None,
        2.0,
    ],
    "proportions": [
        None,
        {},
        {"dog_ratio": 0.66, "structure_ratio": 0.5},
        {"dog_ratio": float("nan"), "structure_ratio": 0.5, "truncate": 4.0},
        {"dog_ratio": 0.66, "structure_ratio": -1, "truncate": 4.0},
        {"dog_ratio": 0.66, "structure_ratio": 0.5, "truncate": 1e9},
        {"dog_ratio": "0.66", "structure_ratio": 0.5, "truncate": 4.0},
        {"dog_ratio": 5e-324, "structure_ratio": 0.5, "truncate": 4.0},
        {"dog_ratio": 0.66, "structure_ratio": 4, "truncate": 4.0},
    ],
    "depth_unit": [1000.0],
    "surprise": [1],
}
DEPTH_DECEITS = {
    "kind": ["bank", "channels", "joined"],
    "n_inputs": [0, 2, "1", True, None],
    "depth_unit": [0, -1, float("nan"), float("inf"), "1", None],
    "nearest": [0, -1, 1e-9, 1e9, float("nan"), None],
    "background": [0, float("inf"), float("nan"), "far"],
    "sigmas": [[1.0]],
}


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        (part, key, value)
        for part, deceits in (("model", MODEL_DECEITS), ("features", FEATURE_DECEITS))
        for key, values in deceits.items()
        for value in values
    ],
)
def test_descriptions_that_cannot_be_are_refused(contents, tmp_path, part, key, value):
    description = contents.model if part == "model" else contents.model["features"]
    before = description.get(key)
    assert value != before or type(value) is not type(before) or key not in description, "the deceit changes nothing"
    description[key] = value
    contents.write(tmp_path / "deceit.hedge")
    refused(tmp_path / "deceit.hedge")


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in DEPTH_DECEITS.items() for value in values], ids=str
)
def test_depth_features_that_cannot_be_are_refused(tmp_path, key, value):
    save(grown_stack("depth")[0], tmp_path / "depth.hedge")
    contents = Contents.of(tmp_path / "depth.hedge")
    contents.model["features"][key] = value
    contents.write(tmp_path / "deceit.hedge")
    refused(tmp_path / "deceit.hedge")


MEMBERS = {
    "none": [],
    "one": lambda members: members[:1],
    "a joined one": lambda members: [members[0], {"kind": "joined", "n_inputs": 2, "members": members}],
    "seventeen": lambda members: members * 9,
    "no tables": [1, 2],
    "an unknown one": lambda members: [members[0], {**members[1], "kind": "wavelets"}],
    "depth": lambda members: [members[0], {**members[1], "kind": "depth"}],
    "a surprise": lambda members: [members[0], {**members[1], "surprise": 1}],
    "other inputs": lambda members: [members[0], {**members[1], "n_inputs": 3}],
}


@pytest.mark.parametrize("case", MEMBERS)
def test_joined_features_that_cannot_be_are_refused(tmp_path, case):
    save(grown_stack("joined")[0], tmp_path / "joined.hedge")
    contents = Contents.of(tmp_path / "joined.hedge")
    members = contents.model["features"]["members"]
    contents.model["features"]["members"] = MEMBERS[case](members) if callable(MEMBERS[case]) else MEMBERS[case]
    contents.write(tmp_path / "deceit.hedge")
    refused(tmp_path / "deceit.hedge")


def test_arrays_that_no_feature_has_are_refused(tmp_path):
    for kind in ("joined", "depth", "offsets"):
        save(grown_stack(kind)[0], tmp_path / "model.hedge")
        contents = Contents.of(tmp_path / "model.hedge")
        contents.arrays["features.surprise"] = np.ones(3, np.uint8)
        contents.write(tmp_path / "deceit.hedge")
        refused(tmp_path / "deceit.hedge")


@pytest.mark.parametrize("key", MODEL_DECEITS)
def test_missing_entries_are_refused(contents, tmp_path, key):
    del contents.model[key]
    contents.write(tmp_path / "deceit.hedge")
    refused(tmp_path / "deceit.hedge")


@pytest.mark.parametrize("depth", [2_000, 100_000])
def test_descriptions_of_absurd_depth_are_refused(contents, tmp_path, depth):
    text = json.dumps({"version": VERSION, "digest": "", "model": {"settings": 0}}).replace(
        "0}", "[" * depth + "]" * depth + "}"
    )
    (tmp_path / "deep.hedge").write_bytes(to_bytes(contents.arrays, metadata={"hedgerow": text}))
    refused(tmp_path / "deep.hedge")


def test_a_small_file_cannot_ask_for_much_memory(contents, tmp_path):
    """Many image channels times many scales: a few kB that would name millions of features."""
    n_inputs = 20_000
    contents.model["features"] |= {"n_inputs": n_inputs, "sigmas": [1.0] * 100}
    for name in ("input_mean", "input_std", "mean", "std"):
        contents.arrays[f"features.{name}"] = np.ones(n_inputs, np.uint8)
    contents.write(tmp_path / "bomb.hedge")
    tracemalloc.start()
    try:
        refused(tmp_path / "bomb.hedge")
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()
