"""The journal: torn and damaged lines, full disks, and a server that is killed in the middle of strokes."""

import json
import os
import re
import signal
import stat
import subprocess
import sys
import zlib

import pytest

from hedgerow.errors import InputError
from hedgerow.paint.journal import MAX_LINE_BYTES, Journal
from hedgerow.paint.messages import MAX_POINTS
from hedgerow.paint.project import Project
from helpers.paint import Client, open_project, stroke, write_images


def filled(path, n=3):
    journal = Journal(path, lambda entry: None)
    for number in range(n):
        journal.append({"do": "paint", "n": number})
    journal.close()
    return path.read_bytes()


def entries(path):
    """The entries of a journal, and the note about its end."""
    replayed = []
    journal = Journal(path, replayed.append)
    journal.close()
    return replayed, journal.note


def aside(path, n=1):
    return path.with_name(f"{path.stem}.damaged-{n}{path.suffix}")


def line(text):
    """A line of any content with the right checksum."""
    return b"%08x %s\n" % (zlib.crc32(text), text)


def test_what_was_appended_is_there_again(tmp_path):
    filled(tmp_path / "j")
    assert entries(tmp_path / "j") == ([{"do": "paint", "n": n} for n in range(3)], "")


def test_a_journal_that_was_cut_anywhere_keeps_every_whole_entry_and_every_byte(tmp_path):
    path = tmp_path / "j.jsonl"
    whole = filled(path)
    ends = [i for i, byte in enumerate(whole) if byte == ord("\n")]  # where an entry ends, before its newline
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        found, note = entries(path)
        n_lines = sum(end <= cut for end in ends)
        assert [one["n"] for one in found] == list(range(max(n_lines - 1, 0)))
        tail = whole[:cut][ends[n_lines - 1] + 1 :] if n_lines else b""
        assert path.read_bytes() == whole[: ends[max(n_lines - 1, 0)] + 1]
        assert (aside(path).read_bytes() if tail else b"") == tail
        assert ("is incomplete" in note, str(aside(path)) in note) == (bool(tail), bool(tail))
        aside(path).unlink(missing_ok=True)


def test_after_a_torn_line_the_next_one_is_whole(tmp_path):
    path = tmp_path / "j"
    path.write_bytes(filled(path)[:-5])
    journal = Journal(path, lambda entry: None)
    journal.append({"do": "undo"})
    journal.close()
    assert entries(path)[0] == [{"do": "paint", "n": 0}, {"do": "paint", "n": 1}, {"do": "undo"}]


def test_a_flipped_bit_in_the_last_line_loses_no_byte(tmp_path):
    path = tmp_path / "j"
    whole = filled(path)
    start = whole[:-1].rindex(b"\n") + 1
    for place in range(start, len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            replayed, note = entries(path)
            if place == len(whole) - 1:  # the newline: the entry before it is whole
                assert ([item["n"] for item in replayed], note, path.read_bytes()) == ([0, 1, 2], "", whole)
                continue
            tail = bytes(damaged[start:])
            assert [item["n"] for item in replayed] == [0, 1]
            assert path.read_bytes() == whole[:start]
            assert aside(path).read_bytes() == tail
            assert "checksum" in note
            aside(path).unlink()


def test_an_earlier_damaged_tail_is_not_overwritten(tmp_path):
    path = tmp_path / "journal.jsonl"
    whole = filled(path)
    for n in (1, 2, 3):
        path.write_bytes(whole + b"torn %d" % n)
        assert str(aside(path, n)) in entries(path)[1]
    assert [aside(path, n).read_bytes() for n in (1, 2, 3)] == [b"torn 1", b"torn 2", b"torn 3"]


def test_a_damaged_tail_is_on_the_disk_before_the_journal_is_cut(tmp_path, monkeypatch):
    path = tmp_path / "journal.jsonl"
    whole = filled(path)
    path.write_bytes(whole + b"torn")
    flushed, flush = [], os.fsync

    def note(number):
        flush(number)
        if stat.S_ISREG(os.fstat(number).st_mode):
            flushed.append((os.fstat(number).st_size, path.stat().st_size))

    monkeypatch.setattr(os, "fsync", note)
    entries(path)
    assert flushed == [(len(b"torn"), len(whole) + 4), (len(whole), len(whole))]


def test_a_full_disk_leaves_a_damaged_tail_where_it_is(tmp_path, monkeypatch):
    path = tmp_path / "journal.jsonl"
    torn = filled(path) + b"torn"
    path.write_bytes(torn)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(InputError, match="No space left"):
            entries(path)
    assert path.read_bytes() == torn
    assert sorted(one.name for one in tmp_path.iterdir()) == ["journal.jsonl"]


def test_a_damaged_line_in_the_middle_is_refused(tmp_path):
    path = tmp_path / "j"
    lines = filled(path).splitlines(keepends=True)
    lines[2] = lines[2].replace(b'"n":1', b'"n":7')
    for tail in (b"", b"torn"):
        path.write_bytes(b"".join(lines) + tail)
        with pytest.raises(InputError, match=r"line 3 of .* is damaged"):
            entries(path)
        assert path.read_bytes() == b"".join(lines) + tail


@pytest.mark.parametrize("content", [b"x", b'{"my": "own"}\n', b"\n", b"\0" * 100, b"a,b\n1,2\n3", b"\xff\xfe"])
def test_another_file_is_not_taken_for_a_journal(tmp_path, content):
    path = tmp_path / "j"
    path.write_bytes(content)
    with pytest.raises(InputError, match="another folder"):
        entries(path)
    assert path.read_bytes() == content
    assert len(list(tmp_path.iterdir())) == 1


def test_a_journal_without_its_first_line_is_refused(tmp_path):
    path = tmp_path / "j"
    rest = filled(path).split(b"\n", 1)[1]
    path.write_bytes(rest)
    with pytest.raises(InputError, match="not a file of a project"):
        entries(path)
    assert path.read_bytes() == rest


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 100_000,
        b'{"do":"undo","n":' + b"9" * 5000 + b"}",
        b"\xff",
        b"no JSON",
        b"[]",
        b"null",
        b"{}",
        b'{"do":"paint"}',
        b'{"do":["paint"]}',
        b'{"do":"shell"}',
        b'{"do":"undo"}',
        b'{"do":"redo"}',
        b'{"do":"undo","more":1}',
    ],
    ids=lambda text: text[:20].decode("latin-1"),
)
def test_a_line_with_the_right_checksum_that_is_no_entry_is_named(tmp_path, text):
    project = open_project(tmp_path)
    project.close()
    path = project.journal.path
    content = path.read_bytes() + line(text)
    for tail in (b"", b"torn"):
        path.write_bytes(content + tail)
        with pytest.raises(InputError, match=r"line 2 of .*journal\.jsonl cannot be replayed") as refusal:
            Project(project.folder, project.images)
        assert len(str(refusal.value)) < 400 + len(str(path))
        assert path.read_bytes() == content + tail


def test_a_line_longer_than_any_entry_is_not_parsed(tmp_path):
    """Of 100 MB of empty lists, JSON makes gigabytes."""
    project = open_project(tmp_path)
    project.close()
    path = project.journal.path
    longest = {"image": "\U0001f600" * 255, "locked": [254] * 64, "points": [[-199_999.125, 399_999.875]] * MAX_POINTS}
    assert 2 * len(json.dumps(stroke(id="\U0001f600" * 64) | longest)) < MAX_LINE_BYTES
    text = b"[" + b"[]," * (MAX_LINE_BYTES // 3) + b"[]]"
    content = path.read_bytes() + line(text)
    path.write_bytes(content)
    with pytest.raises(
        InputError, match=r"line 2 of .* cannot be replayed: it has 1,048,\d\d\d bytes, expected at most"
    ):
        Project(project.folder, project.images)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("image", item) for item in (0, None, "", "x" * 300)],
        *[("class", item) for item in (-1, 255, "1", 10**400, [])],
        *[("points", item) for item in ([], [[1]], [["a", 1]], [[1e300, 1]], "ab", [[[[]]]], {})],
        *[("points", [[float(item), 1]]) for item in ("nan", "inf", "-inf")],
        *[("radius", item) for item in (None, -1, 10**400, True)],
        *[("tool", item) for item in ("spray", None, {})],
        *[("locked", item) for item in (None, [300], ["a"], 1)],
        *[("at", item) for item in (None, "now", float("nan"), 10**400)],
        *[("id", item) for item in (None, 7, "i" * 65)],
        *[("joins", item) for item in (7, [], {})],
    ],
)
def test_wrong_fields_are_refused_with_their_line(tmp_path, field, value):
    project = open_project(tmp_path)
    project.paint(stroke())
    project.close()
    path = project.journal.path
    first, entry = path.read_bytes().splitlines()
    changed = {**json.loads(entry[9:]), field: value}
    missing = {name: value for name, value in changed.items() if name != field}
    for wrong in (changed, missing) if field != "joins" else (changed,):
        path.write_bytes(first + b"\n" + line(json.dumps(wrong).encode()))
        with pytest.raises(InputError, match=rf"line 2 of .* {field}"):
            Project(project.folder, project.images)


def test_a_polygon_that_is_too_large_is_refused_with_its_line(tmp_path):
    project = open_project(tmp_path)
    project.close()
    corners = {**stroke(tool="polygon", points=[[0, 0], [9e4, 9e4], [0, 9e4]]), "image": "a0.png", "radius": None}
    entry = json.dumps({**corners, "locked": [], "at": 1.5}).encode()
    project.journal.path.write_bytes(project.journal.path.read_bytes() + line(entry))
    with pytest.raises(InputError, match=r"line 2 of .* too large"):
        Project(project.folder, project.images)


def full(opened):
    raise OSError(28, "No space left on device")


def test_a_full_disk_leaves_the_journal_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "j"
    before = filled(path)
    journal = Journal(path, lambda entry: None)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(InputError, match="No space left"):
            journal.append({"do": "undo"})
    assert path.read_bytes() == before
    journal.append({"do": "redo"})
    journal.close()
    assert path.read_bytes()[: len(before)] == before
    assert entries(path)[0][3:] == [{"do": "redo"}]


class Unreliable:
    """A file on a disk that writes only half of the data, and for a while cannot truncate the file either."""

    def __init__(self, file):
        self._file, self.is_broken = file, True

    def write(self, content):
        return self._file.write(content[: len(content) // 2] if self.is_broken else content)

    def truncate(self, size):
        if self.is_broken and size < os.fstat(self.fileno()).st_size:
            raise OSError(5, "Input/output error")
        return self._file.truncate(size)

    def fileno(self):
        return self._file.fileno()

    def close(self):
        self._file.close()


def test_half_a_line_that_cannot_be_taken_back_is_cut_by_the_next_write(tmp_path):
    path = tmp_path / "j"
    before = filled(path)
    journal = Journal(path, lambda entry: None)
    journal._file = Unreliable(journal._file)
    with pytest.raises(InputError, match="No space left"):
        journal.append({"do": "undo"})
    assert len(path.read_bytes()) > len(before)
    journal._file.is_broken = False
    journal.append({"do": "redo"})
    journal.close()
    assert entries(path) == ([*({"do": "paint", "n": n} for n in range(3)), {"do": "redo"}], "")


def test_it_is_on_the_disk_before_anybody_is_told(tmp_path, monkeypatch):
    project = open_project(tmp_path)
    flushed = []
    monkeypatch.setattr(os, "fsync", lambda opened: flushed.append(os.fstat(opened).st_size))
    project.paint(stroke())
    assert flushed == [project.journal.path.stat().st_size]
    project.close()


def test_a_torn_line_is_said(tmp_path):
    from hedgerow.paint.image_files import open_project as reopened

    project = open_project(tmp_path)
    project.paint(stroke())
    project.close()
    path = tmp_path / "project" / "journal.jsonl"
    path.write_bytes(path.read_bytes() + b"12345678 {half")
    again, notes = reopened([str(tmp_path / "images")], tmp_path / "project")
    assert "is incomplete" in notes[0]
    assert again.n_undo == 1
    again.close()


def started(tmp_path):
    """A server in its own process, and a client that knows its token."""
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
            for i in range(12, 40):  # these are being sent when the server is killed
                window.say(stroke(id=f"u{i}", points=[[i, i], [i + 9, i + 5]]))
            os.kill(program.pid, signal.SIGKILL)
            program.wait(30)
    finally:
        program.kill()
        program.stdout.close()
    assert [item["say"] for item in answered] == ["painted"] * 12
    program, client = started(tmp_path)
    try:
        state = client.json("/api/project")
        assert state["undo"] >= 12
        ids = [
            json.loads(line[9:]).get("id")
            for line in (tmp_path / "project" / "journal.jsonl").read_bytes().splitlines()
        ]
        assert ids[1:] == [f"u{i}" for i in range(state["undo"])]
        with client.window() as window:  # unconfirmed strokes are sent again; known ones change nothing
            again = [window.paint(id=f"u{i}", points=[[i, i], [i + 9, i + 5]]) for i in range(12, 40)]
            assert {item["say"] for item in again} == {"painted"}
        assert client.json("/api/project")["undo"] == 40
    finally:
        os.kill(program.pid, signal.SIGINT)
        assert program.wait(60) == 0
        program.stdout.close()
