"""Compiled kernels are kept on disk, apart for each state of the sources, and compiling is announced."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import hedgerow

ARRAYS = """
import numpy as np
from hedgerow.kernels.cpu.plane_ops import encode
found = np.zeros(3, np.uint8)
encode(np.ones(3, np.float32), np.zeros(255, np.float32), found)
print(*found)
"""
NAMED = """
import numpy as np
from hedgerow.kernels.cpu.walk import Nodes, Probes, ReadPlanes, find_leaves
real = lambda *shape: np.zeros(shape, np.float32)
whole = lambda *shape: np.zeros(shape, np.uint32)
nodes = Nodes(whole(1), np.zeros(1, np.int64), whole(1), real(1), whole(1) + np.uint32(7), real(1, 8))
probes = Probes(np.zeros((1, 1), np.int32), real(1, 1, 3), real(1, 1))
found = np.zeros((1, 1, 2), np.int32)
find_leaves(None, ReadPlanes(real(1, 2), (1, 1, 2), real(0), real(0)), probes, nodes, 0, 1, (0, 0, 0), found)
print(*found.ravel())
"""


def run(code, source, cache):
    """Use a kernel of the package at `source` in a process of its own; what it printed and said."""
    environment = {**os.environ, "PYTHONPATH": str(source), "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip(), done.stderr


@pytest.mark.parametrize(
    ("code", "printed"), [(ARRAYS, "255 255 255"), pytest.param(NAMED, "7 7", marks=pytest.mark.slow)]
)
def test_kernels_are_cached_and_a_change_in_another_file_is_noticed(tmp_path, code, printed):
    package = tmp_path / "source" / "hedgerow"
    shutil.copytree(Path(hedgerow.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    first = run(code, package.parent, tmp_path / "cache")
    assert first[0] == printed
    assert "compiling" in first[1]
    assert run(code, package.parent, tmp_path / "cache") == (first[0], ""), "the second time it is only loaded"
    other = package / "kernels" / "cpu" / "draw.py"
    other.write_text(other.read_text() + "\n# changed\n")
    assert "compiling" in run(code, package.parent, tmp_path / "cache")[1]


def test_other_packages_keep_their_cache_folder():
    from numba import config

    before = config.CACHE_DIR
    from hedgerow.kernels.compiling import kernel

    kernel(lambda x: x)
    assert before == config.CACHE_DIR
