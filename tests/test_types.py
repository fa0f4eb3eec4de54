"""What editors, type checkers and `help` show of the public names: their types, and words that a user can look up."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hedgerow as hr
from hedgerow import jobs

ROOT = Path(__file__).parents[1]
PACKAGES = {"hedgerow": hr, "hedgerow.jobs": jobs}
PUBLIC = {*hr.__all__, *jobs.__all__, *hr.synthetic.__all__}
FROM_ELSEWHERE = {"classes.toml", "dask.distributed.Client", "torchrun"}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_stub_names_what_is_loaded_on_first_use(package):
    """Each public name, from the module where it is found at run time."""
    stub = ast.parse(Path(PACKAGES[package].__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    named = {}
    for node in stub.body:
        if isinstance(node, ast.ImportFrom):
            (alias,) = node.names
            assert alias.asname == alias.name  # which makes it public to a type checker
            named[alias.name] = node.module
    homes = PACKAGES[package]._HOMES
    assert named == {name: ".".join(filter(None, (package, home))) for name, home in homes.items()}


@pytest.mark.parametrize("package", PACKAGES)
def test_dir_shows_public_names_only(package):
    importlib.import_module("hedgerow.config")  # a module that is loaded is an attribute, too
    assert dir(PACKAGES[package]) == sorted(PACKAGES[package].__all__)


def test_the_stubs_are_installed():
    """A wheel holds all files of the package, and these are among them."""
    assert 'packages = ["src/hedgerow"]' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for name in ("py.typed", "__init__.pyi", "jobs/__init__.pyi"):
        assert (ROOT / "src" / "hedgerow" / name).is_file()


def documented():
    """(name, object, class that it belongs to) of all public names, and of the methods and properties of classes."""
    for package in PACKAGES.values():
        for name in package.__all__:
            value = getattr(package, name)
            if inspect.ismodule(value):
                yield from ((f"{name}.{part}", getattr(value, part), None) for part in value.__all__)
                continue
            yield name, value, None
            for part in dir(value) if inspect.isclass(value) else ():
                member = inspect.getattr_static(value, part)
                function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
                if not part.startswith("_") and str(getattr(function, "__module__", "")).startswith("hedgerow"):
                    yield f"{name}.{part}", member, value


DOCUMENTED = [entry for entry in documented() if callable(entry[1]) or isinstance(entry[1], property | classmethod)]


def parameters_of(value):
    try:
        return set(inspect.signature(getattr(value, "__func__", value)).parameters)
    except (TypeError, ValueError):
        return set()


def known_words(value, owner):
    """What the docstring of a public object may name: public names, its parameters, and attributes of its class."""
    words = PUBLIC | parameters_of(value)
    for of in (value, owner):
        if inspect.isclass(of):
            words |= {*dir(of), *getattr(of, "__annotations__", {}), *parameters_of(of)}
            words |= set(re.findall(r"^ *(\w+_): ", inspect.getdoc(of) or "", re.MULTILINE))  # after `fit`
    return words


@pytest.mark.parametrize(("name", "value", "owner"), DOCUMENTED, ids=[entry[0] for entry in DOCUMENTED])
def test_docstrings_name_only_what_a_user_can_reach(name, value, owner):
    text = inspect.getdoc(value) or ""
    known = known_words(value, owner)
    for quoted in re.findall(r"`([^`]+)`", text):
        first = re.match(r"(?:hr\.|hedgerow\.)?([A-Za-z_]\w*)", quoted)
        assert quoted in FROM_ELSEWHERE or (first and first[1] in known), f"{quoted!r} is not public"
    module = vars(sys.modules[value.__module__]) if hasattr(value, "__module__") else {}
    for constant in set(re.findall(r"\b[A-Z][A-Z_]{4,}\b", text)) & module.keys():
        assert constant in PUBLIC, f"{constant} is not public"


@pytest.mark.parametrize("name", ["fit", "fit_stack", "PixelClassifier", "load", "measure"])
def test_help_shows_the_signature(name):
    assert "(" in str(inspect.signature(getattr(hr, name)))


def checked(tool, *options):
    command = [sys.executable, "-m", tool, *options]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return finished.returncode, finished.stdout + finished.stderr


@pytest.mark.slow
@pytest.mark.parametrize("is_wrong", [False, True])
def test_both_type_checkers_accept_what_is_right_and_find_every_mistake(is_wrong, tmp_path):
    """`make check` runs them on both samples. A mistake that is not found makes its comment an error."""
    pytest.importorskip("mypy")
    pytest.importorskip("basedpyright")
    sample = ROOT / "tests" / "types" / ("refused.py" if is_wrong else "accepted.py")
    config = tmp_path / "pyrightconfig.json"
    config.write_text(
        f'{{"include": ["{sample}"], "extraPaths": ["{ROOT / "src"}"], "typeCheckingMode": "standard",'
        ' "enableTypeIgnoreComments": false, "reportUnnecessaryTypeIgnoreComment": "error"}'
    )
    cache = f"--cache-dir={tmp_path / 'mypy'}"
    assert checked("mypy", cache, str(sample))[0] == 0
    assert checked("basedpyright", "-p", str(config), "--pythonpath", sys.executable)[0] == 0
    if is_wrong:  # without the comments, each of these lines is an error
        bare = tmp_path / "bare.py"
        lines = sample.read_text(encoding="utf-8").splitlines()
        bare.write_text("\n".join(re.sub(r"  # type: ignore.*", "", line) for line in lines) + "\n")
        wrong = {number for number, line in enumerate(lines, 1) if "# type: ignore" in line}
        config.write_text(config.read_text().replace(str(sample), str(bare)))
        for output in (
            checked("mypy", cache, str(bare))[1],
            checked("basedpyright", "-p", str(config), "--pythonpath", sys.executable)[1],
        ):
            assert wrong <= {int(number) for number in re.findall(r"bare\.py:(\d+):", output)}
