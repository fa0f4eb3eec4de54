"""What all commands have in common: help, --json, --quiet, --verbose, --threads, times, interrupts, completion."""

import itertools
import json
import logging
import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import typer

import hedgerow as hr
from hedgerow import jobs, progress, threads
from hedgerow.cli import common
from hedgerow.cli.app import app
from hedgerow.jobs import describing
from helpers.refusals import assert_refused

SCRIPT = Path(sys.executable).with_name("hedgerow")
COMMANDS = sorted(typer.main.get_command(app).commands)


@pytest.fixture
def log_lines(monkeypatch):
    """The log as the program writes it, which the tests' own handlers keep `main` from setting up."""
    root = logging.getLogger()
    root.addHandler(common.LOG_LINES)
    yield common.LOG_LINES
    root.removeHandler(common.LOG_LINES)


@pytest.mark.parametrize("name", ["--version", "-V"])
def test_the_version(hedgerow, name):
    finished = hedgerow(name)
    assert (finished.code, finished.out, finished.err) == (0, f"hedgerow {hr.__version__}\n", "")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_a_short_name_and_fits_the_terminal(hedgerow, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    finished = hedgerow(command, "-h")
    assert finished.code == 0
    assert finished == hedgerow(command, "--help")
    assert finished.out.startswith(f"Usage: hedgerow {command} [OPTIONS]")
    assert max(map(len, finished.out.splitlines())) <= 80
    assert re.search(r"^Common to all commands:$.*-q, --quiet.*-h, --help", finished.out, re.MULTILINE | re.DOTALL)


def test_the_short_help_of_the_program(hedgerow):
    finished = hedgerow("-h")
    assert finished == hedgerow("--help")
    assert set(re.findall(r"^  ([a-z][a-z-]*)  ", finished.out, re.MULTILINE)) == set(COMMANDS)
    listed = " ".join(finished.out.partition("Commands:")[2].split())
    assert "..." not in listed  # each sentence is complete
    sentence = "List the pretrained networks for train --features encoder:NAME, or download the weights of one."
    assert f"encoders {sentence}" in listed


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_stand_on_lines_of_their_own(hedgerow, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    lines = hedgerow(command, "--help").out.splitlines()
    examples = [number for number, line in enumerate(lines) if re.search(r"\b(Example|better): ", line)]
    assert examples
    for number in examples:
        assert re.fullmatch(r"  (Example|Slower, better): hedgerow [^:]*", lines[number])
        assert lines[number - 1] == ""
        assert lines[number + 1] == ""  # it can be copied as a whole


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_values_in_words_and_no_ranges(hedgerow, command):
    text = hedgerow(command, "--help").out
    assert not re.search(r"<(int|float|str|path)\b|range>|x>=", text)
    assert "--threads N" in text


def test_usage_shows_optional_arguments_in_one_pair_of_brackets(hedgerow):
    usage = {
        command: hedgerow(command, "--help").out.splitlines()[0].partition("[OPTIONS] ")[2] for command in COMMANDS
    }
    assert usage["encoders"] == "[add NAME FILE]"
    assert usage["back"] == "MODEL [IMAGES...]"
    assert usage["info"] == "[MODEL]"
    assert usage["train"] == "IMAGES... LABELS"


@pytest.mark.parametrize("command", ["train", "refine", "predict"])
def test_common_options_come_first_and_rare_ones_in_groups(hedgerow, command):
    text = hedgerow(command, "--help").out
    groups = re.findall(r"^([A-Z][a-z ]+):$", text, re.MULTILINE)
    objects = ["Objects"] if command == "predict" else []
    large = [] if command == "refine" else ["Large images and several machines"]
    rest = ["Images and labels", *large, "More options", "Common to all commands"]
    assert groups == ["Arguments", "Options", *objects, *rest]
    assert text.index("--output") < text.index("--pages") < text.index("--overwrite") < text.index("--debug")


# JSON


def in_json(finished):
    """The one object that was printed; without anything else, and without NaN."""
    assert finished.code == 0, finished.err
    assert len(finished.out.splitlines()) == 1

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    return json.loads(finished.out, parse_constant=refuse)


def test_train_in_json(train, place):
    result = in_json(train("--json"))
    stack = hr.load(place / "model.hedge")
    assert result == {
        "model": str(place / "model.hedge"),
        "bytes": (place / "model.hedge").stat().st_size,
        "images": 2,
        "classes": list(stack.classes),
        "features": "bank",
        "held_out_mean_dice": [score["mean_dice"] for score in stack.settings["held_out"]],
    }
    assert len(result["held_out_mean_dice"]) == 2


def test_refine_and_back_in_json(hedgerow, trained_place):
    place = trained_place
    given = (place / "model.hedge", place / "images", place / "labels", "-o", place / "net.hedge")
    result = in_json(hedgerow("refine", *given, "--config", place / "short.toml", "--steps", 2, "--json"))
    assert (result["model"], result["steps"]) == (str(place / "net.hedge"), 2)
    assert result["mean_dice"] == {}, "the forests know these images"
    result = in_json(hedgerow("--json", "back", place / "net.hedge", place / "images", "-o", place / "small.hedge"))
    stack = hr.load(place / "small.hedge")
    assert (result["method"], result["levels"]) == ("fitted", 2)
    assert result["leaves"] == sum(forest.n_leaves for forest in stack.levels)
    assert result["bytes"] == (place / "small.hedge").stat().st_size


def test_predict_in_json_tells_failures_too(hedgerow, place, model_file):
    arguments = ("predict", model_file, place / "images", "-o", place / "out", "--json")
    assert in_json(hedgerow(*arguments)) == {"output": str(place / "out"), "images": 2, "failures": []}
    (place / "images" / "a0.png").write_bytes(b"no image")
    finished = hedgerow(*arguments, "--overwrite")
    assert finished.code == 2
    found = json.loads(finished.out)
    assert found["images"] == 2
    (failure,) = found["failures"]
    assert str(place / "images" / "a0.png") in failure
    assert finished.err.splitlines()[-1].startswith("hedgerow: 1 image(s) could not be predicted")


@pytest.mark.parametrize("options", [("--json",), ("--json", "-"), ("--json", "--background", "3")])
def test_evaluate_prints_json_without_a_file(hedgerow, place, model_file, options):
    found = in_json(hedgerow("evaluate", model_file, place / "images", place / "labels", *options))
    assert found["mean_dice"] > 0.8
    assert found == in_json(hedgerow("--json", "evaluate", model_file, place / "images", place / "labels", *options))


def test_evaluate_writes_a_file_and_prints_the_table(hedgerow, place, model_file):
    finished = hedgerow("evaluate", model_file, place / "images", place / "labels", "--json", place / "scores.json")
    assert "mean Dice" in finished.out
    assert json.loads((place / "scores.json").read_text())["mean_dice"] > 0.8


def test_info_sample_export_and_settings(hedgerow, place, model_file):
    assert in_json(hedgerow("--json", "info", model_file)) == in_json(hedgerow("info", model_file, "--json"))
    result = in_json(hedgerow("sample", "somites", "-o", place / "s", "--n-images", 1, "--json"))
    assert result == {"images": str(place / "s" / "images"), "labels": str(place / "s" / "labels"), "n_images": 1}
    result = in_json(hedgerow("export", model_file, "--to", "c", "-o", place / "m.c", "--json"))
    assert all(os.path.exists(path) for path in result["files"])
    assert str(place / "m.c") in result["files"]
    assert_refused(hedgerow("settings", "--json"), "--json")
    assert_refused(hedgerow("--json", "settings"), "settings", "--json")


def test_json_has_null_for_what_is_no_number():
    assert common._finite({"a": [float("nan"), 1.5], "b": {"c": float("inf")}}) == {"a": [None, 1.5], "b": {"c": None}}


# Quiet, verbose, threads


@pytest.mark.parametrize("before", [True, False])
def test_quiet_prints_errors_only(hedgerow, place, model_file, log_lines, before):
    def quietly(*arguments):
        return hedgerow("--quiet", *arguments) if before else hedgerow(*arguments, "-q")

    arguments = ("evaluate", model_file, place / "images", place / "labels")
    assert hedgerow(*arguments).out
    finished = quietly(*arguments)
    assert (finished.code, finished.out, finished.err) == (0, "", "")
    assert log_lines.level == logging.NOTSET  # as before
    assert_refused(quietly("info", place / "none.hedge"), "none.hedge")


def test_quiet_keeps_warnings_back_and_shows_no_progress(hedgerow, model_file, log_lines, monkeypatch):
    shown, description = [], describing.description

    def warn(model):
        shown.append(progress._manner)
        logging.getLogger("hedgerow").warning("beware")
        return description(model)

    monkeypatch.setattr(describing, "description", warn)
    assert hedgerow("info", model_file).err == "beware\n"
    assert hedgerow("info", model_file, "-q").err == ""
    assert shown == ["bar or lines", "nothing"]
    assert progress._manner == "bar"


def test_the_product_of_settings_is_printed_in_any_case(hedgerow):
    assert hedgerow("settings", "--quiet").out == hedgerow("settings").out != ""


def test_verbose_logs_each_step_with_its_time(train, log_lines):
    finished = train("--verbose", clock=partial(next, itertools.count(step=3.25)))
    assert finished.code == 0
    times = [float(time) for time in re.findall(r"^ *([\d.]+) s  ", finished.err, re.MULTILINE)]
    assert times == sorted(times)
    assert times[0] > 0
    for step in ("features", "level 1 of 2: trees", r"level 1: held-out mean Dice 0\.\d+", "level 2 of 2: trees"):
        assert re.search(rf"^ *[\d.]+ s  {step}$", finished.err, re.MULTILINE), step
    assert "held-out" not in train("--overwrite").err  # it is over with the command


def test_quiet_and_verbose_are_refused_together(hedgerow, model_file):
    assert_refused(hedgerow("-q", "info", model_file, "-v"), "--quiet", "--verbose")


@pytest.mark.parametrize("arguments", [("--threads", "1", "info"), ("info", "--threads=1"), ("info", "--threads", "1")])
def test_threads_before_and_after_the_command(hedgerow, model_file, arguments):
    before = threads.get_threads()
    try:
        threads.set_threads(3)
        assert hedgerow(*arguments, model_file).code == 0
        assert threads.get_threads() == 1
    finally:
        threads.set_threads(before)
    assert_refused(hedgerow("info", model_file, "--threads", 0), "threads")


def test_a_value_that_looks_like_a_common_option_is_a_value(hedgerow, place, model_file, monkeypatch):
    given = []
    monkeypatch.setattr(jobs, "report", lambda request, say: given.append(request) or 0, raising=False)
    (place / "r.html").write_text("")
    arguments = (model_file, place / "images", place / "labels", "-o", place / "r.html")
    assert hedgerow("report", *arguments, "--title", "--quiet").out
    assert given[0].title == "--quiet"


# Time, interrupts


@pytest.mark.parametrize(("seconds", "output"), [(9, ""), (133, "done in 2 min 13 s\n")])
def test_long_commands_say_how_long_they_took(hedgerow, model_file, seconds, output):
    out = hedgerow("info", model_file, clock=partial(next, itertools.count(step=seconds))).out
    assert out.endswith(output)
    assert ("done in" in out) == bool(output)
    assert "done in" not in hedgerow("info", model_file, "--json").out


def interrupt(*args, **options):
    raise KeyboardInterrupt


def test_after_an_interrupt_what_can_be_resumed_says_so(hedgerow, place, model_file, monkeypatch):
    for job in ("train", "refine", "predict"):
        monkeypatch.setattr(jobs, job, interrupt, raising=False)
    data, kept = (place / "images", place / "labels", "-o", place / "m.hedge"), place / "k.hedge.work"
    kept.mkdir()
    calls = {
        ("refine", model_file, *data): "rerun the same command to resume",
        ("train", *data): "nothing was left half-written",
        ("train", *data, "--effort", "good"): "nothing was left half-written",
        (
            "train",
            *data[:3],
            place / "k.hedge",
            "--effort",
            "good",
        ): f"finished work is kept in {kept}: rerun the same command to resume",
        ("predict", model_file, place / "images", "-o", place / "out"): "nothing was left half-written",
        ("predict", model_file, "a.npy", "-o", "a.ome.zarr"): "rerun the same command to resume",
    }
    for arguments, reports in calls.items():
        finished = hedgerow(*arguments)
        assert finished.code == 130
        assert finished.err == f"hedgerow: interrupted; {reports}.\n"


# Completion


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("re",), {"refine", "report"}),
        (("train", "--le"), {"--levels"}),
        (("back", "net.hedge", "--method", ""), {"fitted", "leaf_mean", "weights", "soft"}),
        (("train", "images/a"), set()),  # bash completes names of files itself
    ],
)
def test_bash_completes(words, expected, tmp_path):
    script = (
        'eval "$(hedgerow --show-completion bash)"; complete -p hedgerow | grep -q -- "-o default" || exit 3;'
        f"COMP_WORDS=(hedgerow {' '.join(word or chr(39) * 2 for word in words)}); COMP_CWORD={len(words)};"
        '_hedgerow_completion hedgerow; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    environment = {**os.environ, "PATH": f"{SCRIPT.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    environment["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"  # the shell is named
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert set(done.stdout.split()) == expected
