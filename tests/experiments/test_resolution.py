"""The experiment on the stride of refinement: its rows are the scores by hand."""

import json

import pytest

torch = pytest.importorskip("torch")

import hedgerow as hr
from hedgerow.experiments import resolution
from hedgerow.experiments.data import ImageSet
from hedgerow.progress import silent
from helpers.refinements import SHORT


def test_rows_are_the_scores_by_hand(example, tiny_config):
    images = ImageSet(list(example.images), list(example.labels))
    rows = list(resolution.compare(images, images, [1, 4], tiny_config, SHORT, "cpu"))
    assert [row.get("stride") for row in rows] == [None, 1, 4]
    stack = hr.fit_stack(images.images, images.labels, tiny_config, progress=silent)
    config = hr.RefineConfig(**{**SHORT.to_dict(), "stride": 4, "augment": SHORT.augment})
    refined = hr.refine(hr.to_convnet(stack), images.images, images.labels, config, progress=silent)
    for row, model in ((rows[0], stack), (rows[2], refined)):
        scores = hr.evaluate(model, images.images, images.labels, progress=silent)
        assert row["mean_dice"] == round(scores.mean_dice, 4)


def test_the_command_prints_a_line_a_network(listed_place, capsys, monkeypatch, tiny_config):
    monkeypatch.setattr(resolution, "StackConfig", lambda seed: tiny_config)
    resolution.main([str(listed_place), "--strides", "2", "--steps", "2", "--seeds", "5"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["model"] for row in rows] == ["DF", "ConvNet"]
    assert rows[1]["steps"] == 2


def test_a_missing_folder_is_one_sentence(capsys):
    with pytest.raises(SystemExit) as stopped:
        resolution.main(["nowhere"])
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith("hedgerow: ")
