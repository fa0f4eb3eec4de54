"""What is chosen by name: every choice can be loaded, is in the help, and a new one is one line."""

import sys
from types import ModuleType

import numpy as np
import pytest

import hedgerow as hr
from hedgerow import choices, jobs
from hedgerow.choices import ENCODERS, EXPORT_FORMATS, FEATURES, LOSSES, Choice
from hedgerow.encoders import catalogue
from hedgerow.export.kinds import Exported
from hedgerow.features import registry
from hedgerow.settings import documented_toml
from helpers.refusals import assert_one_sentence, assert_refused


@pytest.mark.parametrize("table", [LOSSES, EXPORT_FORMATS], ids=["losses", "exports"])
def test_every_choice_is_there(table):
    for choice in table.values():
        if choice.place.startswith("refinement"):
            pytest.importorskip("torch")
        assert callable(choice.load())
        assert choice.about


def test_kinds_and_encoders_call_themselves_as_the_tables_do():
    assert {kind.kind: name for name, kind in registry.FEATURE_KINDS.items() if name in FEATURES} == {
        n: n for n in FEATURES
    }
    assert {encoder.name: name for name, encoder in catalogue.PUBLISHED.items()} == {n: n for n in ENCODERS}


def test_help_lists_the_choices(hedgerow):
    text = " ".join(hedgerow("export", "--help").out.split())
    settings = documented_toml(hr.RefineConfig())
    for table, where in ((EXPORT_FORMATS, text), (LOSSES, settings)):
        assert choices.described(table) in where


def test_an_unknown_choice_is_refused_with_those_there_are(hedgerow, model_file):
    with pytest.raises(hr.ConfigError) as problem:
        hr.RefineConfig(loss="hinge")
    assert_one_sentence(problem, "RefineConfig.loss", "'hinge'", *LOSSES)
    assert_refused(hedgerow("export", model_file, "--to", "java"), "--to", *EXPORT_FORMATS)


def test_a_new_export_is_a_function_and_a_line(monkeypatch, model_file, tmp_path):
    def write(model, path, filters, name):
        path.write_text(str(model.classes))
        return Exported((path,), note="in words")

    module = ModuleType("hedgerow.a_new_file")
    module.write = write
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(EXPORT_FORMATS, "words", Choice("its classes in words", "a_new_file:write"))
    exported = jobs.export(jobs.ExportRequest(model_file, "words", tmp_path / "model.words"))
    assert exported.note == "in words"
    assert (tmp_path / "model.words").read_text() == str(hr.load(model_file).classes)


def test_a_new_loss_is_a_function_and_a_line(monkeypatch, stack, example):
    torch = pytest.importorskip("torch")
    seen = []

    def squared(targets, n_classes):
        seen.append(n_classes)
        return lambda scores, target: torch.square(scores).mean()

    module = ModuleType("hedgerow.a_new_file")
    module.squared = squared
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(LOSSES, "squared", Choice("the mean square of the scores", "a_new_file:squared"))
    config = hr.RefineConfig(n_steps=4, loss="squared", dice=0.0, held_out=0.0)
    net = hr.refine(hr.to_convnet(stack), example.images, example.labels, config)
    assert seen == [stack.n_classes]
    assert np.isfinite(net.predict_proba(example.images[0])).all()
    assert net.refinements[-1].config["loss"] == "squared"
