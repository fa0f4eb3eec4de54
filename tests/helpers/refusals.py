"""What every refusal must be: one sentence that names what is wrong."""

import tracemalloc

import pytest

from hedgerow.errors import InputError


def assert_refused_cheaply(read, path, max_bytes, *words):
    """Reading is refused in one sentence that holds the words, and takes no more memory than this."""
    tracemalloc.start()
    try:
        with pytest.raises(InputError) as problem:
            read(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < max_bytes
    assert_one_sentence(problem, "cannot read ", *words)


def assert_one_sentence(problem, *words):
    """The exception that pytest.raises caught holds the words, on one line."""
    text = str(problem.value)
    assert "\n" not in text, text
    for word in words:
        assert str(word) in text, text


def assert_refused(finished, *words):
    """The command line left with 2 and one sentence on the error stream that holds the words."""
    assert finished.code == 2, finished
    lines = finished.err.splitlines()
    assert len(lines) == 1, finished.err
    assert lines[0].startswith("hedgerow: "), lines[0]
    assert "unexpected" not in lines[0], lines[0]
    for word in words:
        assert str(word) in lines[0], lines[0]
