"""Writing files: whole or not at all, flushed, through links, never onto a device, and cleaned up after a kill."""

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hedgerow import files, temporary
from hedgerow.errors import InputError
from hedgerow.files import atomic_path, write_text
from helpers.files import listing
from helpers.refusals import assert_one_sentence

LEAVES_A_TEMPORARY = """
import os, signal, sys
from hedgerow.files import atomic_path
with atomic_path(sys.argv[1]) as temporary:
    if sys.argv[2] == "folder":
        temporary.mkdir()
        (temporary / "part").write_text("half")
    else:
        temporary.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def unswept(monkeypatch):
    """As in a process that has not written yet."""
    monkeypatch.setattr(temporary, "_swept", set())


def write_folder(path, text):
    with atomic_path(path) as temporary:
        temporary.mkdir()
        (temporary / "part").write_text(text)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_the_next_run_removes_what_a_killed_one_left(tmp_path, unswept, kind):
    write_text(tmp_path / "a.txt", "old")
    subprocess.run([sys.executable, "-c", LEAVES_A_TEMPORARY, tmp_path / "a.txt", kind], check=False)
    assert len(os.listdir(tmp_path)) == 2
    assert (tmp_path / "a.txt").read_text() == "old\n"
    temporary._swept.clear()
    write_text(tmp_path / "b.txt", "new")
    assert listing(tmp_path) == {"a.txt": b"old\n", "b.txt": b"new\n"}


def test_what_a_running_process_writes_is_left_alone(tmp_path, unswept):
    mine = temporary.temporary_in(tmp_path)
    mine.write_text("being written")
    write_text(tmp_path / "b.txt", "new")
    assert mine.exists()


def test_what_another_machine_left_is_removed_after_a_day(tmp_path, unswept):
    recent, old, like_ours = (tmp_path / f".hedgerow-{who}.tmp" for who in ("0" * 32, "1" * 32, "notes"))
    for path in (recent, old, like_ours):
        path.write_text("half")
    yesterday = time.time() - 2 * 24 * 3600
    for path in (old, like_ours):
        os.utime(path, (yesterday, yesterday))
    temporary.sweep(tmp_path)
    assert set(listing(tmp_path)) == {recent.name, like_ours.name}


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace
    kinds = {True: "folder", False: "file"}

    def flush(opened):
        calls.append(f"flush {kinds[stat.S_ISDIR(os.fstat(opened).st_mode)]}")
        fsync(opened)

    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(os, "replace", lambda *names: (calls.append("rename"), replace(*names)))
    write_text(tmp_path / "a.txt", "text")
    assert calls[:2] == ["flush file", "rename"]
    assert sys.platform == "win32" or calls[2:] == ["flush folder"]


@pytest.mark.skipif(sys.platform not in ("linux", "darwin"), reason="needs a system that exchanges two names")
def test_a_folder_is_replaced_in_one_step(tmp_path, monkeypatch):
    write_folder(tmp_path / "a", "old")

    def fail(*names):
        raise AssertionError("the folder had no name for a moment")

    monkeypatch.setattr(os, "replace", fail)
    write_folder(tmp_path / "a", "new")
    assert listing(tmp_path) == {"a/part": b"new"}


def test_a_folder_moved_aside_by_a_killed_run_comes_back(tmp_path):
    write_folder(tmp_path / "a", "old")
    os.replace(tmp_path / "a", files._aside(tmp_path / "a"))
    with pytest.raises(InputError, match="no space"):
        fail_in(tmp_path / "a")
    assert listing(tmp_path) == {"a/part": b"old"}


def fail_in(path):
    with atomic_path(path):
        raise OSError("no space")


def test_a_folder_is_replaced_where_names_cannot_be_exchanged(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "exchanged", lambda one, other: False)
    for text in ("old", "new"):
        write_folder(tmp_path / "a", text)
    assert listing(tmp_path) == {"a/part": b"new"}


def test_a_link_stays_and_what_it_points_to_is_replaced(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link.txt").symlink_to(tmp_path / "there" / "a.txt")
    for text in ("old", "new"):
        write_text(tmp_path / "link.txt", text)
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "there" / "a.txt").read_text() == "new\n"
    assert os.listdir(tmp_path / "there") == ["a.txt"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
def test_a_pipe_or_device_is_refused_and_stays(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path(os.devnull)):
        with pytest.raises(InputError) as problem:
            write_text(path, "text")
        assert_one_sentence(problem, path, "device or a pipe")
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


@pytest.mark.parametrize("name", ["", "n" * 300, "nul\0"])
def test_impossible_names_are_refused(tmp_path, name):
    with pytest.raises(InputError) as problem:
        write_text(f"{tmp_path}/{name}" if name else "", "text")
    assert_one_sentence(problem, "name")
    assert len(str(problem.value)) < 400
    assert os.listdir(tmp_path) == []


def test_links_in_a_circle_are_refused(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(InputError) as problem:
        write_text(tmp_path / "a", "text")
    assert_one_sentence(problem, tmp_path / "a")
