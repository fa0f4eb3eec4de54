"""What is saved can be loaded: a model that could not is refused, and what was in its place stays."""

import dataclasses
import errno

import numpy as np
import pytest

from hedgerow.errors import ModelError
from hedgerow.io import model_file as module
from hedgerow.io.model_file import load, save
from helpers.model_files import refused

OLD = b"the old model"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"unlabelled": 2**32 - 1}, "unlabelled value"),
        ({"unlabelled": 2.5}, "unlabelled value"),
        ({"unlabelled": None}, "unlabelled value"),
        ({"unlabelled": "255"}, "unlabelled value"),
        ({"unlabelled": 77}, "one of its classes"),
        ({"classes": (3, 77, 10**12)}, "class"),
        ({"image_dtype": "\x1b[2J"}, "not printable"),
        ({"settings": {"held_out": [{"mean_dice": float("nan")}]}}, "out of range"),
        ({"settings": {"made by": object()}}, "settings"),
        ({"settings": {"by": "x" * 1000}}, "too long"),
        ({"tolerance": 0.1, "output": "sum"}, "output"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else value,
)
def test_a_model_that_would_not_load_is_not_saved(stack, tmp_path, change, words):
    path = tmp_path / "model.hedge"
    path.write_bytes(OLD)
    with pytest.raises(ModelError) as problem:
        save(dataclasses.replace(stack, **change), path)
    message = str(problem.value)
    assert "would not load" in message
    assert words in message
    assert "copy it again" not in message
    assert message.isprintable()
    assert path.read_bytes() == OLD
    assert list(tmp_path.iterdir()) == [path], "nothing is left beside it"


def test_a_forest_that_would_not_load_is_not_saved(stack, tmp_path):
    forest = dataclasses.replace(stack.levels[0], threshold=np.full_like(stack.levels[0].threshold, np.nan))
    with pytest.raises(ModelError, match="would not load again: an array has impossible values"):
        save(dataclasses.replace(stack, levels=(forest, *stack.levels[1:])), tmp_path / "model.hedge")
    assert not list(tmp_path.iterdir())


def test_numbers_of_numpy_are_saved_as_they_are(stack, tmp_path):
    changed = dataclasses.replace(stack, unlabelled=np.int64(-1), classes=tuple(np.array(stack.classes)))
    save(changed, tmp_path / "model.hedge")
    assert load(tmp_path / "model.hedge").unlabelled == -1
    assert load(tmp_path / "model.hedge").classes == stack.classes


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory"), OSError(errno.ENOMEM, "no")]
)
def test_a_model_too_large_to_be_held_twice_is_saved(stack, tmp_path, monkeypatch, error):
    def full(path, framework):
        raise error

    monkeypatch.setattr(module, "safe_open", full)
    save(stack, tmp_path / "model.hedge")
    assert "not enough memory" in refused(tmp_path / "model.hedge")
    monkeypatch.undo()
    load(tmp_path / "model.hedge")
