"""The command that opens the page; the page itself is tested in tests/paint."""

import sys

import pytest


def test_without_the_extra_it_says_so_in_one_sentence(hedgerow, place, monkeypatch):
    monkeypatch.setitem(sys.modules, "starlette", None)
    finished = hedgerow("paint", place / "images")
    assert finished.code == 2
    assert finished.err.startswith("hedgerow: the page to paint on needs starlette, which is not installed; run pip")
    assert "'.[paint]'" in finished.err
    assert finished.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("--port", "70000"), "--port is 70000"), (("--host", "192.0.2.1"), "cannot listen on 192.0.2.1")],
)
def test_what_cannot_be_opened_is_told(hedgerow, place, arguments, words):
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    pytest.importorskip("websockets")
    finished = hedgerow("paint", place / "images", "--no-browser", *arguments)
    assert finished.code == 2
    assert words in finished.err


def test_images_that_are_not_there(hedgerow, tmp_path):
    pytest.importorskip("starlette")
    finished = hedgerow("paint", tmp_path / "nothing", "--no-browser")
    assert finished.code == 2
    assert "there is no such file or folder" in finished.err
