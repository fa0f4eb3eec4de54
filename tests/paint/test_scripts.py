"""The types in comments of the page's scripts, and their style, are checked where tsc and ESLint are installed."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_tsc_and_eslint_find_nothing_in_the_scripts():
    if shutil.which("npm") is None:
        pytest.skip("there is no npm")
    if not (ROOT / "node_modules").is_dir():
        pytest.skip("the checkers are not installed: npm install")
    checked = subprocess.run(["npm", "run", "--silent", "check"], cwd=ROOT, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


def test_make_check_runs_them():
    assert "npm run --silent check" in (ROOT / "Makefile").read_text(encoding="utf-8")
