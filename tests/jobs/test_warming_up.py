"""Compiling kernels before they are needed."""

import os
import re
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_the_command_says_what_it_did(hedgerow):
    finished = hedgerow("warm-up")
    assert finished.code == 0
    assert re.search(r"compiled \d+ kernels in \d+ s|all kernels had been compiled before", finished.out)


@pytest.mark.slow
def test_after_it_nothing_is_compiled_any_more(tmp_path):
    pytest.importorskip("torch")
    given = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def run(*arguments):
        command = [sys.executable, "-m", "hedgerow", *arguments]
        done = subprocess.run(command, env=given, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    assert "compiling kernels" in run("warm-up")
    run("sample", "facades", "-o", "example", "--n-images", "2")
    printed = [
        run("train", "example/images", "example/labels", "-o", "model.hedge", "--features", "bank"),
        run("refine", "model.hedge", "example/images", "example/labels", "-o", "net.hedge", "--steps", "2"),
        run("back", "net.hedge", "example/images", "-o", "back.hedge"),
        run("predict", "back.hedge", "example/images", "-o", "out/"),
    ]
    assert not any("compiling kernels" in text for text in printed), printed
    assert "all kernels had been compiled before" in run("warm-up")
