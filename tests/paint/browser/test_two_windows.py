"""Two windows on one project, and a server that stops: both windows show it, and no stroke is lost."""

import numpy as np
import pytest

from browsing import Paint
from helpers.browsing import write_images


def test_two_windows_are_told_and_see_each_other(open_page, server):
    first = open_page(server)
    other = open_page(server)
    for each in (first, other):
        each.until("hedgerow.app.windows === 2")
    assert "Another window" in first.page.locator("#notices").inner_text()
    first.choose(2)
    first.stroke((40, 40), (60, 80))
    first.saved()
    other.until("hedgerow.stage.labels.labelAt(50, 60) !== 255")
    np.testing.assert_array_equal(first.labels(), other.labels())
    other.press("Control+z")
    first.until("hedgerow.stage.labels.labelAt(50, 60) === 255")
    first.page.close()
    other.until("hedgerow.app.windows === 1")


@pytest.fixture
def own(chromium, tmp_path):
    """A server that may be killed."""
    with Paint(write_images(tmp_path / "images", names=("a.png",)), tmp_path / "project") as running:
        yield running


def test_a_server_killed_in_the_middle_of_a_stroke_comes_back(open_page, own):
    hand = open_page(own)
    hand.choose(1)
    hand.stroke((30, 30), (60, 60))
    hand.saved()
    hand.choose(2)
    hand.stroke((90, 30), (90, 60), lift=False)
    own.kill()
    hand.page.mouse.move(*hand.place(90, 120), steps=6)
    hand.page.mouse.up()
    hand.page.wait_for_selector("#banner:not([hidden])")
    assert "connection is lost" in hand.page.locator("#banner").inner_text()
    hand.stroke((120, 40), (120, 90))  # painting continues
    assert hand.run("hedgerow.stage.labels.labelAt(120, 60)") == hand.run("hedgerow.app.classId")

    own.start()  # with another token: the printed address must be opened again
    again = open_page(own, context=hand.page.context)
    for each in (hand, again):
        each.until("hedgerow.session.outbox.open && hedgerow.session.outbox.waiting.length === 0")
    labels = hand.labels()
    first, second = hand.run("hedgerow.app.classes.map(each => each.id)")[:2]
    assert labels[45, 45] == first
    assert (labels[90, [35, 60, 90, 118]] == second).all()
    assert (labels[120, [45, 60, 85]] == second).all()
    assert hand.page.locator("#banner").is_hidden()
    again.until("hedgerow.stage.labels.labelAt(120, 60) !== 255")

    undo = hand.run("hedgerow.app.undo")
    assert undo >= 3
    hand.press("Control+z")  # the whole last stroke, though it was sent again
    hand.until("undo => hedgerow.app.undo < undo", undo)
    assert (hand.labels()[120, 45:85] == 255).all()
