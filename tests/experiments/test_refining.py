"""The experiment that says what refinement gains: its scores are those by hand, of the images that it was told."""

import json
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import hedgerow as hr
from conftest import draw
from hedgerow.config import RefineConfig, StackConfig
from hedgerow.experiments import refining
from hedgerow.experiments.data import ImageSet, halved
from hedgerow.progress import silent
from helpers.files import write
from helpers.refinements import SHORT, assert_same_weights, record
from helpers.refusals import assert_refused

TRAIN, TEST = ("a0", "a1", "b2", "b3"), ("c4", "c5")


def noisy(seed):
    """A drawn image that forests grown on others mistake in places, and its labels."""
    image, labels = draw(seed)
    noise = np.random.default_rng(seed).normal(0, 80, image.shape)
    return (image + noise).clip(0, 255).astype(np.uint8), labels


@pytest.fixture(scope="module")
def sets(example):
    """The training images, of which two are the example's, and the test images."""
    more, test = ([noisy(seed) for seed in seeds] for seeds in ((2, 3), (4, 5)))
    train = ImageSet([*example.images, *(i for i, _ in more)], [*example.labels, *(label for _, label in more)])
    return train, ImageSet([image for image, _ in test], [labels for _, labels in test])


@pytest.fixture
def folder(listed_place, sets):
    """The same images in files, listed, and short settings."""
    for stems, part in zip((TRAIN, TEST), sets, strict=True):
        for stem, image, labels in zip(stems, part.images, part.labels, strict=True):
            write(listed_place / "images" / f"{stem}.png", image)
            write(listed_place / "labels" / f"{stem}.png", labels.astype(np.uint8))
    (listed_place / "train.txt").write_text("\n".join(TRAIN))
    (listed_place / "test.txt").write_text("\n".join(TEST))
    SHORT.write(listed_place / "short.toml")
    return listed_place


def by_hand(train, test, stack_config, config, split):
    """The refined network, and the scores that `compare` is to find."""
    stack = hr.fit_stack(train.images, train.labels, stack_config, progress=silent)
    net = hr.to_convnet(stack, split)
    refined = hr.refine(net, train.images, train.labels, config, progress=silent)
    scores = {}
    for what, model in (("stack", stack), ("mapped", net), ("refined", refined)):
        found = hr.evaluate(model, test.images, test.labels, progress=silent)
        scores[what] = round(found.mean_dice, 4)
        scores[f"{what}_balanced_accuracy"] = round(found.balanced_accuracy, 4)
    return scores, refined


def half(whole, depth=False):
    """The images and labels of a set at half resolution."""
    return ImageSet([halved(image, depth) for image in whole.images], [labels[::2, ::2] for labels in whole.labels])


def without_seconds(result):
    return {name: value for name, value in result.items() if not name.endswith("_s")}


@pytest.mark.parametrize("split", ["soft", "tanh", "crelu"])
def test_scores_are_those_by_hand(sets, tiny_config, split):
    config = replace(SHORT, seed=2)
    result, net = refining.compare(*sets, tiny_config, config, split)
    expected, refined = by_hand(*sets, tiny_config, config, split)
    assert len(set(expected.values())) == 6, "scores that are all different cannot be mistaken for each other"
    assert without_seconds(result) == {"seed": 2, "split": split, "steps": SHORT.n_steps, **expected}
    assert all(0 <= result[name] < 60 for name in ("grow_s", "refine_s"))
    assert net.split == split
    assert_same_weights(net, refined)


def test_splits_are_soft_unless_told(sets, tiny_config):
    result, net = refining.compare(*sets, tiny_config, replace(SHORT, n_steps=1))
    assert result["split"] == net.split == "soft"


def test_test_images_only_score(sets, tiny_config):
    train, test = sets
    result, net = refining.compare(train, test, tiny_config, SHORT)
    other, same = refining.compare(train, ImageSet(test.images[:1], test.labels[:1]), tiny_config, SHORT)
    assert_same_weights(same, net)
    assert record(same) == record(net)
    assert without_seconds(other) != without_seconds(result)


def test_images_and_labels_stay_as_they_were(sets, tiny_config):
    arrays = [array for part in sets for array in (*part.images, *part.labels)]
    before = [array.copy() for array in arrays]
    refining.compare(*sets, tiny_config, SHORT)
    for array, old in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, old)


# The command


def test_the_command_prints_a_line_a_seed_and_saves_the_last_network(folder, sets, experiment):
    """At half resolution, to be quick."""
    options = ("--half", "--config", folder / "short.toml", "--seeds", 1, 0, "--split", "tanh")
    finished = experiment(refining.main, folder, *options, "--save", folder / "net.hedge")
    assert finished.code == 0, finished.err
    lines = [without_seconds(json.loads(line)) for line in finished.out.splitlines()]
    about = {"data": str(folder), "split": "tanh", "steps": SHORT.n_steps}
    for line, seed in zip(lines, (1, 0), strict=True):
        expected, refined = by_hand(*map(half, sets), StackConfig(seed=seed), replace(SHORT, seed=seed), "tanh")
        assert line == {**about, "seed": seed, **expected}
    assert lines[0] != {**lines[1], "seed": 1}
    saved = hr.load(folder / "net.hedge")
    assert_same_weights(saved, refined)
    assert RefineConfig.from_dict(record(saved)["config"]) == replace(SHORT, seed=0)


@pytest.fixture
def compared(monkeypatch):
    """What the command gives to `compare`, which does nothing."""
    given = []
    monkeypatch.setattr(refining, "compare", lambda *arguments: given.append(arguments) or ({"score": 1}, None))
    return given


def chosen(whole, numbers):
    return ImageSet([whole.images[i] for i in numbers], [whole.labels[i] for i in numbers])


def assert_same_images(found, expected):
    for mine, its in ((found.images, expected.images), (found.labels, expected.labels)):
        assert len(mine) == len(its)
        for array, one in zip(mine, its, strict=True):
            np.testing.assert_array_equal(array, one)


def test_settings_are_the_defaults_unless_given(folder, sets, experiment, compared):
    finished = experiment(refining.main, folder)
    assert json.loads(finished.out) == {"data": str(folder), "score": 1}
    ((train, test, stack_config, config, split),) = compared
    for found, expected in zip((train, test), sets, strict=True):
        assert_same_images(found, expected)
    assert (stack_config, config, split) == (StackConfig(), RefineConfig(), "soft")
    assert not list(folder.glob("*.hedge"))


@pytest.mark.parametrize(
    ("options", "training", "scoring"),
    [
        (("--every", 2), [0, 2], None),
        (("--every", 3), [0, 3], None),
        (("--develop",), [0, 1, 2], [3]),
        (("--every", 2, "--develop"), [0], [2]),
    ],
    ids=str,
)
def test_images_are_chosen_as_told(folder, sets, experiment, compared, options, training, scoring):
    if scoring is not None:
        (folder / "test.txt").unlink()  # where settings are chosen, nobody looks at the test images
    finished = experiment(refining.main, folder, *options)
    assert finished.code == 0, finished.err
    train, test = sets
    ((found, scored, *_),) = compared
    assert_same_images(found, chosen(train, training))
    assert_same_images(scored, test if scoring is None else chosen(train, scoring))


@pytest.mark.parametrize("depth", [False, True])
def test_images_may_be_halved_and_of_depth(folder, sets, experiment, compared, depth):
    options = ("--half", "--seeds", 4, 5, *(("--depth-images",) if depth else ()))
    finished = experiment(refining.main, folder, *options)
    assert finished.code == 0, finished.err
    assert len(finished.out.splitlines()) == 2
    for (*parts, stack_config, config, _), seed in zip(compared, (4, 5), strict=True):
        for found, whole in zip(parts, sets, strict=True):
            assert_same_images(found, half(whole, depth))
        expected = StackConfig.kinect(held_out="folds", seed=seed) if depth else StackConfig(seed=seed)
        assert stack_config == expected
        assert config == RefineConfig(seed=seed)


def test_drawn_bodies_are_depth_images(experiment, compared, monkeypatch):
    asked = []
    monkeypatch.setattr(refining, "load_set", lambda *arguments: asked.append(arguments) or ImageSet([], []))
    assert experiment(refining.main, "bodies").code == 0
    assert asked == [("bodies", "train", False, True), ("bodies", "test", False, True)]
    assert compared[0][2].features == "depth"


@pytest.mark.parametrize(
    ("settings", "options", "words"),
    [
        ("", ("--config", "none.toml"), ["none.toml"]),
        ("n_steps = 0", (), ["n_steps", "0"]),
        ("n_stepps = 3", (), ["n_stepps"]),
        ("trim = true", (), ["trim", "depth"]),
        ("leaf_l1 = 0.1", (), ["leaf_l1", "'soft'"]),
        ("", ("--seeds", -1), ["seed", "-1"]),
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_refused_in_one_sentence(folder, experiment, settings, options, words):
    (folder / "own.toml").write_text(settings)
    finished = experiment(refining.main, folder, "--half", "--config", folder / "own.toml", *options)
    assert_refused(finished, *words)
    assert finished.out == ""


@pytest.mark.parametrize("part", ["train", "test"])
@pytest.mark.parametrize("what", ["no list", "absent image", "no image"])
def test_lists_that_cannot_be_are_refused_in_one_sentence(folder, experiment, part, what):
    listing = folder / f"{part}.txt"
    if what == "no list":
        listing.unlink()
    else:
        listing.write_text("" if what == "no image" else "a0 absent")
    quick = ("--half", "--config", folder / "short.toml")
    words = [listing, *{"absent image": ["absent"], "no image": ["is empty"], "no list": []}[what]]
    finished = experiment(refining.main, folder, *quick)
    assert_refused(finished, *words)
    assert finished.out == ""


def test_a_network_that_cannot_be_saved_is_refused_in_one_sentence(folder, experiment):
    options = ("--half", "--config", folder / "short.toml", "--save", folder / "none" / "net.hedge")
    finished = experiment(refining.main, folder, *options)
    assert_refused(finished, folder / "none")
    assert finished.out == ""


def test_a_refinement_that_diverges_is_refused_in_one_sentence(folder, experiment):
    RefineConfig(n_steps=20, check_every=5, optimiser="sgd", learning_rate=1e3).write(folder / "wild.toml")
    assert_refused(experiment(refining.main, folder, "--config", folder / "wild.toml"), "learning rate", "1000")


@pytest.mark.parametrize("options", [("--split", "hard"), ("--every", "often"), ("--seeds",)], ids=str)
def test_options_of_another_kind_are_refused(folder, experiment, options):
    finished = experiment(refining.main, folder, *options)
    assert finished.code == 2
    assert options[0] in finished.err.splitlines()[-1]
    assert finished.out == ""
