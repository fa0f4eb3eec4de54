"""What people do without thinking: a click and then a key, undo in the middle of a stroke, paint under a message."""

import numpy as np
import pytest

from browsing import Paint
from helpers.browsing import PLAIN, write_images

UNPAINTED = 255


@pytest.fixture(scope="module")
def window(chromium, open_window, tmp_path_factory):
    folder = tmp_path_factory.mktemp("habits")
    with Paint(write_images(folder / "images"), folder / "project", before=PLAIN) as server:
        yield open_window(server)


@pytest.fixture
def hand(window):
    """The page at the first image without paint, with the brush."""
    window.press("Escape")
    window.run("document.querySelector('dialog[open]')?.close()")
    window.run(
        "{ const {app, stage} = hedgerow; app.setTool('brush'); app.setOverlay({mode: 'classes'});"
        " app.setRadius(6); app.show(0); stage.view.fit(); }"
    )
    while window.run("hedgerow.app.undo"):
        n = window.run("hedgerow.app.undo")
        window.run("hedgerow.session.send({do: 'undo'})")
        window.until("n => hedgerow.app.undo < n", n, patience=20)
    window.run("document.querySelector('#stage').focus()")
    window.saved()
    return window


@pytest.fixture
def segmented(hand):
    for place, start, end in ((1, (20, 10), (50, 40)), (2, (20, 160), (50, 190))):
        hand.choose(place)
        hand.stroke(start, end)
    hand.saved()
    hand.until("hedgerow.stage.overlay.results.has(0)", patience=60)
    hand.segmented()
    return hand


def focus(hand):
    return hand.run("document.activeElement.id")


def test_keys_work_after_a_click_on_a_button(hand):
    page = hand.page
    for button in ("#tool-line", "#tool-brush", "#zoom-in", "#fit", ".class-name", "[data-mode=outlines]"):
        page.locator(button).first.click()
        hand.until("document.activeElement.id === 'stage'", patience=5)
    for _ in range(2):
        page.locator("label.switch").click()
        hand.until("document.activeElement.id === 'stage'", patience=5)
    hand.press("PageDown")
    hand.until("hedgerow.app.image.id === 1", patience=5)
    hand.press("PageUp")
    page.click("#help")
    page.keyboard.press("Escape")
    hand.until("document.activeElement.id === 'stage'", patience=5)
    page.click("#zoom-in")
    before, view = hand.labels(), hand.run("hedgerow.stage.view.col")
    page.mouse.move(*hand.place(70, 100))
    page.keyboard.down("Space")
    page.mouse.down()
    page.mouse.move(400, 300, steps=3)
    page.mouse.up()
    page.keyboard.up("Space")
    assert hand.run("hedgerow.stage.view.col") != view
    np.testing.assert_array_equal(hand.labels(), before)


def test_keyboard_users_keep_their_place(hand):
    hand.run("document.querySelector('#zoom-in').focus()")
    hand.press("Enter")
    hand.page.wait_for_timeout(50)
    assert focus(hand) == "zoom-in"
    hand.page.locator(".class-name").first.dblclick()
    hand.page.get_by_label("Name of the class").wait_for()
    assert hand.run("document.activeElement.type") == "text"
    hand.press("Escape")


@pytest.mark.parametrize("key", ["Escape", "Control+z"])
def test_a_key_in_the_middle_of_a_stroke_takes_all_of_it_back(hand, key):
    hand.choose(1)
    hand.stroke((100, 20), (100, 60), lift=False)
    hand.page.wait_for_timeout(500)  # then a part of the stroke is sent
    hand.page.mouse.move(*hand.place(120, 100), steps=3)
    hand.until("hedgerow.painting.current.joins", patience=5)
    hand.press(key)
    hand.page.mouse.up()
    hand.until("hedgerow.app.undo === 0 && hedgerow.app.redo === 1", patience=10)
    hand.saved()
    assert (hand.labels() == UNPAINTED).all()


def test_undo_takes_back_a_class_before_the_stroke_before_it(hand):
    hand.choose(1)
    hand.stroke((100, 20), (100, 60))
    hand.saved()
    before, n = hand.labels(), hand.run("hedgerow.app.classes.length")
    hand.page.click("#add-class")
    hand.until("n => hedgerow.app.classes.length === n + 1", n, patience=5)
    hand.press("Escape")
    hand.run("document.querySelector('#stage').focus()")
    hand.press("Control+z")
    hand.until("n => hedgerow.app.classes.length === n", n, patience=5)
    np.testing.assert_array_equal(hand.labels(), before)
    hand.press("Control+z")
    hand.until("hedgerow.app.undo === 0", patience=5)
    assert (hand.labels() == UNPAINTED).all()


def test_undo_removes_the_last_corner_of_a_polygon(hand):
    hand.press("p")
    for corner in ((10, 80), (10, 130), (40, 130)):
        hand.page.mouse.click(*hand.place(*corner))
    hand.press("Control+z")
    assert hand.run("hedgerow.toolbox.current.corners.length") == 2
    hand.press("Escape")
    assert hand.run("hedgerow.toolbox.current.corners.length") == 0


def test_undo_down_to_one_class_removes_the_segmentation(segmented):
    hand = segmented
    assert hand.colour("overlay", 70, 20)[3] == 255
    hand.press("Control+z")
    hand.until("!hedgerow.stage.overlay.results.has(0)", patience=20)
    assert hand.colour("overlay", 70, 20)[3] == 0
    assert hand.page.locator("#overlay-panel .empty").is_visible()
    assert hand.page.locator("#overlay-model").inner_text() == ""


def test_a_large_fill_is_asked_about(hand):
    hand.run(
        "() => { const { whole } = hedgerow.painting; hedgerow.painting.whole = function (tool, points, more) {"
        " hedgerow.painting.whole = whole; return whole.call(this, tool, points, {...more, most: 1000}); }; }"
    )
    hand.press("f")
    hand.page.mouse.click(*hand.place(70, 100))
    hand.page.get_by_role("heading", name="Fill a large area?").wait_for()
    assert "30,000 pixels" in hand.page.locator("#confirm-dialog").inner_text()
    assert (hand.labels() == UNPAINTED).all()
    hand.page.get_by_role("button", name="Fill", exact=True).last.click()
    hand.saved()
    hand.until("hedgerow.app.undo === 1", patience=10)
    assert (hand.labels() != UNPAINTED).all()


def test_a_resize_in_the_middle_of_a_stroke_leaves_no_streak(hand):
    hand.choose(1)
    hand.stroke((75, 60), (75, 80), lift=False)
    hand.page.set_viewport_size({"width": 1000, "height": 560})
    hand.page.wait_for_timeout(100)
    hand.page.mouse.move(500, 300, steps=2)
    hand.page.mouse.up()
    hand.page.set_viewport_size({"width": 1100, "height": 700})
    hand.saved()
    rows, columns = np.nonzero(hand.labels() != UNPAINTED)
    assert rows.min() > 65
    assert rows.max() < 85
    assert columns.max() < 90


def test_paint_passes_under_a_message_which_leaves_though_the_mouse_is_over_it(hand):
    hand.run("hedgerow.app.notify('Something is ready, and this is a long message about it.', 'quiet')")
    box = hand.page.locator(".notice").last.bounding_box()
    hand.choose(1)
    hand.page.mouse.move(box["x"] + 20, box["y"] + 20)
    hand.page.mouse.down()
    hand.page.mouse.move(box["x"] + 60, box["y"] + 20, steps=3)
    hand.page.mouse.up()
    hand.until("hedgerow.app.undo === 1", patience=10)
    hand.until("!document.querySelector('.notice')", patience=5)


@pytest.mark.parametrize("width", [1280, 640])
def test_the_first_steps_leave_the_image_free_and_can_be_closed(hand, open_page, width):
    class Server:
        address = hand.page.url

    page = open_page(Server, hint=True, context=hand.page.context, viewport={"width": width, "height": 400}).page
    page.evaluate("localStorage.removeItem('hedgerow-hint-seen')")
    page.evaluate("document.querySelector('#hint').hidden = false")
    page.set_viewport_size({"width": width, "height": 400})
    page.evaluate("hedgerow.app.emit('classes')")
    boxes = [page.locator(part).bounding_box() for part in ("#hint", "#stage")]
    assert boxes[0]["x"] >= boxes[1]["x"] + boxes[1]["width"]
    page.close()


def test_where_next_stays_marked_skips_places_and_proposes_a_class(segmented):
    hand = segmented
    seen = set()
    for _ in range(3):
        hand.press("n")
        hand.until("n => (hedgerow.stage.marks.suggested && "
                   "![...n].includes(`${hedgerow.stage.marks.suggested.row} ${hedgerow.stage.marks.suggested.col}`))",
                   list(seen), patience=20)  # fmt: skip
        seen.add(hand.run("`${hedgerow.stage.marks.suggested.row} ${hedgerow.stage.marks.suggested.col}`"))
        assert hand.run("hedgerow.app.image.id") == 0
    assert len(seen) == 3
    hand.page.wait_for_timeout(2800)
    hand.run("hedgerow.stage.marks.redraw()")
    assert hand.run("hedgerow.stage.marks.suggested !== null")
    assert (hand.drawn("marks")[..., 3] > 0).any()
    button = hand.page.get_by_role("button", name="Probably")
    name = button.inner_text().removeprefix("Probably ")
    button.click()
    assert hand.run("hedgerow.app.paintClass.name") == name
    hand.press("Escape")
    assert hand.run("hedgerow.stage.marks.suggested") is None
    assert hand.page.locator("#callout").is_hidden()
