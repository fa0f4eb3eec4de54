"""The journal: torn and damaged lines, full disks, and a server that is killed in the middle of strokes."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from hedgerow.errors import InputError
from hedgerow.paint.journal import Journal
from helpers.paint import Client, open_project, stroke, write_images


def filled(path, n=3):
    journal = Journal(path)
    for number in range(n):
        journal.append({"do": "paint", "n": number})
    journal.close()
    return path.read_bytes()


def entries(path):
    journal = Journal(path)
    journal.close()
    return journal.entries, journal.dropped


def test_what_was_appended_is_there_again(tmp_path):
    filled(tmp_path / "j")
    assert entries(tmp_path / "j") == ([{"do": "paint", "n": n} for n in range(3)], 0)


def test_a_journal_that_was_cut_anywhere_keeps_every_whole_line(tmp_path):
    path = tmp_path / "j"
    whole = filled(path)
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        found, dropped = entries(path)
        n_lines = sum(end <= cut for end in ends)
        assert [one["n"] for one in found] == list(range(max(n_lines - 1, 0)))
        assert dropped == cut - ([0, *ends][n_lines])


def test_after_a_torn_line_the_next_one_is_whole(tmp_path):
    path = tmp_path / "j"
    path.write_bytes(filled(path)[:-5])
    journal = Journal(path)
    journal.append({"do": "undo"})
    journal.close()
    assert entries(path)[0] == [{"do": "paint", "n": 0}, {"do": "paint", "n": 1}, {"do": "undo"}]


def test_a_damaged_line_in_the_middle_is_refused(tmp_path):
    path = tmp_path / "j"
    lines = filled(path).splitlines(keepends=True)
    lines[2] = lines[2].replace(b'"n":1', b'"n":7')
    path.write_bytes(b"".join(lines))
    with pytest.raises(InputError, match=r"line 3 of .* is damaged"):
        Journal(path)
    assert path.read_bytes() == b"".join(lines)


def test_another_file_is_not_taken_for_a_journal(tmp_path):
    path = tmp_path / "j"
    path.write_bytes(filled(path).split(b"\n", 1)[1])
    with pytest.raises(InputError, match="not a journal"):
        Journal(path)


def test_a_full_disk_leaves_the_journal_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "j"
    before = filled(path)
    journal = Journal(path)

    def full(opened):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(InputError, match="No space left"):
            journal.append({"do": "undo"})
    journal.append({"do": "redo"})
    journal.close()
    assert path.read_bytes()[: len(before)] == before
    assert entries(path)[0][3:] == [{"do": "redo"}]


def test_it_is_on_the_disk_before_anybody_is_told(tmp_path, monkeypatch):
    project = open_project(tmp_path)
    flushed = []
    monkeypatch.setattr(os, "fsync", lambda opened: flushed.append(os.fstat(opened).st_size))
    project.paint(stroke())
    assert flushed == [project.journal.path.stat().st_size]
    project.close()


def test_a_torn_line_is_said(tmp_path):
    from hedgerow.paint.running import open_project as reopened

    project = open_project(tmp_path)
    project.paint(stroke())
    project.close()
    path = tmp_path / "project" / "journal.jsonl"
    path.write_bytes(path.read_bytes() + b"12345678 {half")
    again, notes = reopened([str(tmp_path / "images")], tmp_path / "project")
    assert "was not whole" in notes[0]
    assert again.n_undo == 1
    again.close()


def started(tmp_path):
    """A server as a program of its own, and a client that knows its token."""
    code = "from hedgerow.cli import main; main()"
    arguments = ["paint", tmp_path / "images", "--project", tmp_path / "project", "--no-browser"]
    program = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    line = program.stdout.readline()
    port, token = re.fullmatch(r"paint at http://127\.0\.0\.1:(\d+)/\?token=(\S+)\n", line).groups()
    return program, Client(int(port), token)


def test_a_server_that_is_killed_loses_no_finished_stroke(tmp_path):
    write_images(tmp_path / "images")
    program, client = started(tmp_path)
    try:
        with client.window() as window:
            answered = [window.paint(id=f"u{i}", points=[[i, 2 * i], [i + 9, 2 * i + 5]]) for i in range(12)]
            for i in range(12, 40):  # these are under way when it is killed
                window.say(stroke(id=f"u{i}", points=[[i, i], [i + 9, i + 5]]))
            os.kill(program.pid, signal.SIGKILL)
            program.wait(30)
    finally:
        program.kill()
        program.stdout.close()
    assert [one["say"] for one in answered] == ["painted"] * 12
    program, client = started(tmp_path)
    try:
        state = client.json("/api/project")
        assert state["undo"] >= 12
        ids = [
            json.loads(line[9:]).get("id")
            for line in (tmp_path / "project" / "journal.jsonl").read_bytes().splitlines()
        ]
        assert ids[1:] == [f"u{i}" for i in range(state["undo"])]
        with client.window() as window:  # what was not answered is sent again: known ones change nothing
            again = [window.paint(id=f"u{i}", points=[[i, i], [i + 9, i + 5]]) for i in range(12, 40)]
            assert {one["say"] for one in again} == {"painted"}
        assert client.json("/api/project")["undo"] == 40
    finally:
        os.kill(program.pid, signal.SIGINT)
        assert program.wait(60) == 0
        program.stdout.close()
