"""Models, scores and settings in Jupyter: short lines, and small tables of plain HTML."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

import hedgerow as hr
from hedgerow.report import cards

VOID = {"br", "img", "meta"}


class Page(HTMLParser):
    """The text of some HTML; fails on elements that are not closed in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.text, self.kinds = [], "", set()
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.kinds.add(tag)
        assert not any(name.startswith("on") for name, _ in attributes)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += f" {data}"


def page(owner):
    """The card of an object, which must be plain and complete HTML."""
    html = owner._repr_html_()
    shown = Page(html)
    assert not shown.kinds & {"script", "style", "link", "iframe", "img", "svg"}
    assert "url(" not in html
    assert not re.search(r"[;\"]color:", html)  # the theme's, be it light or dark
    shown.text = " ".join(shown.text.split())
    return shown


@pytest.fixture
def named_stack(stack):
    return replace(stack, legend=hr.Legend({3: "<b>cell</b>", 77: "a & b"}, {200: (1, 2, 3)}))


def test_a_stack_is_one_short_line(stack):
    dice = stack.settings["held_out"][-1]["mean_dice"]
    assert repr(stack) == f"ForestStack(2 levels of 3 trees, 3 classes, 17 bank features, held-out Dice {dice:.3f})"
    assert str(stack) == repr(stack)
    forest = stack.levels[0]
    assert repr(forest) == f"Forest(3 trees, {forest.n_nodes} nodes, 3 classes)"


def test_a_network_and_what_it_maps_back_to_are_one_short_line(net, refined, example):
    n_weights = sum(weights.numel() for weights in net.parameters())
    assert repr(net) == f"StackNet(soft splits, 2 levels, {n_weights:,} weights, 3 classes)"
    steps = refined.refinements[-1].checks[-1].step
    assert repr(refined) == f"{repr(net)[:-1]}, refined for {steps} steps)"
    back = hr.to_forest(refined, method="soft")
    assert repr(back) == "ForestStack(2 levels of 3 trees, 3 classes, 17 bank features, mapped back (soft))"
    assert repr(back.levels[0]).startswith("Forest(soft splits, 3 trees, ")


def test_settings_show_what_was_changed_as_one_would_type_it():
    assert repr(hr.StackConfig()) == "StackConfig()"
    config = hr.StackConfig(n_trees=4, features=("bank", "channels"), context=hr.ContextConfig(window=9))
    assert repr(config) == ("StackConfig(n_trees=4, features=('bank', 'channels'), context=ContextConfig(window=9))")
    for settings in (config, hr.StackConfig.zebrafish(), hr.RefineConfig.kinect(), hr.RefineConfig()):
        assert eval(repr(settings), vars(hr)) == settings


def test_scores_are_one_line_and_print_as_a_table():
    scores = hr.Scores((0, 1), np.array([[90, 10], [0, 0]]))
    assert repr(scores) == (
        "Scores(mean Dice 0.4737, balanced accuracy 0.9000, accuracy 0.9000, 2 classes, 100 pixels)"
    )
    assert len(str(scores).splitlines()) == 4


def test_the_card_of_a_stack_shows_its_levels_classes_and_scores(named_stack):
    shown = page(named_stack)
    assert "ForestStack 2 levels, 3 classes" in shown.text
    for forest, score in zip(named_stack.levels, named_stack.settings["held_out"], strict=True):
        assert f"{forest.n_leaves} {forest.tree_depths.max()} {score['mean_dice']:.3f}" in shown.text
    assert "3 <b>cell</b> 77 a & b 200" in shown.text  # escaped: it was read as text
    assert "background:#010203" in named_stack._repr_html_()
    assert f"receptive field: {named_stack.receptive_field} px" in shown.text
    assert "trained on 2 images (uint8)" in shown.text


def test_a_stack_of_which_little_is_known_has_a_card(stack):
    shown = page(replace(stack, settings={"mapped_back": "<i>soft</i>"}))
    assert "held-out" not in shown.text
    assert "mapped back: <i>soft</i>" in shown.text


def test_the_card_of_a_forest_shows_its_trees(stack):
    forest = stack.levels[1]
    shown = page(forest)
    assert f"Forest 3 trees, 3 classes nodes {forest.n_nodes}" in shown.text
    counts = [len(np.unique(forest.select(np.array([tree])).leaf_index)) - 1 for tree in range(3)]
    assert f"leaves of each tree, from {min(counts)} to {max(counts)}" in shown.text
    assert forest._repr_html_().count("vertical-align:bottom") == 3  # a column each


def test_the_card_of_a_network_shows_whether_it_was_refined(net, refined):
    assert "not refined" in page(net).text
    shown, record = page(refined).text, refined.refinements[-1]
    assert f"refined for {record.checks[-1].step} steps" in shown
    if record.refined is not None:
        assert f"network refined {record.refined:.3f}" in shown
    assert f"level split neurons leaf neurons weights 1 {net.layers()[0].neurons}" in shown


def test_the_card_of_scores_has_a_bar_for_each_class():
    scores = hr.Scores((0, 5, 9), np.array([[90, 10, 0], [0, 20, 0], [0, 0, 0]]), {5: "<cell>"})
    shown = page(scores)
    assert "Scores mean Dice 0.874, accuracy 0.917" in shown.text
    assert "0 100 0.947 0.900 0.900 5 <cell> 20 0.800 0.667 1.000 9 0 – – – mean 120 0.874" in shown.text
    lengths = [int(n) for n in re.findall(r"display:block;width:(\d+)px", scores._repr_html_())]
    assert lengths == [round(cards.BAR_LENGTH * part) for part in (180 / 190, 0.8, (180 / 190 + 0.8) / 2)]


def test_the_card_of_settings_shows_what_was_changed_and_the_rest_on_request():
    config = hr.StackConfig(n_trees=4, context=hr.ContextConfig(window=9))
    html = config._repr_html_()
    assert "StackConfig 2 of 52 settings changed" in page(config).text
    first, rest = html.split("<details")
    assert "context.window" in first
    assert "<b>9</b>" in first
    assert "n_levels" not in first
    assert "n_levels" in rest
    assert "<b>" not in rest
    assert "all settings at their defaults" in page(hr.RefineConfig()).text  # whose altered copies differ from none
    assert "augment.rotation 0" in page(hr.RefineConfig.kinect()).text


def test_many_classes_and_trees_are_shown_in_part(stack):
    many = hr.Legend({value: f"class number {value}" for value in range(100)})
    shown = page(many).text
    assert "class number 29" in shown
    assert "class number 30" not in shown
    assert "and 70 more" in shown
    assert cards._columns(list(range(1000)), "").count("vertical-align:bottom") == cards.MAX_COLUMNS


def test_an_estimator_shows_its_parameters_and_its_model(stack):
    model = hr.PixelClassifier(n_trees=4)
    assert "PixelClassifier not fitted n_trees 4" in page(model).text
    model.model_ = stack
    assert "PixelClassifier fitted n_trees 4 ForestStack 2 levels" in page(model).text
