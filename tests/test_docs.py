"""The README's code runs; what docs/maths.md names exists."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MATHS = (ROOT / "docs" / "maths.md").read_text()


def python_blocks(path):
    return re.findall(r"```python\n(.*?)```", path.read_text(), flags=re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(python_blocks(ROOT / "README.md"))))
def test_readme_python_runs(number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(python_blocks(ROOT / "README.md")[number], f"README block {number}", "exec"), {})


def test_readme_links_lead_somewhere():
    links = re.findall(r"\]\(([^)#]+)\)", (ROOT / "README.md").read_text())
    assert links
    missing = [link for link in links if not (ROOT / link).exists()]
    assert not missing


def test_maths_names_tests_that_exist():
    named, file = set(), ""
    for match in re.finditer(r"`(test_\w+\.py)?::(test_\w+)`", MATHS):
        file = match[1] or file
        named.add((file, match[2]))
    assert len(named) > 10
    for file, test in named:
        assert f"def {test}(" in (ROOT / "tests" / file).read_text(), f"{file}::{test}"


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`((?:[a-z_]+)\.(?:[a-z_]+))`", MATHS))))
def test_maths_names_code_that_exists(name):
    if name.endswith(".py"):
        assert list((ROOT / "src").rglob(name)) + list((ROOT / "tests").rglob(name))
        return
    if name == "scipy.ndimage":
        return
    module, attribute = name.split(".")
    if module in ("convnet", "layout", "losses", "mapping", "reference", "refinement", "schedules"):
        pytest.importorskip("torch")
    in_ops = module in ("plain", "reference", "wiring") or module.endswith("_kernels")
    home = "hedgerow.ops" if in_ops else "hedgerow"
    assert hasattr(importlib.import_module(f"{home}.{module}"), attribute)
