"""Locks: one writer at a time, who is named to the second; a lock ends with its process."""

import builtins
import errno
import importlib.util
import multiprocessing
import os
import platform
import re
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from hedgerow import locking
from hedgerow.errors import InputError
from hedgerow.locking import Lock, locked
from helpers.files import listing
from helpers.refusals import assert_one_sentence

PATIENCE = 120  # seconds, for a process to start


def lock(path):
    return Lock(path, str(path), locking.WRITTEN)


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


def test_a_lock_ends_with_its_process(tmp_path):
    code = (
        "import sys, os; from pathlib import Path; from hedgerow.locking import Lock\n"
        "held = Lock(Path(sys.argv[1]), 'the model', '{holder}'); os._exit(9)"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path / "lock")], check=False, timeout=60)
    assert ended.returncode == 9
    lock(tmp_path / "lock").release()


def test_a_link_and_its_target_share_one_lock(tmp_path):
    target, link = tmp_path / "there" / "model.hedge", tmp_path / "link.hedge"
    target.parent.mkdir()
    link.symlink_to(target)
    for first, second in ((link, target), (target, link)):
        with locked(first), pytest.raises(InputError) as problem, locked(second):
            pytest.fail("two runs write one file")
        assert_one_sentence(problem, second, f"process {os.getpid()} on")
    assert not list(tmp_path.rglob(".hedgerow-*"))


def test_braces_in_the_name_of_an_output_are_no_placeholders(tmp_path):
    output = tmp_path / "{holder} {0}.hedge"
    with locked(output), pytest.raises(InputError) as problem, locked(output):
        pytest.fail("two hold one lock")
    assert_one_sentence(problem, output, f"process {os.getpid()} on")


def test_a_lock_that_is_released_while_another_waits_for_it_is_not_held_twice(tmp_path, monkeypatch):
    """The second opens the lock file before the first removes it: its lock would be on a file that is gone."""
    first, hold = lock(tmp_path / "lock"), locking.hold
    released = []

    def release_then_hold(file):
        if not released:
            released.append(first.release(removing=True))
        hold(file)

    monkeypatch.setattr(locking, "hold", release_then_hold)
    second = lock(tmp_path / "lock")
    with pytest.raises(InputError, match=f"process {os.getpid()} on"):
        lock(tmp_path / "lock")
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
        lock(path)
    assert_one_sentence(problem, path, "move it away")
    assert path.read_bytes() == content


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs the pipes of Unix")
def test_a_pipe_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "lock")
    with pytest.raises(InputError, match="it is not a file"):
        lock(tmp_path / "lock")


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
    again = lock(tmp_path / "lock")
    assert (tmp_path / "lock").read_text().startswith(f"process {os.getpid()} on ")
    again.release()


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

    real_open = open
    with monkeypatch.context() as patch:
        patch.setattr(builtins, "open", lambda *arguments, **options: Full(real_open(*arguments, **options)))
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


def is_open(number):
    try:
        return number is not None and bool(os.fstat(number))
    except OSError:
        return False


class WindowsLocks:
    """Stands for `msvcrt` of Windows: a byte of a file is held by the first who asks, until the file is closed."""

    LK_NBLCK = 2

    def __init__(self):
        self.held = {}

    def locking(self, number, mode, n_bytes):
        assert (mode, n_bytes) == (self.LK_NBLCK, 1)
        place = os.fstat(number).st_ino, os.lseek(number, 0, os.SEEK_CUR)
        assert place[1] > 10_000  # the note stays readable
        if self.held.get(place) != number and is_open(self.held.get(place)):
            raise PermissionError(13, "Permission denied")
        self.held[place] = number


def test_a_lock_is_held_on_windows_too(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setitem(sys.modules, "msvcrt", WindowsLocks())
    spec = importlib.util.find_spec("hedgerow.locking")
    on_windows = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(on_windows)
    path, subject = tmp_path / "lock", "the model"
    first = on_windows.Lock(path, subject, locking.WRITTEN)
    first.note("http://127.0.0.1:8000/")
    note = path.read_text()
    assert re.fullmatch(rf"process {os.getpid()} on .* since [-: \d]+ at http://127.0.0.1:8000/\n", note)
    with pytest.raises(InputError, match=r"already being written by process \d+ on .* at http://127"):
        on_windows.Lock(path, subject, locking.WRITTEN)
    first.release()
    on_windows.Lock(path, subject, locking.WRITTEN).release()
