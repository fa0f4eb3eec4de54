"""The models of a project: one is shown and exported, the others stay in a list."""

import pytest

from browsing import Paint
from helpers.browsing import PLAIN, write_images

CLASSES = ((1, (20, 10), (50, 40)), (2, (20, 160), (50, 190)), (1, (100, 20), (130, 30)), (2, (100, 170), (130, 190)))


@pytest.fixture(scope="module")
def hand(chromium, open_window, tmp_path_factory):
    """A page of a project of its own, with paint of two classes and a trained model."""
    folder = tmp_path_factory.mktemp("models")
    with Paint(write_images(folder / "images"), folder / "project", before=PLAIN) as server:
        window = open_window(server)
        for place, *places in CLASSES:
            window.choose(place)
            window.stroke(*places)
        window.saved()
        shown(window, "Model: forest, 1 level, 64 trees")
        window.page.click("#train")
        shown(window, "Model: 1: forest, 1 level, 64 trees")
        yield window


def shown(hand, text):
    """Wait until the segmentation on the screen is of a model."""
    hand.until("text => document.querySelector('#overlay-model').textContent === text", text, patience=30)


def chosen(hand):
    return hand.run("document.querySelector('#models input:checked').value")


def test_a_trained_model_is_shown_and_one_stroke_does_not_lose_it(hand):
    assert chosen(hand) == "1"
    hand.choose(1)
    hand.stroke((70, 10), (75, 20))
    shown(hand, "Model: forest, 1 level, 64 trees")
    assert chosen(hand) == ""
    assert "older than the paint" in hand.page.locator(".model", has_text="model 1").inner_text()
    hand.press("Control+z")
    shown(hand, "Model: 1: forest, 1 level, 64 trees")
    hand.page.locator(".model", has_text="Follow the paint").click()
    shown(hand, "Model: forest, 1 level, 64 trees")
    hand.page.locator(".model", has_text="model 1").click()
    shown(hand, "Model: 1: forest, 1 level, 64 trees")


def test_the_model_that_is_named_is_that_of_the_image_on_the_screen(hand):
    shown(hand, "Model: 1: forest, 1 level, 64 trees")
    hand.run("hedgerow.app.show(1)")
    assert hand.page.locator("#overlay-model").inner_text() == ""
    shown(hand, "Model: 1: forest, 1 level, 64 trees")  # it segments this image, too
    hand.segmented()
    assert hand.colour("overlay", 70, 180)[3] == 255
    hand.run("hedgerow.app.show(0)")
    shown(hand, "Model: 1: forest, 1 level, 64 trees")


def test_what_is_part_of_training_already_is_not_offered(hand):
    hand.page.click("#improve")
    assert "lite0" not in hand.page.locator("#improve-dialog").inner_text()
    hand.page.keyboard.press("Escape")
