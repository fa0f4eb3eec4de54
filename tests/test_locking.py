"""Locks: one writer at a time, who is named to the second; a lock ends with its process."""

import errno
import multiprocessing
import os
import platform
import signal
from contextlib import contextmanager

import pytest

from hedgerow import locking
from hedgerow.errors import InputError
from hedgerow.locking import Lock, locked
from helpers.files import listing
from helpers.refusals import assert_one_sentence

PATIENCE = 120  # seconds, for a process to start


def hold_for_ever(output, pipe):
    with locked(output):
        pipe.send("held")
        pipe.recv()


@contextmanager
def another_process(output):
    """A process that holds the lock of an output until it is killed."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=hold_for_ever, args=(output, there), daemon=True)
    process.start()
    try:
        assert here.poll(PATIENCE)
        assert here.recv() == "held"
        yield process
    finally:
        process.kill()
        process.join(PATIENCE)


def test_a_second_process_is_refused_and_the_first_is_named_until_it_is_killed(tmp_path):
    output = tmp_path / "model.hedge"
    with another_process(output) as first:
        for _ in range(2):
            with pytest.raises(InputError) as problem, locked(output):
                pytest.fail("two hold one lock")
            assert_one_sentence(problem, output, f"process {first.pid} on {platform.node()} since 20", "another output")
        with locked(tmp_path / "other.hedge"):
            pass
        os.kill(first.pid, getattr(signal, "SIGKILL", signal.SIGTERM))
        first.join(PATIENCE)
        assert listing(tmp_path), "the lock file of the killed process"
        with locked(output):
            pass
    assert listing(tmp_path) == {}, "no lock file stays"


def test_a_lock_that_is_released_while_another_waits_for_it_is_not_held_twice(tmp_path, monkeypatch):
    """The second opens the lock file before the first removes it: its lock would be on a file that is gone."""
    first, opened = Lock(tmp_path / "lock"), locking._opened
    released = []

    def open_then_release(path):
        file = opened(path)
        if not released:
            released.append(first.release(removing=True))
        return file

    monkeypatch.setattr(locking, "_opened", open_then_release)
    second = Lock(tmp_path / "lock")
    with pytest.raises(InputError, match=f"process {os.getpid()} on"):
        Lock(tmp_path / "lock")
    second.release()


@pytest.mark.parametrize(
    "content",
    [
        b"my diary\n",
        b"\xff\xfe\x00",
        b"process of painting\n",
        b"\nprocess 3\n",
        b"process 3 and more of a text\n",
        b"process 3\n" + b"x" * 1000,
    ],
)
def test_a_file_of_somebody_else_is_left_alone(tmp_path, content):
    path = tmp_path / "lock"
    path.write_bytes(content)
    with pytest.raises(InputError) as problem:
        Lock(path)
    assert_one_sentence(problem, path, "move it away")
    assert path.read_bytes() == content


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs the pipes of Unix")
def test_a_pipe_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "lock")
    with pytest.raises(InputError, match="it is not a file"):
        Lock(tmp_path / "lock")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "process 3\n",
        "process 3 at http://127.0.0.1:1/\n",
        "process 3 on a.b since 2026-01-02 03:04:05\n",
        "process 3 on  since 2026-01-02 03:04:05 at http://127.0.0.1:1/\n",
    ],
)
def test_the_lock_file_of_a_killed_process_blocks_nobody(tmp_path, content):
    (tmp_path / "lock").write_text(content)
    lock = Lock(tmp_path / "lock")
    assert (tmp_path / "lock").read_text().startswith(f"process {os.getpid()} on ")
    lock.release()


def test_where_the_file_system_has_no_locks_a_warning_is_printed_and_the_run_goes_on(tmp_path, monkeypatch, caplog):
    def hold(file):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locking, "hold", hold)
    with locked(tmp_path / "model.hedge"):
        assert "cannot be locked (No locks available)" in caplog.text
    assert listing(tmp_path) == {}


def test_a_full_disk_is_one_sentence_and_leaves_no_lock_file(tmp_path, monkeypatch):
    class Full:
        def __init__(self, file):
            self._file = file

        def __getattr__(self, name):
            return getattr(self._file, name)

        def write(self, content):
            raise OSError(errno.ENOSPC, "No space left on device")

    opened = locking._opened
    with monkeypatch.context() as patch:
        patch.setattr(locking, "_opened", lambda path: Full(opened(path)))
        with pytest.raises(InputError) as problem, locked(tmp_path / "model.hedge"):
            pytest.fail("the lock says nothing of its holder")
        assert_one_sentence(problem, "No space left on device", "free space")
    assert listing(tmp_path) == {}
    with locked(tmp_path / "model.hedge"):
        pass


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    with pytest.raises(InputError) as problem, locked(tmp_path / "missing" / "model.hedge"):
        pass
    assert_one_sentence(problem, "cannot open", "check its permissions")
