"""Files of other programs with the names of ours are refused, and stay as they are."""

import json
import os

import pytest

from hedgerow.errors import InputError
from hedgerow.paint.image_files import image_files
from hedgerow.paint.project import Project
from hedgerow.paint.project_file import COLOURS
from helpers.paint import open_project, stroke, write_images

OURS = {"hedgerow": "a project of `hedgerow paint`", "version": 1, "images": []}
ONE = {"id": 0, "name": "a", "colour": COLOURS[0], "hidden": False, "locked": False}


def opened(tmp_path):
    return Project(tmp_path / "project", image_files(write_images(tmp_path / "images"))[0])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("journal.jsonl", b'{"date": "2024-03-01", "text": "my diary"}\n'),
        ("journal.jsonl", b"no newline at all"),
        ("lock", b"my own notes on locks\n"),
        ("lock", b"12345\n"),
        ("lock", b"process 12 and more of a text\n"),
        ("lock", b"process 12\n" + b"x" * 1000),
        ("project.json", b'{"name": "another program", "version": 1, "classes": []}'),
        ("project.json", b"[]"),
        ("project.json", b""),
        ("project.json", b"[" * 100_000),
        ("project.json", b'{"hedgerow": ' + b"9" * 5000 + b"}"),
        ("project.json", b"\xff\xfe\x00"),
    ],
)
def test_a_file_of_somebody_else_is_refused_and_left_alone(tmp_path, name, content):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / name).write_bytes(content)
    before = (folder / name).stat()
    with pytest.raises(InputError, match="another folder") as refusal:
        opened(tmp_path)
    assert str(folder / name) in str(refusal.value)
    assert len(str(refusal.value)) < 300 + len(str(folder))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {name: content}
    assert (folder / name).stat().st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize("name", ["journal.jsonl", "lock", "project.json"])
def test_what_is_no_file_is_refused_at_once(tmp_path, name):
    (tmp_path / "project").mkdir()
    os.mkfifo(tmp_path / "project" / name)
    with pytest.raises(InputError, match="not a file"):
        opened(tmp_path)
    assert [path.name for path in (tmp_path / "project").iterdir()] == [name]


@pytest.mark.parametrize(
    "changed",
    [
        {"version": 2},
        {"version": "1"},
        {"classes": None},
        {"classes": [7]},
        {"classes": [ONE, ONE]},
        *({"classes": [{**ONE, **wrong}]} for wrong in (
            {"id": 255}, {"id": None}, {"id": "0"}, {"name": ""}, {"name": "n" * 10**6}, {"name": 5}, {"colour": "red"},
            {"hidden": 1}, {"locked": None}, {"more": 1},
        )),
        *({"classes": [{k: v for k, v in ONE.items() if k != missing}]} for missing in ONE),
    ],
    ids=lambda changed: str(changed)[:60],
)  # fmt: skip
def test_a_project_of_ours_with_wrong_fields_is_refused_in_one_sentence(tmp_path, changed):
    (tmp_path / "project").mkdir()
    path = tmp_path / "project" / "project.json"
    path.write_text(json.dumps({**OURS, "classes": [ONE], **changed}))
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"project\.json") as refusal:
        opened(tmp_path)
    assert len(str(refusal.value)) < 300 + len(str(path))
    assert [one.read_bytes() for one in (tmp_path / "project").iterdir()] == [before]


def test_empty_files_of_a_start_that_was_killed_are_ours(tmp_path):
    (tmp_path / "project").mkdir()
    for name in ("lock", "journal.jsonl"):
        (tmp_path / "project" / name).touch()
    project = opened(tmp_path)
    project.paint(stroke())
    project.close()
    again = open_project(tmp_path)
    assert again.n_undo == 1
    again.close()


def test_a_lock_that_names_its_page_is_ours(tmp_path):
    project = open_project(tmp_path)
    project.folder_lock.note("http://127.0.0.1:4711/")
    project.close()
    assert b"4711" in (project.folder / "lock").read_bytes()
    open_project(tmp_path).close()


def test_a_lock_that_cannot_be_written_is_told_in_one_sentence(tmp_path):
    project = open_project(tmp_path)
    project.folder_lock._file.close()
    project.folder_lock._file = open("/dev/full", "rb+", buffering=0)  # noqa: SIM115 (closed with the project)
    with pytest.raises(InputError, match="cannot write"):
        project.folder_lock.note("http://127.0.0.1:4711/")
    project.close()
