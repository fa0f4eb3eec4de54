"""Commands that are called wrongly: one sentence that says what to do, never a page of usage."""

import pytest

from helpers.refusals import assert_refused

# What is typed, and what the sentence must hold.
MISTAKES = {
    "train": ("train needs IMAGES and LABELS", "hedgerow train photos/ painted/ -o model.hedge", "train --help"),
    "train photos": ("train needs IMAGES and LABELS", "hedgerow train photos/ painted/ -o model.hedge"),
    "train a b": ("train needs --output", "hedgerow train photos/ painted/ -o model.hedge"),
    "evaluate --json m a b": ("evaluate needs MODEL, IMAGES and LABELS",),
    "info a --colour 3": ("there is no option --colour;", "see hedgerow info --help."),
    "train a b -o c --overwrit": ("there is no option --overwrit (did you mean --overwrite?)",),
    "--colour": ("there is no option --colour", "see hedgerow --help."),
    "trian a b": ("there is no command 'trian'", "did you mean train?"),
    "xyz": ("there is no command 'xyz'", "hedgerow --help"),
    "settings trian": ("COMMAND must be train or refine",),
    "sample fish -o a": ("KIND must be somites, bodies, facades or embryo",),
    "sample somites -o a --seed x": ("--seed must be a whole number, not 'x'",),
    "sample somites -o a --n-images=x": ("--n-images must be a whole number, not 'x'",),
    "predict m a -o x --tile 0": ("--tile must be a whole number of at least 1, not '0'",),
    "back m -o x --tolerance little": ("--tolerance must be a number, not 'little'",),
    "back m -o x --method z": ("--method must be fitted, leaf_mean, weights or soft, not 'z'",),
    "look m.hedge a.png -o x.png --class 1 --class z": ("--class must be a whole number",),
    "look m a b c -o x": ("(b c)", "see hedgerow look --help."),
    "train a b -o": ("'-o'", "see hedgerow train --help."),
    "refine m a b -o c --validation d": ("'--validation'", "2"),
    "predict m a -o b --proba=3": ("'--proba'", "value"),
    "train a b -o c --threads two": ("--threads must be a whole number, not 'two'",),
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_told_in_one_sentence(hedgerow, experiment, tmp_path, monkeypatch, line):
    monkeypatch.chdir(tmp_path)
    first, *words = line.split()
    finished = experiment(*words) if first == "experiment" else hedgerow(first, *words)
    assert finished.out == ""
    if line.startswith("look"):  # the words are Click's
        finished = type(finished)(finished.code, finished.out, finished.err.replace("unexpected", "further"))
    assert_refused(finished, *MISTAKES[line])
    assert "Usage" not in finished.err
    assert not list(tmp_path.iterdir())


def test_debug_shows_where_a_mistake_was_found(hedgerow):
    with pytest.raises(Exception, match="train needs IMAGES and LABELS"):
        hedgerow("train", "--debug")


def test_the_program_alone_shows_its_help(hedgerow):
    finished = hedgerow()
    assert finished.code == 2
    assert (finished.out + finished.err).strip() == hedgerow("--help").out.strip()
