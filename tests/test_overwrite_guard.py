"""Which files are ours, and that no others are overwritten."""

import errno
import os

import numpy as np
import pytest

from hedgerow import overwrite_guard
from hedgerow.errors import InputError
from hedgerow.files import write_text
from hedgerow.images.writing import write_labels, write_planes
from hedgerow.overwrite_guard import check_overwriting, is_ours
from helpers.refusals import assert_one_sentence


@pytest.mark.parametrize("ending", ["png", "tif", "npy", "zarr"])
def test_an_image_is_ours_until_someone_changes_it(tmp_path, ending):
    path = write_labels(tmp_path / f"a.{ending}", np.eye(20, dtype=int))
    assert is_ours(path)
    inner = next(file for file in path.rglob("c/0/0")) if path.is_dir() else path
    inner.write_bytes(inner.read_bytes() + b" ")
    assert not is_ours(path)


def test_a_change_that_keeps_the_size_is_noticed(tmp_path):
    write_text(tmp_path / "a.txt", "old")
    later = os.stat(tmp_path / "a.txt").st_mtime_ns + 10**7
    (tmp_path / "a.txt").write_text("new\n")
    os.utime(tmp_path / "a.txt", ns=(later, later))
    assert not is_ours(tmp_path / "a.txt")


def test_files_of_others_and_moved_ones_are_not_ours(tmp_path):
    (tmp_path / "theirs.txt").write_text("x")
    write_text(tmp_path / "a.txt", "x")
    os.rename(tmp_path / "a.txt", tmp_path / "b.txt")
    assert not is_ours(tmp_path / "theirs.txt")
    assert not is_ours(tmp_path / "b.txt")
    assert not is_ours(tmp_path / "missing.txt")


def test_a_model_is_ours_wherever_it_is_moved(tmp_path, model_file):
    (tmp_path / "copy.hedge").write_bytes(model_file.read_bytes())
    assert is_ours(tmp_path / "copy.hedge")


def test_nothing_is_left_in_the_folder_beside_the_file(tmp_path):
    write_planes(tmp_path / "a.tif", np.zeros((2, 3, 4), np.float32))
    assert os.listdir(tmp_path) == ["a.tif"]


def test_without_a_home_nothing_counts_as_ours(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    (tmp_path / "file").write_text("not a folder")
    write_text(tmp_path / "a.txt", "x")
    assert not is_ours(tmp_path / "a.txt")


def test_names_in_any_script_or_none(tmp_path):
    for name in ("é ü.txt", "new\nline.txt", "日本.txt", "a\udcff.txt"):
        try:
            write_text(tmp_path / name, "x")
        except (InputError, UnicodeEncodeError):
            continue  # a system that has no such names
        assert is_ours(tmp_path / name), name


def test_a_refusal_names_the_first_files_and_counts_the_rest(tmp_path):
    paths = [tmp_path / f"{i}.txt" for i in range(5)]
    for path in paths:
        path.write_text("theirs")
    with pytest.raises(InputError) as problem:
        check_overwriting(paths, [], overwrite=False)
    assert_one_sentence(problem, *paths[:3], "and 2 more", "--overwrite")
    check_overwriting(paths, [], overwrite=True)


def test_an_input_is_refused_by_any_of_its_names(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "link.txt").symlink_to(tmp_path / "a.txt")
    os.link(tmp_path / "a.txt", tmp_path / "hard.txt")
    for output in ("a.txt", "link.txt", "hard.txt"):
        for overwrite in (False, True):
            with pytest.raises(InputError, match="one of the files to read"):
                check_overwriting([tmp_path / output], [tmp_path / "a.txt"], overwrite)


def test_the_list_of_a_folder_does_not_grow_for_ever(tmp_path):
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    write_text(first, "first")
    for i in range(100):
        write_text(second, str(i))
    lines = overwrite_guard._list_of(tmp_path).read_text().splitlines()
    assert len(lines) <= 2 * 2 + overwrite_guard._SPARE_LINES + 1
    assert is_ours(first)
    assert is_ours(second)


def test_a_disk_that_is_full_of_notes_is_full(tmp_path, monkeypatch):
    def refuse(listed, folder):
        raise OSError(problem, "refused")

    monkeypatch.setattr(overwrite_guard, "_forget_older", refuse)
    problem = errno.ENOSPC
    with pytest.raises(InputError, match="cannot write"):
        write_text(tmp_path / "a.txt", "text")
    assert not list(tmp_path.iterdir())
    problem = errno.EACCES
    write_text(tmp_path / "a.txt", "text")
    assert not is_ours(tmp_path / "a.txt")


def test_what_killed_runs_noted_and_never_wrote_makes_no_file_foreign(tmp_path):
    write_text(tmp_path / "a.txt", "whole")
    other = tmp_path / "half"
    for number in range(3 * overwrite_guard._SPARE_LINES):
        other.write_text("x" * number)
        overwrite_guard.note_written(other, tmp_path / "a.txt")  # and then the run was killed
    assert is_ours(tmp_path / "a.txt")
