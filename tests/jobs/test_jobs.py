"""Jobs on files, as a page or a cluster calls them: what they return, say and write. They print nothing."""

import dataclasses
import importlib
import json
import math
import pkgutil
import subprocess
import sys

import numpy as np
import pytest

import hedgerow as hr
from conftest import CLASSES, draw
from hedgerow import jobs
from hedgerow.images import array_checks
from hedgerow.jobs.describing import description
from hedgerow.jobs.inputs import checked_output
from hedgerow.predict.batch import Predicted
from hedgerow.progress import quiet, silent
from helpers.files import listing, unchanged, write
from helpers.refusals import assert_one_sentence


@pytest.fixture(autouse=True)
def no_job_prints(capsys):
    """Jobs report and say; they do not print."""
    yield
    assert capsys.readouterr() == ("", "")


def test_every_job_is_found_also_once_all_modules_are_loaded():
    modules = [module.name for module in pkgutil.iter_modules(jobs.__path__)]
    assert not set(modules) & set(jobs.__all__)  # importing a module would put it in the place of the job
    for module in modules:
        importlib.import_module(f"hedgerow.jobs.{module}")
    for name in jobs.__all__:
        assert callable(getattr(jobs, name)) or name.isupper(), name  # or a constant


def test_importing_the_jobs_loads_none_of_them():
    code = "import sys; from hedgerow import jobs; print(*[name for name in sys.modules if 'hedgerow.jobs.' in name])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"


# Train


def trained(place, config, say=quiet, **options):
    request = jobs.TrainRequest(place / "images", place / "labels", place / "model.hedge", config=config, **options)
    return jobs.train(request, say=say, progress=silent)


def test_training_says_what_it_read_and_returns_what_it_grew(place, example, tiny_config):
    messages = []
    result = trained(place, tiny_config, say=messages.append)
    assert messages[0] == "2 image(s): 24 x 32 uint8"
    assert messages[1] == str(hr.class_table(example.labels))
    assert result.n_bytes == (place / "model.hedge").stat().st_size
    assert result.held_out == [score["mean_dice"] for score in hr.load(place / "model.hedge").settings["held_out"]]
    assert result.unseen == "blocks of the training images"
    assert messages[2].startswith("effort fast: estimated time ")
    assert messages[3:] == [
        f"level {k}: mean Dice {score:.3f} on held-out {result.unseen}" for k, score in enumerate(result.held_out, 1)
    ]


def test_a_levels_score_is_said_before_the_next_level_grows(place, tiny_config):
    events = []

    def note(what, done, total):
        events.append(what)

    jobs.train(
        jobs.TrainRequest(place / "images", place / "labels", place / "model.hedge", config=tiny_config),
        say=events.append,
        progress=note,
    )
    first = next(i for i, event in enumerate(events) if event.startswith("level 1: mean Dice"))
    assert first < events.index("forests: level 2 of 2, trees")


def test_with_more_images_whole_ones_are_held_out(place, tiny_config):
    for number in range(2, 4):
        image, labels = draw(number)
        write(place / "images" / f"a{number}.png", image)
        write(place / "labels" / f"a{number}.png", labels.astype(np.uint8))
    assert trained(place, tiny_config).unseen == "training images"


def test_each_file_is_checked_once(place, tiny_config, monkeypatch):
    checked, check = [], array_checks._numeric_array
    monkeypatch.setattr(array_checks, "_numeric_array", lambda *given: checked.append(given[1]) or check(*given))
    trained(place, tiny_config)
    assert checked == [str(place / folder / name) for folder in ("images", "labels") for name in ("a0.png", "a1.png")]
    checked.clear()
    jobs.evaluate(jobs.EvaluateRequest(place / "model.hedge", place / "images", place / "labels"), progress=silent)
    assert len(checked) == 4


def test_several_kinds_of_feature_are_trained_on_and_described(place, example, tiny_config):
    planes = np.stack([example.images[0], 255 - example.images[0]]).astype(np.float32)
    for folder, array in (("planes", planes), ("marks", example.labels[0])):
        write(place / folder / "a0.npy", array)
    config = dataclasses.replace(tiny_config, features="bank+channels", n_levels=1)
    jobs.train(
        jobs.TrainRequest(place / "planes", place / "marks", place / "model.hedge", config=config), progress=silent
    )
    features = description(hr.load(place / "model.hedge"))["features"]
    assert [member["kind"] for member in features["members"]] == ["bank", "channels"]


def test_files_to_keep_are_not_written_over(place, tiny_config):
    before = listing(place)
    with pytest.raises(hr.InputError) as problem:
        trained(place, tiny_config, keep=[place / "images" / ".." / "model.hedge"])
    assert_one_sentence(problem, "model.hedge", "another name")
    unchanged(place, before)


def test_an_output_may_be_given_as_text(place):
    assert checked_output(str(place / "a.json"), []) == place / "a.json"


# Predict and evaluate


def test_predictions_report_their_progress_and_say_notes(place, model_file, example):
    write(place / "images" / "b.npy", example.images[0].astype(np.float32))
    (place / "images" / "c.npy").write_bytes(b"no array")
    messages, seen = [], []
    result = jobs.predict(
        jobs.PredictRequest(model_file, place / "images", place / "out"),
        say=messages.append,
        progress=lambda *now: seen.append(now),
    )
    assert result == Predicted(4, result.failures)
    assert [str(place / "images" / "c.npy") in failure for failure in result.failures] == [True]
    assert [line.split(" but ")[0] for line in messages] == [f"note: {place / 'images' / 'b.npy'} is float32"]
    assert seen == [("images", done, 4) for done in range(5)]


def test_evaluation_gives_scores_and_values(place, model_file, stack, example):
    arguments = (model_file, place / "images", place / "labels", place / "scores.json")
    result = jobs.evaluate(jobs.EvaluateRequest(*arguments, background=CLASSES[0]), progress=silent)
    expected = hr.evaluate(stack, example.images, example.labels)
    np.testing.assert_array_equal(result.scores.confusion, expected.confusion)
    assert result.without_background == expected.balanced_accuracy_without(CLASSES[0])
    values = result.to_dict()
    assert values.pop("balanced_accuracy_without_background") == result.without_background
    assert values.pop("n_known") == 2
    assert values == expected.to_dict()
    assert json.loads((place / "scores.json").read_text()) == result.to_dict()


def test_a_measure_that_is_not_defined_is_none_in_the_values(place, model_file):
    for name in ("a0.png", "a1.png"):
        write(place / "labels" / name, np.full((24, 32), CLASSES[0], np.uint8))
    result = jobs.evaluate(
        jobs.EvaluateRequest(model_file, place / "images", place / "labels", background=CLASSES[0]), progress=silent
    )
    assert math.isnan(result.without_background)
    assert result.to_dict()["balanced_accuracy_without_background"] is None
    without = jobs.evaluate(jobs.EvaluateRequest(model_file, place / "images", place / "labels"), progress=silent)
    assert without.without_background is None
    assert "balanced_accuracy_without_background" not in without.to_dict()


# Export and look


def test_an_export_stands_beside_its_model_unless_told(place, stack):
    hr.save(stack, place / "my model.hedge")
    found = jobs.export(jobs.ExportRequest(place / "my model.hedge", "c"))
    assert found.files == (place / "my model.c", place / "my model.h")
    assert found.compile.endswith(f"-c '{place / 'my model.c'}'")


def test_a_figure_does_not_take_the_place_of_what_it_shows(place, model_file):
    before = listing(place)
    for output in ("images/a0.png", "labels/a0.png"):
        with pytest.raises(hr.InputError, match="another name"):
            jobs.look(
                jobs.LookRequest(model_file, place / "images/a0.png", place / output, truth=place / "labels/a0.png")
            )
    unchanged(place, before)


@pytest.mark.parametrize(
    ("request_of", "words"),
    [
        (lambda: jobs.DemoRequest("out", "fish"), ["'fish'", "somites, bodies"]),
        (lambda: jobs.TrainRequest("images", "labels", "m.hedge", unlabelled=2**40), ["unlabelled value", str(2**40)]),
    ],
)
def test_impossible_requests_are_refused_when_they_are_made(request_of, words):
    with pytest.raises(hr.HedgerowError) as problem:
        request_of()
    assert_one_sentence(problem, *words)
