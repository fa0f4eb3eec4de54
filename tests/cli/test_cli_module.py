"""`python -m hedgerow` is the command line."""

import subprocess
import sys

import hedgerow as hr


def test_the_package_runs_as_a_module():
    finished = subprocess.run(
        [sys.executable, "-m", "hedgerow", "--version"], capture_output=True, text=True, timeout=120, check=False
    )
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, f"hedgerow {hr.__version__}\n", "")
