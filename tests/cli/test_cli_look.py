"""`hedgerow look`, `info`, `predict` and `evaluate` on a network."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import hedgerow as hr
from conftest import CLASSES
from hedgerow.images.legend import Legend
from hedgerow.io import model_file
from hedgerow.network.mapping import to_convnet
from helpers.files import listing, unchanged
from helpers.leaf_paths import leaf_paths
from helpers.refusals import assert_refused


def test_predict_and_evaluate_take_a_network(hedgerow, net_file, place, refined, example):
    finished = hedgerow("predict", net_file, place / "images", "-o", place / "out", "--proba", "--format", "npy")
    assert finished.code == 0, finished.err
    for number, image in enumerate(example.images):
        labels = [p for p in (place / "out").iterdir() if p.name.startswith(f"a{number}") and "proba" not in p.name]
        np.testing.assert_array_equal(np.load(labels[0]), refined.predict(image))
    proba = np.load(next(path for path in (place / "out").iterdir() if "proba" in path.name))
    np.testing.assert_array_equal(np.sort(proba.shape), np.sort((3, 24, 32)))
    finished = hedgerow("evaluate", net_file, place / "images", place / "labels", "--json", "-")
    assert finished.code == 0, finished.err
    expected = hr.evaluate(refined, example.images, example.labels)
    assert json.loads(finished.out)["mean_dice"] == pytest.approx(expected.mean_dice)


@pytest.mark.parametrize("n_levels", [1, 2, 3])
@pytest.mark.parametrize("split", ["soft", "tanh"])
def test_info_lists_the_hidden_layers_by_name_and_size(hedgerow, example, tiny_config, tmp_path, n_levels, split):
    stack = hr.fit_stack(example.images, example.labels, replace(tiny_config, n_levels=n_levels))
    model_file.save(to_convnet(stack, split), tmp_path / "net.hedge")
    finished = hedgerow("info", tmp_path / "net.hedge")
    assert finished.code == 0, finished.err
    assert f"{split} splits, {3 * n_levels - 1} hidden layers" in finished.out
    result = re.findall(r"^  (H\d+|output) +([\d,]+) neurons +([\d,]+) weights", finished.out, re.MULTILINE)
    assert [name for name, *_ in result] == [*(f"H{k}" for k in range(1, 3 * n_levels)), "output"]
    sizes = []
    for forest in stack.levels:
        splits, pair = int(forest.is_split.sum()), 2 if split == "soft" else 1
        edges = len(leaf_paths(forest).node)
        sizes += [
            (pair * splits, 2 * splits),
            (forest.n_leaves, edges + forest.n_leaves),
            (3, 3 * forest.n_leaves),
        ]
    assert [tuple(int(n.replace(",", "")) for n in numbers) for _, *numbers in result] == sizes


def test_info_says_how_a_network_was_refined(hedgerow, net_file, refined):
    finished = hedgerow("info", net_file)
    assert finished.code == 0, finished.err
    assert "refined for 6 steps" in finished.out
    assert f"refined {refined.refinements[-1].refined:.3f}" in finished.out


def test_info_of_a_network_is_valid_json(hedgerow, net_file, refined):
    def refuse(name):
        raise ValueError(name)

    finished = hedgerow("info", net_file, "--json")
    assert finished.code == 0, finished.err
    values = json.loads(finished.out, parse_constant=refuse)
    assert [layer["name"] for layer in values["layers"]] == ["H1", "H2", "H3", "H4", "H5", "output"]
    (found,), (record,) = values["refined"], refined.refinements
    assert found["scores"] == record.scores
    assert [entry["step"] for entry in found["history"]] == [check.step for check in record.checks]


def test_info_of_a_forest_has_no_layers(hedgerow, model_file):
    finished = hedgerow("info", model_file)
    assert finished.code == 0, finished.err
    assert "hidden layers" not in finished.out
    assert "layers" not in json.loads(hedgerow("info", model_file, "--json").out)


def test_info_names_the_classes(hedgerow, stack, tmp_path):
    legend = Legend({CLASSES[0]: "soil", CLASSES[2]: "root"}, {CLASSES[1]: (1, 2, 3)})
    model_file.save(replace(stack, legend=legend), tmp_path / "model.hedge")
    finished = hedgerow("info", tmp_path / "model.hedge")
    assert finished.code == 0, finished.err
    assert f"classes: {CLASSES[0]} soil, {CLASSES[1]}, {CLASSES[2]} root\n" in finished.out


def test_look_draws_a_network_and_a_forest(hedgerow, net_file, place):
    pytest.importorskip("matplotlib")
    for model in (net_file, place / "model.hedge"):
        finished = hedgerow(
            "look", model, place / "images" / "a0.png", "-o", place / "inside.png",
            "--truth", place / "labels" / "a0.png", "--class", CLASSES[0], "--class", CLASSES[2],
        )  # fmt: skip
        assert finished.code == 0, finished.err
        assert "2 level(s)" in finished.out
        assert (place / "inside.png").read_bytes().startswith(b"\x89PNG")
        (place / "inside.png").unlink()


@pytest.mark.parametrize(
    ("image", "options", "word"),
    [("images", (), "2 images"), ("none.png", (), "none.png"), ("images/a0.png", ("--class", 9), "9")],
    ids=str,
)
def test_look_refuses_what_it_cannot_draw(hedgerow, net_file, place, image, options, word):
    pytest.importorskip("matplotlib")
    before = listing(place)
    assert_refused(hedgerow("look", net_file, place / image, "-o", place / "inside.png", *options), word)
    unchanged(place, before)


def test_look_never_writes_over_what_it_reads(hedgerow, net_file, place):
    image, truth = (next((place / folder).iterdir()) for folder in ("images", "labels"))
    before = image.read_bytes(), truth.read_bytes()
    for output in (image, truth):
        finished = hedgerow("look", net_file, image, "--truth", truth, "-o", output)
        assert_refused(finished, "one of the files to read")
    assert (image.read_bytes(), truth.read_bytes()) == before
