"""Trees that an interrupted run has grown are read, and the stack is the same as one that was not interrupted."""

import numpy as np
import pytest

import hedgerow as hr
from conftest import draw
from hedgerow.forest import tree_store
from hedgerow.forest.autocontext import grow_stack
from hedgerow.forest.tree_store import TreeStore
from hedgerow.images.given import labelled_set
from hedgerow.io.model_file import file_content
from hedgerow.progress import silent

CONFIG = hr.StackConfig(n_levels=2, n_trees=3, max_depth=4, sigmas=(1.0,))


class Stopped(Exception):
    pass


@pytest.fixture
def labelled():
    drawn = [draw(seed) for seed in range(4)]
    return labelled_set([image for image, _ in drawn], [labels for _, labels in drawn])


@pytest.mark.parametrize("n_trees", [1, 8, 15])
def test_an_interrupted_stack_is_grown_on_to_the_same_bytes(tmp_path, monkeypatch, labelled, n_trees):
    """Level by level, 3 trees of the forest and 3 of each of 2 folds."""
    monkeypatch.setattr(tree_store, "SECONDS_BETWEEN_FILES", -1.0)
    expected = file_content(grow_stack(labelled, CONFIG, progress=silent))

    class Interrupted(TreeStore):
        def _store(self, task, tree):
            super()._store(task, tree)
            nonlocal n_trees
            n_trees -= 1
            if n_trees == 0:
                raise Stopped

    n_grown = n_trees
    with pytest.raises(Stopped):
        grow_stack(labelled, CONFIG, progress=silent, grow_all=Interrupted(tmp_path / "trees", "key").grow_all)
    store = TreeStore(tmp_path / "trees", "key")
    assert len(store) == n_grown
    assert file_content(grow_stack(labelled, CONFIG, progress=silent, grow_all=store.grow_all)) == expected


def test_trees_are_stored_every_few_seconds(tmp_path, labelled):
    clock = iter(np.arange(0.0, 1e6, 7.0))
    store = TreeStore(tmp_path / "trees", "key", lambda: next(clock))
    grow_stack(labelled, CONFIG, progress=silent, grow_all=store.grow_all)
    n_files = len(list(tmp_path.iterdir()))
    assert 18 / 4 <= n_files <= 18 / 2, "18 trees, 7 or 14 seconds each"


def test_trees_of_other_settings_and_damaged_files_are_not_used(tmp_path, monkeypatch, labelled):
    monkeypatch.setattr(tree_store, "SECONDS_BETWEEN_FILES", -1.0)
    grow_stack(labelled, CONFIG, progress=silent, grow_all=TreeStore(tmp_path / "trees", "key").grow_all)
    assert len(TreeStore(tmp_path / "trees", "another key")) == 0
    (tmp_path / "trees-1.array").write_bytes(b"half a file")
    assert len(TreeStore(tmp_path / "trees", "key")) == 17


def test_without_a_folder_nothing_is_stored(tmp_path, monkeypatch, labelled):
    monkeypatch.chdir(tmp_path)
    store = TreeStore(None)
    stack = grow_stack(labelled, CONFIG, progress=silent, grow_all=store.grow_all)
    assert file_content(stack) == file_content(grow_stack(labelled, CONFIG, progress=silent))
    assert list(tmp_path.iterdir()) == []
