"""Settings that fit the amount of paint, and levels that do not help."""

from dataclasses import replace

import numpy as np
import pytest

import hedgerow as hr
from conftest import draw
from hedgerow.forest import default_settings
from hedgerow.forest.default_settings import labelled_fraction, settings_for
from hedgerow.images.given import labelled_set
from hedgerow.images.metrics import Scores


def strokes(labels):
    """Two rows of the labels; all else is not painted."""
    paint = np.full_like(labels, 255)
    paint[4], paint[-3] = labels[4], labels[-3]
    return paint


def test_strokes_and_full_labels_have_settings_of_their_own():
    image, labels = draw(0, size=(40, 60))
    messages = []
    few = settings_for(labelled_fraction(labelled_set([image], [strokes(labels)])), messages.append)
    assert len(messages) == 1
    assert "5.0%" in messages[0]
    assert few.sampling.step == 1
    assert few.min_split == 2
    assert few.n_trees > hr.StackConfig().n_trees
    assert (few.n_levels, few.context.window) == (1, 1), "no context"
    assert (few.opponent, hr.StackConfig().opponent) == (True, False)
    assert settings_for(labelled_fraction(labelled_set([image], [labels])), messages.append) == hr.StackConfig()
    assert len(messages) == 1


def test_strokes_on_a_colour_picture_tell_hues_of_the_same_brightness_apart():
    """The hue decides, and neither red, green nor blue alone: with opponent colours, one split does."""
    rng = np.random.default_rng(0)
    labels = np.indices((60, 80))[1] // 40
    light = rng.uniform(60, 190, (60, 80, 1))
    image = (light + np.where(labels[..., None] == 0, (2, -2, 0), (-2, 2, 0))).astype(np.uint8)
    painted = strokes(labels)
    config = settings_for(0.01, keep_features=True)
    opponent, plain = (
        hr.fit_stack(image, painted, replace(config, opponent=on, sigmas=(0.7,))) for on in (True, False)
    )
    assert hr.evaluate(opponent, image, labels).mean_dice > 0.95 > hr.evaluate(plain, image, labels).mean_dice + 0.1


@pytest.mark.parametrize("paint", [lambda labels: labels, strokes])
def test_a_pretrained_network_is_read_where_it_is_installed(monkeypatch, paint):
    monkeypatch.setattr(default_settings, "default_encoder_is_installed", lambda: True)
    image, labels = draw(0, size=(40, 60))
    labelled, messages = labelled_set([image], [paint(labels)]), []
    assert settings_for(labelled_fraction(labelled), messages.append).features == ("bank", "encoder")
    assert "pretrained network" in messages[0]
    assert "--features bank" in messages[0]
    messages.clear()
    assert settings_for(labelled_fraction(labelled), messages.append, keep_features=True).features == "bank"
    assert not any("features" in line for line in messages)


def test_layers_belong_to_their_network():
    config = hr.StackConfig(encoder=hr.EncoderConfig(layers=("s1",)))
    assert replace(config, features="encoder:lite0").encoder.layers == ("s1",)
    assert replace(config, features="bank+encoder:mobilesam").encoder == hr.EncoderConfig(name="mobilesam")


def test_without_settings_they_are_chosen_and_given_ones_stay(tiny_config):
    image, labels = draw(0, size=(40, 60))
    chosen = hr.fit_stack([image], [strokes(labels)])
    expected = settings_for(labelled_fraction(labelled_set([image], [strokes(labels)])))
    assert hr.StackConfig.from_dict(chosen.settings["config"]) == expected
    given = hr.fit_stack([image], [strokes(labels)], tiny_config)
    assert hr.StackConfig.from_dict(given.settings["config"]) == tiny_config


@pytest.mark.parametrize(
    ("dice", "n_levels"), [((0.278, 0.61, 0.362), 2), ((0.5, 0.4, 0.3), 1), ((0.3, 0.2, 0.4), 3), ((0.5, 0.5, 0.5), 1)]
)
def test_levels_after_the_best_are_left_out(example, tiny_config, monkeypatch, dice, n_levels):
    asked = []
    monkeypatch.setattr(Scores, "mean_dice", property(lambda self: asked.append(self) or dice[len(asked) - 1]))
    config = replace(tiny_config, n_levels=3, drop_levels=True)
    stack = hr.fit_stack(example.images, example.labels, config)
    assert stack.n_levels == n_levels
    assert [score["mean_dice"] for score in stack.settings["held_out"]] == list(dice)
    monkeypatch.undo()
    whole = hr.fit_stack(example.images, example.labels, replace(config, drop_levels=False))
    assert whole.n_levels == 3
    for level in range(n_levels):
        np.testing.assert_array_equal(stack.levels[level].votes, whole.levels[level].votes)


def test_without_held_out_scores_no_level_is_left_out(example, tiny_config):
    config = replace(tiny_config, n_levels=2, held_out="none", drop_levels=True)
    assert hr.fit_stack(example.images, example.labels, config).n_levels == 2


def test_an_image_is_not_reserved_if_a_class_would_be_lost(tiny_config):
    images, labels = zip(*(draw(seed) for seed in range(4)), strict=True)
    rare = [labels[0], *(np.where(one == 200, 77, one) for one in labels[1:])]
    config = replace(tiny_config, reserve=0.75)
    for seed in range(3):
        stack = hr.fit_stack(images, rare, replace(config, seed=seed))
        assert len(stack.known.reserved) == 3
        assert stack.classes == (3, 77, 200)
    with pytest.raises(hr.InputError, match="a class that no other image has"):
        hr.fit_stack(images[:2], [labels[0], np.where(labels[1] == 3, 9, labels[1])], config)
