"""Model files: the same model comes back, a failed save leaves the old one, and a damaged file is refused."""

import dataclasses
import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

import hedgerow as hr
from hedgerow.errors import InputError, ModelError
from hedgerow.io.model_file import load, save
from hedgerow.jobs.describing import description
from helpers.c_models import random_stack
from helpers.forests import grown_stack
from helpers.model_files import FEW, assert_same_model, refused


def test_saving_does_not_change_the_prediction(stack, example, model_file):
    loaded = load(model_file)
    assert_same_model(loaded, stack)
    for image in example.images:
        assert loaded.predict_proba(image).tobytes() == stack.predict_proba(image).tobytes()
        np.testing.assert_array_equal(loaded.predict(image), stack.predict(image))


def test_a_model_of_opponent_colours_comes_back(tmp_path):
    stack, image = grown_stack("opponent")
    save(stack, tmp_path / "a.hedge")
    loaded = load(tmp_path / "a.hedge")
    assert loaded.features.opponent
    np.testing.assert_array_equal(loaded.predict_proba(image), stack.predict_proba(image))


def test_the_same_model_gives_the_same_bytes(stack, model_file, tmp_path):
    size = save(stack, tmp_path / "again.hedge")
    save(load(model_file), tmp_path / "reloaded.hedge")
    content = model_file.read_bytes()
    assert size == len(content)
    for _ in range(5):  # a random order of entries would show by now
        save(stack, tmp_path / "again.hedge")
        assert (tmp_path / "again.hedge").read_bytes() == content
    assert (tmp_path / "reloaded.hedge").read_bytes() == content


def test_offsets_in_slices_come_back(tmp_path):
    pytest.importorskip("torch")
    stack = random_stack("channels", reach_z=128)
    for model in (stack, hr.to_convnet(stack)):
        save(model, tmp_path / "a.hedge")
        loaded = load(tmp_path / "a.hedge")
        assert_same_model(loaded if model is stack else loaded.stack, stack)
        assert loaded.level_reach_z(1) == stack.levels[1].reach_z > 100


def test_depth_features_do_not_look_at_other_slices(tmp_path):
    with pytest.raises(ModelError, match="another slice"):
        save(random_stack("depth", reach_z=1), tmp_path / "a.hedge")


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


def test_the_description_for_people_is_plain_json(stack):
    described = description(stack)
    assert json.loads(json.dumps(described)) == described
    assert described["classes"] == [3, 77, 200]
    assert len(described["features"]["names"]) == stack.features.n_features
    assert [level["trees"] for level in described["levels"]] == [3, 3]
    assert described["n_images"] == 2
    assert len(described["held_out"]) == 2


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
