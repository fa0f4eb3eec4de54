"""What every refusal must be: one sentence that names what is wrong."""


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
