"""The command line as a whole: usage, bugs, damaged models; settings, sample, demo; and the installed program."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hedgerow as hr
from hedgerow import synthetic
from hedgerow.config import StackConfig
from hedgerow.images.label_files import read_labels
from hedgerow.images.reading import read_image
from hedgerow.io import model_file as model_files
from hedgerow.jobs import demo
from helpers.files import listing
from helpers.refusals import assert_refused

SCRIPT = Path(sys.executable).with_name("hedgerow")


@pytest.mark.parametrize("arguments", [(), ("train",), ("train", "a", "b"), ("paint",), ("info", "a", "--colour", "3")])
def test_wrong_usage_exits_2_without_a_traceback(hedgerow, arguments):
    finished = hedgerow(*arguments)
    assert finished.code == 2
    assert "Traceback" not in finished.out + finished.err


def test_debug_shows_where_an_error_comes_from(hedgerow, tmp_path):
    with pytest.raises(hr.ModelError, match="no model file"):
        hedgerow("info", tmp_path / "none.hedge", "--debug")
    with pytest.raises(hr.ModelError, match="no model file"):
        hedgerow("--debug", "info", tmp_path / "none.hedge")


def test_a_bug_is_one_line_and_a_traceback_only_with_debug(hedgerow, model_file, monkeypatch):
    def stumble(path):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(model_files, "load", stumble)
    finished = hedgerow("info", model_file)
    assert finished.code == 1
    assert len(finished.err.splitlines()) == 1
    assert "a bug" in finished.err
    assert "--debug" in finished.err
    with pytest.raises(ZeroDivisionError):
        hedgerow("info", model_file, "--debug")


@pytest.mark.parametrize("command", ["predict", "evaluate", "info"])
def test_a_damaged_model_is_refused(hedgerow, place, model_file, command):
    path = place / "cut.hedge"
    path.write_bytes(model_file.read_bytes()[:-5])
    rest = {"predict": ["images", "-o", "out"], "evaluate": ["images", "labels"], "info": []}[command]
    assert_refused(hedgerow(command, path, *(a if a == "-o" else place / a for a in rest)), path)
    assert not (place / "out").exists()


# Settings, samples, demo


def test_printed_settings_are_read_back_the_same(hedgerow, place):
    finished = hedgerow("settings")
    assert finished.code == 0
    (place / "printed.toml").write_text(finished.out)
    assert StackConfig.read(place / "printed.toml") == StackConfig()


@pytest.mark.parametrize("kind", ["somites", "bodies"])
def test_samples_are_written_as_they_are_drawn(hedgerow, tmp_path, kind):
    finished = hedgerow("sample", kind, "-o", tmp_path / "s", "--n-images", 2, "--seed", 4)
    assert finished.code == 0
    images, labels = getattr(synthetic, kind)(n_images=2, seed=4)
    for number in range(2):
        name = f"{kind}_{number:03d}.png"
        found = read_image(tmp_path / "s" / "images" / name)
        assert found.dtype == images[number].dtype
        np.testing.assert_array_equal(found, images[number])
        np.testing.assert_array_equal(read_labels(tmp_path / "s" / "labels" / name), labels[number])
    assert len(listing(tmp_path)) == 5, "and the names of the classes"


@pytest.mark.parametrize("options", [(), ("--overwrite",)])
def test_samples_of_two_kinds_are_not_mixed(hedgerow, tmp_path, options):
    assert hedgerow("sample", "somites", "-o", tmp_path / "s", "--n-images", 1).code == 0
    before = listing(tmp_path)
    finished = hedgerow("sample", "bodies", "-o", tmp_path / "s", "--n-images", 1, *options)
    assert_refused(finished, tmp_path / "s" / "images", "somites_000.png", "give another folder")
    assert listing(tmp_path) == before
    assert (
        hedgerow("sample", "somites", "-o", tmp_path / "s", "--n-images", 2).code == 0
    )  # of one kind they may be more
    for path in (tmp_path / "s" / "images").iterdir():
        path.unlink()
    assert_refused(hedgerow("sample", "bodies", "-o", tmp_path / "s"), tmp_path / "s" / "labels")


@pytest.mark.parametrize("options", [("--n-images", "0"), ("--seed", "-1"), ("-o", "file/inside")])
def test_samples_that_cannot_be_are_refused(hedgerow, tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("in the way")
    assert_refused(hedgerow("sample", "somites", "-o", "out", "--n-images", "1", *options))
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("kind", ["somites", "bodies"])
def test_demo_tells_what_each_step_gains(hedgerow, tmp_path, monkeypatch, tiny_config, kind):
    pytest.importorskip("torch")

    class SmallImages:
        def __init__(self, draw):
            self.draw = draw

        def __call__(self, n_images, seed):
            return self.draw(n_images=n_images, seed=seed, size=(32, 40))

    monkeypatch.setattr(synthetic, kind, SmallImages(getattr(synthetic, kind)))
    features = "depth" if kind == "bodies" else "bank"
    monkeypatch.setitem(demo.CONFIGS, kind, dataclasses.replace(tiny_config, features=features))
    monkeypatch.setattr(demo, "N_TRAIN", 3)
    monkeypatch.setattr(demo, "N_TEST", 2)
    monkeypatch.setitem(demo.STEPS, kind, 2)
    monkeypatch.setattr(demo, "SHOWN", 2)
    finished = hedgerow("demo", "-o", tmp_path / "demo", "--data", kind)
    assert finished.code == 0, finished.err
    for level in (1, 2):
        assert re.search(rf"^level {level} +0\.\d+$", finished.out, re.MULTILINE)
    for name in ("DF", "ConvNet", "MB2"):
        assert re.search(rf"^{name} .* 0\.\d+ .* s .* s +\d+\.\d+ MB$", finished.out, re.MULTILINE)
    found = sorted(os.listdir(tmp_path / "demo"))
    assert found == ["ConvNet.hedge", "DF.hedge", "MB2.hedge", "comparison.png", "images", "labels", "report.html"]
    assert len(os.listdir(tmp_path / "demo" / "images")) == 3
    picture = read_image(tmp_path / "demo" / "comparison.png")
    assert picture.shape[2] == 3
    assert picture.shape[1] > 6 * 40
    # What it says to do next can be done.
    model, images = tmp_path / "demo" / "MB2.hedge", tmp_path / "demo" / "images"
    assert f"hedgerow predict {model} {images}" in finished.out
    assert hedgerow("predict", model, images, "-o", tmp_path / "out").code == 0


def test_demo_without_pytorch_shows_the_forests_and_says_what_is_missing(hedgerow, tmp_path, monkeypatch, tiny_config):
    monkeypatch.setattr(demo.extras, "is_there", lambda package: package != "torch")
    monkeypatch.setattr(demo, "N_TRAIN", 2)
    monkeypatch.setattr(demo, "N_TEST", 1)
    monkeypatch.setattr(demo, "SHOWN", 1)
    monkeypatch.setitem(demo.CONFIGS, "somites", tiny_config)
    finished = hedgerow("demo", "-o", tmp_path / "demo")
    assert finished.code == 0, finished.err
    assert ".[net]" in finished.out
    assert sorted(os.listdir(tmp_path / "demo")) == ["DF.hedge", "comparison.png", "images", "labels"]


def test_demo_refuses_a_place_that_cannot_be(hedgerow, tmp_path):
    (tmp_path / "file").write_text("in the way")
    assert_refused(hedgerow("demo", "-o", tmp_path / "file"), tmp_path / "file")


# The installed program


def run_script(*arguments, **options):
    command = [SCRIPT, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


def cli_notice(text):
    """The line that tells of kernels being compiled, where they are not yet."""
    return "".join(line for line in text.splitlines(keepends=True) if line.startswith("compiling kernels"))


def test_the_installed_program_from_images_to_scores(place):
    done = run_script("train", "images", "labels", "-o", "m.hedge", "--config", "settings.toml", cwd=place)
    assert (done.returncode, done.stderr.replace(cli_notice(done.stderr), "")) == (0, "")
    done = run_script("predict", "m.hedge", "images", "-o", "out", cwd=place)
    assert (done.returncode, done.stderr.replace(cli_notice(done.stderr), "")) == (0, "")
    assert sorted(os.listdir(place / "out")) == ["a0.png", "a1.png"]
    done = run_script("evaluate", "m.hedge", "images", "labels", "--json", "-", cwd=place)
    assert json.loads(done.stdout)["mean_dice"] > 0.8


def test_the_installed_program_refuses_in_one_sentence(place):
    done = run_script("info", "none.hedge", cwd=place)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("hedgerow: there is no model file none.hedge")
    assert len(done.stderr.splitlines()) == 1
    done = run_script("info", "none.hedge", "--debug", cwd=place)
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_the_help_lists_every_command_and_debug():
    done = run_script("--help")
    assert done.returncode == 0
    for command in ("train", "predict", "evaluate", "info", "settings", "sample", "demo", "--debug"):
        assert command in done.stdout


def test_an_interrupted_program_leaves_no_model(place):
    """A long training is stopped from outside, as by Ctrl-C."""
    arguments = ["train", "images", "labels", "-o", "m.hedge", "--config", "settings.toml", "--trees", "10000"]
    arguments += ["--levels", "20"]  # far longer than an interrupt takes
    with subprocess.Popen(
        [SCRIPT, *arguments], cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            if line.split()[:1] == ["unlabelled"]:  # the end of the table: training begins
                break
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "hedgerow: interrupted; nothing was left half-written."
    assert set(os.listdir(place)) == {"images", "labels", "settings.toml"}
