"""What README and docs tell people to type works, on smaller images and for fewer steps; what they name exists."""

import argparse
import dataclasses
import importlib
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer

import hedgerow
from conftest import draw
from hedgerow import synthetic
from hedgerow.cli.app import app
from hedgerow.images.writing import write_labels
from hedgerow.jobs import demo
from hedgerow.threads import threads
from helpers.blobs import cells
from helpers.efforts import make_small
from helpers.files import write
from helpers.volumes import labelled_volumes

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "hedgerow"
DOCS = ROOT / "docs"
# Name -> page; measurements are named with their folder.
PAGES = {
    "README.md": ROOT / "README.md",
    **{path.relative_to(DOCS).as_posix(): path for path in sorted(DOCS.rglob("*.md"))},
}
LINKED = {**PAGES, "benchmarks": ROOT / "benchmarks/RESULTS.md", "plugin": ROOT / "plugins/napari-hedgerow/README.md"}
# Commands and code of these pages are run in order, those of export.md by the tests of exports. The commands of the
# other pages run for minutes to hours, so only their options are checked.
RUN = (
    "README.md", "getting-started.md", "method.md", "command-line.md", "python.md", "contributing.md", "objects.md",
    "volumes.md",
)  # fmt: skip
MATHS = PAGES["maths.md"].read_text()
STEPS = 3
# Most lines of pages for users; details go to docs/measurements/.
LONGEST = {"README.md": 150, "deep.md": 120, "choices.md": 120}


def blocks(page):
    """(language, text) of every fenced block."""
    return re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def commands(page):
    """Command lines: of the blocks that are neither code nor a picture of folders, without comments, then those in
    sentences; where a word in capitals stands for something they are no commands."""
    lines = [line for language, text in blocks(page) if language in ("", "sh") for line in text.splitlines()]
    in_blocks = [line.split(" #")[0].strip() for line in lines if re.match(r"(hedgerow|make|pip|python) ", line)]
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    inline = [" ".join(line.split()) for line in re.findall(r"`((?:hedgerow [a-z]+|python -m) [^`]+)`", prose)]
    return in_blocks + [line for line in inline if not re.search(r"\b[A-Z]{4,}\b", line)]


def _as_bytes(volume):
    return np.clip(60 * volume + 60, 0, 255).astype(np.uint8)


@pytest.fixture
def desk(tmp_path, monkeypatch, tiny_config):
    """A folder with what the pages take for granted, and less work than they would cause."""
    monkeypatch.chdir(tmp_path)
    for photos, painted, seeds in (("photos", "painted", (0, 1)), ("test_photos", "test_painted", (4, 5))):
        for name, seed in zip("ab", seeds, strict=True):
            image, labels = draw(seed)
            write(tmp_path / photos / f"{name}.png", image)
            write(tmp_path / painted / f"{name}.png", labels.astype("uint8"))
    write(tmp_path / "new_photos" / "c.png", draw(7)[0])
    images, numbered = cells(4)
    for k, folders in enumerate(
        (("cells", "numbered"), ("cells", "numbered"), ("new_cells",), ("test_cells", "test_numbered"))
    ):
        for folder, array in zip(folders, (images[k].astype("uint8"), numbered[k].astype("uint8")), strict=False):
            write(tmp_path / folder / f"cells_{k}.png", array)
    write(tmp_path / "photo.png", draw(8)[0])
    volumes, truth = labelled_volumes(2)
    (tmp_path / "new_stacks").mkdir()
    write_labels(tmp_path / "new_stacks" / "c.tif", _as_bytes(volumes[0]), axes="ZYX")
    for stacks, labels in (("stacks", "painted_stacks"), ("test_stacks", "test_painted_stacks")):
        for k, (volume, values) in enumerate(zip(volumes, truth, strict=True)):
            for folder, array in ((stacks, _as_bytes(volume)), (labels, values)):
                (tmp_path / folder).mkdir(exist_ok=True)
                write_labels(tmp_path / folder / f"v{k}.tif", array, axes="ZYX")
    write_labels(tmp_path / "stack.tif", _as_bytes(volumes[0]), axes="ZYX")
    write_labels(tmp_path / "strokes.tif", truth[0], axes="ZYX")
    write_labels(tmp_path / "stack.ome.zarr", _as_bytes(volumes[0]), axes="ZYX")

    def smaller(make):
        def drawn(n_images=2, size=(40, 48), seed=0):
            return make(n_images=min(n_images, 4), size=(40, 48), seed=seed)

        return drawn

    for kind in ("somites", "bodies"):
        monkeypatch.setattr(synthetic, kind, smaller(getattr(synthetic, kind)))
        features = {"somites": "bank", "bodies": "depth"}[kind]
        monkeypatch.setitem(demo.CONFIGS, kind, dataclasses.replace(tiny_config, features=features))
        monkeypatch.setitem(demo.STEPS, kind, STEPS)
    for name, n in (("N_TRAIN", 2), ("N_TEST", 1), ("SHOWN", 1)):
        monkeypatch.setattr(demo, name, n)
    return tmp_path


@pytest.fixture
def hurried(monkeypatch, tiny_config):
    """Refinements of few steps, and an experiment of few trees."""
    pytest.importorskip("torch")
    from experiments import parts, protocols, runner
    from hedgerow.refinement import loop

    whole = loop._Refinement.__init__

    def begin(self, net, split, config, *others):
        whole(self, net, split, dataclasses.replace(config, n_steps=STEPS), *others)

    # A patched function would live on in every module that is loaded meanwhile and imports it by name.
    monkeypatch.setattr(loop._Refinement, "__init__", begin)
    tiny = protocols.Scale(2, 1, (32, 40), 1, 2, 2, 2, 2, 2, network_sizes=(2,), best_minutes=5.0)
    fish = dataclasses.replace(protocols.ZEBRAFISH, own_stack=tiny_config, scales={"small": tiny})
    monkeypatch.setitem(runner.PROTOCOLS, "zebrafish", fish)
    make_small(monkeypatch)
    make_small(monkeypatch, parts)


@pytest.mark.parametrize("name", RUN)
def test_what_a_page_says_to_type_works(name, desk, hurried, hedgerow, experiment, monkeypatch):
    page = PAGES[name]
    n_run = 0
    names = {"probability": np.eye(30), "truth": np.eye(30, dtype=int)} if name == "objects.md" else {}
    for language, text in blocks(page):
        if language == "python":
            exec(compile(text, name, "exec"), names)
            n_run += 1
    for line in commands(page):
        n_run += 1
        first, *words = shlex.split(line)
        if first == "make":
            assert f"\n{words[0]}:" in (ROOT / "Makefile").read_text()
        elif first == "pip":
            assert words in (["install", "."], ["install", ".[all]"])
        elif words[:2] == ["-m", "experiments"]:
            finished = experiment(*words[2:])
            assert finished.code == 0, (line, finished.err)
        elif first == "python":
            assert_options_exist(line, monkeypatch)
        else:
            assert first == "hedgerow", f"{line!r} is of a kind that is not run"
            words, into = (words[:-2], words[-1]) if words[-2:-1] == [">"] else (words, None)
            finished = hedgerow(*words)
            assert finished.code == 0, (line, finished.err)
            if into:
                Path(into).write_text(finished.out)
    assert n_run


class Parsed(Exception):
    """The options were understood; the work would follow."""


def assert_options_exist(line, monkeypatch):
    """Go with a command as far as the reading of its options."""

    def parse(parser, arguments=None, namespace=None):
        _, unknown = parser.parse_known_args(sys.argv[1:] if arguments is None else arguments)
        assert not unknown
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse)
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    first, *words = shlex.split(re.sub(r"\[.*?\]", "", line).replace("VARIANT", "default"))
    if first == "hedgerow":
        known = typer.main.get_command(app).commands
        known[words[0]].make_context(words[0], words[1:])  # exits where an option is unknown
    elif words[:2] == ["-m", "experiments"]:
        from experiments.__main__ import app as program

        typer.main.get_command(program).make_context("experiments", words[2:])
    elif first == "python":
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(Parsed):
            runpy.run_path(str(ROOT / words[0]), run_name="__main__")


@pytest.mark.parametrize("name", [name for name in PAGES if name not in RUN])
def test_the_options_of_long_commands_exist(name, monkeypatch):
    for line in commands(PAGES[name]):
        assert_options_exist(line, monkeypatch)


def test_measurements_have_commands_that_are_checked():
    counts = {name: len(commands(page)) for name, page in PAGES.items() if name.startswith("measurements/")}
    assert sum(counts.values()) > 10, counts


@pytest.mark.parametrize("name", LONGEST)
def test_pages_for_users_are_short(name):
    assert len(PAGES[name].read_text().splitlines()) <= LONGEST[name]


def test_every_command_has_an_example_in_its_help(hedgerow):
    listed = re.findall(r"^  ([a-z]+)  ", hedgerow("--help").out, flags=re.MULTILINE)
    assert {"train", "refine", "back", "report", "demo"} <= set(listed)
    for name in listed:
        assert f"Example: hedgerow {name}" in " ".join(hedgerow(name, "--help").out.split())


def links(page):
    """(file, heading) of every link and image that leads to a file; "" where there is none."""
    found = re.findall(r"\]\(([^)\s#]*)(?:#([^)\s]+))?\)", page.read_text())
    return [(file, heading) for file, heading in found if "://" not in file]


def anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", LINKED)
def test_links_lead_somewhere(name):
    page = LINKED[name]
    for file, heading in links(page):
        there = (page.parent / file).resolve() if file else page
        assert there.exists(), f"{page.name} links to {file}, which does not exist"
        assert not heading or heading in anchors(there), f"{page.name} links to {file}#{heading}; no such heading"


def test_the_readme_leads_to_every_page():
    readme = [file for file, _ in links(PAGES["README.md"])]
    measurements = [f"measurements/{file}" for file, _ in links(PAGES["measurements/README.md"])]
    missing = [name for name in PAGES if name != "README.md" and f"docs/{name}" not in readme]
    assert [name for name in missing if name not in measurements] == []


def test_promises_name_tests_that_exist():
    promised = re.findall(r"`((?:tests|benchmarks)/[\w/.]+)`", PAGES["reliability.md"].read_text())
    assert len(promised) > 50
    assert [name for name in promised if not (ROOT / name).exists()] == []


def test_maths_names_tests_that_exist():
    named, file = set(), ""
    for match in re.finditer(r"`(\w+/test_\w+\.py)?::(test_\w+)`", MATHS):
        file = match[1] or file
        named.add((file, match[2]))
    assert len(named) > 10
    for file, test in named:
        assert f"def {test}(" in (ROOT / "tests" / file).read_text(), f"{file}::{test}"


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", MATHS))))
def test_maths_names_files_that_exist(name):
    assert (SOURCE / name).exists() or (ROOT / "tests" / name).exists()


PACKAGES = "kernels|features|forest|network|predict|refinement|images"


@pytest.mark.parametrize("name", sorted(set(re.findall(rf"`((?:{PACKAGES})(?:\.\w+)+)`", MATHS))))
def test_maths_names_code_that_exists(name):
    module, _, attribute = name.rpartition(".")
    if name.startswith(("network", "refinement", "kernels.definition.level", "kernels.definition.bank")):
        pytest.importorskip("torch")
    if name.startswith("kernels.gpu") and "pieces" not in name:
        pytest.importorskip("triton", reason="Triton is not installed")
    assert hasattr(importlib.import_module(f"hedgerow.{module}"), attribute)


def callers_of(run):
    """Function of the package -> the functions that call it while `run` runs, as (path without .py, name); functions
    inside others count as these, and `map_threads` is left out."""
    callers = {}

    def name_of(frame):
        path, name = Path(frame.f_code.co_filename), frame.f_code.co_qualname.split(".<locals>")[0]
        is_own = path.is_relative_to(SOURCE) and name != "map_threads" and not name.startswith("<")
        return (path.relative_to(SOURCE).with_suffix("").as_posix(), name) if is_own else None

    def note(frame, event, _):
        if event != "call" or (called := name_of(frame)) is None:
            return
        callers.setdefault(called, set())  # compiled kernels do not tell who calls them
        while (frame := frame.f_back) is not None:
            if (caller := name_of(frame)) not in (None, called):
                callers[called].add(caller)
                return

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return callers


def test_one_image_passes_the_functions_that_are_listed(train):
    section = PAGES["contributing.md"].read_text().split("## Follow one image")[1].split("\n## ")[0]
    table, kernels = section.split("These are ")
    rows = re.findall(r"^\| .* \| `([\w/]+)` \| (.*) \|$", table, flags=re.MULTILINE)
    walk = [(module, name) for module, names in rows for name in re.findall(r"[\w.]+", names)]
    assert kernels.startswith(f"{len(walk)} functions in {len(rows)} modules")
    assert len(walk) <= 40
    assert len(rows) <= 20
    finished = []
    with threads(1):  # in which calls within `map_threads` are calls of its caller
        callers = callers_of(lambda: finished.append(train()))
    assert finished[0].code == 0, finished[0].err
    assert [step for step in walk[1:] if not callers.get(step, set()) & set(walk)] == []
    named = re.findall(r"`(\w+)`(?: and `(\w+)`)?\s+in\s+`(kernels/[\w/]+)`", kernels)
    assert len(named) == 4
    assert {(module, name) for *names, module in named for name in names if name} <= set(callers)


def test_contributors_are_sent_to_what_exists():
    text, source = PAGES["contributing.md"].read_text(), sorted(SOURCE.rglob("*.py"))
    files = set(re.findall(r"`((?:[\w-]+/)*[\w-]+\.py)`", text))
    assert len(files) > 30
    there = [f"/{path.relative_to(ROOT).as_posix()}" for path in (*source, *(ROOT / "tests").rglob("*.py"))]
    assert [file for file in sorted(files) if not any(path.endswith(f"/{file}") for path in there)] == []
    code = "".join(path.read_text() for path in source)
    constants = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)*)`", text))
    assert len(constants) > 4
    assert [name for name in sorted(constants) if not re.search(rf"^{name}\b", code, flags=re.MULTILINE)] == []


def test_the_site_is_built_without_a_broken_link(tmp_path):
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "reference.html").read_text(encoding="utf-8")
    assert all(f'id="hedgerow.{name}"' in page for name in hedgerow.__all__ if name != "synthetic")
    assert "hedgerow warm-up" in (tmp_path / "commands.html").read_text(encoding="utf-8")
