"""Compiled kernels are kept on disk, apart for each state of the sources, and compiling is announced."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import hedgerow

USE = "import numpy as np; from hedgerow.codes import *; "
USE += "c = np.zeros(3, np.uint8); encode(np.ones(3, np.float32), PROBA_EDGES, c); print(c)"


def run(source, cache):
    """Use a kernel of the package at `source` in a process of its own; what it printed and said."""
    environment = {**os.environ, "PYTHONPATH": str(source), "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run([sys.executable, "-c", USE], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip(), done.stderr


def test_kernels_are_cached_and_a_change_in_another_file_is_noticed(tmp_path):
    package = tmp_path / "source" / "hedgerow"
    shutil.copytree(Path(hedgerow.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    first = run(package.parent, tmp_path / "cache")
    assert first[0] == "[255 255 255]"
    assert "compiling" in first[1]
    assert run(package.parent, tmp_path / "cache") == (first[0], ""), "the second time it is only loaded"
    other = package / "ops" / "draw_kernels.py"
    other.write_text(other.read_text() + "\n# changed\n")
    assert "compiling" in run(package.parent, tmp_path / "cache")[1]


def test_other_packages_keep_their_cache_folder():
    from numba import config

    before = config.CACHE_DIR
    from hedgerow.kernels.compiling import kernel

    kernel(lambda x: x)
    assert before == config.CACHE_DIR
