"""What encoders computed is found again: by content, bounded, whole or not at all."""

import multiprocessing
import os

import numpy as np
import pytest

from hedgerow.errors import InputError
from hedgerow.features.layer_cache import CacheFolder, RecentLayers, key_of
from helpers.refusals import assert_one_sentence


def layers(value, n=1000):
    return [np.full((1, 1, n), value, np.float32), np.full((2, 1, 3), value, np.float32)]


def never():
    raise AssertionError("it was computed again")


def assert_equal(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_was_used_longest_ago_is_let_go():
    recent = RecentLayers(memory=2 * 4024)
    for value in (1, 2):
        recent.get(str(value), lambda value=value: layers(value))
    assert_equal(recent.get("1", never), layers(1))
    recent.get("3", lambda: layers(3))
    assert_equal(recent.get("1", never), layers(1))
    with pytest.raises(AssertionError, match="again"):
        recent.get("2", never)
    recent.forget()
    with pytest.raises(AssertionError, match="again"):
        recent.get("1", never)


def test_a_folder_keeps_the_same_bits(tmp_path):
    folder = CacheFolder(tmp_path / "new" / "folder")
    made = [np.random.default_rng(0).normal(size=(3, 4, 5)).astype(np.float32)]
    folder.get("a", lambda: made)
    assert_equal(CacheFolder(tmp_path / "new" / "folder").get("a", never), made)
    assert [path.name for path in (tmp_path / "new" / "folder").iterdir()] == ["a.npz"]


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-30], lambda data: b"", lambda data: data[:200] + b"x" + data[201:]]
)
def test_a_damaged_file_is_computed_again(tmp_path, damage):
    folder = CacheFolder(tmp_path)
    folder.get("a", lambda: layers(1))
    path = tmp_path / "a.npz"
    path.write_bytes(damage(path.read_bytes()))
    assert_equal(folder.get("a", lambda: layers(1)), layers(1))
    assert_equal(folder.get("a", never), layers(1))


def test_a_file_of_objects_is_never_run(tmp_path):
    np.savez(tmp_path / "a.npz", np.array([{"an": "object"}], dtype=object))
    assert_equal(CacheFolder(tmp_path).get("a", lambda: layers(4)), layers(4))


def test_a_folder_stays_bounded(tmp_path):
    folder = CacheFolder(tmp_path, most=10_000)
    for value in range(5):
        folder.get(str(value), lambda value=value: layers(value))
        os.utime(tmp_path / f"{value}.npz", (value, value))
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["3", "4"]


def test_a_file_that_others_put_into_the_folder_stays(tmp_path):
    np.savez(tmp_path / "measurements.npz", np.zeros(10_000))
    (tmp_path / "link.npz").symlink_to(tmp_path / "measurements.npz")
    for path in tmp_path.iterdir():
        os.utime(path, (0, 0), follow_symlinks=False)
    folder = CacheFolder(tmp_path, most=10_000)
    for value in range(4):
        folder.get(str(value), lambda value=value: layers(value))
        os.utime(tmp_path / f"{value}.npz", (value, value))
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["2", "3", "link", "measurements"]


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError) as problem:
        CacheFolder(tmp_path / "file" / "folder")
    assert_one_sentence(problem, "choose another")


def _fill(path):
    folder = CacheFolder(path, most=20_000)
    for value in [1, 2, 3, 4, 5, 6] * 5:
        found = folder.get(str(value), lambda value=value: layers(value))
        assert_equal(found, layers(value))


def test_two_processes_share_a_folder(tmp_path):
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_fill, args=(tmp_path,)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        assert process.exitcode == 0


def test_keys_tell_content_shape_and_settings_apart():
    planes = np.arange(12, dtype=np.float32).reshape(1, 3, 4)
    keys = {
        key_of(planes, 1),
        key_of(planes + 1, 1),
        key_of(planes.reshape(1, 4, 3), 1),
        key_of(planes, 2),
    }
    assert len(keys) == 4
    assert key_of(planes.copy(), 1) == key_of(planes, 1)
