"""Model files: the same model comes back, and no file, whatever its bytes, does harm."""

import copy
import dataclasses
import hashlib
import json
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save as to_bytes
from safetensors.numpy import save_file

import hedgerow as hr
from hedgerow import model_io
from hedgerow.errors import InputError, ModelError
from hedgerow.model_io import load, save

FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def assert_same_model(found, expected):
    for name in ("classes", "unlabelled", "image_dtype", "settings", "n_levels", "receptive_field"):
        assert getattr(found, name) == getattr(expected, name)
    assert found.features.to_dict() == expected.features.to_dict()
    pairs = [(found.features, expected.features), *zip(found.levels, expected.levels, strict=True)]
    for mine, theirs in pairs:
        for field in dataclasses.fields(mine):
            array = getattr(theirs, field.name)
            if isinstance(array, np.ndarray):
                assert getattr(mine, field.name).dtype == array.dtype
                assert getattr(mine, field.name).tobytes() == array.tobytes(), field.name


def refused(path):
    """The sentence that refuses the file; anything but a ModelError fails the test."""
    with pytest.raises(ModelError) as refusal:
        load(path)
    text = str(refusal.value)
    assert str(path) in text
    assert "\n" not in text
    return text


def test_saving_does_not_change_the_prediction(stack, example, model_file):
    loaded = load(model_file)
    assert_same_model(loaded, stack)
    for image in example.images:
        assert loaded.predict_proba(image).tobytes() == stack.predict_proba(image).tobytes()
        np.testing.assert_array_equal(loaded.predict(image), stack.predict(image))


def test_the_same_model_gives_the_same_bytes(stack, model_file, tmp_path):
    size = save(stack, tmp_path / "again.hedge")
    save(load(model_file), tmp_path / "reloaded.hedge")
    content = model_file.read_bytes()
    assert size == len(content)
    for _ in range(5):  # a random order of entries would show by now
        save(stack, tmp_path / "again.hedge")
        assert (tmp_path / "again.hedge").read_bytes() == content
    assert (tmp_path / "reloaded.hedge").read_bytes() == content


@pytest.mark.parametrize("kind", ["depth", "channels", "oblique", "negative classes"])
def test_every_kind_of_model_comes_back(tiny_config, example, tmp_path, kind):
    images, labels, unlabelled = list(example.images), list(example.labels), 255
    config = tiny_config
    if kind == "depth":
        images = [500 + 10 * image.astype(np.uint16) for image in images]
        config = dataclasses.replace(config, features="depth")
    elif kind == "channels":
        images = [np.stack([image, image[::-1]]).astype(np.float32) for image in images]
        config = dataclasses.replace(config, features="channels")
    elif kind == "oblique":
        config = dataclasses.replace(config, context=hr.ContextConfig(window=9, n_probes=2, radii=(0, 2)))
    else:
        labels, unlabelled = [label.astype(np.int64) - 70_000 for label in labels], np.int64(-69_997)
    stack = hr.fit_stack(images, labels, config, unlabelled=unlabelled)
    save(stack, tmp_path / "a.hedge")
    loaded = load(tmp_path / "a.hedge")
    assert_same_model(loaded, stack)
    assert loaded.predict_proba(images[0]).tobytes() == stack.predict_proba(images[0]).tobytes()


@pytest.mark.parametrize(
    "values",
    [(-0.0,), (-0.0, 7), (255, 256), (-129, 70_001), (0.5, -2049), (1e-45, 3.4e38, -3.4e38, -0.0, 1 / 3)],
)
def test_hostile_but_legal_numbers_come_back_bit_for_bit(stack, tmp_path, values):
    forest = stack.levels[0]
    threshold = np.where(forest.is_split, np.resize(np.array(values, np.float32), forest.n_nodes), np.float32(0))
    changed = dataclasses.replace(forest, threshold=threshold)
    stack = dataclasses.replace(stack, levels=(changed, *stack.levels[1:]))
    save(stack, tmp_path / "a.hedge")
    assert_same_model(load(tmp_path / "a.hedge"), stack)


@pytest.mark.parametrize("problem", [OSError(28, "No space left on device"), KeyboardInterrupt(), RuntimeError("?")])
def test_a_save_that_fails_leaves_the_old_file_and_nothing_else(stack, tmp_path, monkeypatch, problem):
    path = tmp_path / "model.hedge"
    path.write_bytes(b"the old model")

    def write_half(self, content):
        with open(self, "wb") as file:
            file.write(content[: len(content) // 2])
        raise problem

    monkeypatch.setattr(type(tmp_path), "write_bytes", write_half)
    with pytest.raises(InputError if isinstance(problem, OSError) else type(problem)):
        save(stack, path)
    monkeypatch.undo()
    assert path.read_bytes() == b"the old model"
    assert list(tmp_path.iterdir()) == [path]


def test_places_that_cannot_be_written_are_named(stack, tmp_path):
    for path in (tmp_path / "no folder" / "a.hedge", tmp_path):
        with pytest.raises(InputError) as refusal:
            save(stack, path)
        assert str(path) in str(refusal.value)
    assert list(tmp_path.iterdir()) == []


def test_missing_files_and_folders_are_refused(tmp_path):
    refused(tmp_path / "none.hedge")
    refused(tmp_path)


# Damage


def load_or_refuse(path, content, original):
    """Changed bytes must give a refusal, or (white space of the header) the very same model."""
    path.write_bytes(content)
    try:
        loaded = load(path)
    except ModelError:
        refused(path)
    else:
        assert_same_model(loaded, original)


def test_every_truncation_is_refused(model_file, tmp_path):
    content = model_file.read_bytes()
    for length in {*range(0, len(content), 61), *range(20), *range(len(content) - 20, len(content))}:
        (tmp_path / "cut.hedge").write_bytes(content[:length])
        refused(tmp_path / "cut.hedge")


def test_more_bytes_at_the_end_are_refused(model_file, tmp_path):
    (tmp_path / "long.hedge").write_bytes(model_file.read_bytes() + b"\0")
    refused(tmp_path / "long.hedge")


def test_every_changed_byte_of_the_arrays_is_noticed(model_file, tmp_path):
    content = bytearray(model_file.read_bytes())
    first = 8 + struct.unpack("<Q", content[:8])[0]
    for position in range(first, len(content), 37):
        content[position] ^= 0x10
        (tmp_path / "bent.hedge").write_bytes(content)
        refused(tmp_path / "bent.hedge")
        content[position] ^= 0x10


@FEW
@given(data=st.data())
def test_flipped_bytes(model_file, stack, tmp_path, data):
    content = bytearray(model_file.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    load_or_refuse(tmp_path / "bent.hedge", bytes(content), stack)


@FEW
@given(data=st.data())
def test_spliced_files(model_file, stack, tmp_path, data):
    content = model_file.read_bytes()
    place = st.integers(0, len(content))
    a, b, c, d = (data.draw(place) for _ in range(4))
    load_or_refuse(tmp_path / "bent.hedge", content[:a] + content[b:c] + content[d:], stack)


@FEW
@given(st.binary(max_size=300), st.booleans(), st.integers(0, 2**64 - 1))
def test_random_bytes(tmp_path, content, with_length, length):
    header = struct.pack("<Q", length if length % 3 else len(content)) if with_length else b""
    (tmp_path / "noise.hedge").write_bytes(header + content)
    refused(tmp_path / "noise.hedge")


def test_files_of_others_are_refused(tmp_path):
    path = tmp_path / "foreign.safetensors"
    save_file({"weight": np.zeros((3, 3), np.float32)}, path, metadata={"format": "pt"})
    assert "not written by Hedgerow" in refused(path)
    save_file({"weight": np.zeros((3, 3), np.float32)}, path)
    assert "not written by Hedgerow" in refused(path)
    for document in ("", "null", "[]", "{}", "1", '{"version": 1}', "{"):
        save_file({"weight": np.zeros(3, np.float32)}, path, metadata={"hedgerow": document})
        refused(path)


def test_pickles_are_never_opened(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    import pickle

    (tmp_path / "trap.hedge").write_bytes(pickle.dumps(Trap()))
    refused(tmp_path / "trap.hedge")
    assert not (tmp_path / "sprung").exists()


# Deceit: files that are whole, with a digest that fits, around a model that must not run


@dataclasses.dataclass
class Contents:
    """What a model file holds, open to change."""

    version: object
    model: dict
    arrays: dict

    def write(self, path):
        digest = model_io._digest(self.version, self.model, self.arrays)
        document = {"version": self.version, "model": self.model, "digest": digest}
        path.write_bytes(to_bytes(self.arrays, metadata={"hedgerow": json.dumps(document)}))


@pytest.fixture
def contents(model_file):
    with safe_open(model_file, framework="np") as file:
        document = json.loads(file.metadata()["hedgerow"])
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    return Contents(document["version"], document["model"], arrays)


def test_unchanged_contents_are_accepted(contents, stack, tmp_path):
    contents.write(tmp_path / "same.hedge")
    assert_same_model(load(tmp_path / "same.hedge"), stack)


def test_the_digest_is_checked(contents, tmp_path):
    digest = hashlib.sha256(b"").hexdigest()
    document = {"version": contents.version, "model": contents.model, "digest": digest}
    (tmp_path / "a.hedge").write_bytes(to_bytes(contents.arrays, metadata={"hedgerow": json.dumps(document)}))
    assert "digest" in refused(tmp_path / "a.hedge")


@pytest.mark.parametrize("version", [2, 99, 2**31 - 1])
def test_a_newer_version_asks_for_a_newer_hedgerow(contents, tmp_path, version):
    contents.version = version
    contents.write(tmp_path / "new.hedge")
    assert "newer Hedgerow" in refused(tmp_path / "new.hedge")


@pytest.mark.parametrize("version", [0, -1, "1", 1.5, None, True, [1], 10**30])
def test_versions_that_never_were_are_refused(contents, tmp_path, version):
    contents.version = version
    contents.write(tmp_path / "odd.hedge")
    refused(tmp_path / "odd.hedge")


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
        array[index] = value
        return array

    return change


def put_float(index, value):
    return lambda array: put(index, value)(array.astype(np.float64))


def first_split(array, value):
    array[np.flatnonzero(array >= 0)[0]] = value
    return array


def last_split(array, value):
    array[np.flatnonzero(array >= 0)[-1]] = value
    return array


def as_leaf(array):
    """The first split becomes a leaf: its subtree cannot be reached."""
    return first_split(array, -1)


def two_parents(array):
    splits = np.flatnonzero(array >= 0)
    array[splits[0]] = array[splits[1]]
    return array


ARRAY_DECEITS = {
    "child before its parent": change_array("left_child", lambda a: last_split(a, 0)),
    "child is its own parent": change_array("left_child", lambda a: first_split(a, 0)),
    "child beyond the end": change_array("left_child", lambda a: last_split(a, len(a))),
    "right child beyond the end": change_array("left_child", lambda a: last_split(a, len(a) - 1)),
    "child far beyond the end": change_array("left_child", lambda a: first_split(a, 2**31 - 1)),
    "child that wraps to a legal one": change_array("left_child", lambda a: first_split(a, 2**32 + 1)),
    "child that overflows": change_array("left_child", lambda a: first_split(a, 2**62)),
    "negative child": change_array("left_child", lambda a: first_split(a, -2)),
    "child in another tree": change_array("left_child", lambda a: first_split(a, len(a) - 2)),
    "two parents": change_array("left_child", two_parents),
    "unreachable nodes": change_array("left_child", as_leaf),
    "children as floats": change_array("left_child", lambda a: a + 0.5),
    "children as NaN": change_array("left_child", put_float(0, np.nan)),
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
    "NaN threshold": change_array("threshold", put_float(0, np.nan)),
    "infinite threshold": change_array("threshold", put_float(0, np.inf)),
    "threshold beyond float32": change_array("threshold", put_float(0, 1e300)),
    "a threshold too few": change_array("threshold", lambda a: a[:-1]),
    "NaN offset": change_array("offset", put_float((0, 0, 0), np.nan)),
    "offset of gigabytes": change_array("offset", put((0, 0, 0), 999_999)),
    "offset beyond the widest window": change_array("offset", put((0, 0, 1), -2049)),
    "offset beyond integers": change_array("offset", put_float((0, 0, 0), 1e30)),
    "offsets of one axis": change_array("offset", lambda a: a[:, :, :1]),
    "negative radius": change_array("radius", put((0, 0), -1)),
    "radius of gigabytes": change_array("radius", put((0, 0), 4096)),
    "radius that wraps": change_array("radius", put((0, 0), 2**33)),
    "NaN weight": change_array("weight", put_float((0, 0), np.nan)),
    "leaf without votes": change_array("leaf_index", lambda a: np.where(a == a.max(), a + 1, a)),
    "negative leaf": change_array("leaf_index", lambda a: np.where(a == a.max(), -1, a)),
    "split with votes": change_array("leaf_index", lambda a: np.where(a == -1, 0, a)),
    "NaN votes": change_array("votes", put_float((0, 0), np.nan)),
    "infinite votes": change_array("votes", put_float((0, 0), -np.inf)),
    "votes for a class too many": change_array("votes", lambda a: np.pad(a, ((0, 0), (0, 1)))),
    "votes for a class too few": change_array("votes", lambda a: a[:, :-1]),
    "no votes": change_array("votes", lambda a: a[:0]),
    "votes of one axis": change_array("votes", lambda a: a.ravel()),
    "zero deviation": change_array("std", put(0, 0), "features"),
    "negative deviation": change_array("std", put(0, -1), "features"),
    "NaN deviation": change_array("std", put_float(0, np.nan), "features"),
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


def nested(depth):
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


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


@pytest.mark.parametrize(("key", "value"), [(key, value) for key in MODEL_DECEITS for value in MODEL_DECEITS[key]])
def test_descriptions_that_cannot_be_are_refused(contents, tmp_path, key, value):
    contents.model[key] = value
    contents.write(tmp_path / "deceit.hedge")
    refused(tmp_path / "deceit.hedge")


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
    "depth_unit": [0, -1, float("nan"), float("inf"), "1", None],
    "nearest": [0, -1, 1e-9, 1e9, float("nan"), None],
    "background": [0, float("inf"), float("nan"), "far"],
    "surprise": [1],
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key in FEATURE_DECEITS for value in FEATURE_DECEITS[key]])
def test_features_that_cannot_be_are_refused(contents, tmp_path, key, value):
    assume_changed = contents.model["features"].get(key, object())
    assert value != assume_changed or type(value) is not type(assume_changed)
    contents.model["features"][key] = value
    contents.write(tmp_path / "deceit.hedge")
    refused(tmp_path / "deceit.hedge")


@pytest.mark.parametrize("key", ["n_levels", "classes", "unlabelled", "image_dtype", "settings", "kind", "features"])
def test_missing_entries_are_refused(contents, tmp_path, key):
    del contents.model[key]
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


@pytest.mark.parametrize("depth", [2_000, 100_000])
def test_descriptions_of_absurd_depth_are_refused(contents, tmp_path, depth):
    text = json.dumps({"version": 1, "digest": "", "model": {"settings": 0}}).replace(
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
    found = loaded.predict(example.images[0])
    assert found.shape == example.images[0].shape
    assert set(np.unique(found)) <= set(loaded.classes)


def test_the_description_for_people_is_plain_json(stack):
    described = model_io.description(stack)
    assert json.loads(json.dumps(described)) == described
    assert described["classes"] == [3, 77, 200]
    assert len(described["features"]["names"]) == stack.features.n_features
    assert [level["trees"] for level in described["levels"]] == [3, 3]
    assert described["n_images"] == 2
    assert len(described["held_out"]) == 2
