"""The parts of an experiment: their scores are those by hand, of the images and settings that they were told."""

import json
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import hedgerow as hr
from conftest import draw
from experiments import parts, protocols, runner
from experiments.choices import VARIANTS
from experiments.parts import ON_REQUEST, PARTS, SLOW, USUAL
from hedgerow.config import RefineConfig, StackConfig
from hedgerow.forest.samples import hold_out
from hedgerow.images.labelled import LabelledSet
from hedgerow.predict.evaluate import labelled_for
from hedgerow.progress import silent
from hedgerow.refinement.loop import refine_labelled
from helpers.efforts import make_small
from helpers.files import write
from helpers.refinements import SHORT, assert_same_weights
from helpers.refusals import assert_refused

TRAIN, TEST = ("a0", "a1", "b2", "b3"), ("c4", "c5")
TINY = protocols.Scale(None, None, None, 1, 3, 2, 3, 2, 2, network_sizes=(2,), best_minutes=5.0)


def noisy(seed):
    """A drawn image that forests grown on others mistake in places, and its labels."""
    image, labels = draw(seed)
    noise = np.random.default_rng(seed).normal(0, 80, image.shape)
    return (image + noise).clip(0, 255).astype(np.uint8), labels


@pytest.fixture(scope="module")
def pairs(example):
    """(image, labels) by name; the first two training images are the example's."""
    first = dict(zip(TRAIN, zip(example.images, example.labels, strict=True), strict=False))
    return first | {stem: noisy(int(stem[1])) for stem in (*TRAIN[2:], *TEST)}


@pytest.fixture
def folder(tmp_path, pairs):
    """The same images in files, listed, and short settings."""
    for stem, (image, labels) in pairs.items():
        write(tmp_path / "images" / f"{stem}.png", image)
        write(tmp_path / "labels" / f"{stem}.png", labels.astype(np.uint8))
    (tmp_path / "train.txt").write_text("\n".join(TRAIN))
    (tmp_path / "test.txt").write_text("\n".join(TEST))
    SHORT.write(tmp_path / "short.toml")
    return tmp_path


@pytest.fixture(autouse=True)
def tiny(monkeypatch, tiny_config):
    """Experiments on a folder with settings that take seconds."""
    own_refine = replace(protocols.VNC.own_refine, check_every=1, pixels=200)
    small = replace(protocols.VNC, own_stack=tiny_config, own_refine=own_refine, scales={"small": TINY})
    monkeypatch.setitem(protocols.PROTOCOLS, "vnc", small)
    make_small(monkeypatch, parts)
    return small.scaled(TINY)


def run(folder, *parts, **options):
    """Rows by part and model."""
    options = {"data": str(folder), "say": lambda text: None, "progress": silent, **options}
    found = runner.run_experiment("vnc", folder / "out", parts=parts, **options)
    return {(row["part"], row["model"]): row for row in found["rows"]}


def columns(pairs, stems):
    """Images and labels."""
    return [pairs[stem][0] for stem in stems], [pairs[stem][1] for stem in stems]


def by_hand(train, stack_config, config, split="soft"):
    """Stack and network, mapped and refined."""
    stack = hr.fit_stack(*train, stack_config, groups="none", progress=silent)
    net = hr.to_convnet(stack, split)
    # A part of the images, which the forests know, is kept from the refinement.
    kept, _ = hold_out(labelled_for(net, *train), config.held_out, config.seed)
    labelled = LabelledSet(kept, net.classes, net.unlabelled)
    return stack, net, refine_labelled(net, labelled, replace(config, held_out=0.0), progress=silent)


def assert_scores(rows, part, models, test):
    for name, model in models.items():
        scores, row = hr.evaluate(model, *test, progress=silent), rows[part, name]
        assert (row["mean_dice"], row["balanced_accuracy"]) == (scores.mean_dice, scores.balanced_accuracy), name


@pytest.mark.parametrize(("part", "split"), [("own", "soft"), ("tanh", "tanh"), ("crelu", "crelu")])
def test_own_models_have_the_scores_by_hand(folder, pairs, tiny, part, split):
    train, test = columns(pairs, TRAIN), columns(pairs, TEST)
    rows = run(folder, part, refine=SHORT, seeds=(2,))
    stack, net, refined = by_hand(train, replace(tiny.own_stack, seed=2), replace(SHORT, seed=2), split)
    back = {
        "MB1": hr.to_forest(refined, method="weights"),
        "MB2": hr.to_forest(refined, train[0], "leaf_mean", progress=silent),
        "fitted": hr.to_forest(refined, train[0], "fitted", progress=silent),
    }
    if split == "soft":
        back["soft"] = hr.to_forest(refined, method="soft", tolerance=1e-3)
    assert_scores(rows, part, {"DF": stack, "mapped": net, "ConvNet": refined, **back}, test)
    assert_same_weights(hr.load(folder / "out" / "models" / f"{part}-ConvNet-2.hedge"), refined)
    said = [refined.predict(image) for image in test[0]]
    for name, forest in back.items():
        differs = [np.mean(forest.predict(image) != one) for image, one in zip(test[0], said, strict=True)]
        assert rows[part, name]["differs"] == pytest.approx(np.mean(differs))
    assert rows[part, "MB1"]["differs"] > 0
    assert "differs" not in rows[part, "DF"]


def test_the_table_of_costs_tells_how_often_a_forest_differs(folder):
    rows = run(folder, "own", refine=SHORT)
    line = next(line for line in (folder / "out" / "tables.md").read_text().splitlines() if line.startswith("| MB2 |"))
    assert line.endswith(f"| {rows['own', 'MB2']['differs']:.2%} |")


@pytest.mark.parametrize("stride", [1, 3])
def test_strides_are_those_of_the_refinement(folder, pairs, tiny, stride):
    part = f"stride-{stride}"
    rows = run(folder, part)
    config = replace(tiny.own_refine, stride=stride, held_out=0.0)
    stack, _, refined = by_hand(columns(pairs, TRAIN), tiny.own_stack, config)
    assert_scores(rows, part, {"DF": stack, "ConvNet": refined}, columns(pairs, TEST))
    text = (folder / "out" / "tables.md").read_text().split("### Pixels used for training")[1]
    assert f"| {stride} | {rows[part, 'DF']['mean_dice']:.3f} | {rows[part, 'ConvNet']['mean_dice']:.3f} |" in text


def test_variants_are_scored_after_each_level(folder, pairs, tiny):
    rows = run(folder, "choice-default", "choice-naive")
    train, (images, labels) = columns(pairs, TRAIN), columns(pairs, TEST)
    text = (folder / "out" / "tables.md").read_text()
    for variant, changes in (("default", {}), ("naive", {"held_out": "none"})):
        stack = hr.fit_stack(*train, replace(tiny.own_stack, **changes), groups="none", progress=silent)
        outputs = [stack.level_outputs(image, progress=silent) for image in images]
        reports = []
        for level in range(stack.n_levels):
            found = [np.array(stack.classes)[output[level].argmax(axis=0)] for output in outputs]
            dice = dice_by_hand(labels, found, stack.classes)
            assert rows[f"choice-{variant}", f"level {level + 1}"]["mean_dice"] == pytest.approx(dice)
            reports.append(f"{dice:.3f}")
        assert f"| {variant} | {' | '.join(reports)} |" in text


def dice_by_hand(labels, found, classes):
    """Mean over the classes of 2 |A and B| / (|A| + |B|)."""
    truth, said = np.stack(labels), np.stack(found)
    pairs = [((truth == value), (said == value)) for value in classes]
    return np.mean([2 * (a & b).sum() / (a.sum() + b.sum()) for a, b in pairs])


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_can_be(variant):
    config = replace(StackConfig(n_trees=3), **VARIANTS[variant])
    assert (config.n_trees, config == StackConfig(n_trees=3)) == (3, variant == "default")


def test_every_part_has_one_place():
    assert list(PARTS) == [*USUAL, *SLOW, *ON_REQUEST]


# The last quarter of the training images


def test_settings_are_chosen_without_a_look_at_the_test_images(folder, pairs, tiny):
    (folder / "test.txt").unlink()
    rows = run(folder, "own", develop=True, refine=SHORT)
    stack, net, refined = by_hand(columns(pairs, TRAIN[:3]), tiny.own_stack, SHORT)
    assert_scores(rows, "own", {"DF": stack, "mapped": net, "ConvNet": refined}, columns(pairs, TRAIN[3:]))
    assert "on the last quarter of the training images" in (folder / "out" / "tables.md").read_text()
    assert "the last quarter of the training images" in (folder / "out" / "report.html").read_text()


def test_one_training_image_cannot_be_divided(folder, experiment):
    (folder / "train.txt").write_text("a0")
    finished = experiment("vnc", "--data", folder, "-o", folder / "out", "--develop")
    assert_refused(finished, "--develop", "two")


def test_a_folder_of_results_is_for_one_kind_of_score(folder, experiment):
    command = ("vnc", "--data", folder, "-o", folder / "out", "--part", "choice-default")
    assert experiment(*command, "--develop").code == 0
    assert_refused(experiment(*command), "other settings")


# Settings from a file


def test_the_command_takes_settings_of_its_refinements(folder, pairs, tiny, experiment):
    options = ("--config", folder / "short.toml", "--seed", 1, "--part", "own")
    finished = experiment("vnc", "--data", folder, "-o", folder / "out", *options)
    assert finished.code == 0, finished.err
    saved = hr.load(folder / "out" / "models" / "own-ConvNet-1.hedge")
    assert RefineConfig.from_dict(dict(saved.refinements[-1].config)) == replace(SHORT, seed=1)
    results = json.loads((folder / "out" / "results.json").read_text())
    assert results["settings"]["hedgerow"]["refine"] == SHORT.to_dict()
    *_, refined = by_hand(columns(pairs, TRAIN), replace(tiny.own_stack, seed=1), replace(SHORT, seed=1))
    assert_same_weights(saved, refined)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (None, ["own.toml"]),
        ("n_steps = 0", ["n_steps", "0"]),
        ("n_stepps = 3", ["n_stepps"]),
        ("trim = true", ["trim", "depth"]),
        ("leaf_l1 = 0.1", ["leaf_l1", "'soft'"]),
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_refused_in_one_sentence(folder, experiment, settings, words):
    if settings is not None:
        (folder / "own.toml").write_text(settings)
    options = ("--config", folder / "own.toml", "--part", "own")
    assert_refused(experiment("vnc", "--data", folder, "-o", folder / "out", *options), *words)
    assert not list(folder.glob("out/**/*.hedge")), "forests were grown before the settings were read"


def test_a_refinement_that_diverges_is_told(folder):
    wild = RefineConfig(n_steps=20, check_every=5, optimiser="sgd", learning_rate=1e3)
    rows = run(folder, "own", refine=wild)
    assert "learning rate" in rows["own", "ConvNet"]["diverged"]
    assert "Refinement diverged in own" in (folder / "out" / "tables.md").read_text()
