"""JSON texts of files that may have been made to deceive."""

import json
import os

import pytest

from hedgerow.documents import MAX_DESCRIPTION, MAX_NESTING, MAX_TEXT, read_document, read_user_document


def test_what_hedgerow_writes_is_read_as_it_is():
    seed = 2**63 - 1
    document = {"seed": seed, "low": -(2**63), "text": "é, 葉 and “quotes”", "x": [1.5e-300, None, True, {}, [[]], ""]}
    assert read_document(json.dumps(document)) == document
    assert read_document(json.dumps(document, ensure_ascii=False)) == document


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[1,]", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("NaN", "out of range"),
        ("[-Infinity]", "out of range"),
        ("1e400", "out of range"),
        ("1" * 5000, "out of range"),
        ("9223372036854775808", "out of range"),
        ('{"a": 1, "a": 1}', "twice"),
        ('{"a": [{"b": 1, "c": 2, "b": 3}]}', "twice"),
        ('["\\u001b[2J"]', "not printable"),
        ('{"\\u0007": 1}', "not printable"),
        ('"\\ud800"', "not printable"),
        (json.dumps("x" * (MAX_TEXT + 1)), "too long"),
        ("[" * (MAX_NESTING + 1) + "]" * (MAX_NESTING + 1), "nested too deeply"),
    ],
    ids=lambda text: text[:30],
)
def test_anything_else_is_refused_in_a_few_plain_words(text, words):
    with pytest.raises(ValueError, match=words) as problem:
        read_document(text)
    assert str(problem.value).isprintable()
    assert len(str(problem.value)) < 100


def test_a_description_that_would_become_gigabytes_is_not_parsed(monkeypatch):
    text = "[" + "[]," * (MAX_DESCRIPTION // 3) + "[]]"
    monkeypatch.setattr(json, "loads", lambda *given, **options: pytest.fail("it was parsed"))
    with pytest.raises(ValueError, match="its description has 16,777,219 characters, expected at most 16,777,216"):
        read_document(text)


def test_the_limits_themselves_are_allowed():
    read_document("[" * MAX_NESTING + "]" * MAX_NESTING)
    read_document(json.dumps("x" * MAX_TEXT))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes on Windows")
@pytest.mark.parametrize("name", ["settings.json", "classes.toml"])
def test_a_pipe_is_not_opened(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(ValueError, match="a pipe or a device, expected a file"):
        read_user_document(tmp_path / name)


def test_a_folder_is_refused_by_the_system(tmp_path):
    with pytest.raises(IsADirectoryError if os.name == "posix" else PermissionError):
        read_user_document(tmp_path)
