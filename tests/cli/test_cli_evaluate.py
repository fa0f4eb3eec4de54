"""`hedgerow evaluate` and `info`: what they print, as tables and as JSON, and what they refuse."""

import json
import os
import re
import shutil

import numpy as np
import pytest

import hedgerow as hr
from conftest import CLASSES
from hedgerow.jobs.describing import description
from hedgerow.predict import evaluate as evaluation
from helpers.files import listing, write
from helpers.refusals import assert_refused


def strict_json(text):
    """JSON as other programs read it: without NaN."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_evaluate_prints_tables_and_writes_json(hedgerow, place, model_file, stack, example):
    arguments = ("evaluate", model_file, place / "images", place / "labels")
    finished = hedgerow(*arguments, "--json", place / "scores.json", "--background", 77)
    assert finished.code == 0
    scores = hr.evaluate(stack, example.images, example.labels)
    values = json.loads((place / "scores.json").read_text())
    without = values.pop("balanced_accuracy_without_background")
    assert values.pop("n_known") == 2
    assert "trained on 2 of these images" in finished.out
    assert values == scores.to_dict()
    assert without == scores.balanced_accuracy_without(77)
    assert values["classes"] == list(CLASSES)
    assert f"mean Dice {scores.mean_dice:.4f}" in finished.out
    for value, row in zip(CLASSES, scores.confusion, strict=True):
        assert re.search(rf"^ *{value} \| +{' +'.join(map(str, row))}$", finished.out, re.MULTILINE)
        assert re.search(rf"^ *{value} +{row.sum():,} ", finished.out, re.MULTILINE)


def test_json_to_the_screen_is_json_alone(hedgerow, place, model_file):
    finished = hedgerow("evaluate", model_file, place / "images", place / "labels", "--json", "-")
    assert json.loads(finished.out)["mean_dice"] > 0.8
    assert len(finished.out.splitlines()) == 1
    assert set(os.listdir(place)) == {"images", "labels", "settings.toml"}


def test_json_has_null_where_a_measure_is_not_defined(hedgerow, place, model_file):
    """One class alone in the labels is enough to compare with."""
    for name in ("a0.png", "a1.png"):
        write(place / "labels" / name, np.full((24, 32), 3, np.uint8))
    arguments = ("evaluate", model_file, place / "images", place / "labels", "--json", "-", "--background", 3)
    finished = hedgerow(*arguments)
    assert finished.code == 0, finished.err
    values = strict_json(finished.out)
    assert values["balanced_accuracy_without_background"] is None
    assert values["recall"][1:] == [None, None]


def test_evaluate_refuses_before_the_work(hedgerow, place, model_file, monkeypatch):
    model = place / "model.hedge"
    shutil.copy(model_file, model)
    monkeypatch.setattr(evaluation, "predict_indices", lambda *_, **__: pytest.fail("the work was begun"))
    arguments = ("evaluate", model, place / "images", place / "labels")
    assert_refused(hedgerow(*arguments, "--background", 5), "5", "3, 77, 200")
    for target in (place, place / "none" / "a.json", place / "labels" / "a0.png", model):
        before = listing(place)
        assert_refused(hedgerow(*arguments, "--json", target), target)
        assert listing(place) == before
    labels = np.full((24, 32), 3, np.uint8)
    labels[4, 6] = 9
    write(place / "labels" / "a1.png", labels)
    assert_refused(hedgerow(*arguments), "a1.png", "unknown class", "9", "row 4, column 6")


def test_info_says_what_a_model_is(hedgerow, model_file, stack):
    finished = hedgerow("info", model_file)
    assert finished.code == 0
    assert "classes: 3, 77, 200" in finished.out
    assert "trained on 2 image(s)" in finished.out
    assert f"features: {stack.features.n_features} (bank)" in finished.out
    assert f"receptive field: {stack.receptive_field} px" in finished.out
    for number, forest in enumerate(stack.levels, start=1):
        assert f"level {number}: 3 trees, {forest.n_leaves} leaves" in finished.out
    values = strict_json(hedgerow("info", model_file, "--json").out)
    assert values == json.loads(json.dumps(description(stack)))
