"""Which files are ours, and that no others are overwritten."""

import builtins
import errno
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from hedgerow import overwrite_guard
from hedgerow.errors import InputError
from hedgerow.files import atomic_path, write_text
from hedgerow.images.writing import write_labels, write_scaled
from hedgerow.overwrite_guard import (
    check_overwriting,
    is_ours,
    is_recorded,
    lies_in,
    remove_folder,
    remove_recorded,
    remove_state,
    writing_as,
)
from helpers.files import listing
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
    write_scaled(tmp_path / "a.tif", np.zeros((2, 3, 4), np.float32))
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
    assert_one_sentence(problem, *paths[:3], "and 2 more", "did not write them, or they were changed", "--overwrite")
    with pytest.raises(InputError, match="did not write it, or it was changed"):
        check_overwriting(paths[:1], [], overwrite=False)
    with pytest.raises(InputError, match="are some of the files to read"):
        check_overwriting(paths, paths[:2], overwrite=False)
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
    real_open, problem = open, errno.ENOSPC

    def refuse_notes(path, *arguments, **options):
        if Path(os.environ["XDG_STATE_HOME"]) in Path(path).parents:
            raise OSError(problem, "refused")
        return real_open(path, *arguments, **options)

    monkeypatch.setattr(builtins, "open", refuse_notes)
    with pytest.raises(InputError, match="cannot write") as refusal:
        write_text(tmp_path / "a.txt", "text")
    assert_one_sentence(refusal, tmp_path / "a.txt", Path(os.environ["XDG_STATE_HOME"]) / "hedgerow", "XDG_STATE_HOME")
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


def make_folder(path):
    with atomic_path(path) as temporary:
        temporary.mkdir()
        (temporary / "part").write_text("ours")
    return path


def test_only_a_recorded_file_that_nobody_changed_is_removed(tmp_path):
    write_text(tmp_path / "ours.txt", "x")
    write_text(tmp_path / "edited.txt", "x")
    (tmp_path / "edited.txt").write_text("corrected by hand")
    (tmp_path / "theirs.txt").write_text("x")
    (tmp_path / "link.txt").symlink_to(tmp_path / "ours.txt")
    for name in ("edited.txt", "theirs.txt", "link.txt"):
        with pytest.raises(InputError) as problem:
            remove_recorded(tmp_path / name)
        assert_one_sentence(problem, tmp_path / name, "move it away")
    remove_recorded(tmp_path / "missing.txt")
    remove_recorded(tmp_path / "ours.txt")
    assert sorted(os.listdir(tmp_path)) == ["edited.txt", "link.txt", "theirs.txt"]


def test_the_state_of_a_run_shows_by_itself_that_it_may_be_removed(tmp_path, model_file):
    ours = {"digest": "0" * 64 + "\n", "note": '{\n "hedgerow": "a run"}', "model": model_file.read_bytes()}
    theirs = {"text": "0" * 63, "more": "0" * 64 + " x", "list": '["hedgerow"]', "other": '{"a": {"hedgerow": 1}}'}
    for name, content in (ours | theirs).items():
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    (tmp_path / "link").symlink_to(tmp_path / "note")
    (tmp_path / "folder").mkdir()
    for name in (*theirs, "link", "folder"):
        with pytest.raises(InputError) as problem:
            remove_state(tmp_path / name)
        assert_one_sentence(problem, tmp_path / name, "move it away")
    for name in (*ours, "missing"):
        remove_state(tmp_path / name)
    assert sorted(os.listdir(tmp_path)) == sorted([*theirs, "link", "folder"])


def test_a_folder_is_removed_if_it_is_recorded_or_marked(tmp_path):
    remove_folder(make_folder(tmp_path / "ours"), "mark.json")
    for name, content in (("marked", '{"hedgerow": "1.0"}'), ("theirs", "{}"), ("bare", None)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data").write_text("x")
        if content is not None:
            (tmp_path / name / "mark.json").write_text(content)
    (make_folder(tmp_path / "edited") / "part").write_text("by hand")
    (tmp_path / "link").symlink_to(tmp_path / "marked")
    (tmp_path / "file").write_text("x")
    before = listing(tmp_path)
    for name in ("theirs", "bare", "edited", "link", "file"):
        with pytest.raises(InputError) as problem:
            remove_folder(tmp_path / name, "mark.json")
        assert_one_sentence(problem, tmp_path / name, "move it away")
    assert listing(tmp_path) == before
    remove_folder(tmp_path / "marked", "mark.json")
    remove_folder(tmp_path / "missing", "mark.json")
    assert sorted(os.listdir(tmp_path)) == ["bare", "edited", "file", "link", "theirs"]


def test_what_links_in_a_folder_point_to_stays(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").write_text("x")
    work = tmp_path / "work"
    work.mkdir()
    (work / "mark.json").write_text('{"hedgerow": "1.0"}')
    (work / "folder").symlink_to(tmp_path / "photos")
    os.link(tmp_path / "photos" / "a.png", work / "hard.png")
    remove_folder(work, "mark.json")
    assert listing(tmp_path) == {"photos/a.png": b"x"}


def test_marks_and_temporary_files_of_ours_do_not_make_a_folder_foreign(tmp_path):
    folder = make_folder(tmp_path / "a")
    (folder / ".hedgerow-unfinished").mkdir()
    (folder / ".hedgerow-unfinished" / "run.json").write_text("{}")
    assert is_recorded(folder)
    (folder / "more").write_text("theirs")
    assert not is_recorded(folder)


def test_a_writer_owns_only_what_it_wrote_itself(tmp_path, model_file):
    write_text(tmp_path / "command.txt", "x")
    with writing_as("page"):
        write_text(tmp_path / "page.txt", "x")
        shutil.copyfile(model_file, tmp_path / "model.hedge")
        assert [is_ours(tmp_path / name) for name in ("page.txt", "command.txt", "model.hedge")] == [True, False, False]
        with pytest.raises(InputError, match="this page did not write it"):
            check_overwriting([tmp_path / "command.txt"], [], overwrite=False)
    assert [is_ours(tmp_path / name) for name in ("page.txt", "command.txt", "model.hedge")] == [False, True, True]


def test_a_file_written_through_a_link_is_ours_by_both_names(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link.txt").symlink_to(tmp_path / "there" / "a.txt")
    write_text(tmp_path / "link.txt", "x")
    assert is_ours(tmp_path / "link.txt")
    assert is_ours(tmp_path / "there" / "a.txt")


def test_where_a_path_lies_whatever_links_lead_there(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "a" / "b" / "out.txt").symlink_to(tmp_path / "elsewhere.txt")
    for path in ("a", "a/b", "a/b/new.txt", "link/b/new.txt", "a/b/out.txt"):
        assert lies_in(tmp_path / path, tmp_path / "a"), path
        assert lies_in(tmp_path / path, tmp_path / "link"), path
    for path in (".", "ab", "elsewhere.txt", "a/../c"):
        assert not lies_in(tmp_path / path, tmp_path / "a"), path
    assert not lies_in(tmp_path / "a", tmp_path / "missing")


def test_an_input_inside_an_output_and_the_reverse_are_refused(tmp_path):
    image = make_folder(tmp_path / "image.zarr")
    (tmp_path / "link").symlink_to(image)
    for output, read in ((image / "a.txt", image), (image, image / "part"), (tmp_path / "link" / "x", image)):
        for overwrite in (False, True):
            with pytest.raises(InputError, match="or is inside one"):
                check_overwriting([output], [read], overwrite)
    check_overwriting([image.with_name("image.zarr.json")], [image], overwrite=False)
