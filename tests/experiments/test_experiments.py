"""The paper's experiments: its parameters as written, rows that are the scores of what was trained, and going on."""

import json
from dataclasses import replace
from typing import get_args, get_type_hints

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import hedgerow as hr
from experiments import bench, data, outputs, parts, protocols, runner, summary
from experiments.__main__ import experiment as command
from experiments.curve_figure import line_figure
from hedgerow.errors import InputError
from hedgerow.images.label_files import read_labels
from hedgerow.locking import locked
from hedgerow.progress import silent
from helpers.efforts import make_small
from helpers.files import listing, write
from helpers.refinements import Stopped
from helpers.refusals import assert_one_sentence, assert_refused

TINY = protocols.Scale(3, 2, (32, 40), 1, 2, 2, 3, 2, 2, network_sizes=(2,), best_minutes=5.0)


@pytest.fixture
def tiny(monkeypatch, tiny_config):
    """The zebrafish experiment with settings that take seconds."""
    protocol = protocols.ZEBRAFISH
    small = replace(
        protocol,
        stack=replace(tiny_config, augment=hr.AugmentConfig()),
        own_stack=tiny_config,
        own_refine=replace(protocol.own_refine, check_every=1, stride=2),
        scales={"small": TINY},
    )
    monkeypatch.setitem(protocols.PROTOCOLS, "zebrafish", small)
    make_small(monkeypatch, parts)
    return small


def run(folder, **options):
    return runner.run_experiment("zebrafish", folder, say=silent_say, progress=silent, **options)


def run_until(at, folder, parts):
    """A run that is interrupted when it reports `at`."""

    def stop(what, done, total):
        if what == at:
            raise Stopped

    with pytest.raises(Stopped):
        runner.run_experiment("zebrafish", folder, parts=parts, say=silent_say, progress=stop)


def silent_say(text):
    pass


def test_one_run_at_a_time_works_in_a_folder(tiny, tmp_path):
    with locked(tmp_path / "experiment"):
        with pytest.raises(hr.InputError) as problem:
            run(tmp_path, parts=["paper"])
        assert_one_sentence(problem, tmp_path, "is already being written by process", "choose another output")
        assert not (tmp_path / "parts").exists()
    run_until("refining", tmp_path, ["paper"])
    assert not list(tmp_path.glob(".hedgerow*")), "a run that ends lets go"


def test_a_relaxed_network_is_what_training_begins_with(net):
    config = hr.RefineConfig(relax=0.25, tolerance=0.01)
    before = net.level(0).split_weight.detach().clone()
    softer = bench.relaxed(net, config)
    assert [softer.level(number).tolerance for number in range(softer.n_levels)] == [0.01] * softer.n_levels
    assert torch.equal(softer.level(0).split_weight, 0.25 * before)
    assert torch.equal(net.level(0).split_weight, before)
    assert net.level(0).tolerance == 0


def test_the_parameters_are_those_of_the_paper():
    fish, body = protocols.ZEBRAFISH, protocols.KINECT
    stack = fish.stack
    assert (stack.n_levels, stack.n_trees, stack.max_depth, stack.min_split) == (3, 16, 12, 25)
    assert (stack.context.window, stack.context.n_channels, stack.context.n_offsets) == (129, None, 10)
    assert (stack.sampling.step, stack.sampling.fraction, stack.held_out, fish.copies) == (3, 0.25, "none", 2)
    assert (fish.refine.learning_rate, fish.refine.halving_steps, fish.refine.stride) == (0.01, 96, 9)
    assert (fish.refine.first_momentum, fish.refine.momentum_steps, fish.refine.max_momentum) == (0.4, 96, 0.7)
    assert (fish.refine.loss, fish.refine.optimiser, fish.measure) == ("balanced", "sgd", "mean_dice")
    assert (fish.reported["DF"], fish.reported["MB2"]) == (0.60, 0.63)
    stack = body.stack
    assert (stack.n_levels, stack.n_trees, stack.max_depth, stack.min_split) == (2, 10, 12, 25)
    assert (stack.sampling.per_class, stack.context.n_candidates, stack.context.offset_sigma) == (20, 100, 50)
    assert (body.refine.learning_rate, body.refine.halving_steps, body.refine.max_momentum) == (0.01, 400, 0.95)
    assert (body.refine.n_steps, body.refine.trim, body.measure) == (8000, True, "foreground_accuracy")
    sharpness = protocols.PAPER_SHARPNESS
    assert (sharpness.split, sharpness.leaf, sharpness.vote) == (100, 1, 0.1)
    full = fish.scales["full"]
    assert (full.n_train, full.n_test, full.size, full.n_trees) == (16, 16, (800, 950), 16)
    assert fish.scaled(full).refine == fish.refine
    assert body.scaled(body.scales["full"]).refine == body.refine


@pytest.mark.parametrize("protocol", protocols.PROTOCOLS.values(), ids=protocols.PROTOCOLS)
def test_a_smaller_scale_keeps_the_papers_rates_and_momenta(protocol):
    for scale in protocol.scales.values():
        smaller = protocol.scaled(scale).refine
        assert smaller == replace(protocol.refine, n_steps=scale.paper_steps)
        assert scale.paper_steps > smaller.momentum_steps if smaller.first_momentum is not None else True
        assert scale.paper_steps >= 2 * smaller.halving_steps


def test_a_reading_changes_the_papers_settings_alone():
    counts = protocols.ZEBRAFISH.read_as(protocols.READINGS["tanh-counts-sum"])
    assert (counts.stack.votes, counts.refine.loss, counts.reading.sharpness.leaf) == ("counts", "class_sum", 2)
    assert replace(counts.stack, votes="shares") == protocols.ZEBRAFISH.stack
    assert (counts.own_stack, counts.own_refine) == (protocols.ZEBRAFISH.own_stack, protocols.ZEBRAFISH.own_refine)
    assert protocols.KINECT.read_as(protocols.READINGS["tanh-counts-sum"]).refine.loss == "cross_entropy"


def test_an_experiment_runs_end_to_end_and_tells_all(tiny, tmp_path):
    found = run(tmp_path / "out", seeds=(3,))
    written = json.loads((tmp_path / "out" / "results.json").read_text())
    assert written == json.loads(json.dumps(found))
    assert written["seeds"] == [3]
    assert {one["versions"]["hedgerow"] for one in written["runs"]} == {hr.__version__}
    assert written["settings"]["paper"]["refine"]["learning_rate"] == 0.01
    models = {(row["part"], row["model"]) for row in written["rows"]}
    for part in ("paper", "tanh", "crelu"):
        assert {(part, name) for name in ("DF", "mapped", "ConvNet", "MB1", "MB2", "fitted")} <= models
    assert {part for part, model in models if model == "relaxed"} == {"own", "tanh", "crelu"}
    assert {
        ("own", "soft"),
        ("unet", "U-Net"),
        ("fcn", "FCN"),
        ("best", "best"),
        ("levels-1", "ConvNet"),
        ("images-1", "U-Net"),
        ("images-1", "FCN"),
        ("images-1", "ConvNet, paper"),
        ("images-1", "random start, sparse"),
    } <= models
    assert {(f"random-{kind}", f"random start, {kind}") for kind in ("sparse", "full")} <= models
    assert not {part for part, _ in models} & {*parts.SLOW, *parts.ON_REQUEST}
    assert {"images-1", "images-2"} == {part for part, _ in models if part.startswith("images")}
    assert all(0 <= row["mean_dice"] <= 1 for row in written["rows"])
    text = (tmp_path / "out" / "tables.md").read_text()
    for title in (
        "The paper's table",
        "Kinds of splits",
        "Levels",
        "Comparison with other networks",
        "Learning curve",
    ):
        assert f"### {title}" in text
    assert "| in the paper, on its data | 0.60 | 0.66 | 0.59 | 0.63 | – | – |" in text
    for name in ("report.html", "figures/learning_curve.png", "figures/comparison.png"):
        assert (tmp_path / "out" / name).stat().st_size > 1000


@pytest.mark.slow
def test_questions_on_request_have_their_tables(tiny, tmp_path):
    asked = ["own", "tanh", "leaf-l1-0.1", "leaf-entropy-1", "mapping-crelu", "best-1", "reading-tanh-counts-sum"]
    found = run(tmp_path / "out", parts=asked)
    assert {row["part"] for row in found["rows"]} == set(asked)
    text = (tmp_path / "out" / "tables.md").read_text()
    for title in ("Kinds of splits from the paper's forests", "Penalties on leaves", "Readings of the paper"):
        assert f"### {title}" in text
    assert "| soft | leaf_entropy 1 |" in text
    assert "| tanh | leaf_l1 0.1 |" in text


@pytest.mark.slow
def test_sharper_networks_come_closer_to_the_papers_forests(tiny, tmp_path):
    found = run(tmp_path / "out", parts=["paper", "sharpness"])
    scores = {(row["part"], row["model"]): row["mean_dice"] for row in found["rows"]}
    assert scores["sharpness", "DF"] == scores["paper", "DF"]
    assert scores["sharpness", parts.sharpness_name(100, 1)] == scores["paper", "mapped"]
    softest, sharpest = (scores["sharpness", parts.sharpness_name(*pair)] for pair in ((10, 1), (1000, 5)))
    assert abs(sharpest - scores["paper", "DF"]) < abs(softest - scores["paper", "DF"])
    lines = (tmp_path / "out" / "tables.md").read_text().split("### Sharpness")[1].splitlines()
    assert lines[2] == "| splits | leaves 1 | leaves 2 | leaves 3 | leaves 5 |"
    assert lines[5].startswith(f"| 100 | {scores['paper', 'mapped']:.3f} |")


def test_rows_are_the_scores_of_the_models_that_were_saved(tiny, tmp_path):
    found = run(tmp_path / "out", parts=["own"])
    images, labels = hr.synthetic.somites(TINY.n_test, TINY.size, seed=data.SEEDS["test"])
    rows = {row["model"]: row for row in found["rows"]}
    for name in ("DF", "ConvNet", "MB1", "MB2", "soft"):
        path = tmp_path / "out" / "models" / f"own-{name}-0.hedge"
        scores = hr.evaluate(hr.load(path), images, labels, progress=silent)
        assert rows[name]["mean_dice"] == scores.mean_dice
        assert rows[name]["foreground_accuracy"] == scores.balanced_accuracy_without(0)
        assert rows[name]["bytes"] == path.stat().st_size


@pytest.mark.slow
def test_an_interrupted_experiment_goes_on_and_does_nothing_twice(tiny, tmp_path, monkeypatch):
    whole = run(tmp_path / "whole", parts=["own", "levels-1"])

    def stop(what, done, total):
        if "refining" in what and done == 2:
            raise Stopped

    with pytest.raises(Stopped):
        runner.run_experiment("zebrafish", tmp_path / "out", parts=["own", "levels-1"], say=silent_say, progress=stop)
    assert list((tmp_path / "out" / "parts").iterdir()) == []
    assert list((tmp_path / "out" / "models").glob("*.checkpoint"))
    resumed = run(tmp_path / "out", parts=["own", "levels-1"])
    assert [row["mean_dice"] for row in resumed["rows"]] == [row["mean_dice"] for row in whole["rows"]]
    assert {row["part"] for row in resumed["rows"] if "resumed" in row} == {"own"}, "its seconds are those of a part"
    monkeypatch.setattr(runner, "PARTS", {name: lambda bench: pytest.fail("run again") for name in parts.PARTS})
    again = run(tmp_path / "out", parts=["own", "levels-1"])
    assert again["rows"] == resumed["rows"]


def test_what_was_scored_before_an_interruption_is_kept(tiny, tmp_path, monkeypatch):
    whole = run(tmp_path / "whole", parts=["own"])
    created = []

    def stop(what, done, total):
        created.append(what)
        if what == "scoring fitted":
            raise Stopped

    with pytest.raises(Stopped):
        runner.run_experiment("zebrafish", tmp_path / "out", parts=["own"], say=silent_say, progress=stop)
    assert [what for what in dict.fromkeys(created) if what.startswith("scoring")] == [
        f"scoring {name}" for name in ("DF", "mapped", "relaxed", "ConvNet", "MB1", "MB2", "fitted")
    ]
    assert not list((tmp_path / "out" / "models").glob("*.checkpoint")), "the network is safe"
    begun = tmp_path / "out" / "begun" / "own-0.json"
    remaining = json.loads(begun.read_text())["rows"]
    assert list(remaining) == ["DF", "mapped", "relaxed", "ConvNet", "MB1", "MB2"]
    monkeypatch.setattr(bench, "refine_labelled", lambda *_, **__: pytest.fail("refined again"))
    resumed = run(tmp_path / "out", parts=["own"])
    assert resumed["rows"][:6] == list(remaining.values())
    assert [row["mean_dice"] for row in resumed["rows"]] == [row["mean_dice"] for row in whole["rows"]]
    assert [one.get("resumed") for one in resumed["runs"]] == [True]
    assert list(whole["timings"]) == ["own, seed 0"]
    assert resumed["timings"] == {}, "seconds of a half are none"
    assert not begun.exists()


def test_the_report_of_many_images_is_of_some_of_them_and_says_so(tiny, tmp_path, monkeypatch):
    run(tmp_path / "out", parts=["own"])
    page = (tmp_path / "out" / "report.html").read_text()
    assert "of the test images" not in page
    monkeypatch.setattr(outputs, "MOST_IMAGES", 1)
    run(tmp_path / "out", parts=["own"])
    assert "are from 1 of the test images" in (tmp_path / "out" / "report.html").read_text()


def test_with_the_network_gone_all_that_was_made_of_it_is_made_again(tiny, tmp_path):
    run_until("scoring fitted", tmp_path / "out", ["own"])
    begun = tmp_path / "out" / "begun" / "own-0.json"
    content = json.loads(begun.read_text())
    rows = {name: {**row, "mark": "old"} for name, row in content["rows"].items()}
    begun.write_text(json.dumps({**content, "rows": rows}))
    (tmp_path / "out" / "models" / "own-ConvNet-0.hedge").unlink()
    found = run(tmp_path / "out", parts=["own"])
    assert [row["model"] for row in found["rows"] if "mark" in row] == ["DF", "mapped", "relaxed"]


def test_a_model_whose_file_is_gone_is_made_again(tiny, tmp_path):
    run_until("scoring MB2", tmp_path / "out", ["own"])
    for path in (tmp_path / "out" / "models").iterdir():
        path.unlink()
    found = run(tmp_path / "out", parts=["own"])
    for row in found["rows"]:
        assert (tmp_path / "out" / "models" / bench.file_name("own", row["model"], 0)).stat().st_size == row["bytes"]


def test_a_network_whose_scoring_was_interrupted_is_not_refined_again(tiny, tmp_path):
    steps = []

    def count(what, done, total):
        if what.startswith("refining"):
            steps.append(done)

    run_until("scoring ConvNet", tmp_path / "out", ["levels-1"])
    runner.run_experiment("zebrafish", tmp_path / "out", parts=["levels-1"], say=silent_say, progress=count)
    assert set(steps) <= {TINY.steps}
    assert not list((tmp_path / "out" / "models").glob("*.checkpoint"))


def test_a_folder_belongs_to_one_experiment(tiny, tmp_path, monkeypatch):
    run(tmp_path / "out", parts=["unet"])
    monkeypatch.setitem(protocols.PROTOCOLS, "zebrafish", replace(tiny, scales={"small": replace(TINY, steps=4)}))
    with pytest.raises(hr.InputError) as problem:
        run(tmp_path / "out", parts=["unet"])
    assert_one_sentence(problem, tmp_path / "out", "other settings", "another folder")


@pytest.mark.parametrize(
    "name", ["experiment.txt", "models/own-ConvNet-0.hedge", "begun/notes.txt", "parts/own-0.json"]
)
def test_an_experiment_keeps_out_of_a_folder_with_files_of_others(tiny, tmp_path, name):
    theirs = tmp_path / "out" / name
    theirs.parent.mkdir(parents=True)
    theirs.write_text("by hand")
    with pytest.raises(hr.InputError) as problem:
        run(tmp_path / "out", parts=["unet"])
    assert_one_sentence(problem, tmp_path / "out", "another folder")
    assert listing(tmp_path / "out") == {name: b"by hand"}


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("vnc",), "--data"),
        (("zebrafish", "--part", "dreams"), "dreams"),
        (("vnc", "--data", "nowhere"), "nowhere"),
        (("kinect", "--data", "somites"), "somites"),
        (("zebrafish", "--seed", "-1"), "-1"),
        (("zebrafish", "--device", "abacus"), "abacus"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_sentence(experiment, tmp_path, options, word):
    assert_refused(experiment(*options, "-o", tmp_path / "out"), word)
    assert not (tmp_path / "out").exists()


def test_classes_that_would_end_a_run_are_refused_before_it(listed_place, experiment, tmp_path):
    finished = experiment("kinect", "--data", listed_place, "-o", tmp_path / "out")
    assert_refused(finished, "background", 19)
    labels = read_labels(listed_place / "labels" / "a1.png")
    write(listed_place / "labels" / "a1.png", np.where(labels == labels[0, 0], 9, labels).astype(np.uint8))
    finished = experiment("vnc", "--data", listed_place, "-o", tmp_path / "out")
    assert_refused(finished, "class 9", "only in test images")


def test_the_slow_part_runs_when_it_is_named(tiny, tmp_path):
    found = run(tmp_path / "out", parts=list(parts.SLOW))
    assert [row["model"] for row in found["rows"]] == ["ConvNet"]
    assert "the same, training all edges" not in (tmp_path / "out" / "tables.md").read_text()
    run(tmp_path / "out", parts=["paper"])
    assert "the same, training all edges" in (tmp_path / "out" / "tables.md").read_text()


def test_a_seed_that_was_run_before_stays_in_the_results(tiny, tmp_path):
    first = run(tmp_path / "out", parts=["unet"], seeds=(0,))
    both = run(tmp_path / "out", parts=["unet"], seeds=(1,))
    assert both["seeds"] == [0, 1]
    assert both["rows"][0] == first["rows"][0]


def test_results_by_hand_are_left_alone(experiment, tmp_path):
    (tmp_path / "report.html").write_text("by hand")
    assert_refused(experiment("zebrafish", "-o", tmp_path), tmp_path, "--overwrite")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_an_interrupted_experiment_says_that_it_resumes(experiment, tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "run_experiment", interrupt)
    finished = experiment("zebrafish", "-o", tmp_path / "z")
    assert finished.code == 130
    assert "rerun the same command to resume" in finished.err


def interrupt(*arguments, **options):
    raise KeyboardInterrupt


def test_the_command_prints_the_tables(tiny, experiment, tmp_path):
    finished = experiment("zebrafish", "-o", tmp_path / "out", "--part", "own", "--part", "tanh", "--seed", 1)
    assert finished.code == 0, finished.err
    assert "### The paper's table" in finished.out
    assert str(tmp_path / "out" / "report.html") in finished.out


def test_a_legend_names_each_line_by_its_colour():
    lines = {"DF": [(1, 0.1, 0.0), (2, 0.2, 0.1)], "U-Net": [(1, 0.3, 0.0), (2, 0.2, 0.1)]}
    axes = line_figure(lines, "images", "score").axes[0]
    named = {label: list(handle.get_ydata()) for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    assert named == {name: [y for _, y, _ in points] for name, points in lines.items()}


def test_means_and_spreads_are_over_seeds():
    rows = [{"part": "own", "model": "DF", "seed": s, "mean_dice": v} for s, v in ((0, 0.5), (1, 0.7))]
    rows += [{"part": "own", "model": "ConvNet", "seed": s, "mean_dice": v} for s, v in ((0, 0.6), (1, 0.9))]
    result = summary.Findings({"settings": {"measure": "mean_dice"}, "rows": rows, "seeds": [0, 1]})
    assert str(result.value("own", "DF")) == "0.600 ± 0.141"
    assert result.gain("own", "ConvNet") == "+25.0%"
    assert result.value("own", "MB1") is None


@pytest.mark.parametrize("measure", ["mean_dice", "foreground_accuracy"])
def test_the_papers_table_tells_mean_dice_beside_another_measure(measure):
    created = {"DF": (0.8, 0.5), "ConvNet": (0.4, 0.6)}
    rows = [
        {"part": "own", "model": name, "seed": 0, "device": "cpu", "foreground_accuracy": first, "mean_dice": second}
        for name, (first, second) in created.items()
    ]
    settings = {"measure": measure, "scale": "full", "scored on": "the test images", "paper": {"reported": {}}}
    settings["hedgerow"] = {"stack": {"n_levels": 3}}
    table = summary.tables({"settings": settings, "seeds": [0], "rows": rows})[0]
    told = {row[0] + str(i): row[1:3] for i, row in enumerate(table.rows)}
    dice = [("0.500", "0.600"), ("+0.0%", "+20.0%")]
    assert list(told.values()) == ([("0.800", "0.400"), ("+0.0%", "-50.0%")] if measure != "mean_dice" else []) + dice


def test_what_the_paper_shows_is_known_by_name_and_made_of_parts_that_exist():
    names, _ = get_args(get_type_hints(command, include_extras=True)["name"])
    assert set(get_args(names)) == {*protocols.PROTOCOLS, *protocols.PAPER}
    for item in protocols.PAPER.values():
        assert set(item.protocols) <= set(protocols.PROTOCOLS)
        assert set(item.parts) <= set(parts.PARTS)


def test_a_figure_of_the_paper_runs_its_protocols_each_in_a_folder(tiny, experiment, tmp_path, monkeypatch):
    item = replace(protocols.PAPER["figure8"], protocols=("zebrafish",))
    monkeypatch.setitem(protocols.PAPER, "figure8", item)
    finished = experiment("figure8", "-o", tmp_path / "out")
    assert "### Inner layers" in finished.out
    folder = tmp_path / "out" / "zebrafish"
    rows = json.loads((folder / "results.json").read_text())["rows"]
    layers = [row["model"] for row in rows if row["part"] == "inner"]
    assert layers[0] == "DF, level 1"
    assert layers[-1] == "ConvNet, output"
    assert (folder / "figures" / "inner-layers.png").exists()
    assert_refused(experiment("table1", "-o", tmp_path / "other", "--part", "own"), "--part")


def test_inner_layers_need_the_network_that_they_are_of(tiny, tmp_path):
    with pytest.raises(InputError, match="run that part too"):
        run(tmp_path / "out", parts=["inner"])
